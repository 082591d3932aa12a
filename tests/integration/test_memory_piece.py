"""A reply of 16 MB passes through in pieces: it must not raise the proxy's memory."""

import os
import struct
import threading
import time

import bson
import pytest
from proxy import routing
from wire import WireClient

pytestmark = [pytest.mark.timeout(120), pytest.mark.proxy_only]
MIB = 1 << 20
RISE_LIMIT_BYTES = 1 * MIB
DOCUMENT_BYTES = MIB - 4096
DOCUMENTS = 15


class Sampler:
    """The highest resident size of a process while the block runs, by the kernel's exact sum."""

    def __init__(self, proxy):
        self._proxy, self._done = proxy, threading.Event()
        self.peak_bytes, self.samples = 0, 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self._done.is_set():
            self.peak_bytes = max(self.peak_bytes, self._proxy.rss_bytes())
            self.samples += 1
            time.sleep(0.001)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()


def read_slowly(wire, pause_s):
    """Reads one reply in small sips; returns its bytes without the header."""
    length = struct.unpack("<i", wire.socket.recv(4, 0x100))[0]  # MSG_WAITALL
    data = bytearray(length - 4)
    view, got = memoryview(data), 0
    while got < len(view):
        count = wire.socket.recv_into(view[got:got + 64 * 1024])
        assert count, "closed in the middle"
        got += count
        time.sleep(pause_s)
    return data[12:]


@pytest.mark.parametrize("pause_s", [0, 0.003], ids=["fast_reader", "slow_reader"])
def test_reply_of_16_mb(make_proxy, shard_set, pause_s):
    proxy = make_proxy({"routing": routing([shard.uri for shard in shard_set]), "workers": 1})
    if proxy.sanitized:
        pytest.skip("a sanitizer's own memory hides the proxy's")
    payload = os.urandom(DOCUMENT_BYTES)
    with WireClient(proxy.port, 60) as wire:
        for name in ("small", "large"):
            wire.command({"drop": name, "$db": "app"})
        for i in range(8):
            wire.command({"insert": "small", "$db": "app",
                          "documents": [{"_id": i, "p": payload[:60_000]}]})
        for i in range(DOCUMENTS):
            reply = wire.command({"insert": "large", "$db": "app",
                                  "documents": [{"_id": i, "p": payload}]})
            assert reply.ok, reply.document
    find_small = {"find": "small", "batchSize": 100, "$db": "app"}
    find_large = {"find": "large", "batchSize": DOCUMENTS, "singleBatch": True, "$db": "app"}

    # A fresh process, so that memory left over from the inserts hides nothing. The warm-up
    # streams half a megabyte at a time: were replies held whole, 16 MB would still show.
    proxy.stop()
    proxy.start()
    with WireClient(proxy.port, 60) as wire:
        for _ in range(40):
            assert wire.command({"find": "small", "limit": 1, "$db": "app"}).ok
            assert wire.command(find_small).ok
        before = proxy.rss_bytes()
        with Sampler(proxy) as sampler:
            for _ in range(3):
                wire.send_command(find_large)
                body = read_slowly(wire, pause_s)
        assert len(body) > 15 * 1_000_000
        documents = bson.decode(body[5:])["cursor"]["firstBatch"]
        assert [d["_id"] for d in documents] == list(range(DOCUMENTS))
        assert all(d["p"] == payload for d in documents)
        rise = sampler.peak_bytes - before
        print(f"\nresident {before >> 10} KiB, rise {rise >> 10} KiB, {sampler.samples} samples")
        assert sampler.samples > 20
        assert rise <= RISE_LIMIT_BYTES
