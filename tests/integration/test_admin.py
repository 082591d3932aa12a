"""The admin port: metrics under load, health, readiness while draining and with dead shards."""

import re
import signal
import socket

import pymongo
import pytest
from admin_port import admin_port, ask, scrape
from proxy import routing
from shards import ShardSet
from waiting import wait_for
from wire import WireClient

pytestmark = [pytest.mark.proxy_only, pytest.mark.ferretdb_only, pytest.mark.timeout(180)]
HINT = "; `spillway doctor` with the same options says why\n"
ADMIN = {"port": 0, "bindIp": "127.0.0.1", "admin": {"port": 0}}


@pytest.fixture
def watched(make_proxy, shard_set):
    return make_proxy({"routing": routing([shard.uri for shard in shard_set]), "net": ADMIN})


def number_at(status, path):
    for name in path.split("."):
        status = status[name]
    return status


def test_metrics_grow_under_load_and_agree_with_server_status(watched, background):
    port = admin_port(watched)

    def work(stopping, index):
        with pymongo.MongoClient(watched.uri) as client:
            collection = client.app.ranged
            while not stopping.is_set():
                collection.update_one({"_id": index}, {"$set": {"n": 1}}, upsert=True)
                assert collection.find_one({"_id": index})["n"] == 1
                list(collection.find({}).sort("_id", 1))
                with pytest.raises(pymongo.errors.OperationFailure):
                    client.app.command("nothing")

    load = background(work, threads=4)
    before = scrape(port)
    counters = [key for key in before if re.search(r"(_total|_count|_sum|_bucket)(\{|$)", key)]
    for _ in range(20):
        now = scrape(port)
        for key in counters:
            assert now[key] >= before[key], key
        before = now
    wait_for(lambda: scrape(port)['spillway_commands_total{command="update"}'] > 100, "load")
    load.stop()
    wait_for(lambda: scrape(port)["spillway_client_connections"] == 0, "the clients' end")
    now = scrape(port)
    finds = now['spillway_commands_total{command="find"}']
    assert now['spillway_command_duration_seconds_count{command="find"}'] == finds > 100
    assert now['spillway_command_duration_seconds_sum{command="find"}'] > 0
    assert now['spillway_inside_seconds_count{class="point"}'] > now['spillway_commands_total{command="update"}']
    assert now['spillway_inside_seconds_sum{class="point"}'] > 0
    assert sum(now[f'spillway_shard_round_trip_seconds_count{{shard="shard{i}"}}'] for i in range(3)) > finds
    assert now['spillway_errors_total{code="CommandNotFound"}'] == now["spillway_commands_unknown_total"] > 0
    with pymongo.MongoClient(watched.uri) as client:
        status = client.admin.command("serverStatus")
    for key, path in (('spillway_operations_total{type="query"}', "opcounters.query"),
                      ('spillway_operations_total{type="update"}', "opcounters.update"),
                      ('spillway_commands_total{command="find"}', "metrics.commands.find.total"),
                      ("spillway_commands_unknown_total", "metrics.commands.<UNKNOWN>"),
                      ("spillway_cursors_opened_total", "metrics.cursor.totalOpened"),
                      ("spillway_memory_base_bytes", "memory.baseBytes"),
                      ("spillway_memory_limit_bytes", "memory.limitBytes"),
                      ('spillway_memory_budget_limit_bytes{budget="process"}',
                       "memory.budgets.process.limitBytes"),
                      ('spillway_errors_total{code="CommandNotFound"}', "metrics.errors.CommandNotFound"),
                      ('spillway_shard_connections_created_total{shard="shard1"}',
                       "sharding.shards.shard1.connectionsCreated"),
                      ("spillway_routing_collections", "shardingStatistics.catalogCache.numCollectionEntries")):
        assert now[key] == number_at(status, path), key
    reads = status["opLatencies"]["reads"]
    assert reads["ops"] >= finds and reads["latency"] > 0


def test_a_ready_proxy_answers_its_pages_and_nothing_else(watched):
    port = admin_port(watched)
    assert ask(port, "/healthz")[:2] == (200, "alive\n")
    assert ask(port, "/readyz")[:2] == (200, "ready\n")
    assert ask(port, "/readyz", "HEAD")[:2] == (200, "")
    assert ask(port, "/")[0] == 200
    assert ask(port, "/index.html")[0] == 404
    refused = ask(port, "/metrics", "POST")
    assert refused[0] == 405 and refused[2]["Allow"] == "GET, HEAD"
    with socket.create_connection(("127.0.0.1", port), 20) as other:
        other.sendall(b"\x16\x03\x01\x02\x00\x01")
        assert other.recv(4096).startswith(b"HTTP/1.1 400 ")
    now = scrape(port)
    assert now["spillway_workers_answering"] == now["spillway_workers"] == 2
    assert now["spillway_serving"] == 1


def test_readiness_ends_when_the_drain_begins_and_the_port_when_it_is_over(make_proxy, shard_set):
    proxy = make_proxy({"routing": routing([shard.uri for shard in shard_set]), "net": ADMIN})
    port = admin_port(proxy)
    with WireClient(proxy.port, 20) as client:  # no driver: it would leave when it is told
        assert client.command({"ping": 1, "$db": "admin"}).ok
        assert ask(port, "/readyz")[0] == 200
        proxy.process.send_signal(signal.SIGTERM)
        wait_for(lambda: ask(port, "/readyz")[:2] == (503, "shutting down\n"), "the drain")
        assert ask(port, "/healthz")[:2] == (200, "alive\n")
        now = scrape(port)
        assert (now["spillway_draining"], now["spillway_serving"]) == (1, 0)
    proxy.process.wait(30)
    with pytest.raises(ConnectionRefusedError):
        ask(port, "/healthz")


@pytest.mark.slow
def test_readiness_names_shards_that_are_gone(make_proxy):
    shards = ShardSet("ferretdb", 2).start()
    try:
        table = routing([shard.uri for shard in shards])
        port = admin_port(make_proxy({"routing": table, "net": ADMIN}))
        assert ask(port, "/readyz")[:2] == (200, "ready\n")
        shards[1].kill()
        gone = "shards that cannot be reached: shard1" + HINT
        wait_for(lambda: ask(port, "/readyz")[:2] == (200, "ready\n" + gone), "the shard's end")
        assert scrape(port)['spillway_shard_reachable{shard="shard1"}'] == 0
        assert scrape(port)['spillway_shard_reachable{shard="shard0"}'] == 1
        shards[0].kill()
        both = "shards that cannot be reached: shard0, shard1" + HINT
        wait_for(lambda: ask(port, "/readyz")[:2] == (503, both), "the other's end")
        assert ask(port, "/healthz")[0] == 200
        shards[0].start()
        wait_for(lambda: ask(port, "/readyz")[:2] == (200, "ready\n" + gone), "its return")
    finally:
        shards.stop()
