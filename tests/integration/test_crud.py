"""Reads and writes in every layout a collection can have."""

import random

import pytest
from bson import Int64, ObjectId
from pymongo import DESCENDING, ReturnDocument
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure

pytestmark = pytest.mark.timeout(120)


def test_insert_find_update_delete(collection):
    result = collection.insert_many([{"_id": i, "n": i % 7, "s": f"v{i}"} for i in range(500)])
    assert len(result.inserted_ids) == 500
    assert collection.count_documents({}) == 500
    assert collection.estimated_document_count() == 500
    assert collection.find_one({"_id": 250}) == {"_id": 250, "n": 5, "s": "v250"}
    assert sorted(d["_id"] for d in collection.find({"n": 3})) == list(range(3, 500, 7))

    updated = collection.update_one({"_id": 10}, {"$set": {"s": "new"}})
    assert (updated.matched_count, updated.modified_count) == (1, 1)
    updated = collection.update_many({"n": 0}, {"$inc": {"n": 100}})
    assert updated.matched_count == len(range(0, 500, 7))
    assert collection.count_documents({"n": 100}) == len(range(0, 500, 7))

    assert collection.delete_one({"_id": 10}).deleted_count == 1
    assert collection.find_one({"_id": 10}) is None
    assert collection.delete_many({"n": 1}).deleted_count == len(range(1, 500, 7))
    assert collection.count_documents({}) == 500 - 1 - len(range(1, 500, 7))


def test_router_makes_missing_ids(client, collection):
    reply = client[collection.database.name].command(
        {"insert": collection.name, "documents": [{"a": i} for i in range(20)]})
    assert reply["n"] == 20
    ids = [d["_id"] for d in collection.find()]
    assert len(ids) == 20 and all(isinstance(i, ObjectId) for i in ids)


@pytest.mark.parametrize("key", [0, -1, 99, 100, 101, 799, 800, 10**9, 3.5, Int64(100), "s", None,
                                 ObjectId("0123456789abcdef01234567"), {"a": 1}, b"\0x", True])
def test_point_operations_on_any_key(collection, key):
    collection.insert_one({"_id": key, "v": 1})
    assert collection.find_one({"_id": key})["v"] == 1
    assert collection.count_documents({"_id": {"$in": [key, "absent"]}}) == 1
    assert collection.update_one({"_id": key}, {"$inc": {"v": 1}}).modified_count == 1
    assert collection.find_one_and_update(
        {"_id": key}, {"$inc": {"v": 1}}, return_document=ReturnDocument.AFTER)["v"] == 3
    assert collection.delete_one({"_id": key}).deleted_count == 1
    assert collection.count_documents({}) == 0


def test_number_types_are_one_key(collection):
    """1, 1.0 and Int64(1) are the same _id, wherever the document lies."""
    collection.insert_one({"_id": 200.0})
    assert collection.count_documents({"_id": 200}) == 1
    assert collection.count_documents({"_id": Int64(200)}) == 1
    with pytest.raises(DuplicateKeyError):
        collection.insert_one({"_id": 200})


def test_upserts(collection):
    result = collection.update_one({"_id": 5}, {"$set": {"a": 1}}, upsert=True)
    assert result.upserted_id == 5 and result.matched_count == 0
    result = collection.replace_one({"_id": 705}, {"b": 2}, upsert=True)
    assert result.upserted_id == 705
    assert collection.replace_one({"_id": 705}, {"b": 3}).modified_count == 1
    assert sorted(collection.find(), key=lambda d: d["_id"]) == [{"_id": 5, "a": 1},
                                                                 {"_id": 705, "b": 3}]
    found = collection.find_one_and_update({"_id": 300}, {"$set": {"c": 1}}, upsert=True,
                                           return_document=ReturnDocument.AFTER)
    assert found == {"_id": 300, "c": 1}


def test_find_and_modify_by_key(collection):
    collection.insert_many([{"_id": i, "v": i} for i in range(0, 900, 50)])
    before = collection.find_one_and_replace({"_id": 450}, {"v": "new"})
    assert before == {"_id": 450, "v": 450}
    assert collection.find_one_and_delete({"_id": 450}) == {"_id": 450, "v": "new"}
    assert collection.find_one_and_delete({"_id": 450}) is None


