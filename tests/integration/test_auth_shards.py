"""Logging in to shards: the mechanisms, where the password comes from, and where it does not go."""

import json
import os
import subprocess
import urllib.parse

import pymongo
import pytest
from proxy import Proxy, routing
from pymongo.errors import OperationFailure
from scram_gate import ScramGate
from users import user_entry, without_secrets

pytestmark = [pytest.mark.timeout(180), pytest.mark.proxy_only]
USER, PASSWORD = "router", "hush, it's a s\u00e9cret"
QUOTED = urllib.parse.quote(PASSWORD, safe="")


@pytest.fixture
def gates(shard_set):
    gates = [ScramGate(shard.port, USER, PASSWORD) for shard in shard_set]
    yield gates
    for gate in gates:
        gate.close()


@pytest.fixture
def password_file(tmp_path):
    path = tmp_path / "password"
    path.write_text(PASSWORD + "\n")
    path.chmod(0o600)
    return path


def proxy_before(binary, gates, security, user=None, options=""):
    uris = [f"mongodb://{user + '@' if user else ''}127.0.0.1:{gate.port}/{options}"
            for gate in gates]
    return Proxy(binary, {"routing": routing(uris),
                          "security": {"authorization": "disabled", **security}})


def exercise(proxy):
    with pymongo.MongoClient(proxy.uri) as client:
        client.app.ranged.drop()
        documents = [{"_id": n, "p": "x" * 2000} for n in range(0, 900, 3)]
        client.app.ranged.insert_many(documents)
        assert list(client.app.ranged.find().sort("_id", 1).batch_size(20)) == documents
        shown = str(client.admin.command("getCmdLineOpts")) + str(
            client.admin.command("getShardMap")) + str(client.admin.command("getLog", "global"))
        assert without_secrets(shown, PASSWORD, QUOTED)


@pytest.mark.parametrize("mechanism", ["negotiated", "SCRAM-SHA-1", "SCRAM-SHA-256"])
def test_password_from_a_file(binary, gates, password_file, mechanism):
    shards = {"user": USER, "passwordFile": str(password_file), "mechanism": mechanism}
    with proxy_before(binary, gates, {"shards": shards}) as proxy:
        exercise(proxy)
    expected = "SCRAM-SHA-256" if mechanism == "negotiated" else mechanism
    for gate in gates:
        assert set(gate.logins) == {expected} and gate.refused == []
    assert without_secrets(proxy.log_path.read_text(), PASSWORD)


def test_password_in_a_connection_string(binary, gates):
    user = f"{USER}:{QUOTED}"
    with proxy_before(binary, gates, {}, user, "?authSource=admin") as proxy:
        exercise(proxy)
        with open(f"/proc/{proxy.pid}/cmdline", "rb") as line:
            assert QUOTED.encode() not in line.read()
    assert all(gate.logins for gate in gates)


def test_password_of_systemd(binary, gates, password_file, monkeypatch):
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(password_file.parent))
    shards = {"user": USER, "passwordFile": "$CREDENTIALS_DIRECTORY/password"}
    with proxy_before(binary, gates, {"shards": shards}) as proxy:
        exercise(proxy)


def test_users_of_systemd(binary, shard_set, tmp_path, monkeypatch):
    path = tmp_path / "users.yaml"
    path.write_text(json.dumps([user_entry(binary, "ann", "pencil", ("read", "app"))]))
    path.chmod(0o400)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    config = {"routing": routing([shard.uri for shard in shard_set]),
              "security": {"authorization": "enabled",
                           "usersFile": "$CREDENTIALS_DIRECTORY/users.yaml"}}
    with Proxy(binary, config) as proxy:
        with pymongo.MongoClient(proxy.uri, username="ann", password="pencil") as client:
            client.app.things.find_one()


def test_wrong_password_is_told(binary, gates, password_file):
    password_file.write_text("wrong")
    shards = {"user": USER, "passwordFile": str(password_file)}
    with proxy_before(binary, gates, {"shards": shards}) as proxy:
        with pymongo.MongoClient(proxy.uri, retryReads=False) as client:
            with pytest.raises(OperationFailure) as failed:
                client.app.things.find_one(max_time_ms=3000)
            assert failed.value.code == 6
            assert f"does not let the router log in as {USER}" in str(failed.value)


def test_no_password_where_one_is_needed_is_told(binary, gates):
    with proxy_before(binary, gates, {}) as proxy, pymongo.MongoClient(proxy.uri) as client:
        with pytest.raises(OperationFailure) as failed:
            client.app.things.find_one()
        assert failed.value.code == 13
        assert "requires authentication" in str(failed.value)
        assert gates[1].refused
        assert "refuses what the router asks of it" in proxy.log_path.read_text()


@pytest.mark.parametrize("shards, problem", [
    ({"user": "u"}, "user needs passwordFile"),
    ({"passwordFile": "/x"}, "passwordFile needs user"),
    ({"user": "u", "passwordFile": "/nonexistent"}, "No such file"),
    ({"user": "u", "passwordFile": "$CREDENTIALS_DIRECTORY/x"}, "$CREDENTIALS_DIRECTORY is not set"),
    ({"user": "u", "mechanism": "PLAIN"}, "security.shards.mechanism must be"),
], ids=["no file", "no user", "missing file", "no directory", "mechanism"])
def test_wrong_configurations_are_refused(binary, shard_set, shards, problem):
    config = {"routing": routing([shard.uri for shard in shard_set]),
              "security": {"authorization": "disabled", "shards": shards}}
    answer = check(binary, config)
    assert answer.returncode == 78 and problem in answer.stderr


def check(binary, config, *more):
    made = Proxy(binary, config)
    environment = {k: v for k, v in os.environ.items() if k != "CREDENTIALS_DIRECTORY"}
    return subprocess.run([binary, "--config", made.config_path, "--check-config", *more],
                          capture_output=True, text=True, timeout=60, env=environment)


def test_a_password_on_the_command_line_is_refused(binary, shard_set):
    config = {"routing": routing([shard.uri for shard in shard_set])}
    shards = [{"name": "a", "uri": "mongodb://u:hidden@127.0.0.1:1/"}]
    answer = check(binary, config, "--set", f"routing.shards={json.dumps(shards)}")
    assert answer.returncode == 78 and "command line" in answer.stderr
    assert "hidden" not in answer.stderr + answer.stdout


def test_a_password_file_that_everybody_may_read_is_refused(binary, shard_set, password_file):
    password_file.chmod(0o644)
    config = {"routing": routing([shard.uri for shard in shard_set]),
              "security": {"shards": {"user": "u", "passwordFile": str(password_file)}}}
    answer = check(binary, config)
    assert answer.returncode == 78 and "is world-readable" in answer.stderr
    assert PASSWORD not in answer.stderr




@pytest.mark.parametrize("uri", [
    "mongodb://u:hidden@127.0.0.1:1/?replicaSt=x", "mongodb://u:hidden@127.0.0.1:99999/",
    "mongodb://u:hid/den@127.0.0.1:1/", "mongodb://u:hidden@127.0.0.1:1/?authMechanism=PLAIN",
    "mongodb+srv://u:hidden@127.0.0.1/"])
def test_a_wrong_connection_string_does_not_show_its_password(binary, uri):
    answer = check(binary, {"routing": {"shards": [{"name": "a", "uri": uri}]}})
    assert answer.returncode == 78
    assert "hid" not in answer.stderr + answer.stdout
