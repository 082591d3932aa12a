"""Clients that fill the proxy's room for requests, and keep it filled."""

import struct
import threading
import time

from wire import OP_MSG, WireClient

MIB = 1 << 20
SIZES = (4 * MIB, MIB)
# A sender must send 32 KiB in each 2 s while others wait for room. At this rate a MiB lasts for 40 s: longer than
# two rounds of refusals, of 15 s each.
DRIP_BYTES_PER_S, DRIP_PAUSE_S = 25 * 1024, 0.25


class StalledSenders:
    """Begins large messages until a request of more than 1 MiB finds no room; then goes on sending each
    of them, slowly, until release() or the block's end. The proxy needs a memory.limit."""

    def __init__(self, port, timeout_s=30):
        self._port, self._timeout_s = port, timeout_s
        self._senders, self._stopping, self._lock = [], threading.Event(), threading.Lock()
        self.lost = None  # why a sender did not last
        self._thread = threading.Thread(target=self._drip, daemon=True)
        self._status = WireClient(port, timeout_s)

    def memory(self):
        return self._status.command({"serverStatus": 1, "$db": "admin"}).document["memory"]

    def _begin(self, size):
        sender = WireClient(self._port, self._timeout_s)
        assert sender.command({"ping": 1, "$db": "admin"}).ok  # a first message must be whole within 30 s
        sender.send_raw(struct.pack("<iiiiI", size, 1, 0, OP_MSG, 0) + bytes(4096))
        with self._lock:
            self._senders.append(sender)

    def _free(self):
        process = self.memory()["budgets"]["process"]
        return process["limitBytes"] - process["usedBytes"]

    def wait_for(self, done, what):
        end = time.monotonic() + self._timeout_s
        while not done():
            assert time.monotonic() < end, f"{what}: {self.memory()['budgets']}"
            time.sleep(0.01)

    def __enter__(self):
        try:
            self._fill()
        except BaseException:
            self.release()
            raise
        return self

    def _fill(self):
        largest = self._status.command({"hello": 1, "$db": "admin"}).document["maxMessageSizeBytes"]
        self._thread.start()
        for size in SIZES:
            while (free := self._free()) >= size * 1.25:
                self._begin(size)
                # Other requests' few bytes come and go meanwhile.
                self.wait_for(lambda bound=free - size * 3 // 4: self._free() <= bound,
                              "a sender got no room")
        # The longest message takes the reserve for waiting requests.
        self._begin(largest)
        self.wait_for(lambda: self.memory()["queues"]["requests"]["reserveUsedBytes"] >= largest,
                       "the reserve was not taken")

    def _drip(self):
        sent_at = time.monotonic()
        while not self._stopping.wait(DRIP_PAUSE_S):
            now = time.monotonic()
            drip = bytes(int(DRIP_BYTES_PER_S * (now - sent_at)))  # a busy machine may be late
            sent_at = now
            with self._lock:
                try:
                    for sender in self._senders:
                        sender.send_raw(drip)
                except OSError as error:
                    self.lost = error
                    return

    def release(self):
        """Any thread; more than once, if need be."""
        self._stopping.set()
        with self._lock:
            while self._senders:
                self._senders.pop().close()

    def __exit__(self, *_):
        self.release()
        self._thread.join()
        self._status.close()
        assert self.lost is None, self.lost
