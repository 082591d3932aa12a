"""A driver with back-pressure support gets through when memory is short, and applies nothing twice."""

import os
import threading

import pymongo
import pytest
from proxy import routing
from pymongo.errors import OperationFailure
from stalled_senders import StalledSenders

pytestmark = [pytest.mark.timeout(120), pytest.mark.proxy_only]
MIB = 1 << 20
PAD = os.urandom(2 * MIB)
READ_LABELS = {"SystemOverloadedError", "RetryableError"}
WRITE_LABELS = READ_LABELS | {"NoWritesPerformed"}
UPDATE = {"$inc": {"v": 1}, "$set": {"pad": PAD}}
WRITES = {
    "insert": lambda c: c.insert_one({"_id": "insert", "v": 1, "pad": PAD}),
    "update": lambda c: c.update_one({"_id": "update"}, UPDATE),
    "findAndModify": lambda c: c.find_one_and_update({"_id": "findAndModify"}, UPDATE),
    "bulk": lambda c: c.bulk_write([pymongo.UpdateOne({"_id": "bulk"}, UPDATE),
                                    pymongo.InsertOne({"_id": "bulk2", "v": 1})]),
}
AFTERWARDS = {"insert": 1, "update": 1, "findAndModify": 1, "bulk": 1, "bulk2": 1}


class Watch(pymongo.monitoring.CommandListener):
    """Counts what one client sends, keeps the errors, and calls `on_failure` after each."""

    def __init__(self, on_failure=lambda: None):
        self.started_count, self.failures, self._on_failure = 0, [], on_failure

    def started(self, event):
        self.started_count += 1

    def succeeded(self, event):
        pass

    def failed(self, event):
        self.failures.append(event.failure)
        self._on_failure()


def open_client(proxy, watch, **options):
    return pymongo.MongoClient(proxy.uri, event_listeners=[watch], serverSelectionTimeoutMS=10000,
                               socketTimeoutMS=60000, **options)


def is_refusal(failure, labels):
    return failure["code"] == 462 and set(failure["errorLabels"]) == labels


@pytest.fixture
def small(make_proxy, shard_set):
    """A proxy with little memory, and three documents in a sharded and in an unsharded collection."""
    proxy = make_proxy({"routing": routing([shard.uri for shard in shard_set]),
                        "memory": {"limit": "256MiB"}})
    with pymongo.MongoClient(proxy.uri) as client:
        for name in ("users", "plain"):
            client.app[name].drop()
            client.app[name].insert_many([{"_id": i, "v": 0} for i in AFTERWARDS
                                          if i not in ("insert", "bulk2")])
    return proxy


def values(proxy, name):
    with pymongo.MongoClient(proxy.uri) as client:
        return {d["_id"]: d["v"] for d in client.app[name].find({}, {"v": 1})}


def in_threads(jobs):
    threads = [threading.Thread(target=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
        assert not thread.is_alive(), "a client hangs"


@pytest.mark.parametrize("compressor", [None, "snappy"])
def test_writes_are_refused_once_then_get_through(small, compressor):
    kinds = [(name, write) for name in ("users", "plain") for write in sorted(WRITES)]
    options = {"compressors": compressor} if compressor else {}
    errors, watches = {}, {}
    with StalledSenders(small.port) as senders:
        missing = set(kinds)

        def refused(kind):
            missing.discard(kind)
            if not missing:
                senders.release()

        def write(kind):
            watches[kind] = Watch(lambda: refused(kind))
            try:
                with open_client(small, watches[kind], **options) as client:
                    WRITES[kind[1]](client.app[kind[0]])
            except Exception as error:
                errors[kind] = error

        in_threads([lambda kind=kind: write(kind) for kind in kinds])
        assert senders.memory()["backpressureClients"]["yes"] > 0
    assert not errors
    for kind, watch in watches.items():
        assert watch.failures, kind
        assert all(is_refusal(failure, WRITE_LABELS) for failure in watch.failures), kind
        assert watch.started_count > len(watch.failures), kind
    assert values(small, "users") == values(small, "plain") == AFTERWARDS


def test_without_retries_the_application_hears_of_it(small):
    before = values(small, "users")
    errors, watches = {}, {}

    def write(kind):
        watches[kind] = Watch()
        try:
            with open_client(small, watches[kind], retryWrites=False) as client:
                WRITES[kind](client.app.users)
        except OperationFailure as error:
            errors[kind] = error

    with StalledSenders(small.port):
        in_threads([lambda kind=kind: write(kind) for kind in WRITES])
    assert set(errors) == set(WRITES)
    for kind, error in errors.items():
        assert error.code == 462, kind
        assert all(error.has_error_label(label) for label in WRITE_LABELS), kind
        assert watches[kind].started_count == 1, kind
    assert values(small, "users") == before


def test_reads_that_merge_are_refused_until_there_is_room(small):
    with StalledSenders(small.port) as senders:
        senders.wait_for(lambda: senders.memory()["pressure"]["level"] == "critical",
                          "it is not critical")
        alone = Watch()
        with open_client(small, alone, retryReads=False) as client:
            with pytest.raises(OperationFailure) as caught:
                list(client.app.users.find().sort("v"))
            assert caught.value.code == 462 and alone.started_count == 1
            # What passes through goes on. (Whole documents would tell how small they are: small merges are opened.)
            assert len(list(client.app.users.find({}, {"v": 1}))) == 3
        watch = Watch(senders.release)
        with open_client(small, watch, maxAdaptiveRetries=30) as client:
            found = list(client.app.users.find().sort("_id"))
    assert [d["_id"] for d in found] == ["bulk", "findAndModify", "update"]
    assert watch.failures
    assert all(is_refusal(failure, READ_LABELS) for failure in watch.failures)