def test_distinct_and_count(collection):
    collection.insert_many([{"_id": i, "k": i % 13, "tags": [i % 3, "all"]} for i in range(800)])
    assert sorted(collection.distinct("k")) == list(range(13))
    assert sorted(collection.distinct("k", {"_id": {"$lt": 5}})) == list(range(5))
    assert set(collection.distinct("tags")) == {0, 1, 2, "all"}
    assert collection.count_documents({"k": 4}, skip=10, limit=20) == 20
    reply = collection.database.command("count", collection.name, query={"k": 4}, skip=60)
    assert reply["n"] == len(range(4, 800, 13)) - 60


def test_aggregate_split_over_shards(collection):
    collection.insert_many([{"_id": i, "k": i % 5, "v": i, "a": [i, -i]} for i in range(900)])
    # One accumulator at a time: FerretDB answers 0 for every one after the first.
    grouped = collection.aggregate([
        {"$match": {"v": {"$gte": 100}}}, {"$group": {"_id": "$k", "total": {"$sum": "$v"}}},
        {"$sort": {"_id": 1}}])
    assert list(grouped) == [
        {"_id": k, "total": sum(v for v in range(100, 900) if v % 5 == k)} for k in range(5)]
    counted = collection.aggregate([{"$group": {"_id": "$k", "n": {"$sum": 1}}}])
    assert sorted((d["_id"], d["n"]) for d in counted) == [(k, 180) for k in range(5)]
    sorted_part = list(collection.aggregate([
        {"$sort": {"v": -1}}, {"$skip": 5}, {"$limit": 300}, {"$project": {"v": 1, "_id": 0}}]))
    assert sorted_part == [{"v": v} for v in range(894, 594, -1)]
    assert list(collection.aggregate([{"$match": {"k": 2}}, {"$count": "n"}])) == [{"n": 180}]
    unwound = list(collection.aggregate([
        {"$match": {"_id": {"$lt": 250}}}, {"$unwind": "$a"}, {"$sort": {"a": 1}}, {"$limit": 3}]))
    assert [d["a"] for d in unwound] == [-249, -248, -247]


def test_accumulators_over_shards(client, shard_kind):
    """$avg travels as a sum and a count: shards of unequal size must not skew it."""
    if shard_kind == "ferretdb":
        pytest.skip("FerretDB has only $sum and $count, and only one of them per $group")
    collection = client.app.orders
    collection.drop()
    rows = [{"_id": i, "region": "a" if i < 90 else "z", "n": i, "v": i * i} for i in range(100)]
    collection.insert_many(rows)
    got = list(collection.aggregate([{"$group": {
        "_id": None, "m": {"$avg": "$v"}, "low": {"$min": "$v"}, "high": {"$max": "$v"},
        "sum": {"$sum": "$v"}, "n": {"$sum": 1}}}]))
    total = sum(i * i for i in range(100))
    assert got == [{"_id": None, "m": total / 100, "low": 0, "high": 99 * 99, "sum": total,
                    "n": 100}]
    sets = list(collection.aggregate([
        {"$group": {"_id": "$region", "ns": {"$addToSet": {"$mod": ["$n", 4]}}}},
        {"$sort": {"_id": 1}}]))
    assert [(d["_id"], sorted(d["ns"])) for d in sets] == [("a", [0, 1, 2, 3]),
                                                          ("z", [0, 1, 2, 3])]
    collection.drop()


@pytest.mark.proxy_only
def test_aggregate_that_cannot_be_split_is_refused(client):
    collection = client.app.users
    collection.drop()
    collection.insert_many([{"_id": i} for i in range(30)])
    for stage in ({"$lookup": {"from": "plain", "localField": "a", "foreignField": "b", "as": "c"}},
                  {"$facet": {"x": [{"$match": {}}]}}, {"$out": "elsewhere"},
                  {"$graphLookup": {"from": "plain", "startWith": "$a", "connectFromField": "a",
                                    "connectToField": "b", "as": "c"}}):
        with pytest.raises(OperationFailure) as caught:
            list(collection.aggregate([stage]))
        assert caught.value.code == 115, (stage, caught.value.details)
        assert next(iter(stage)) in caught.value.details["errmsg"]
    collection.drop()


