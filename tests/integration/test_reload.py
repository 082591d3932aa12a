"""SIGHUP: a new configuration while serving, all of it or nothing."""

import signal

import pymongo
import pytest
from proxy import Proxy, routing
from reloaded import Reloaded
from waiting import wait_for

pytestmark = [pytest.mark.timeout(180), pytest.mark.proxy_only]
FRESH = {"ns": "app.fresh", "key": {"_id": "hashed"}}


@pytest.fixture
def proxy(binary, shard_set):
    table = routing([shard.uri for shard in shard_set])
    for shard in shard_set:
        with pymongo.MongoClient(shard.uri) as direct:
            direct.app.fresh.drop()
            direct.spillway.routing.delete_many({"_id": "app.fresh"})
    proxy = Reloaded(binary, {"routing": table}).start()
    yield proxy
    proxy.stop()


@pytest.fixture
def client(proxy):
    with pymongo.MongoClient(proxy.uri) as made:
        yield made


def holders(shard_set):
    found = []
    for shard in shard_set:
        with pymongo.MongoClient(shard.uri) as direct:
            found.append(direct.app.fresh.count_documents({}))
    return found


def test_a_collection_is_added_under_load(proxy, client, shard_set, background):
    client.app.ranged.drop()
    client.app.ranged.insert_many([{"_id": i} for i in range(900)])
    rounds = [0]

    def work(stopping, index):
        with pymongo.MongoClient(proxy.uri, retryReads=False, retryWrites=False) as own:
            while not stopping.is_set():
                assert len(list(own.app.ranged.find(batch_size=100))) == 900
                own.app.users.replace_one({"_id": index}, {"n": 1}, upsert=True)
                rounds[0] += 1

    load = background(work, threads=4)
    wait_for(lambda: rounds[0] > 20, "load")
    proxy.config["routing"]["collections"].append(FRESH)
    outcome = proxy.reload()
    assert "reloaded: routing of " in outcome
    client.app.fresh.insert_many([{"_id": i} for i in range(100)])
    counts = holders(shard_set)
    assert sum(counts) == 100 and all(counts), counts
    assert client.app.fresh.count_documents({}) == 100
    seen = rounds[0]
    wait_for(lambda: rounds[0] > seen + 20, "load afterwards")
    load.stop()
    assert client.config.collections.find_one({"_id": "app.fresh"})
    # It cannot be left out again while documents of it lie elsewhere.
    proxy.config["routing"]["collections"].pop()
    assert "app.fresh has documents on shard" in proxy.reload()
    assert client.app.fresh.count_documents({}) == 100
    client.app.fresh.drop()
    assert "reloaded: routing of " in proxy.reload()


def test_what_is_wrong_is_refused_and_the_old_stays(proxy, client, shard_set):
    client.app.fresh.insert_one({"_id": 1})
    proxy.config["routing"]["collections"].append(FRESH)
    proxy.config["systemLog"] = {"verbosity": 1}
    assert "app.fresh has documents on shard" in proxy.reload()
    assert client.admin.command("getParameter", 1, logLevel=1)["logLevel"] == 0
    assert not client.config.collections.find_one({"_id": "app.fresh"})
    assert client.app.fresh.find_one()["_id"] == 1

    proxy.config["workers"] = 3
    outcome = proxy.reload()
    assert "workers cannot be changed while the process runs" in outcome  # nor is it replaced: the routing changes
    proxy.config["routing"]["collections"].pop()
    assert client.admin.command("getParameter", 1, logLevel=1)["logLevel"] == 0

    assert "reload refused" in proxy.reload("net: {port: x}\nworker: 3\n")
    log = proxy.log()
    assert "net.port" in log and "worker" in log
    proxy.config_path.unlink()
    proxy.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "cannot be read" in proxy.log(), "the refusal")

    proxy.config["workers"] = 2
    assert "reloaded: systemLog.verbosity" in proxy.reload()
    assert client.admin.command("getParameter", 1, logLevel=1)["logLevel"] == 1
    client.app.fresh.drop()


def test_settings_are_taken_and_what_was_set_by_command_stays(proxy, client):
    def parameter(name):
        return client.admin.command("getParameter", 1, **{name: 1})[name]

    client.admin.command("setParameter", 1, cursorTimeoutMillis=5000)
    proxy.config["setParameter"].update(spliceReplies="never", cursorOrphanGraceMillis=777)
    outcome = proxy.reload()
    assert "spliceReplies" in outcome and "cursorOrphanGraceMillis" in outcome
    assert parameter("cursorOrphanGraceMillis") == 777
    assert parameter("cursorTimeoutMillis") == 5000
    assert "nothing has changed" in proxy.reload()


def test_a_log_without_a_file_is_not_opened_anew(proxy):
    proxy.process.send_signal(signal.SIGUSR1)
    wait_for(lambda: "there is no log file to open anew" in proxy.log(), "the line")
    assert "opened anew" not in proxy.log()


def test_the_log_file_is_opened_anew(binary, shard_set, tmp_path):
    path = tmp_path / "spillway.log"
    config = {"routing": routing([shard.uri for shard in shard_set]),
              "systemLog": {"destination": "file", "path": str(path), "logRotate": "reopen"}}
    with Proxy(binary, config) as proxy, pymongo.MongoClient(proxy.uri) as client:
        assert "listening on port" in path.read_text()
        path.rename(tmp_path / "old")
        proxy.process.send_signal(signal.SIGUSR1)
        wait_for(path.exists, "the new file")
        wait_for(lambda: "opened anew" in path.read_text(), "its first line")
        proxy.config_path.write_text(proxy.config_path.read_text().replace("reopen", "rename"))
        proxy.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "reloaded: systemLog.logRotate" in path.read_text(), "the reload")
        assert client.admin.command("logRotate")["ok"] == 1
        assert len(list(tmp_path.glob("spillway.log.*"))) == 1
