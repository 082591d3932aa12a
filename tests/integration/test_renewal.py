"""SIGHUP reads certificates and passwords anew: new connections use them, open ones go on."""

import shutil
import socket
import ssl

import pymongo
import pytest
from certificates import Certificates
from proxy import routing
from pymongo.errors import ConnectionFailure
from reloaded import Reloaded
from scram_gate import ScramGate
from tls_relay import TlsRelay

pytestmark = [pytest.mark.timeout(180), pytest.mark.proxy_only]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


def shown_to(proxy, certificates):
    """The subject that a client sees that connects now."""
    context = ssl.create_default_context(cafile=certificates.ca)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as plain:
        with context.wrap_socket(plain, server_hostname="localhost") as encrypted:
            return dict(pair[0] for pair in encrypted.getpeercert()["subject"])["commonName"]


def tls_proxy(binary, shard_set, **tls):
    return Reloaded(binary, {
        "routing": routing([s.uri for s in shard_set]),
        "net": {"port": 0, "bindIp": "127.0.0.1", "tls": {"mode": "requireTLS", **tls}}})


def test_the_certificate_for_clients_is_renewed(binary, shard_set, certificates, tmp_path):
    file = tmp_path / "server.pem"
    shutil.copy(certificates.server, file)
    with tls_proxy(binary, shard_set, certificateKeyFile=str(file)) as proxy:
        # Polled, since what measures a streaming monitor's round trips connects when it likes.
        options = {"tls": True, "tlsCAFile": certificates.ca, "serverMonitoringMode": "poll"}
        with pymongo.MongoClient(proxy.uri, maxPoolSize=1, **options) as client:
            client.app.things.drop()
            client.app.things.insert_many([{"_id": n} for n in range(300)])
            cursor = client.app.things.find(batch_size=10)
            next(cursor)
            status = client.admin.command("serverStatus")["security"]
            assert status["SSLServerSubjectName"] == "CN=server"
            assert not status["SSLServerHasCertificateAuthority"]
            created = client.admin.command("serverStatus")["connections"]["totalCreated"]
            shutil.copy(certificates.issue("renewed"), file)
            assert f"reloaded: certificates ({file}: CN=renewed, until 2" in proxy.reload()
            assert shown_to(proxy, certificates) == "renewed"
            # The old connection is the one that goes on.
            assert len(list(cursor)) == 299
            status = client.admin.command("serverStatus")
            assert status["security"]["SSLServerSubjectName"] == "CN=renewed"
            assert status["connections"]["totalCreated"] == created + 1  # shown_to()'s


@pytest.mark.parametrize("what, problem", [
    ("garbage", "cannot use the certificate in"), ("no key", "cannot use the private key"),
    ("another's key", "key"), ("expired", "has expired on"), ("missing", "No such file")])
def test_a_wrong_certificate_is_refused_and_the_old_stays(
        binary, shard_set, certificates, tmp_path, what, problem):
    file = tmp_path / "server.pem"
    shutil.copy(certificates.server, file)
    with tls_proxy(binary, shard_set, certificateKeyFile=str(file)) as proxy:
        proxy.config["operationProfiling"] = {"slowOpThresholdMs": 4321}
        if what == "garbage":
            file.write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
        elif what == "no key":
            shutil.copy(certificates.ca, file)
        elif what == "another's key":
            keys = [open(certificates._path(name)).read() for name in ("server.crt", "client.key")]
            file.write_text("".join(keys))
        elif what == "expired":
            shutil.copy(certificates.issue("expired", days=-1), file)
        else:
            file.unlink()
        outcome = proxy.reload()
        assert "reload refused" in outcome
        assert problem in outcome
        assert shown_to(proxy, certificates) == "server"
        with pymongo.MongoClient(proxy.uri, tls=True, tlsCAFile=certificates.ca) as client:
            assert client.admin.command("profile", -1)["slowms"] != 4321  # all or nothing


def test_an_expired_certificate_is_refused_at_the_start(binary, shard_set, certificates):
    expired = certificates.issue("expired-too", days=-1)
    with pytest.raises(Exception, match="has expired on"):
        tls_proxy(binary, shard_set, certificateKeyFile=expired).start()


