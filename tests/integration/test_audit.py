"""The audit log: users, addresses, commands, and nothing of the documents."""

import json
import os
import signal

import pymongo
import pytest
from proxy import routing
from pymongo.errors import OperationFailure
from test_reload import Reloaded
from users import user_entry
from waiting import wait_for

pytestmark = [pytest.mark.timeout(180), pytest.mark.proxy_only]
PASSWORDS = {"ann": "pencil sharp", "root": "the root's own"}
SECRET = "078-05-1120"


@pytest.fixture
def audited(binary, shard_set, tmp_path):
    users = [user_entry(binary, "ann", PASSWORDS["ann"], ("read", "app")),
             user_entry(binary, "root", PASSWORDS["root"], ("root", "admin"))]
    made = []

    def start(**audit):
        path = tmp_path / "audit.json"
        proxy = Reloaded(binary, {
            "routing": routing([shard.uri for shard in shard_set]),
            "security": {"authorization": "enabled", "users": users},
            "auditLog": {"destination": "file", "format": "JSON", "path": str(path), **audit}}).start()
        proxy.audit_path = path
        made.append(proxy)
        return proxy

    yield start
    for proxy in made:
        proxy.stop()


def client_of(proxy, name, password=None, **options):
    return pymongo.MongoClient(proxy.uri, username=name, password=password or PASSWORDS[name],
                               authSource="admin", serverSelectionTimeoutMS=5000, **options)


def events(proxy):
    return [json.loads(line) for line in proxy.audit_path.read_text().split("\n")[:-1]]  # whole lines


def only(proxy, atype, **param):
    return [e for e in events(proxy) if e["atype"] == atype
            and all(e["param"].get(k) == v for k, v in param.items())]


def test_what_is_audited(audited):
    proxy = audited()
    assert os.stat(proxy.audit_path).st_mode & 0o777 == 0o600
    with client_of(proxy, "root", appname="console") as root, client_of(proxy, "ann") as ann:
        root.app.drop_collection("audited")
        root.app.create_collection("audited")
        root.app.audited.insert_one({"ssn": SECRET})
        root.app.audited.create_index("name")
        with pytest.raises(OperationFailure):
            root.app.audited.create_index("other", partialFilterExpression={"$no": SECRET})
        root.app.audited.drop_index("name_1")
        root.admin.command("setParameter", 1, cursorTimeoutMillis=600000)
        ann.app.audited.find_one({"ssn": SECRET})
        for do in (lambda: ann.app.audited.insert_one({"ssn": SECRET}),
                   lambda: ann.app.audited.drop(),
                   lambda: ann.other.things.find_one({"ssn": SECRET})):
            with pytest.raises(OperationFailure):
                do()
        with client_of(proxy, "ann", "not this one") as stranger, pytest.raises(OperationFailure):
            stranger.app.command("ping")
        root.app.drop_collection("audited")
        seen = root.admin.command("serverStatus")["security"]["auditLog"]
        assert seen["written"] > 10 and seen["lost"] == 0
    assert "reloaded" in proxy.reload()
    proxy.stop()
    found = events(proxy)
    assert found[0]["atype"] == "startup" and found[-1]["atype"] == "shutdown"
    for event in found:
        assert {"atype", "ts", "local", "remote", "users", "roles", "param", "result"} <= set(event)
        assert event["ts"]["$date"].endswith("+00:00") and event["uuid"]["$type"] == "04"
    text = proxy.audit_path.read_text()
    assert SECRET not in text and all(password not in text for password in PASSWORDS.values())
    assert only(proxy, "clientMetadata")[0]["param"]["clientMetadata"]["driver"]["name"]
    good = [e for e in only(proxy, "authenticate", user="root", db="admin") if e["result"] == 0]
    assert good and good[0]["param"]["mechanism"] == "SCRAM-SHA-256"
    assert good[0]["remote"]["ip"] == "127.0.0.1" and good[0]["local"]["port"] == proxy.port
    assert [e for e in only(proxy, "authenticate", user="ann") if e["result"] == 18]
    for command, ns in (("insert", "app.audited"), ("drop", "app.audited"), ("find", "other.things")):
        event = only(proxy, "authCheck", command=command, ns=ns)[0]
        assert event["result"] == 13
        assert event["users"] == [{"user": "ann", "db": "admin"}]
        assert event["roles"] == [{"role": "read", "db": "app"}]
    assert [e["result"] for e in only(proxy, "createCollection", ns="app.audited")] == [0]
    assert [e["result"] for e in only(proxy, "createIndex", ns="app.audited", indexName="name_1")] == [0]
    assert [e["result"] for e in only(proxy, "createIndex", indexName="other_1")] not in ([], [0])
    assert [e["result"] for e in only(proxy, "dropIndex", ns="app.audited", indexName="name_1")] == [0]
    assert only(proxy, "dropCollection", ns="app.audited")[-1]["result"] == 0
    parameter = only(proxy, "authCheck", command="setParameter")[0]
    assert parameter["result"] == 0 and parameter["param"]["args"]["cursorTimeoutMillis"] == 600000
    assert only(proxy, "reload")[0]["param"]["outcome"].startswith("reloaded")


def test_rotation(audited):
    proxy = audited()

    def renamed():
        return list(proxy.audit_path.parent.glob("audit.json.2*"))

    with client_of(proxy, "root") as root:
        root.app.drop_collection("audited")
        wait_for(lambda: only(proxy, "authenticate"), "a line")
        old = proxy.audit_path.with_suffix(".old")
        proxy.audit_path.rename(old)
        proxy.process.send_signal(signal.SIGUSR1)
        wait_for(proxy.audit_path.exists, "the new file")
        assert os.stat(proxy.audit_path).st_mode & 0o777 == 0o600
        assert json.loads(old.read_text().splitlines()[-1])["atype"] == "rotateLog"
        with client_of(proxy, "ann") as ann:
            ann.app.command("ping")
        wait_for(lambda: only(proxy, "authenticate", user="ann"), "a line in the new file")
        root.admin.command("logRotate", 1)
        wait_for(lambda: len(renamed()) == 1, "the renamed file")
        renamed()[0].unlink()
        proxy.config["systemLog"] = {"logRotate": "reopen"}
        assert "reloaded: systemLog.logRotate" in proxy.reload()
        root.admin.command("logRotate", 1)
    proxy.stop()
    assert not renamed()
    assert len(only(proxy, "rotateLog")) == 1  # in the same file


def test_bad_settings_are_refused(binary, audited, tmp_path):
    with pytest.raises(Exception):
        audited(path=str(tmp_path / "nowhere" / "audit.json"))
