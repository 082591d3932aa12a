"""Drivers with loadBalanced=true, through a load balancer or straight to its port."""

import os
import signal
import subprocess
import sys

import pymongo
import pytest
from balancer import HAPROXY, HaProxy, Relay, header_v1, header_v2
from proxy import Proxy, routing
from pymongo.errors import (ConfigurationError, ConnectionFailure, OperationFailure)
from waiting import wait_for

pytestmark = [pytest.mark.timeout(180), pytest.mark.proxy_only]

# A program that opens cursors over all shards, tells how many, and waits to be killed.
PROGRAM = """
import sys, pymongo
client = pymongo.MongoClient(sys.argv[1], appname="export")
cursors = [client.app.ranged.find(sort=[("_id", 1)], batch_size=2) for _ in range(3)]
for cursor in cursors:
    next(cursor)
print(len(cursors), flush=True)
sys.stdin.read()
"""


def balanced(port):
    return f"mongodb://127.0.0.1:{port}/?loadBalanced=true"


@pytest.fixture
def proxy(binary, shard_set):
    """Orphans are left alone: what ends here ends with its connection."""
    config = {"net": {"port": 0, "bindIp": "127.0.0.1", "loadBalancerPort": 0},
              "routing": routing([shard.uri for shard in shard_set]),
              "setParameter": {"enableTestCommands": 1, "cursorOrphanGraceMillis": -1}}
    with Proxy(binary, config) as proxy:
        yield proxy


@pytest.fixture
def port(watcher):
    return watcher.admin.command("getCmdLineOpts")["parsed"]["net"]["loadBalancerPort"]


def status(watcher):
    return watcher.admin.command("serverStatus")


def use(client):
    """What an application does, over connections that the driver pins."""
    collection = client.app.ranged
    assert collection.count_documents({}) == 900
    assert [d["_id"] for d in collection.find(sort=[("_id", 1)], batch_size=50)] == list(range(900))
    assert len(list(collection.find(batch_size=70))) == 900
    many = [collection.find(batch_size=10) for _ in range(4)]
    assert sorted(d["_id"] for rows in zip(*many) for d in rows)[::4] == list(range(900))
    collection.insert_one({"_id": 1000})
    assert collection.delete_one({"_id": 1000}).deleted_count == 1
    groups = collection.aggregate([{"$group": {"_id": None, "n": {"$sum": 1}}}])
    assert next(groups)["n"] == 900


@pytest.mark.parametrize("header", [header_v1, header_v2, None])
def test_a_driver_behind_a_balancer(proxy, watcher, port, header):
    with Relay(port, header) as relay, pymongo.MongoClient(balanced(relay.port)) as client:
        use(client)
        you = client.admin.command("whatsmyuri")["you"]
        assert you in (relay.clients if header else relay.ours)
        assert status(watcher)["connections"]["loadBalanced"] == len(relay.clients) > 0
    wait_for(lambda: status(watcher)["connections"]["loadBalanced"] == 0, "the connections' end")


@pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed")
@pytest.mark.parametrize("send", ["send-proxy", "send-proxy-v2", ""])
def test_haproxy(watcher, port, tmp_path, send):
    with HaProxy(port, send, tmp_path) as haproxy, \
            pymongo.MongoClient(balanced(haproxy.port)) as client:
        use(client)


def test_straight_to_the_port(watcher, port):
    with pymongo.MongoClient(balanced(port)) as client:
        use(client)


def test_cursors_end_with_their_connections(watcher, port):
    """At once, though the same program, as far as can be told, is still connected."""
    with Relay(port, header_v2) as relay, \
            pymongo.MongoClient(balanced(relay.port), appname="export") as twin:
        kept = twin.app.ranged.find(sort=[("_id", 1)], batch_size=2)
        next(kept)
        before = status(watcher)["metrics"]["cursor"]["open"]["total"]
        program = subprocess.Popen([sys.executable, "-c", PROGRAM, balanced(relay.port)],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert program.stdout.readline().strip() == b"3"
        assert status(watcher)["metrics"]["cursor"]["open"]["total"] == before + 3
        os.kill(program.pid, signal.SIGKILL)
        program.communicate()
        wait_for(lambda: status(watcher)["metrics"]["cursor"]["open"]["total"] == before,
                 "the cursors' end", 5)
        assert status(watcher)["metrics"]["cursor"]["orphaned"] == 3
        assert [d["_id"] for d in kept] == list(range(1, 900))


def test_a_driver_that_knows_of_no_balancer_is_told(watcher, port):
    with pymongo.MongoClient(f"mongodb://127.0.0.1:{port}/", serverSelectionTimeoutMS=2000) as client:
        with pytest.raises((OperationFailure, ConnectionFailure), match="loadBalanced|load balanc"):
            client.admin.command("ping")


def test_a_driver_that_expects_a_balancer_is_told(proxy, watcher):
    with pymongo.MongoClient(balanced(proxy.port)) as client:
        with pytest.raises((OperationFailure, ConfigurationError), match="loadBalancerPort"):
            client.admin.command("ping")
