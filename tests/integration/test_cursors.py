"""Cursors: order, limits, batch sizes, other connections, ends."""

import datetime
import itertools
import math
import os
import time

import bson
import pytest
from bson import Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from pymongo import ASCENDING, DESCENDING
from pymongo.errors import CursorNotFound, OperationFailure

pytestmark = pytest.mark.timeout(180)
BATCH_CAP_BYTES = 16 * 1024 * 1024


@pytest.fixture
def filled(collection):
    collection.insert_many([{"_id": i, "k": (i * 37) % 1000, "g": i % 10} for i in range(900)])
    return collection


def ids(cursor):
    return [document["_id"] for document in cursor]


@pytest.mark.parametrize("direction", [ASCENDING, DESCENDING])
def test_sorted_scan_over_many_batches(filled, direction):
    expected = sorted(range(900), key=lambda i: (i * 37) % 1000, reverse=direction < 0)
    for batch_size in (2, 7, 101, 1000):
        assert ids(filled.find().sort("k", direction).batch_size(batch_size)) == expected


def test_compound_sort(filled):
    expected = sorted(range(900), key=lambda i: (i % 10, -((i * 37) % 1000)))
    assert ids(filled.find().sort([("g", 1), ("k", -1)]).batch_size(33)) == expected


@pytest.mark.parametrize("projection", [{"_id": 1}, {"g": 1}, {"k": 0}, {"_id": 0, "g": 1}])
def test_projection_without_the_sort_key(filled, projection):
    got = list(filled.find({}, projection).sort("k", 1).batch_size(50))
    whole = [{"_id": i, "k": (i * 37) % 1000, "g": i % 10}
             for i in sorted(range(900), key=lambda i: (i * 37) % 1000)]
    if 0 in [v for key, v in projection.items() if key != "_id"]:
        expected = [{k: v for k, v in d.items() if k not in projection} for d in whole]
    else:
        keep = {k for k, v in projection.items() if v} | ({"_id"} if projection.get("_id", 1)
                                                         else set())
        expected = [{k: v for k, v in d.items() if k in keep} for d in whole]
    assert got == expected


@pytest.mark.parametrize("skip,limit", [(0, 1), (0, 250), (5, 10), (899, 10), (900, 1), (1000, 5),
                                        (0, 900), (450, 0)])
def test_skip_and_limit(filled, skip, limit):
    expected = sorted(range(900), key=lambda i: (i * 37) % 1000)
    expected = expected[skip:skip + limit] if limit else expected[skip:]
    assert ids(filled.find().sort("k", 1).skip(skip).limit(limit).batch_size(40)) == expected
    assert len(ids(filled.find().skip(skip).limit(limit).batch_size(40))) == len(expected)


def test_unsorted_scan_gives_each_document_once(filled):
    for batch_size in (1, 2, 101, 5000):
        assert sorted(ids(filled.find().batch_size(batch_size))) == list(range(900))


@pytest.mark.differs_alone("javaserver", "takes batchSize 0 for no limit")
def test_batch_size_zero_then_get_more(client, filled):
    database = filled.database
    reply = database.command("find", filled.name, sort={"k": 1}, batchSize=0)
    assert reply["cursor"]["firstBatch"] == [] and reply["cursor"]["id"] != 0
    assert reply["cursor"]["ns"] == filled.full_name
    cursor_id, seen = reply["cursor"]["id"], []
    assert isinstance(cursor_id, Int64)
    for _ in range(1000):
        reply = database.command("getMore", cursor_id, collection=filled.name, batchSize=100)
        assert len(reply["cursor"]["nextBatch"]) <= 100
        seen += reply["cursor"]["nextBatch"]
        if reply["cursor"]["id"] == 0:
            break
        assert reply["cursor"]["id"] == cursor_id
    assert ids(seen) == sorted(range(900), key=lambda i: (i * 37) % 1000)


@pytest.mark.differs_alone("javaserver", "has no default batch size")
def test_first_batch_of_101(filled):
    reply = filled.database.command("find", filled.name)
    assert len(reply["cursor"]["firstBatch"]) == 101 and reply["cursor"]["id"] != 0
    filled.database.command("killCursors", filled.name, cursors=[reply["cursor"]["id"]])


@pytest.mark.differs_alone("javaserver", "ignores singleBatch")
def test_single_batch_closes_the_cursor(filled):
    reply = filled.database.command("find", filled.name, batchSize=7, singleBatch=True)
    assert len(reply["cursor"]["firstBatch"]) == 7 and reply["cursor"]["id"] == 0
    assert len(ids(filled.find(limit=-20))) == 20


@pytest.mark.differs_alone("ferretdb", "keeps the cursor until an empty batch")
def test_limit_met_leaves_no_cursor(filled):
    reply = filled.database.command("find", filled.name, limit=50, batchSize=50)
    assert len(reply["cursor"]["firstBatch"]) == 50 and reply["cursor"]["id"] == 0


