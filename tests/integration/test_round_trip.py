"""A whole database goes out and comes back through the proxy, indexes included."""

import random

import bson
import bson.raw_bson
import pytest
from bson import ObjectId
from pymongo.errors import OperationFailure

pytestmark = [pytest.mark.timeout(180)]
COLLECTIONS = ("users", "orders", "ranged", "plain", "notes")


def fill(database, rng, kind):
    for name in COLLECTIONS:
        documents = [{
            "_id": i, "region": rng.choice("abcdefghijklmnopqrstuvwxyz"), "n": rng.randrange(100),
            "text": "x" * rng.randrange(200), "nested": {"list": [rng.random(), None, {"d": i}]},
            "bytes": rng.randbytes(rng.randrange(40)), "oid": ObjectId(rng.randbytes(12)),
        } for i in range(700)]
        database[name].insert_many(documents)
        database[name].create_index([("n", 1)], name="n_up")
        database[name].create_index([("region", 1), ("n", -1)], name="mixed")
    database.plain.create_index([("oid", 1)], name="oid_once", unique=True)


def dump(database):
    """What mongodump reads: the collections, their options and indexes, the documents' bytes."""
    out = {}
    for info in database.list_collections():
        name = info["name"]
        if name.startswith("system."):
            continue
        indexes = []
        for index in database[name].list_indexes():
            index = {k: v for k, v in index.items() if k not in ("ns", "v")}
            indexes.append(bson.encode({**index, "key": dict(index["key"])}))
        documents = [raw for batch in database[name].find_raw_batches(batch_size=150)
                     for raw in split(batch)]
        out[name] = (sorted(indexes), sorted(documents))
    return out


def split(batch):
    """The documents of a raw batch, byte for byte."""
    at = 0
    while at < len(batch):
        size = int.from_bytes(batch[at:at + 4], "little")
        yield batch[at:at + size]
        at += size


def restore(database, dumped):
    for name, (indexes, documents) in dumped.items():
        database.create_collection(name)
        for index in map(bson.decode, indexes):
            if index["name"] == "_id_":
                continue
            options = {k: v for k, v in index.items() if k not in ("key", "name")}
            database[name].create_index(list(index["key"].items()), name=index["name"], **options)
        for first in range(0, len(documents), 250):
            database[name].insert_many(
                [bson.raw_bson.RawBSONDocument(d) for d in documents[first:first + 250]])


def test_dump_drop_restore(client, shard_kind):
    database = client.app
    client.drop_database("app")
    fill(database, random.Random(5), shard_kind)
    first = dump(database)
    assert set(first) == set(COLLECTIONS)
    assert all(len(documents) == 700 for _, documents in first.values())
    names = [bson.decode(index)["name"] for index in first["plain"][0]]
    assert sorted(names) == ["_id_", "mixed", "n_up", "oid_once"]

    client.drop_database("app")
    assert "app" not in client.list_database_names()
    assert database.list_collection_names() == []
    assert all(database[name].count_documents({}) == 0 for name in COLLECTIONS)

    restore(database, first)
    assert dump(database) == first
    assert "app" in client.list_database_names()
    client.drop_database("app")


def test_unique_index_holds_after_restore(client):
    client.drop_database("app")
    client.app.plain.create_index("u", unique=True)
    client.app.plain.insert_one({"_id": 1, "u": 5})
    with pytest.raises(OperationFailure):
        client.app.plain.insert_one({"_id": 2, "u": 5})
    client.drop_database("app")


def test_indexes_come_and_go(collection):
    collection.insert_many([{"_id": i, "a": i} for i in range(0, 900, 9)])
    assert collection.create_index([("a", 1)], name="by_a") == "by_a"
    assert sorted(i["name"] for i in collection.list_indexes()) == ["_id_", "by_a"]
    collection.drop_index("by_a")
    assert [i["name"] for i in collection.list_indexes()] == ["_id_"]
    with pytest.raises(OperationFailure) as caught:
        collection.drop_index("by_a")
    assert caught.value.code == 27


@pytest.mark.proxy_only
def test_listings_hold_each_name_once(client):
    client.drop_database("app")
    for name in ("users", "orders", "plain"):
        client.app[name].insert_many([{"_id": i, "region": "az"[i % 2], "n": i}
                                      for i in range(60)])
    assert sorted(client.app.list_collection_names()) == ["orders", "plain", "users"]
    listed = [d["name"] for d in client.list_databases()]
    assert len(listed) == len(set(listed)) and "app" in listed
    stats = client.app.command("collStats", "users")
    assert stats["count"] == 60 and stats["sharded"] is True
    assert client.app.command("dbStats")["objects"] == 180
    assert client.app.validate_collection("users")["valid"]
    # Its first field names the database, too: all shards' documents, whatever $db is.
    for database in (client.app, client.admin):
        assert database.command("dataSize", "app.users")["numObjects"] == 60
    with pytest.raises(OperationFailure, match="Invalid namespace") as caught:
        client.app.command("dataSize", "users")
    assert caught.value.code == 73
    client.drop_database("app")
