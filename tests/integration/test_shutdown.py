"""How the proxy goes: announced to clients, nothing cut short, nothing left on shards."""

import re
import resource
import signal
import socket
import subprocess
import threading
import time

import pymongo
import pytest
from admin_port import ask
from proxy import Proxy, routing
from pymongo import monitoring
from pymongo.errors import AutoReconnect
from waiting import wait_for
from wire import EXHAUST_ALLOWED, WireClient

pytestmark = [pytest.mark.timeout(180), pytest.mark.proxy_only]
HELLO = {"hello": 1, "$db": "admin"}


def shard_metrics(shard_set):
    found = []
    for shard in shard_set:
        with pymongo.MongoClient(shard.uri) as client:
            found.append(client.admin.command("serverStatus")["metrics"])
    return found


def open_cursors(metrics):
    return sum(each["cursor"]["open"]["total"] for each in metrics)


def kills(metrics):
    """killCursors commands: FerretDB counts commands, not cursors."""
    return [each["commands"].get("killCursors", {}).get("total", 0) for each in metrics]


class Watch(monitoring.ServerHeartbeatListener):
    """When the driver's monitor was told, and what."""

    def __init__(self):
        self.told_at, self.error = None, None

    def started(self, event):
        pass

    def succeeded(self, event):
        pass

    def failed(self, event):
        if self.told_at is None:
            self.told_at, self.error = time.monotonic(), event.reply


@pytest.fixture
def proxy(binary, shard_set):
    proxy = Proxy(binary, {"routing": routing([shard.uri for shard in shard_set])}).start()
    yield proxy
    proxy.stop()


def fill(proxy):
    with pymongo.MongoClient(proxy.uri) as client:
        client.app.ranged.drop()
        client.app.ranged.insert_many([{"_id": i} for i in range(900)])


def terminate(proxy):
    proxy.process.send_signal(signal.SIGTERM)
    return time.monotonic()


def test_a_driver_learns_at_once_and_nothing_is_cut(proxy, shard_set, background):
    fill(proxy)
    watch = Watch()
    client = pymongo.MongoClient(proxy.uri, event_listeners=[watch], heartbeatFrequencyMS=10000,
                                 serverSelectionTimeoutMS=500, retryReads=False,
                                 retryWrites=False)
    client.admin.command("ping")
    lost, done = [], [0]
    slow = threading.Event()

    def work(stopping, index):
        while not stopping.is_set():
            try:
                found = list(client.app.ranged.find({"_id": {"$gte": 100 * index}}))
                assert len(found) == 900 - 100 * index
                done[0] += 1
            except pymongo.errors.ServerSelectionTimeoutError:
                return  # told: nothing was sent
            except AutoReconnect as error:
                lost.append(error)
                return
            slow.wait(0.001)

    workers = background(work, threads=6)
    wait_for(lambda: done[0] > 50, "work")
    told = terminate(proxy)
    wait_for(lambda: watch.told_at is not None, "the news")
    assert watch.told_at - told < 0.5
    assert "quiesce" in str(watch.error), watch.error
    workers.stop()
    assert not lost, lost[0]
    code = proxy.process.wait(20)
    assert code == 0
    client.close()


def test_cursors_on_the_shards_end_with_it(proxy, shard_set, shard_kind):
    fill(proxy)
    before = shard_metrics(shard_set)
    client = pymongo.MongoClient(proxy.uri)
    cursors = [client.app.ranged.find(batch_size=2) for _ in range(5)]
    for cursor in cursors:
        next(cursor)
    during = shard_metrics(shard_set)
    terminate(proxy)
    assert proxy.process.wait(20) == 0
    after = shard_metrics(shard_set)
    if shard_kind == "javaserver":
        assert open_cursors(during) > open_cursors(before)
        assert open_cursors(after) == open_cursors(before)
    else:
        assert kills(during) == kills(before)
        assert all(now > then for now, then in zip(kills(after), kills(before)))
    client.close()


