"""Users: logging in by SCRAM and by certificate, what roles allow, and who owns what."""

import json
import subprocess

import pymongo
import pytest
from certificates import Certificates
from proxy import routing
from pymongo.errors import ConnectionFailure, OperationFailure
from test_reload import Reloaded
from users import certificate_user, user_entry, without_secrets

pytestmark = [pytest.mark.timeout(180), pytest.mark.proxy_only]
PASSWORDS = {"ann": "pencil", "bob": "p\u00e4ssw\u00f6rd, =1", "root": "the root's", "eye": "watch"}
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
    assert answer.returncode == 78 and "may be read by everybody" in answer.stderr
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


