"""Cursors whose clients are gone, and cursors that give way when memory is short."""

import os
import signal
import subprocess
import sys
import time

import pymongo
import pytest
from proxy import Proxy, is_sanitized, routing
from pymongo.errors import CursorNotFound
from waiting import wait_for

pytestmark = [pytest.mark.timeout(180), pytest.mark.proxy_only]
GRACE_MS = 1500

# A program that opens cursors over all shards, tells how many, and waits to be killed.
PROGRAM = """
import sys, time, pymongo
client = pymongo.MongoClient(sys.argv[1], appname=sys.argv[2])
cursors = [client.app.ranged.find(batch_size=2) for _ in range(int(sys.argv[3]))]
for cursor in cursors:
    next(cursor)
print(len(cursors), flush=True)
sys.stdin.read()
"""


def cursors_of(client):
    return client.admin.command("serverStatus")["metrics"]["cursor"]


@pytest.fixture
def proxy(binary, shard_set):
    config = {"routing": routing([shard.uri for shard in shard_set]),
              "setParameter": {"enableTestCommands": 1, "cursorOrphanGraceMillis": GRACE_MS}}
    with Proxy(binary, config) as proxy:
        yield proxy


def start_program(proxy, name, cursors):
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, proxy.uri, name, str(cursors)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdout.readline().strip() == str(cursors).encode()
    return program


def stop_program(program):
    program.kill()
    program.wait()
    program.stdin.close()
    program.stdout.close()


def test_cursors_of_a_killed_process_end(proxy, watcher):
    before = cursors_of(watcher)
    program = start_program(proxy, "export", 5)
    assert cursors_of(watcher)["open"]["total"] == before["open"]["total"] + 5
    os.kill(program.pid, signal.SIGKILL)
    stop_program(program)
    killed = time.monotonic()
    wait_for(lambda: cursors_of(watcher)["orphaned"] == before["orphaned"] + 5, "the orphans' end")
    assert time.monotonic() - killed >= GRACE_MS / 1000
    assert cursors_of(watcher)["open"]["total"] == before["open"]["total"]


def test_a_twin_process_keeps_them(proxy, watcher):
    """Two of the same program at the same address cannot be told apart: nothing may be lost."""
    first, twin = start_program(proxy, "export", 3), start_program(proxy, "export", 2)
    stop_program(first)
    time.sleep(2 * GRACE_MS / 1000)  # the grace itself is what is looked at
    assert cursors_of(watcher)["orphaned"] == 0
    stop_program(twin)
    wait_for(lambda: cursors_of(watcher)["orphaned"] == 5, "the orphans' end")


def test_a_pool_that_shrinks_keeps_its_cursors(proxy, watcher):
    client = pymongo.MongoClient(proxy.uri, appname="pool", maxIdleTimeMS=300)
    cursor = client.app.ranged.find(sort=[("_id", 1)], batch_size=50)
    seen = [next(cursor)["_id"]]
    time.sleep(2 * GRACE_MS / 1000)
    seen += [document["_id"] for document in cursor]
    assert seen == list(range(900))
    client.close()


def test_it_can_be_switched_off(proxy, watcher):
    watcher.admin.command("setParameter", 1, cursorOrphanGraceMillis=-1)
    program = start_program(proxy, "export", 2)
    stop_program(program)
    time.sleep(2 * GRACE_MS / 1000)
    assert cursors_of(watcher)["orphaned"] == 0
    watcher.admin.command("setParameter", 1, cursorOrphanGraceMillis=0)
    wait_for(lambda: cursors_of(watcher)["orphaned"] == 2, "the orphans' end")


def test_read_ahead_is_of_use_to_a_client_that_works(proxy, watcher):
    cursor = watcher.app.ranged.find(sort=[("_id", 1)], batch_size=30)
    seen = []
    for number, document in enumerate(cursor):
        seen.append(document["_id"])
        if number % 30 == 29:
            time.sleep(0.02)  # its work
    assert seen == list(range(900))
    ahead = cursors_of(watcher)["readAhead"]
    assert ahead["started"] > 0
    assert ahead["hits"] > ahead["waits"]


def test_idle_cursors_give_way_when_memory_is_short(binary, shard_set):
    config = {"routing": routing([shard.uri for shard in shard_set]),
              "memory": {"limit": "160MiB" if is_sanitized(binary) else "96MiB", "evictIdleMillis": 300}}
    payload = os.urandom(100_000)
    with Proxy(binary, config) as proxy:
        client = pymongo.MongoClient(proxy.uri)
        collection = client.app.ranged
        collection.drop()
        for start in range(0, 120, 20):
            collection.insert_many([{"_id": 3 * n, "p": payload} for n in range(start, start + 20)])
        cursors, ended = [], 0
        # A sorted cursor holds what its shards have sent.
        deadline = time.monotonic() + 60
        while cursors_of(client)["evicted"] == 0:
            assert time.monotonic() < deadline, "nothing was evicted"
            try:
                cursor = collection.find(sort=[("_id", 1)], batch_size=40)
                next(cursor)
                cursors.append(cursor)
            except pymongo.errors.OperationFailure as error:
                assert error.code == 462, error
        for cursor in cursors:
            try:
                assert [document["_id"] for document in cursor] == [3 * n for n in range(1, 120)]
            except CursorNotFound as error:
                assert "memory was short" in str(error)
                ended += 1
            finally:
                cursor.close()
        assert ended > 0
        client.close()
