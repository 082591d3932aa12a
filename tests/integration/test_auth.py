"""Users: logging in by SCRAM and by certificate, what roles allow, and the owners of cursors and sessions."""

import json
import subprocess
import uuid

import pymongo
import pytest
from bson import Binary, Int64
from certificates import Certificates
from proxy import routing
from pymongo.errors import ConnectionFailure, OperationFailure
from test_reload import Reloaded
from users import certificate_user, user_entry, without_secrets
from waiting import wait_for

pytestmark = [pytest.mark.timeout(180), pytest.mark.proxy_only]
PASSWORDS = {"ann": "pencil", "bob": "p\u00e4ssw\u00f6rd, =1", "root": "the root's", "eye": "eyes only"}
ROLES = {"ann": [("readWrite", "app")], "bob": [("read", "app")], "root": [("root", "admin")],
         "eye": [("clusterMonitor", "admin")]}


@pytest.fixture(scope="module")
def users(binary):
    return [user_entry(binary, name, PASSWORDS[name], *ROLES[name]) for name in PASSWORDS]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


def proxy_with(binary, shard_set, users, **more):
    config = {"routing": routing([shard.uri for shard in shard_set]),
              "security": {"authorization": "enabled", "users": users}, **more}
    return Reloaded(binary, config)


@pytest.fixture(scope="module")
def proxy(binary, shard_set, users):
    proxy = proxy_with(binary, shard_set, users).start()
    yield proxy
    assert without_secrets(proxy.log(), *PASSWORDS.values())
    proxy.stop()


def client_of(proxy, name=None, **options):
    options.setdefault("serverSelectionTimeoutMS", 5000)
    if name:
        options = {"username": name, "password": PASSWORDS[name], "authSource": "admin", **options}
    return pymongo.MongoClient(proxy.uri, **options)


def refused(code, do, *arguments, **options):
    with pytest.raises(OperationFailure) as failed:
        do(*arguments, **options)
    assert failed.value.code == code, failed.value
    return failed.value


@pytest.mark.parametrize("mechanism", [None, "SCRAM-SHA-1", "SCRAM-SHA-256"])
@pytest.mark.parametrize("name", ["ann", "bob"])
def test_scram(proxy, name, mechanism):
    with client_of(proxy, name, **({"authMechanism": mechanism} if mechanism else {})) as client:
        client.app.ranged.count_documents({})
        info = client.admin.command("connectionStatus")["authInfo"]
        assert info["authenticatedUsers"] == [{"user": name, "db": "admin"}]
        assert info["authenticatedUserRoles"] == [
            {"role": role, "db": db} for role, db in ROLES[name]]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256"])
@pytest.mark.parametrize("name", ["ann", "nobody"])
def test_wrong_password(proxy, name, mechanism):
    with client_of(proxy, username=name, password="wrong", authMechanism=mechanism) as client:
        error = refused(18, client.app.ranged.find_one)
        assert error.details["errmsg"] == "Authentication failed."
        assert error.details["codeName"] == "AuthenticationFailed"


def test_nobody_sees_nothing(proxy):
    with client_of(proxy) as client:
        assert client.admin.command("ping")["ok"] == 1
        assert client.admin.command("hello")["msg"] == "isdbgrid"
        for do in (client.app.ranged.find_one, client.list_database_names,
                   lambda: client.admin.command("serverStatus"),
                   lambda: client.app.ranged.insert_one({"_id": 1}),
                   lambda: client.app.ranged.insert_one({"_id": 1, "p": "x" * 3_000_000})):
            assert "requires authentication" in str(refused(13, do))
        assert client.admin.command("ping")["ok"] == 1


