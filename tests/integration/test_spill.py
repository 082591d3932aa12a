"""Documents of idle cursors are spilled to a file without a name and read back, completely and in order."""

import contextlib
import hashlib
import os
import signal
import subprocess
import time

import pymongo
import pytest
from proxy import Proxy, routing

pytestmark = [pytest.mark.timeout(180), pytest.mark.proxy_only]
DOCUMENTS, DOCUMENT_BYTES = 240, 100_000


def payload(number):
    """Half of it compresses, half of it does not; told by its number alone."""
    noise = b"".join(hashlib.sha512(b"%d/%d" % (number, i)).digest()
                     for i in range(DOCUMENT_BYTES // 128))
    return noise + b"spill" * (len(noise) // 5)


@contextlib.contextmanager
def spilling_proxy(binary, shard_set, folder, limit="64MiB"):
    config = {"routing": routing([shard.uri for shard in shard_set]),
              "memory": {"limit": "256MiB",
                         "spill": {"path": str(folder), "limit": limit}}}
    with Proxy(binary, config) as proxy:
        client = pymongo.MongoClient(proxy.uri, uuidRepresentation="standard")
        try:
            yield proxy, client
        finally:
            client.close()


def fill(client):
    """Over all shards: a border at every hundred."""
    collection = client.app.ranged
    collection.drop()
    for start in range(0, DOCUMENTS, 20):
        collection.insert_many([{"_id": 3 * n, "p": payload(n)} for n in range(start, start + 20)])
    return collection


def memory_of(client):
    return client.admin.command("serverStatus")["memory"]


def wait_for(client, done, what, seconds=30):
    end = time.monotonic() + seconds
    while True:
        memory = memory_of(client)
        if done(memory):
            return memory
        assert time.monotonic() < end, f"{what} did not come: {memory['spill']}, {memory['budgets']}"
        time.sleep(0.05)


def is_spilled(memory):
    spill = memory["spill"]
    return (spill["diskBytes"] > 0 and spill["memoryBytes"] == 0 and spill["queued"] == 0
            and memory["budgets"]["cursors"]["usedBytes"] == 0)


def test_idle_sorted_cursors_are_read_back_complete(binary, shard_set, tmp_path):
    folder = tmp_path / "spill"
    folder.mkdir()
    with spilling_proxy(binary, shard_set, folder) as (proxy, client):
        collection = fill(client)
        cursors = [collection.find(sort=[("_id", pymongo.ASCENDING)], batch_size=size)
                   for size in (20, 30, 40)]
        seen = [[next(cursor)] for cursor in cursors]
        for pause in range(4):
            spilled = wait_for(client, is_spilled, "the spilling")
            assert os.listdir(folder) == []
            print(f"\npause {pause}: {spilled['spill']['parkedBytes'] >> 10} KiB parked, "
                  f"{spilled['spill']['diskBytes'] >> 10} KiB in the file")
            for cursor, documents in zip(cursors, seen):
                documents.extend(next(cursor) for _ in range(45))
        for cursor, documents in zip(cursors, seen):
            documents.extend(cursor)
            assert [document["_id"] for document in documents] == [3 * n for n in range(DOCUMENTS)]
            assert all(d["p"] == payload(d["_id"] // 3) for d in documents)
        memory = wait_for(client, lambda m: m["spill"]["diskBytes"] == 0, "the end")
        spill = memory["spill"]
        assert spill["file"] and spill["parkedBytes"] == 0
        assert spill["corrupt"] == spill["readErrors"] == spill["writeErrors"] == 0
        assert 0 < spill["storedBytes"] < spill["rawBytes"] * 0.75
        assert spill["readBytes"] == spill["writtenBytes"]
        assert all(budget["usedBytes"] == 0 for name, budget in memory["budgets"].items()
                   if name in ("cursors", "spill"))


def test_nothing_is_left_behind_by_a_crash(binary, shard_set, tmp_path):
    folder = tmp_path / "spill"
    folder.mkdir()
    free_before = os.statvfs(folder).f_bavail
    with spilling_proxy(binary, shard_set, folder) as (proxy, client):
        collection = fill(client)
        cursors = [collection.find(sort=[("_id", pymongo.ASCENDING)], batch_size=80)
                   for _ in range(6)]
        for cursor in cursors:
            next(cursor)
        spilled = wait_for(client, is_spilled, "the spilling")
        # Where memory is tight, which a busy machine is enough for, shards are asked for less.
        assert spilled["spill"]["diskBytes"] > 1 << 19
        assert os.listdir(folder) == []
        process = proxy.process
        proxy.process = None  # its end is not a clean one
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert os.listdir(folder) == []
        print(f"\nblocks free before {free_before}, after {os.statvfs(folder).f_bavail}")


def test_a_full_disk_loses_no_document(binary, shard_set, tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)],
                             capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no small file system can be mounted: {mounted.stderr.strip()}")
    try:
        with spilling_proxy(binary, shard_set, folder) as (proxy, client):
            collection = fill(client)
            cursors = [collection.find(sort=[("_id", pymongo.DESCENDING)], batch_size=40)
                       for _ in range(6)]
            seen = [[next(cursor)["_id"]] for cursor in cursors]
            memory = wait_for(client, lambda m: m["spill"]["writeErrors"] > 0, "the full disk")
            assert memory["spill"]["onTmpfs"]
            for cursor, ids in zip(cursors, seen):
                for document in cursor:
                    assert document["p"] == payload(document["_id"] // 3)
                    ids.append(document["_id"])
                assert ids == [3 * n for n in reversed(range(DOCUMENTS))]
            assert "is a tmpfs" in proxy.log_path.read_text()
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_folder_of_no_use_is_refused_at_start(binary, tmp_path):
    run = subprocess.run([binary, "--canned", "1", "--set", "net.port=0",
                          "--set", f"memory.spill.path={tmp_path}/missing"],
                         capture_output=True, text=True, timeout=60)
    if "--canned is not part of this build" in run.stderr:
        pytest.skip("this build has no canned shards")
    assert run.returncode == 1
    assert f"memory.spill.path: {tmp_path}/missing: cannot be used: No such file" in run.stderr