def test_old_connections_are_served_until_the_announcement_ends(binary, shard_set):
    config = {"routing": routing([shard.uri for shard in shard_set]),
              "setParameter": {"mongosShutdownTimeoutMillisForSignaledShutdown": 2000}}
    with Proxy(binary, config) as proxy, WireClient(proxy.port) as monitor, \
            WireClient(proxy.port) as worker:
        version = monitor.command(HELLO).document["topologyVersion"]
        assert worker.command({"ping": 1, "$db": "admin"}).ok
        monitor.send_command({**HELLO, "topologyVersion": version, "maxAwaitTimeMS": 10000},
                             flags=EXHAUST_ALLOWED)
        told = terminate(proxy)
        news = monitor.receive()
        assert time.monotonic() - told < 0.5
        assert news.code == 91
        assert news.document["topologyVersion"]["counter"] == version["counter"] + 1
        assert 0 < news.document["remainingQuiesceTimeMillis"] <= 2000
        assert news.flags == 0
        with WireClient(proxy.port) as late:
            assert late.command(HELLO).code == 91
            assert late.command({"find": "ranged", "limit": 1, "$db": "app"}).ok
        assert worker.command({"ping": 1, "$db": "admin"}).ok
        assert proxy.process.wait(10) == 0
        assert 1.9 < time.monotonic() - told < 6
        with pytest.raises(ConnectionError):
            worker.command({"ping": 1, "$db": "admin"})


def test_a_second_signal_does_not_wait(proxy):
    with WireClient(proxy.port) as worker:
        assert worker.command({"ping": 1, "$db": "admin"}).ok
        terminate(proxy)
        with WireClient(proxy.port) as late:
            wait_for(lambda: late.command(HELLO).code == 91, "the announcement", 5)
        again = terminate(proxy)
        assert proxy.process.wait(5) == 0
        assert time.monotonic() - again < 2


def test_the_shutdown_command(proxy):
    client = pymongo.MongoClient(proxy.uri)
    with pytest.raises(AutoReconnect):
        client.admin.command("shutdown", timeoutSecs=1)
    assert proxy.process.wait(10) == 0
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", proxy.port)) != 0
    client.close()


def test_it_ends_while_it_waits_for_config_servers(binary, tmp_path):
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))  # nothing listens
    path = tmp_path / "spillway.yaml"
    path.write_text(f"net: {{port: 0, bindIp: 127.0.0.1, admin: {{port: 0}}}}\n"
                    f"sharding: {{configDB: 'cfg/127.0.0.1:{closed.getsockname()[1]}'}}\n")
    with subprocess.Popen([binary, "--config", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:
        try:
            admin_port = int(re.search(r":(\d+)/", process.stdout.readline())[1])
            for line in process.stderr:
                assert "not every shard" not in line
                if "waiting for the config servers" in line:
                    break
            waits = "starting: waiting for the config servers: "
            wait_for(lambda: ask(admin_port, "/readyz")[1].startswith(waits), "the reason")
            process.send_signal(signal.SIGHUP)
            assert "received signal 1: it is taken when the start has ended" in process.stderr.readline()
            process.send_signal(signal.SIGTERM)
            rest = process.stderr.read()
            assert process.wait(60) == 0
            assert "asked to end before it serves" in rest and "stopped" in rest
        finally:
            process.kill()
            closed.close()


def test_a_start_that_hangs_ends_at_the_third_signal(binary, tmp_path):
    silent = socket.create_server(("127.0.0.1", 0))
    path = tmp_path / "spillway.yaml"
    path.write_text(f"net: {{port: 0, bindIp: 127.0.0.1, admin: {{port: 0}}}}\n"
                    f"routing: {{shards: [{{name: a, uri: 'mongodb://127.0.0.1:{silent.getsockname()[1]}/'}}]}}\n")
    with subprocess.Popen([binary, "--config", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:
        try:
            process.stdout.readline()
            for said in ("asked to end before it serves", "the remaining clients are closed now"):
                process.send_signal(signal.SIGTERM)
                assert any(said in line for line in process.stderr), said
            process.send_signal(signal.SIGTERM)
            assert "the process ends now" in process.stderr.read()
            assert process.wait(60) == 1
        finally:
            process.kill()
            silent.close()


def test_a_start_that_fails_among_its_workers_says_why(binary, tmp_path):
    path = tmp_path / "spillway.yaml"
    path.write_text("workers: 64\nnet: {port: 0, bindIp: 127.0.0.1}\n"
                    "routing: {shards: [{name: a, uri: 'mongodb://127.0.0.1:1/'}]}\n")

    def few_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    ended = subprocess.run([binary, "--config", path], preexec_fn=few_files, capture_output=True, text=True,
                           timeout=60)
    assert ended.returncode == 1
    assert re.search("^spillway: .*Too many open files", ended.stderr, re.M), ended.stderr
