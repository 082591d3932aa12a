"""The log as programs read it: documents, and a line for each slow operation."""

import json

import pymongo
import pytest
from proxy import Proxy, routing

pytestmark = [pytest.mark.timeout(120), pytest.mark.proxy_only]


def lines_of(path, message):
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert all({"t", "s", "c", "id", "ctx", "msg"} <= set(line) for line in found)
    return [line for line in found if line["msg"] == message]


def test_slow_operations_in_json(binary, shard_set, tmp_path):
    path = tmp_path / "log"
    config = {"routing": routing([shard.uri for shard in shard_set]),
              "operationProfiling": {"slowOpThresholdMs": 60_000},
              "systemLog": {"destination": "file", "path": str(path), "format": "json"}}
    with Proxy(binary, config) as proxy, \
            pymongo.MongoClient(proxy.uri, appname="the \"app\"") as client:
        client.app.ranged.replace_one({"_id": 5}, {}, upsert=True)  # without any, FerretDB reads no filter
        client.app.ranged.find_one({"_id": 5})
        assert not lines_of(path, "Slow query")
        was = client.admin.command("profile", 0, slowms=-1)
        assert was["slowms"] == 60_000
        client.app.ranged.find_one({"_id": 7}, comment="marked")
        with pytest.raises(pymongo.errors.OperationFailure):
            client.app.command("find", "ranged", filter={"$nope": 1})
        client.app.command("ping", padding="x" * 10_000)
        client.admin.command("profile", 0, slowms=60_000)
        slow = lines_of(path, "Slow query")
        found = next(line for line in slow if line["attr"]["command"].get("comment") == "marked")
        assert (found["c"], found["id"], found["s"]) == ("COMMAND", 51803, "I")
        assert found["ctx"].startswith("worker")
        attributes = found["attr"]
        assert attributes["ns"] == "app.ranged" and attributes["type"] == "command"
        assert attributes["appName"] == "the \"app\"" and attributes["reslen"] > 0
        assert attributes["remote"].startswith("127.0.0.1:")
        assert attributes["durationMillis"] >= 0
        failed = next(line for line in slow if "errCode" in line["attr"])["attr"]
        assert failed["ok"] == 0 and failed["errMsg"]
        large = next(line for line in slow if "truncated" in line["attr"]["command"])
        assert len(json.dumps(large)) < 2000
