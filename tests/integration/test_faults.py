"""Shards that die or freeze under load."""

import random
import threading
import time
from collections import Counter

import pymongo
import pytest
from proxy import even_ranges, routing
from shards import ShardSet
from wire import WireClient

pytestmark = [pytest.mark.timeout(240), pytest.mark.proxy_only, pytest.mark.ferretdb_only,
              pytest.mark.slow]
CONNECT_TIMEOUT_S = 2.0
# What a request may take in the worst case: the monitor's verdict, and a slow machine.
ANSWER_LIMIT_S = CONNECT_TIMEOUT_S * 3 + 8
RECOVERY_LIMIT_S = 1.0
DOCUMENTS = 900
HURT = 1


def wait_until(condition, timeout_s, what):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)


class Load:
    """Clients that check every answer; counts per (kind, shard) what came back."""

    def __init__(self, proxy):
        self.port, self.sanitized, self.lock = proxy.port, proxy.sanitized, threading.Lock()
        self.answered, self.failed, self.hung = Counter(), Counter(), []
        self.wrong, self.acknowledged, self.longest_s = [], [], 0.0
        self.last_answer = {}

    def run(self, stopping, index):
        rng, wire, number = random.Random(index), None, 0
        while not stopping.is_set():
            number += 1
            kind = rng.choice(("point", "point", "insert", "scan"))
            key = rng.randrange(DOCUMENTS)
            shard = key // 300 if kind == "point" else "many"
            start = time.monotonic()
            try:
                if wire is None:
                    wire = WireClient(self.port, ANSWER_LIMIT_S)
                good = getattr(self, kind)(wire, key, index * 10_000_000 + number)
            except TimeoutError:
                self.hung.append((kind, shard, time.monotonic() - start))
                wire = None
                continue
            except ConnectionError:
                good, wire = False, None
            with self.lock:
                self.longest_s = max(self.longest_s, time.monotonic() - start)
                (self.answered if good else self.failed)[kind, shard] += 1
                if good:
                    self.last_answer[kind, shard] = time.monotonic()

    def point(self, wire, key, _):
        reply = wire.command({"find": "ranged", "filter": {"_id": key}, "$db": "app"})
        if reply.ok and reply.document["cursor"]["firstBatch"] != [{"_id": key, "p": f"p{key}"}]:
            self.wrong.append((key, reply.document))
        return reply.ok

    def insert(self, wire, _, number):
        reply = wire.command({"insert": "users", "documents": [{"_id": number}], "$db": "app"})
        if reply.ok and "writeErrors" not in reply.document:
            self.acknowledged.append(number)
            return True
        return False

    def scan(self, wire, *_):
        reply = wire.command({"find": "ranged", "sort": {"_id": -1}, "batchSize": 200,
                              "$db": "app"})
        seen = []
        while reply.ok:
            cursor = reply.document["cursor"]
            seen += [d["_id"] for d in cursor.get("firstBatch", cursor.get("nextBatch"))]
            if cursor["id"] == 0:
                if seen != list(range(DOCUMENTS - 1, -1, -1)):
                    self.wrong.append(("scan", len(seen)))
                return True
            reply = wire.command({"getMore": cursor["id"], "collection": "ranged",
                                  "batchSize": 200, "$db": "app"})
        return False

    def total(self, counter, shard):
        with self.lock:
            return sum(n for (_, where), n in counter.items() if where == shard)


@pytest.fixture
def hurt(make_proxy, background):
    with ShardSet("ferretdb", 3) as shards:
        uris = [f"{s.uri}?connectTimeoutMS={int(CONNECT_TIMEOUT_S * 1000)}" for s in shards]
        table = routing(uris)
        for entry in table["collections"]:
            if entry["ns"] == "app.ranged":
                entry["chunks"] = even_ranges("_id", [300, 600], [s.name for s in shards])
        proxy = make_proxy({"routing": table})
        with pymongo.MongoClient(proxy.uri) as client:
            client.app.ranged.insert_many([{"_id": i, "p": f"p{i}"} for i in range(DOCUMENTS)])
        load = Load(proxy)
        running = background(load.run, threads=6)
        wait_until(lambda: all(load.total(load.answered, i) > 20 for i in range(3)), 60, "warm-up")
        yield shards, proxy, load, running
        proxy.stop()


