"""A thousand clients with one large insert each, on one thread; some of them stop half way.

They share one message, so that a client costs its socket alone. A refused client (by an answer or
a closed connection) tries again after a growing random pause, as drivers do under back-pressure.
"""

import random
import selectors
import socket
import struct
import time

from bench_tools import bson, op_msg, values

RETRY_BASE_S = 0.1
RETRY_DOUBLINGS_MAX = 5
SEND_BUFFER_BYTES = 64 * 1024
PIECE_BYTES = 256 * 1024


def insert_message(collection, total_bytes, doc_bytes=16_000, seed=1):
    """An insert of documents of `doc_bytes`, about `total_bytes` in all: (message, documents)."""
    source = random.Random(seed)
    documents = [bson({"_id": i, "payload": source.randbytes(doc_bytes - 34)})
                 for i in range(total_bytes // doc_bytes)]
    section = b"documents\0" + b"".join(documents)
    body = bson({"insert": collection, "ordered": True, "$db": "bench"})
    rest = b"\x01" + struct.pack("<i", len(section) + 4) + section
    message = op_msg(body)
    return struct.pack("<i", len(message) + len(rest)) + message[4:] + rest, len(documents)


class Inserter:
    def __init__(self, crowd, message, documents, stalls):
        self.crowd, self.message, self.documents = crowd, memoryview(message), documents
        self.send_end = len(message) // 2 if stalls else len(message)
        self.stalls, self.stalled, self.done = stalls, False, False
        self.refusals, self.retry_at, self.socket = 0, 0.0, None

    def connect(self):
        self.sent, self.answer, self.answered = 0, bytearray(), False
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self.socket.connect_ex(("127.0.0.1", self.crowd.port))
        both = selectors.EVENT_READ | selectors.EVENT_WRITE
        self.crowd.selector.register(self.socket, both, self)

    def hang_up(self):
        if self.socket is not None:
            self.crowd.selector.unregister(self.socket)
            self.socket.close()
            self.socket = None

    def again(self, why):
        self.hang_up()
        self.crowd.counts[why] = self.crowd.counts.get(why, 0) + 1
        if self.stalls:
            self.stalled = True  # once is enough
            return
        pause = RETRY_BASE_S * 2 ** min(self.refusals, RETRY_DOUBLINGS_MAX)
        self.refusals += 1
        self.retry_at = time.monotonic() + random.random() * pause

    def on_event(self, events):
        try:
            if events & selectors.EVENT_READ:
                data = self.socket.recv(65536)
                if not data:
                    return self.again("closed")
                self.answer += data
            if events & selectors.EVENT_WRITE:
                self.sent += self.socket.send(
                    self.message[self.sent:min(self.send_end, self.sent + PIECE_BYTES)])
        except BlockingIOError:
            pass
        except ConnectionError:
            return self.again("closed" if not self.answered else "closed after an answer")
        if self.sent == self.send_end:
            self.stalled = self.stalls
            self.crowd.selector.modify(self.socket, selectors.EVENT_READ, self)
        if not self.answered and len(self.answer) >= 4 and \
                len(self.answer) >= struct.unpack_from("<i", self.answer)[0]:
            self.answered = True
            self.take(values(bytes(self.answer), 21))

    def take(self, answer):
        if answer.get("ok") == 1.0 and "writeErrors" not in answer:
            if answer.get("n") != self.documents:
                self.crowd.counts["wrong n"] = self.crowd.counts.get("wrong n", 0) + 1
            self.crowd.acknowledged += answer.get("n", 0)
            self.done = True
            self.hang_up()
            return
        labels = ",".join(answer.get("errorLabels", {}).values())
        self.crowd.texts.add(str(answer.get("errmsg"))[:200])
        self.again(f"{answer.get('code')}" + (f" [{labels}]" if labels else ""))


class Crowd:
    """run() returns when all have succeeded and the stallers stalled, or when the time is up."""

    def __init__(self, port, messages, clients, stallers):
        self.port, self.selector = port, selectors.DefaultSelector()
        self.counts, self.texts, self.acknowledged = {}, set(), 0
        every = max(1, clients // max(1, stallers))
        self.clients = []
        for i in range(clients):
            message, documents = messages[i % len(messages)]
            stalls = stallers > 0 and i % every == 0 and i // every < stallers
            self.clients.append(Inserter(self, message, documents, stalls))

    def waiting(self):
        return [c for c in self.clients if not (c.stalled if c.stalls else c.done)]

    def run(self, time_limit_s, keep_going=lambda: True):
        deadline = time.monotonic() + time_limit_s
        for client in self.clients:
            client.connect()
        while time.monotonic() < deadline and keep_going():
            for key, events in self.selector.select(0.05):
                if key.data.socket is key.fileobj:
                    key.data.on_event(events)
            now, waiting = time.monotonic(), self.waiting()
            if not waiting:
                break
            for client in waiting:
                if client.socket is None and now >= client.retry_at:
                    client.connect()
        return {"done": sum(c.done for c in self.clients),
                "stalled": sum(c.stalled for c in self.clients if c.stalls),
                "waiting": len(self.waiting()), "acknowledged": self.acknowledged,
                "counts": dict(sorted(self.counts.items())), "texts": sorted(self.texts)}

    def idle(self, seconds):
        """Listens on; a staller whose connection ends is counted."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for key, events in self.selector.select(max(0, deadline - time.monotonic())):
                if key.data.socket is key.fileobj:
                    key.data.on_event(events)

    def close(self):
        for client in self.clients:
            client.hang_up()
        self.selector.close()
