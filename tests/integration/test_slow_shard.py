"""A shard, or the line to it, that pauses in the middle of a reply: what has come is passed on."""

import os
import threading

import pytest
from tcp_fault import Relay
from wire import WireClient

pytestmark = [pytest.mark.timeout(120), pytest.mark.proxy_only]
KIB = 1 << 10
DOCUMENT_BYTES = 100 * KIB
DOCUMENTS = 40
PAUSE_AFTER_BYTES = 300 * KIB  # the rest of the 4 MB comes later; a worker wakes up for 256 KiB
HEARTBEAT_BYTES_MAX = 2 * KIB  # they are passed on all the time


class PausingRelay(Relay):
    """Once pause() was called: passes on a part of the next answer, and no more until resume()."""

    def __init__(self, port):
        self._left, self._resumed = None, threading.Event()
        super().__init__(port)

    def pause(self):
        self._left = PAUSE_AFTER_BYTES

    def resume(self):
        self._resumed.set()

    def _pass_on(self, sink, data, forward):
        if forward or self._left is None or len(data) < HEARTBEAT_BYTES_MAX:
            sink.sendall(data)
            return
        first, rest = data[:self._left], data[self._left:]
        self._left -= len(first)
        sink.sendall(first)
        if rest:
            assert self._resumed.wait(60)
            self._left = None
            sink.sendall(rest)


def take(client, so_far, wanted):
    """Reads on until `wanted` bytes have arrived; returns how many have."""
    while so_far < wanted:
        data = client.socket.recv(64 * KIB)
        assert data, "the proxy closed the connection"
        so_far += len(data)
    return so_far


@pytest.mark.parametrize("splice", ["always", "never"])
def test_what_came_before_the_pause_is_passed_on(make_proxy, shard_set, splice):
    with PausingRelay(shard_set.shards[0].port) as relay:
        proxy = make_proxy({"routing": {"shards": [{"name": "only", "uri": relay.uri}]},
                            "setParameter": {"spliceReplies": splice}})
        with WireClient(proxy.port) as client:
            client.command({"drop": "paused", "$db": "app"})
            for i in range(DOCUMENTS):
                document = {"_id": i, "pad": os.urandom(DOCUMENT_BYTES)}
                assert client.command({"insert": "paused", "documents": [document], "$db": "app"}).ok
            relay.pause()
            client.send_command({"find": "paused", "$db": "app"})
            arrived = take(client, 0, PAUSE_AFTER_BYTES - 16 * KIB)
            assert arrived <= PAUSE_AFTER_BYTES + 16 * KIB
            relay.resume()
            take(client, arrived, DOCUMENTS * DOCUMENT_BYTES)