def test_get_more_on_another_connection(filled, client, other_client):
    reply = client[filled.database.name].command("find", filled.name, sort={"k": 1}, batchSize=10)
    seen, cursor_id = reply["cursor"]["firstBatch"], reply["cursor"]["id"]
    for turn in itertools.count():
        through = other_client if turn % 2 == 0 else client
        reply = through[filled.database.name].command("getMore", cursor_id,
                                                      collection=filled.name, batchSize=50)
        seen += reply["cursor"]["nextBatch"]
        if reply["cursor"]["id"] == 0:
            break
    assert ids(seen) == sorted(range(900), key=lambda i: (i * 37) % 1000)


@pytest.mark.differs_alone("javaserver", "answers without cursorsAlive and cursorsUnknown")
def test_kill_cursors(filled):
    database = filled.database
    reply = database.command("find", filled.name, batchSize=2)
    cursor_id = reply["cursor"]["id"]
    killed = database.command("killCursors", filled.name, cursors=[cursor_id, Int64(987654321)])
    assert killed["cursorsKilled"] == [cursor_id]
    assert killed["cursorsNotFound"] == [987654321]
    assert killed["cursorsAlive"] == [] and killed["cursorsUnknown"] == []
    with pytest.raises(OperationFailure) as caught:
        database.command("getMore", cursor_id, collection=filled.name)
    assert caught.value.code == 43


def test_get_more_of_unknown_cursor(filled):
    with pytest.raises(CursorNotFound):
        filled.database.command("getMore", Int64(1234567890123), collection=filled.name)


@pytest.mark.proxy_only
def test_get_more_with_another_namespace(filled):
    database = filled.database
    cursor_id = database.command("find", filled.name, batchSize=2)["cursor"]["id"]
    with pytest.raises(OperationFailure) as caught:
        database.command("getMore", cursor_id, collection="another")
    assert caught.value.code in (13, 43)
    reply = database.command("getMore", cursor_id, collection=filled.name, batchSize=3)
    assert len(reply["cursor"]["nextBatch"]) == 3, "a wrong namespace must not end the cursor"
    database.command("killCursors", filled.name, cursors=[cursor_id])


@pytest.mark.differs_alone("javaserver", "takes negative numbers")
@pytest.mark.parametrize("field,value", [("batchSize", -1), ("limit", -5), ("skip", -1)])
def test_negative_numbers_are_refused(filled, field, value):
    with pytest.raises(OperationFailure) as caught:
        filled.database.command("find", filled.name, **{field: value})
    assert caught.value.code in (2, 9, 51024)


MIXED = [
    None, MinKey(), MaxKey(), 1, 1.5, Int64(2), -7, float("inf"), float("-inf"), 0.0, 10**14,
    "", "a", "B", "b", "ab", {}, {"a": 1}, {"a": 2}, {"b": 0}, [], [3], [1, 9], [[1]], b"", b"ab",
    ObjectId("000000000000000000000001"), ObjectId("ff0000000000000000000000"), True, False,
    datetime.datetime(2020, 1, 1), datetime.datetime(1960, 1, 1), Timestamp(1, 1),
    Timestamp(0xFFFFFFF0, 1), Regex("a"), Regex("b", "i"),
]


@pytest.mark.parametrize("direction", [1, -1])
def test_mixed_types_merge_in_the_order_of_one_shard(client, shard_set, shard_kind, direction):
    """The order of each kind of shard is MongoDB's for what both can store and sort."""
    import pymongo
    values = [v for v in MIXED if sortable(v, shard_kind)]
    documents = [{"_id": i, "v": value} for i, value in enumerate(values)]
    documents.append({"_id": len(values)})
    with pymongo.MongoClient(shard_set[0].uri) as direct:
        alone = direct.oracle.mixed
        alone.drop()
        alone.insert_many(documents)
        oracle = ids(alone.find().sort([("v", direction), ("_id", 1)]))
        alone.drop()
    users = client.app.users
    users.drop()
    users.insert_many(documents)
    assert ids(users.find().sort([("v", direction), ("_id", 1)]).batch_size(5)) == oracle
    users.drop()


def sortable(value, kind):
    """What a kind of shard refuses to store, or orders unlike MongoDB, stays out."""
    if kind == "ferretdb":
        infinite = isinstance(value, float) and math.isinf(value)
        return not infinite and not isinstance(value, (MinKey, MaxKey)) and value != [[1]]
    return not isinstance(value, (dict, list, bytes, Regex, Timestamp, MinKey, MaxKey, bool))


def batch_bytes(documents):
    return sum(len(bson.encode(document)) for document in documents)