def test_ordered_bulk_stops_at_the_first_error(collection):
    collection.insert_one({"_id": 450})
    documents = [{"_id": i} for i in (0, 150, 300, 450, 600, 750)]
    with pytest.raises(BulkWriteError) as caught:
        collection.insert_many(documents)
    errors = caught.value.details["writeErrors"]
    assert [(e["index"], e["code"]) for e in errors] == [(3, 11000)]
    assert sorted(d["_id"] for d in collection.find()) == [0, 150, 300, 450]


def test_unordered_bulk_goes_on(collection, shard_kind):
    taken = [120, 333, 640]
    collection.insert_many([{"_id": i} for i in taken])
    documents = [{"_id": i} for i in range(0, 800)]
    with pytest.raises(BulkWriteError) as caught:
        collection.insert_many(documents, ordered=False)
    errors = caught.value.details["writeErrors"]
    assert sorted(e["index"] for e in errors) == taken
    assert all(e["code"] == 11000 for e in errors)
    if shard_kind == "ferretdb":  # mongo-java-server counts the failed ones too
        assert caught.value.details["nInserted"] == 800 - len(taken)
    assert collection.count_documents({}) == 800


def test_batches_map_upserted_indexes(collection, shard_kind):
    upserts = [{"q": {"_id": i}, "u": {"$set": {"v": 1}}, "upsert": True}
               for i in range(0, 900, 100)]
    reply = collection.database.command({"update": collection.name, "updates": upserts})
    assert reply["n"] == 9 and reply["nModified"] == 0
    assert {u["index"]: u["_id"] for u in reply["upserted"]} == {i: i * 100 for i in range(9)}
    updates = [{"q": {"_id": i}, "u": {"$set": {"v": 2}}, "upsert": True}
               for i in range(0, 900, 50)]
    reply = collection.database.command({"update": collection.name, "updates": updates})
    assert reply["n"] == 18 and reply["nModified"] == 9
    assert sorted(u["_id"] for u in reply["upserted"]) == list(range(50, 900, 100))
    if shard_kind == "javaserver":  # FerretDB counts upserts instead of telling their index
        assert {u["index"]: u["_id"] for u in reply["upserted"]} == {
            i: i * 50 for i in range(1, 18, 2)}
    deletes = [{"q": {"_id": i}, "limit": 1} for i in range(0, 900, 25)]
    reply = collection.database.command({"delete": collection.name, "deletes": deletes})
    assert reply["n"] == 18


def test_large_split_insert(collection):
    total, rng = 20_000, random.Random(7)
    order = list(range(total))
    rng.shuffle(order)
    for ordered in (True, False):
        collection.drop()
        result = collection.insert_many([{"_id": i, "v": -i} for i in order], ordered=ordered)
        assert len(result.inserted_ids) == total
        assert collection.count_documents({}) == total
    top = collection.find().sort("_id", DESCENDING).limit(3)
    assert [d["_id"] for d in top] == [total - 1, total - 2, total - 3]


@pytest.mark.proxy_only
def test_shard_key_errors(client, shard_kind):
    users, orders = client.app.users, client.app.orders
    users.drop()
    orders.drop()
    orders.insert_one({"_id": 1, "region": "m", "n": 5})
    cases = [
        (61, lambda: orders.insert_one({"region": ["a", "b"], "n": 1})),
        (67, lambda: orders.create_index("v", unique=True)),
        (20, lambda: client.admin.command({"renameCollection": "app.users", "to": "app.other"})),
    ]
    got = []
    for code, operation in cases:
        try:
            operation()
            got.append((code, None))
        except BulkWriteError as error:
            got.append((code, error.details["writeErrors"][0]["code"]))
        except OperationFailure as error:
            got.append((code, error.code))
    assert [pair[1] for pair in got] == [pair[0] for pair in got]
    orders.drop()