def test_roles(proxy):
    with client_of(proxy, "root") as root, client_of(proxy, "ann") as ann, \
            client_of(proxy, "bob") as bob, client_of(proxy, "eye") as eye:
        root.app.ranged.drop()
        ann.app.ranged.insert_many([{"_id": n} for n in range(0, 900, 10)])
        assert bob.app.ranged.count_documents({}) == 90
        error = refused(13, bob.app.ranged.insert_one, {"_id": 1})
        assert error.details["errmsg"].startswith("not authorized on app to execute command {")
        for do in (lambda: ann.other.things.find_one(), lambda: ann.admin.command("serverStatus"),
                   lambda: ann.admin.command("shutdown"),
                   lambda: bob.app.ranged.drop(), lambda: bob.app.ranged.create_index("x"),
                   lambda: bob.app.ranged.update_one({"_id": 0}, {"$set": {"x": 1}}),
                   lambda: list(bob.app.things.aggregate([{"$out": "copy"}])),
                   lambda: list(bob.app.things.aggregate([{"$unionWith": "system.users"}])),
                   lambda: bob.admin["system.users"].find_one(),
                   lambda: ann.drop_database("app"), lambda: eye.app.ranged.find_one(),
                   lambda: eye.admin.command("setParameter", 1, cursorTimeoutMillis=600000),
                   lambda: ann.app.command("explain", {"find": "x", "$db": "other"})):
            refused(13, do)
        assert eye.admin.command("serverStatus")["ok"] == 1
        assert eye.config.shards.count_documents({}) == 3
        assert root.admin.command("usersInfo", 1)["users"]
        assert [u["user"] for u in bob.admin.command("usersInfo", "bob")["users"]] == ["bob"]
        refused(13, bob.admin.command, "usersInfo", "ann")
        refused(115, root.admin.command, "createUser", "x", pwd="verysecret", roles=[])
        status = root.admin.command("serverStatus")["security"]
        counted = status["authentication"]["mechanisms"]["SCRAM-SHA-256"]["authenticate"]
        assert counted["received"] >= counted["successful"] > 0
        assert status["refusedCommands"]["unauthorized"] > 0


def test_tls_scram_and_compression_at_once(binary, shard_set, users, certificates):
    tls = {"mode": "requireTLS", "certificateKeyFile": certificates.server}
    with proxy_with(binary, shard_set, users,
                    net={"port": 0, "bindIp": "127.0.0.1", "tls": tls}) as proxy:
        options = {"tls": True, "tlsCAFile": certificates.ca, "compressors": "zlib"}
        with client_of(proxy, "root", **options) as client:
            client.app.ranged.drop()
            documents = [{"_id": n, "p": "x" * 20_000} for n in range(300)]
            client.app.ranged.insert_many(documents)
            assert list(client.app.ranged.find().sort("_id", 1).batch_size(40)) == documents
        with client_of(proxy, "ann", **{**options, "password": "wrong"}) as client:
            refused(18, client.app.ranged.find_one)


def test_certificates_of_users(binary, shard_set, users, certificates):
    tls = {"mode": "requireTLS", "certificateKeyFile": certificates.server,
           "CAFile": certificates.ca, "allowConnectionsWithoutCertificates": True}
    known = [*users, certificate_user("CN=client", ("read", "app"))]
    x509 = {"tls": True, "tlsCAFile": certificates.ca, "authMechanism": "MONGODB-X509"}
    with proxy_with(binary, shard_set, known,
                    net={"port": 0, "bindIp": "127.0.0.1", "tls": tls}) as proxy:
        with client_of(proxy, **x509, tlsCertificateKeyFile=certificates.client) as client:
            client.app.ranged.find_one()
            refused(13, client.app.ranged.insert_one, {"_id": 5})
            info = client.admin.command("connectionStatus")["authInfo"]
            assert info["authenticatedUsers"] == [{"user": "CN=client", "db": "$external"}]
        # A certificate of a name that is no user; another user's name; none at all.
        with client_of(proxy, **x509, tlsCertificateKeyFile=certificates.elsewhere) as client:
            refused(18, client.app.ranged.find_one)
        with client_of(proxy, **x509, username="CN=root",
                       tlsCertificateKeyFile=certificates.client) as client:
            refused(18, client.app.ranged.find_one)
        with client_of(proxy, **x509) as client:
            refused(18, client.app.ranged.find_one)
        with client_of(proxy, **x509, tlsCertificateKeyFile=certificates.stranger) as client:
            with pytest.raises(ConnectionFailure):
                client.app.ranged.find_one()


