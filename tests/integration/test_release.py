"""The heaps of a running proxy: switched by setParameter, given back by command and when cursors end."""

import time

import pytest
from proxy import routing
from wire import WireClient

pytestmark = [pytest.mark.timeout(180), pytest.mark.proxy_only]
MIB = 1 << 20
DOCUMENT_BYTES = 100_000
DOCUMENTS = 120


def memory_of(wire):
    return wire.command({"serverStatus": 1, "$db": "admin"}).document["memory"]


def wait_for(wire, done, what, seconds=30):
    end = time.monotonic() + seconds
    while not done(memory := memory_of(wire)):
        assert time.monotonic() < end, f"{what} did not come: {memory}"
        time.sleep(0.05)
    return memory


def heaps_of(proxy, wire):
    heaps = set(memory_of(wire)["heaps"])
    assert heaps == ({"system"} if proxy.sanitized else {"jemalloc", "tcmalloc"})
    return sorted(heaps)


@pytest.fixture
def proxy(make_proxy, shard_set):
    return make_proxy({"routing": routing([shard.uri for shard in shard_set])})


@pytest.fixture
def wire(proxy):
    with WireClient(proxy.port, 60) as client:
        yield client


def choose(wire, heap):
    return wire.command({"setParameter": 1, "memoryAllocator": heap, "$db": "admin"})


def fill(wire):
    """A collection on all shards whose merge must be held by the proxy."""
    wire.command({"delete": "big", "deletes": [{"q": {}, "limit": 0}], "$db": "app"})
    for start in range(0, DOCUMENTS, 40):
        documents = [{"_id": i, "pad": b"x" * DOCUMENT_BYTES} for i in range(start, start + 40)]
        reply = wire.command({"insert": "big", "documents": documents, "$db": "app"})
        assert reply.document["n"] == 40


def open_sorted(wire, batch=2):
    """The cursor, and the ids of its first batch: fewer than asked for where memory is tight."""
    reply = wire.command({"find": "big", "sort": {"_id": 1}, "batchSize": batch, "$db": "app"})
    assert reply.ok, reply.document
    cursor = reply.document["cursor"]
    return cursor["id"], [document["_id"] for document in cursor["firstBatch"]]


def drain(wire, cursor, seen):
    while cursor:
        reply = wire.command({"getMore": cursor, "collection": "big", "batchSize": 50, "$db": "app"})
        assert reply.ok, reply.document
        seen += [document["_id"] for document in reply.document["cursor"]["nextBatch"]]
        cursor = reply.document["cursor"]["id"]
    return seen


def test_who_serves_malloc_is_known(proxy, wire):
    memory = memory_of(wire)
    log = proxy.log_path.read_text()
    assert f"malloc: {memory['malloc']['library']}, buffers: " in log
    if not proxy.sanitized:
        assert memory["malloc"]["kind"] == "jemalloc"
    assert memory["allocator"]["setting"] == "auto"


def test_the_allocator_is_changed_at_run_time(proxy, wire):
    fill(wire)
    heaps = heaps_of(proxy, wire)
    for heap in heaps * 2:
        cursor, first = open_sorted(wire)
        assert choose(wire, heap).ok
        assert drain(wire, cursor, first) == list(range(DOCUMENTS))
        answer = wire.command({"getParameter": 1, "memoryAllocator": 1, "$db": "admin"})
        assert answer.document["memoryAllocator"] == heap
        assert memory_of(wire)["allocator"]["current"] == heap
    # Without a cursor no heap has anything in use but what moves this very answer.
    for heap, usage in memory_of(wire)["heaps"].items():
        assert usage["inUseBytes"] < MIB, (heap, usage)
    assert memory_of(wire)["allocator"]["switches"] >= len(heaps) - 1


@pytest.mark.parametrize("value", ["mimalloc", "", 1, None, ["jemalloc"]])
def test_wrong_allocators_are_refused(wire, value):
    before = memory_of(wire)["allocator"]
    reply = choose(wire, value)
    assert not reply.ok and "memoryAllocator" in reply.document["errmsg"]
    assert memory_of(wire)["allocator"]["current"] == before["current"]


def test_release_is_for_administration(wire):
    assert wire.command({"releaseMemory": 1, "$db": "app"}).code == 13
    reply = wire.command({"releaseMemory": 1, "$db": "admin"})
    assert reply.ok and "command" in reply.document["reasons"]
    assert reply.document["millis"] > 0


def test_release_gives_back_what_a_heap_keeps(proxy, wire):
    if proxy.sanitized:
        pytest.skip("a sanitizer keeps freed memory on purpose")
    fill(wire)
    for heap in ("jemalloc", "tcmalloc"):
        assert choose(wire, heap).ok
        drain(wire, *open_sorted(wire))
        kept = memory_of(wire)["heaps"][heap]["keptBytes"]
        reply = wire.command({"releaseMemory": 1, "$db": "admin"}).document
        after = memory_of(wire)["heaps"][heap]
        # The release after the switch, or after the load, may have been earlier.
        assert after["keptBytes"] <= min(kept, 4 * MIB)
        assert after["givenBackBytes"] > 0
        assert reply["residentAfterBytes"] > 0 and reply["longestSliceMicros"] >= 0


def test_the_end_of_cursors_releases(proxy, wire):
    fill(wire)
    before = memory_of(wire)["release"]["byReason"]
    cursor, _ = open_sorted(wire)
    reply = wire.command({"killCursors": "big", "cursors": [cursor], "$db": "app"})
    assert reply.document["cursorsKilled"] == [cursor]
    wait_for(wire, lambda memory: memory["release"]["byReason"]["kill"] > before["kill"],
             "the release after a kill")
    open_sorted(wire)
    wire.command({"setParameter": 1, "clientCursorMonitorFrequencySecs": 1, "$db": "admin"})
    wire.command({"setParameter": 1, "cursorTimeoutMillis": 1, "$db": "admin"})
    wait_for(wire, lambda memory: memory["release"]["byReason"]["expiry"] > before["expiry"],
             "the release after an expiry", 60)
    wire.command({"setParameter": 1, "cursorTimeoutMillis": 600_000, "$db": "admin"})
    before = memory_of(wire)["release"]["byReason"]
    drain(wire, *open_sorted(wire))
    # Where the machine itself is short of memory, a release for that can come first and leave too
    # little for one after the load.
    after_load = ("exhaustion", "decay", "pressure")
    wait_for(wire, lambda memory: any(memory["release"]["byReason"][reason] > before[reason] for reason in after_load)
             and all(heap["keptBytes"] < 8 * MIB for heap in memory["heaps"].values()),
             "the release after the load")
    history = memory_of(wire)["release"]["history"]
    assert [record["number"] for record in history] == sorted(record["number"] for record in history)