@pytest.mark.proxy_only
@pytest.mark.slow
@pytest.mark.parametrize("size,count", [(168 * 1024, 300), (1024 * 1024, 48)])
@pytest.mark.parametrize("where", ["big", "plain"])
@pytest.mark.parametrize("sort", [None, {"n": 1}])
def test_batches_stay_under_16_mb(client, shard_kind, size, count, where, sort):
    """FerretDB does not cap a batch: the proxy must."""
    collection = client.app[where]
    collection.drop()
    payload = os.urandom(size)
    for first in range(0, count, 40):
        collection.insert_many([{"_id": i, "n": -i, "p": payload}
                                for i in range(first, min(count, first + 40))])
    order = {"sort": sort} if sort else {}
    reply = client.app.command("find", where, batchSize=count + 1, **order)
    batches = [reply["cursor"]["firstBatch"]]
    while reply["cursor"]["id"]:
        reply = client.app.command("getMore", reply["cursor"]["id"], collection=where,
                                   batchSize=count + 1)
        batches.append(reply["cursor"]["nextBatch"])
    assert all(batch_bytes(batch) <= BATCH_CAP_BYTES for batch in batches)
    seen = [document["_id"] for batch in batches for document in batch]
    assert sorted(seen) == list(range(count))
    if sort:
        assert seen == list(range(count - 1, -1, -1))
    assert all(d["p"] == payload for batch in batches for d in batch)
    collection.drop()


@pytest.mark.proxy_only
@pytest.mark.slow
@pytest.mark.parametrize("name", ["users", "plain"])
def test_documents_of_almost_16_mb(client, name, shard_kind):
    if shard_kind == "javaserver":
        pytest.skip("mongo-java-server counts the command around a document against its limit")
    collection = client.app[name]
    collection.drop()
    for i in range(4):
        collection.insert_one({"_id": i, "p": bytes([i]) * (16 * 1024 * 1024 - 100)})
    assert [(d["_id"], d["p"][0], len(d["p"])) for d in collection.find().sort("_id", -1)] == [
        (i, i, 16 * 1024 * 1024 - 100) for i in (3, 2, 1, 0)]
    assert sorted(d["_id"] for d in collection.find()) == [0, 1, 2, 3]
    collection.drop()


def idle_cursors(client):
    rows = client.admin.aggregate([{"$currentOp": {"idleCursors": True}}])
    return {row["cursor"]["cursorId"] for row in rows if row["type"] == "idleCursor"}


@pytest.mark.proxy_only
@pytest.mark.parametrize("name", ["users", "plain"])
def test_idle_cursor_times_out(client, name, shard_kind):
    collection = client.app[name]
    collection.drop()
    collection.insert_many([{"_id": i} for i in range(100)])
    before = client.admin.command("getParameter", 1, cursorTimeoutMillis=1)["cursorTimeoutMillis"]
    assert before == 600000
    was = client.admin.command("setParameter", 1, cursorTimeoutMillis=1000)["was"]
    assert was == 600000
    try:
        cursor_id = client.app.command("find", name, batchSize=2)["cursor"]["id"]
        used = client.app.command("find", name, batchSize=2)["cursor"]["id"]
        deadline = time.monotonic() + 20
        code = None
        # A cursor in use is kept; the idle one goes.
        timed_out = client.admin.command("serverStatus")["metrics"]["cursor"]["timedOut"]
        while time.monotonic() < deadline and cursor_id in idle_cursors(client):
            client.app.command("getMore", used, collection=name, batchSize=1)
            time.sleep(0.25)
        counted = client.admin.command("serverStatus")["metrics"]["cursor"]["timedOut"]
        assert counted > timed_out
        try:
            client.app.command("getMore", cursor_id, collection=name, batchSize=1)
        except OperationFailure as error:
            code = error.code
        assert code == 43
    finally:
        client.admin.command("setParameter", 1, cursorTimeoutMillis=600000)
        collection.drop()


@pytest.mark.proxy_only
def test_vanished_client_leaves_no_cursor(target, make_proxy, shard_set, shard_kind):
    """After the time-out, the proxy says that no cursor is open."""
    import pymongo
    from proxy import routing
    from wire import WireClient
    proxy = make_proxy({"routing": routing([s.uri for s in shard_set]),
                        "setParameter": {"cursorTimeoutMillis": 1000, "enableTestCommands": 1}})
    with pymongo.MongoClient(proxy.uri) as mine:
        mine.app.users.drop()
        mine.app.users.insert_many([{"_id": i} for i in range(500)])
        for _ in range(20):
            with WireClient(proxy.port) as vanishing:
                reply = vanishing.command({"find": "users", "batchSize": 2, "$db": "app"})
                assert reply.document["cursor"]["id"] != 0
        opened = mine.admin.command("serverStatus")["metrics"]["cursor"]
        assert opened["open"]["total"] + opened["timedOut"] >= 20
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            total = mine.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"]
            if total == 0:
                break
            time.sleep(0.1)
        assert total == 0
        mine.app.users.drop()
