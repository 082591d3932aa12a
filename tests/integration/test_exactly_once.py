"""A write whose reply was lost is never applied twice."""

import uuid

import pymongo
import pytest
from bson import Binary, Int64
from proxy import routing
from pymongo.errors import ConnectionFailure, OperationFailure
from tcp_fault import Relay
from wire import WireClient

pytestmark = [pytest.mark.timeout(120), pytest.mark.proxy_only]
WRITES = {
    "update": lambda c: c.update_one({"_id": 7}, {"$inc": {"v": 1}}),
    "find_and_modify": lambda c: c.find_one_and_update({"_id": 7}, {"$inc": {"v": 1}}),
    "bulk": lambda c: c.bulk_write([pymongo.UpdateOne({"_id": 7}, {"$inc": {"v": 1}})]),
}


@pytest.fixture
def cut(shard_set, make_proxy):
    """A proxy whose every shard connection goes through a relay."""
    relays = [Relay(shard.port) for shard in shard_set]
    proxy = make_proxy({"routing": routing([relay.uri for relay in relays])})
    yield proxy, relays
    for relay in relays:
        relay.close()


@pytest.mark.parametrize("write", sorted(WRITES))
@pytest.mark.parametrize("name", ["users", "plain"])
@pytest.mark.parametrize("retry", [True, False])
def test_reply_lost_after_an_inc(cut, shard_set, write, name, retry):
    proxy, relays = cut
    with pymongo.MongoClient(proxy.uri, retryWrites=retry, serverSelectionTimeoutMS=5000) as client:
        collection = client.app[name]
        collection.drop()
        collection.insert_one({"_id": 7, "v": 0})
        for relay in relays:
            relay.lose_reply_to(b"$inc\0")
        failed = False
        try:
            WRITES[write](collection)
        except (ConnectionFailure, OperationFailure):
            failed = True
        assert sum(relay.lost for relay in relays) == 1, "the cut must have happened"
        assert failed, "the outcome is unknown: the client must hear of it"
        for relay in relays:
            relay.lose_reply_to(None)
        assert collection.find_one({"_id": 7}) == {"_id": 7, "v": 1}
        collection.drop()


@pytest.mark.parametrize("name", ["users", "plain"])
def test_txn_number_is_refused_on_plain_shards(cut, name):
    """A shard that keeps no retry history must never see a statement that may come twice."""
    proxy, _ = cut
    with pymongo.MongoClient(proxy.uri) as client, WireClient(proxy.port) as wire:
        client.app[name].drop()
        client.app[name].insert_one({"_id": 7, "v": 0})
        command = {
            "update": name, "$db": "app", "txnNumber": Int64(1),
            "updates": [{"q": {"_id": 7}, "u": {"$inc": {"v": 1}}}],
            "lsid": {"id": Binary.from_uuid(uuid.uuid4())},
        }
        for _ in range(3):
            reply = wire.command(command)
            assert reply.code == 20, reply.document
        assert client.app[name].find_one({"_id": 7})["v"] == 0
        del command["txnNumber"]
        assert wire.command(command).ok, "an lsid alone is fine"
        assert client.app[name].find_one({"_id": 7})["v"] == 1
        client.app[name].drop()


@pytest.mark.parametrize("name", ["users", "plain"])
def test_reads_survive_a_lost_reply(cut, name):
    """A read may be sent again: the client sees its answer, not the cut."""
    proxy, relays = cut
    with pymongo.MongoClient(proxy.uri, retryReads=False) as client:
        collection = client.app[name]
        collection.drop()
        collection.insert_many([{"_id": i} for i in range(60)])
        for relay in relays:
            relay.lose_reply_to(b"find\0")
        assert collection.find_one({"_id": 7}) == {"_id": 7}
        assert sorted(d["_id"] for d in collection.find()) == list(range(60))
        assert sum(relay.lost for relay in relays) >= 1
        collection.drop()