def finish(proxy, load, running):
    running.stop(ANSWER_LIMIT_S + 30)
    assert not load.hung, f"neither answered nor closed: {load.hung[:5]}"
    assert not load.wrong, f"wrong documents: {load.wrong[:3]}"
    with pymongo.MongoClient(proxy.uri) as client:
        there = [d["_id"] for d in client.app.users.find({}, {"_id": 1})]
    assert len(there) == len(set(there)), "a document is there twice"
    lost = set(load.acknowledged) - set(there)
    assert not lost, f"{len(lost)} acknowledged inserts are lost"


def others_go_on(load):
    before = [load.total(load.answered, i) for i in range(3)]
    wait_until(lambda: all(load.total(load.answered, i) > before[i] + 30
                           for i in range(3) if i != HURT), 30, "reads from the other shards")


def first_answer_after(load, since):
    """Polls for the first point read that the hurt shard answered after `since`."""
    with load.lock:
        base = load.answered["point", HURT]
    wait_until(lambda: load.answered["point", HURT] > base, 30, "recovery")
    took = time.monotonic() - since
    return took / 5 if load.sanitized else took


def test_killed_and_restarted(hurt):
    shards, proxy, load, running = hurt
    for _ in range(2):
        failed = load.total(load.failed, HURT)
        shards[HURT].kill()
        wait_until(lambda: load.total(load.failed, HURT) > failed + 3, 30, "errors of the dead one")
        others_go_on(load)
        shards[HURT].start()
        assert first_answer_after(load, time.monotonic()) <= RECOVERY_LIMIT_S
    finish(proxy, load, running)


def test_frozen_and_thawed(hurt):
    shards, proxy, load, running = hurt
    failed = load.total(load.failed, HURT)
    shards[HURT].freeze()
    try:
        wait_until(lambda: load.total(load.failed, HURT) > failed + 3, 40,
                   "errors of the frozen one")
        # With the shard known to be out of reach, clients of the others wait for nothing.
        others_go_on(load)
    finally:
        shards[HURT].thaw()
    assert first_answer_after(load, time.monotonic()) <= RECOVERY_LIMIT_S
    finish(proxy, load, running)


def test_error_of_a_dead_shard(hurt):
    """The client gets a network error in time, never the shard's own code."""
    shards, proxy, load, running = hurt
    running.stop(ANSWER_LIMIT_S + 30)
    shards[HURT].kill()
    with WireClient(proxy.port, ANSWER_LIMIT_S) as wire:
        for command in ({"find": "ranged", "filter": {"_id": 350}}, {"find": "ranged"},
                        {"insert": "ranged", "documents": [{"_id": 350.5}]},
                        {"count": "ranged", "query": {"_id": 350}}):
            start = time.monotonic()
            reply = wire.command({**command, "$db": "app"})
            errors = reply.document.get("writeErrors", [])
            code = errors[0]["code"] if errors else reply.code
            assert code in (6, 7, 89, 133, 9001), (command, reply.document)
            assert time.monotonic() - start <= ANSWER_LIMIT_S
        assert wire.command({"find": "ranged", "filter": {"_id": 10}, "$db": "app"}).ok
    shards[HURT].start()


def test_all_shards_down_and_back(hurt):
    shards, proxy, load, running = hurt
    for shard in shards:
        shard.kill()
    with WireClient(proxy.port, ANSWER_LIMIT_S) as wire:
        assert wire.command({"hello": 1, "$db": "admin"}).ok
        assert wire.command({"ping": 1, "$db": "admin"}).ok
        assert not wire.command({"find": "plain", "$db": "app"}).ok
    for shard in shards:
        shard.start()
    assert first_answer_after(load, time.monotonic()) <= RECOVERY_LIMIT_S
    finish(proxy, load, running)


def test_client_that_vanishes_in_the_middle(hurt):
    """Half-read replies and half-sent requests leave the shard connections usable."""
    _, proxy, load, running = hurt
    for i in range(60):
        wire = WireClient(proxy.port)
        wire.send_command({"find": "ranged", "batchSize": 900, "$db": "app"})
        if i % 2:
            wire.socket.recv(100)
        wire.close()
    before = load.total(load.answered, HURT)
    wait_until(lambda: load.total(load.answered, HURT) > before + 50, 30, "reads go on")
    finish(proxy, load, running)


def test_stops_cleanly_with_open_cursors(hurt):
    _, proxy, load, running = hurt
    clients = []
    for _ in range(60):  # FerretDB stops answering at about 100 open cursors
        wire = WireClient(proxy.port)
        assert wire.command({"find": "ranged", "batchSize": 2, "$db": "app"}).document[
            "cursor"]["id"]
        clients.append(wire)
    running.stop(ANSWER_LIMIT_S + 30)
    proxy.stop()  # asserts code 0
    for wire in clients:
        wire.close()