def test_reload_of_users(binary, shard_set, users):
    with proxy_with(binary, shard_set, users) as proxy:
        with client_of(proxy, "ann") as ann, client_of(proxy, "bob") as bob:
            ann.app.things.find_one()
            bob.app.things.find_one()
            ann_entry = next(u for u in users if u["user"] == "ann")
            proxy.config["security"]["users"] = [
                {**ann_entry, "roles": [{"role": "read", "db": "other"}]}]
            assert "security.users" in proxy.reload()
            refused(13, ann.app.things.find_one)
            ann.other.things.find_one()
            assert "requires authentication" in str(refused(13, bob.app.things.find_one))
            proxy.config["security"]["users"] = [
                {**ann_entry, "roles": [{"role": "reed", "db": "other"}]}]
            assert "did you mean 'read'" in proxy.reload()
            ann.other.things.find_one()


def test_users_file(binary, shard_set, users, tmp_path):
    path = tmp_path / "users.yaml"
    path.write_text(json.dumps(users))
    path.chmod(0o644)
    proxy = proxy_with(binary, shard_set, [])
    proxy.config["security"] = {"authorization": "enabled", "usersFile": str(path)}
    proxy.config_path.write_text(json.dumps(proxy.config))
    check = [str(binary), "--config", str(proxy.config_path), "--check-config"]
    answer = subprocess.run(check, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 78 and "is world-readable" in answer.stderr
    path.chmod(0o640)
    with proxy, client_of(proxy, "ann") as client:
        client.app.things.find_one()


def test_authorization_disabled_knows_users_all_the_same(binary, shard_set, users):
    with proxy_with(binary, shard_set, users,
                    security={"authorization": "disabled", "users": users}) as proxy:
        with client_of(proxy, "bob") as client:
            client.app.ranged.find_one()
            client.other.things.find_one()
        with client_of(proxy, "bob", password="wrong") as client:
            refused(18, client.app.ranged.find_one)


def test_hash_password_takes_no_password_from_the_command_line(binary):
    done = subprocess.run([str(binary), "--hash-password", "x", "secret"], capture_output=True,
                          text=True, input="", timeout=60)
    assert done.returncode == 64
    done = subprocess.run([str(binary), "--hash-password", "x"], capture_output=True, text=True,
                          input="", timeout=60)
    assert done.returncode == 1 and "no password" in done.stderr




# --- owners of cursors and sessions

@pytest.fixture
def filled(proxy):
    with client_of(proxy, "root") as root:
        root.app.ranged.drop()
        root.app.ranged.insert_many([{"_id": n} for n in range(900)])


def new_session():
    """What drivers make; theirs need replica sets."""
    return {"id": Binary(uuid.uuid4().bytes, 4)}


def open_cursor(client, lsid):
    reply = client.app.command({"find": "ranged", "batchSize": 5, "sort": {"_id": 1},
                                "lsid": lsid})
    return Int64(reply["cursor"]["id"])


def get_more(client, cursor, lsid):
    reply = client.app.command({"getMore": cursor, "collection": "ranged", "batchSize": 5,
                                "lsid": lsid})
    return [document["_id"] for document in reply["cursor"]["nextBatch"]]


def test_another_users_cursor(proxy, filled):
    with client_of(proxy, "ann") as ann, client_of(proxy, "bob") as bob, \
            client_of(proxy, "root") as root:
        lsid = new_session()
        cursor = open_cursor(ann, lsid)
        for own in (lsid, new_session()):
            refused(13, get_more, bob, cursor, own)
        error = refused(13, bob.app.command, {"getMore": cursor, "collection": "ranged"})
        assert "not created by the authenticated user" in str(error)
        error = refused(13, bob.app.command, "killCursors", "ranged", cursors=[cursor])
        assert "not created by the authenticated user" in str(error)
        assert get_more(ann, cursor, lsid) == [5, 6, 7, 8, 9]
        # A role that allows it kills another user's cursor.
        killed = root.app.command("killCursors", "ranged", cursors=[cursor])
        assert killed["cursorsKilled"] == [cursor]
        refused(43, get_more, ann, cursor, lsid)


def test_another_users_session(proxy, filled):
    with client_of(proxy, "ann") as ann, client_of(proxy, "bob") as bob:
        lsid = new_session()
        ann.app.command({"find": "ranged", "limit": 1, "lsid": lsid})
        for do in (lambda: bob.app.command({"find": "ranged", "lsid": lsid}),
                   lambda: bob.app.command("refreshSessions", [lsid]),
                   lambda: bob.app.command("killSessions", [lsid]),
                   lambda: bob.app.command("endSessions", [lsid]),
                   lambda: bob.admin.command("killAllSessions", [])):
            refused(13, do)
        refused(13, bob.app.command, {"find": "ranged", "lsid": {**lsid, "uid": b"x" * 32}})
        cursor = open_cursor(ann, lsid)
        assert bob.app.command("killSessions", [])["ok"] == 1  # bob's own
        assert get_more(ann, cursor, lsid) == [5, 6, 7, 8, 9]
        ann.app.command("endSessions", [lsid])
        # It is free again.
        assert bob.app.command({"find": "ranged", "limit": 1, "lsid": lsid})["ok"] == 1
        refused(13, get_more, ann, cursor, lsid)
        refused(43, get_more, bob, cursor, lsid)


def test_sessions_of_users_are_killed_by_name(proxy, filled):
    with client_of(proxy, "ann") as ann, client_of(proxy, "bob") as bob, \
            client_of(proxy, "root") as root:
        one, two = new_session(), new_session()
        cursors = [open_cursor(ann, one), open_cursor(bob, two)]
        root.admin.command("killAllSessions", [{"user": "ann", "db": "admin"}])
        refused(43, get_more, ann, cursors[0], one)
        assert get_more(bob, cursors[1], two) == [5, 6, 7, 8, 9]


def test_operations_are_ones_own(proxy, filled):
    with client_of(proxy, "ann") as ann, client_of(proxy, "bob") as bob, \
            client_of(proxy, "eye") as eye:
        open_cursor(ann, new_session())

        def names(client, **options):
            stage = {"$currentOp": {"idleCursors": True, "idleConnections": True, **options}}
            rows = client.admin.aggregate([stage]).to_list()
            return {u["user"] for row in rows for u in row.get("effectiveUsers", ())}

        assert names(bob) == {"bob"}
        assert names(ann) == {"ann"}
        assert names(eye, allUsers=True) >= {"ann", "bob", "eye"}
        refused(13, names, bob, allUsers=True)
        refused(13, bob.admin.command, "currentOp")
        assert bob.admin.command("currentOp", **{"$ownOps": True})["ok"] == 1


def test_databases_that_one_may_see(proxy, filled):
    with client_of(proxy, "ann") as ann, client_of(proxy, "root") as root:
        root.hidden.things.insert_one({})
        assert "hidden" in root.list_database_names()
        assert ann.list_database_names() == ["app"]
        assert ann.app.list_collection_names()
        refused(13, ann.hidden.list_collection_names)
        root.drop_database("hidden")


def test_users_of_a_shard(binary, shard_set, users):
    """What MongoDB keeps in admin.system.users, put there by hand."""
    entries = {user["user"]: user for user in users}
    stored = [{"_id": f"admin.{name}", **entries[name]} for name in ("ann", "bob")]
    with pymongo.MongoClient(shard_set[0].uri) as direct:
        kept = direct.admin["system.users"]
        kept.delete_many({})
        kept.insert_many(stored)
        try:
            security = {"authorization": "enabled", "usersFrom": "shard0",
                        "users": [entries["root"]]}
            refresh = {"userCacheInvalidationIntervalSecs": 1}
            with proxy_with(binary, shard_set, [], security=security,
                            setParameter=refresh) as proxy:
                with client_of(proxy, "ann") as ann, client_of(proxy, "bob") as bob, \
                        client_of(proxy, "root") as root:
                    ann.app.things.find_one()
                    bob.app.things.find_one()
                    refused(13, bob.app.things.insert_one, {})
                    assert root.admin.command("usersInfo", {"forAllDBs": True})["users"]
                    kept.delete_one({"user": "bob"})

                    def gone():
                        try:
                            return bob.app.things.find_one() and False
                        except OperationFailure as error:
                            return error.code == 13

                    wait_for(gone, "the user that was dropped")
                    ann.app.things.find_one()
        finally:
            kept.delete_many({})