def test_one_that_soon_expires_is_warned_of(binary, shard_set, certificates):
    with tls_proxy(binary, shard_set, certificateKeyFile=certificates.server) as proxy:
        assert "server.pem (CN=server) expires in 47 hours" in proxy.log()


def test_authorities_and_mode_change(binary, shard_set, certificates):
    with tls_proxy(binary, shard_set, certificateKeyFile=certificates.server) as proxy:
        proxy.config["net"]["tls"]["CAFile"] = certificates.ca
        assert "net.tls.CAFile" in proxy.reload()
        options = {"tls": True, "tlsCAFile": certificates.ca, "serverSelectionTimeoutMS": 2000}
        with pymongo.MongoClient(proxy.uri, **options) as client, pytest.raises(ConnectionFailure):
            client.admin.command("ping")
        options["tlsCertificateKeyFile"] = certificates.client
        with pymongo.MongoClient(proxy.uri, **options) as client:
            assert client.admin.command("ping")["ok"] == 1
            assert client.admin.command(
                "serverStatus")["security"]["SSLServerHasCertificateAuthority"]
        del proxy.config["net"]["tls"]
        assert "net.tls.mode" in proxy.reload()
        with pymongo.MongoClient(proxy.uri) as client:
            assert client.admin.command("ping")["ok"] == 1


def test_the_certificate_for_shards_is_renewed(binary, shard_set, certificates, tmp_path):
    """The shard's authority changes: what shows the old certificate does not get in again."""
    own, authorities = tmp_path / "client.pem", tmp_path / "ca.pem"
    shutil.copy(certificates.client, own)
    shutil.copy(certificates.ca, authorities)
    with TlsRelay(shard_set[0].port, certificates.server, client_ca=certificates.ca) as relay:
        port = relay.port
        uri = (f"mongodb://localhost:{port}/?tls=true&tlsCAFile={authorities}"
               f"&tlsCertificateKeyFile={own}&connectTimeoutMS=2000")
        proxy = Reloaded(binary, {"routing": routing([uri])}).start()
        with pymongo.MongoClient(proxy.uri) as client:
            assert client.app.things.find_one({"_id": -1}) is None
    try:
        other = certificates.issue("other-server", "other-ca")
        with TlsRelay(shard_set[0].port, other, client_ca=certificates.other_ca, at=port):
            with pymongo.MongoClient(proxy.uri) as client:
                with pytest.raises(pymongo.errors.OperationFailure):
                    client.app.things.find_one({"_id": -1}, max_time_ms=1500)
                shutil.copy(certificates.stranger, own)
                shutil.copy(certificates.other_ca, authorities)
                assert "reloaded" in proxy.reload()
                assert client.app.things.find_one({"_id": -1}, max_time_ms=20_000) is None
    finally:
        proxy.stop()


def test_the_password_for_shards_is_renewed(binary, shard_set, tmp_path):
    file = tmp_path / "password"
    file.write_text("old one\n")
    file.chmod(0o600)
    with ScramGate(shard_set[0].port, "router", "old one") as gate:
        shards = {"user": "router", "passwordFile": str(file)}
        config = {"routing": routing([f"mongodb://127.0.0.1:{gate.port}/"]),
                  "security": {"authorization": "disabled", "shards": shards}}
        with Reloaded(binary, config) as proxy, pymongo.MongoClient(proxy.uri) as client:
            assert client.app.things.find_one({"_id": -1}) is None
            before = len(gate.logins)
            assert before > 0
            # Another user: connections of the old one end.
            gate.user, gate.password = "renewed", "new one"
            file.write_text("new one\n")
            proxy.config["security"]["shards"]["user"] = "renewed"
            assert "security.shards.user" in proxy.reload()
            assert client.app.things.find_one({"_id": -1}) is None
            assert len(gate.logins) > before
            file.chmod(0o644)
            assert "is world-readable" in proxy.reload()


def test_a_proxy_reads_credentials_of_systemd(binary, shard_set, certificates, tmp_path, monkeypatch):
    shutil.copy(certificates.server, tmp_path / "server.pem")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    with tls_proxy(binary, shard_set,
                   certificateKeyFile="$CREDENTIALS_DIRECTORY/server.pem") as proxy:
        assert shown_to(proxy, certificates) == "server"