@pytest.mark.proxy_only
def test_writes_without_the_shard_key(client):
    """Of many that match, exactly one document is written, wherever it lies."""
    orders = client.app.orders
    orders.drop()
    orders.insert_many([{"_id": i, "region": "amz"[i % 3], "n": i, "v": 0} for i in range(60)])
    assert orders.update_one({"v": 0}, {"$set": {"v": 1}}).modified_count == 1
    assert orders.count_documents({"v": 1}) == 1
    assert orders.delete_one({"v": 1}).deleted_count == 1
    assert orders.count_documents({}) == 59
    before = orders.find_one_and_update({"v": 0}, {"$set": {"v": 2}})
    assert before["v"] == 0 and orders.find_one({"v": 2})["_id"] == before["_id"]
    # The sort decides among the documents of all shards.
    greatest = max(d["n"] for d in orders.find({"n": {"$lt": 58}, "v": 0}))
    last = orders.find_one_and_delete({"n": {"$lt": 58}, "v": 0}, sort=[("n", -1)])
    assert last["n"] == greatest
    upsert = orders.update_one({"v": 99}, {"$set": {"w": 1}}, upsert=True)
    assert upsert.upserted_id is not None
    assert orders.find_one({"v": 99, "region": None})["w"] == 1
    orders.drop()


@pytest.mark.proxy_only
def test_documents_lie_where_the_table_says(shard_set, client):
    import pymongo
    ranged = client.app.ranged
    ranged.drop()
    ranged.insert_many([{"_id": i} for i in range(-50, 950)])
    for index, shard in enumerate(shard_set):
        with pymongo.MongoClient(shard.uri) as direct:
            mine = sorted(d["_id"] for d in direct.app.ranged.find())
        chunk = [i for i in range(-50, 950)
                 if min(max(i // 100, 0), 8) % len(shard_set) == index]
        assert mine == chunk, f"shard {index}"
    ranged.drop()


@pytest.mark.proxy_only
def test_unknown_commands_and_refusals(client):
    for command in ("noSuchCommand", "replSetGetStatus"):
        with pytest.raises(OperationFailure) as caught:
            client.app.command({command: 1})
        assert caught.value.code == 59, command


@pytest.mark.proxy_only
def test_explain_names_the_shards(client, shard_set, shard_kind):
    ranged = client.app.ranged
    ranged.drop()
    ranged.insert_many([{"_id": i} for i in range(0, 900, 10)])
    if shard_kind == "javaserver":  # it has no explain, and a plan cannot be made up
        with pytest.raises(OperationFailure, match="no such command") as refused:
            client.app.command({"explain": {"find": "ranged", "filter": {"x": 1}}})
        assert refused.value.code == 59
        return
    one = client.app.command({"explain": {"find": "ranged", "filter": {"_id": 150}}})
    every = client.app.command({"explain": {"find": "ranged", "filter": {"x": 1}}})
    assert "shard1" in str(one) and "shard0" not in str(one) and "shard2" not in str(one)
    assert all(shard.name in str(every) for shard in shard_set)
    ranged.drop()


@pytest.mark.proxy_only
def test_a_replacement_keeps_the_shard_key(client):
    collection = client.app.orders
    collection.delete_many({})
    collection.insert_one({"_id": 1, "region": "a", "n": 1})
    for replacement, code in (({"x": 1}, 61), ({"region": "a", "n": 2}, 66)):  # as a mongos answers
        for replace in (collection.replace_one, collection.find_one_and_replace):
            with pytest.raises(OperationFailure) as refused:
                replace({"_id": 1}, replacement)
            assert refused.value.code == code
    assert collection.replace_one({"_id": 1}, {"region": "a", "n": 1, "x": 2}).modified_count == 1
    before = collection.find_one_and_replace({"_id": 1}, {"region": "a", "n": 1, "x": 3})
    assert before == {"_id": 1, "region": "a", "n": 1, "x": 2}
    upserted = collection.replace_one({"_id": 2}, {"region": "q", "n": 1}, upsert=True)
    assert upserted.upserted_id == 2
    assert collection.replace_one({"_id": 3}, {"region": "q", "n": 1}).matched_count == 0
    found = list(collection.find({}, sort=[("_id", 1)]))
    assert found == [{"_id": 1, "region": "a", "n": 1, "x": 3}, {"_id": 2, "region": "q", "n": 1}]
    collection.delete_many({})
