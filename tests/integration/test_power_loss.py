"""Clients whose machines lose power: nothing more is heard of them, neither an end nor an answer.

A socket filter on the client's own socket plays that: the kernel drops whatever arrives before TCP sees
it, so that nothing is acknowledged any more, and the socket itself stays silent.
"""

import ctypes
import socket
import struct
import time

import bson
import pymongo
import pytest
from proxy import Proxy, routing
from waiting import wait_for
from wire import WireClient

SO_ATTACH_FILTER = 26
GRACE_MS = 1000
# The proxy's sockets: keepalive after 30 s, three probes 5 s apart; TCP_USER_TIMEOUT 45 s.
NOTICED_S = 45

pytestmark = [pytest.mark.timeout(240), pytest.mark.proxy_only, pytest.mark.slow]
HELLO = {"hello": 1, "$db": "admin"}


def lose_power(sock):
    """From now on nothing that arrives is seen, nor answered."""
    drop_all = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))  # BPF_RET, 0 bytes
    program = struct.pack("HP", 1, ctypes.addressof(drop_all))
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


def test_cursors_of_machines_that_lost_power_end(binary, shard_set):
    config = {"net": {"port": 0, "bindIp": "127.0.0.1", "loadBalancerPort": 0},
              "routing": routing([shard.uri for shard in shard_set]),
              "setParameter": {"enableTestCommands": 1, "cursorOrphanGraceMillis": GRACE_MS}}
    with Proxy(binary, config) as proxy:
        watcher = pymongo.MongoClient(proxy.uri, appname="watcher")
        collection = watcher.app.ranged
        collection.drop()
        collection.insert_many([{"_id": i, "text": "x" * 50_000} for i in range(900)])
        net = watcher.admin.command("getCmdLineOpts")["parsed"]["net"]

        def status():
            return watcher.admin.command("serverStatus")

        find = {"find": "ranged", "sort": {"_id": 1}, "batchSize": 2, "$db": "app"}
        idle = WireClient(proxy.port)
        balanced = WireClient(net["loadBalancerPort"])
        reading = WireClient(proxy.port)
        for client in (idle, reading):
            assert client.command(HELLO).ok
        assert balanced.command({**HELLO, "loadBalanced": True}).ok
        cursors = [client.command(find).document["cursor"]["id"] for client in (idle, balanced, reading)]
        assert all(cursors)
        before = status()["connections"]["current"]
        open_before = status()["metrics"]["cursor"]["open"]["total"]
        lost = time.monotonic()
        lose_power(idle.socket)
        lose_power(balanced.socket)
        # A reply is on its way to this one, larger than the sockets take.
        reading.send_command({"getMore": bson.Int64(cursors[2]), "collection": "ranged",
                              "batchSize": 300, "$db": "app"})
        lose_power(reading.socket)
        time.sleep(NOTICED_S - 15)  # nothing can be known yet: a slow network looks the same
        assert status()["metrics"]["cursor"]["orphaned"] == 0
        wait_for(lambda: status()["connections"]["current"] == before - 3, "the connections' end", 45)
        wait_for(lambda: status()["metrics"]["cursor"]["open"]["total"] == open_before - 3,
                 "the cursors' end", 20)
        assert NOTICED_S - 5 <= time.monotonic() - lost <= NOTICED_S + 25
        for client in (idle, balanced, reading):
            client.close()
        watcher.close()
