"""TLS towards clients (net.tls) and towards shards (tls=true in their connection strings)."""

import os
import socket
import ssl
import subprocess

import pymongo
import pytest
from certificates import Certificates
from proxy import Proxy, routing
from pymongo.errors import ConnectionFailure, OperationFailure
from tls_relay import TlsRelay
from waiting import wait_for

pytestmark = [pytest.mark.timeout(180), pytest.mark.proxy_only]
SHORT = {"serverSelectionTimeoutMS": 2000}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


def proxy_with(binary, uris, **tls):
    config = {"routing": routing(uris)}
    if tls:
        config["net"] = {"port": 0, "bindIp": "127.0.0.1", "tls": tls}
    return Proxy(binary, config)


def client_of(proxy, certificates=None, **options):
    if certificates:
        options = {"tls": True, "tlsCAFile": certificates.ca, **options}
    return pymongo.MongoClient(proxy.uri, **options)


def exercise(client):
    """Small and large, there and back, over all shards."""
    collection = client.app.ranged
    collection.drop()
    documents = [{"_id": 3 * n, "p": os.urandom(50_000)} for n in range(240)]
    for start in range(0, len(documents), 40):
        collection.insert_many(documents[start:start + 40])
    assert list(collection.find().sort("_id", 1).batch_size(50)) == documents
    assert sorted(d["_id"] for d in collection.find({}, batch_size=7)) == [3 * n for n in range(240)]
    assert collection.update_many({"_id": {"$lt": 300}}, {"$set": {"x": 1}}).modified_count == 100
    large = {"_id": 2, "p": os.urandom(15_000_000)}
    collection.insert_one(large)
    assert collection.find_one({"_id": 2}) == large


@pytest.mark.parametrize("compressors", [None, "zstd", "zlib,snappy"])
def test_tls_to_clients(binary, shard_set, certificates, compressors):
    options = {"compressors": compressors} if compressors else {}
    with proxy_with(binary, [s.uri for s in shard_set], mode="requireTLS",
                    certificateKeyFile=certificates.server) as proxy:
        with client_of(proxy, certificates, **options) as client:
            exercise(client)
        with client_of(proxy, **SHORT) as plain, pytest.raises(ConnectionFailure):
            plain.admin.command("ping")
        with client_of(proxy, certificates, tlsCAFile=certificates.other_ca, **SHORT) as wary:
            with pytest.raises(ConnectionFailure, match="certificate verify failed"):
                wary.admin.command("ping")


@pytest.mark.parametrize("mode", ["allowTLS", "preferTLS"])
def test_both_kinds_of_clients(binary, shard_set, certificates, mode):
    with proxy_with(binary, [s.uri for s in shard_set], mode=mode,
                    certificateKeyFile=certificates.server) as proxy:
        with client_of(proxy) as plain, client_of(proxy, certificates) as encrypted:
            exercise(encrypted)
            assert plain.app.ranged.count_documents({}) == 241


def test_certificates_of_clients(binary, shard_set, certificates):
    with proxy_with(binary, [s.uri for s in shard_set], mode="requireTLS", CAFile=certificates.ca,
                    certificateKeyFile=certificates.server) as proxy:
        own = {"tlsCertificateKeyFile": certificates.client}
        with client_of(proxy, certificates, **own) as client:
            assert client.admin.command("ping")["ok"] == 1
        foreign = {"tlsCertificateKeyFile": certificates.stranger}
        for wrong in ({}, foreign):
            with client_of(proxy, certificates, **wrong, **SHORT) as client:
                with pytest.raises(ConnectionFailure):
                    client.admin.command("ping")
    log = proxy.log_path.read_text()
    assert "peer did not return a certificate" in log
    assert "SSL peer certificate validation failed" in log


def test_tls_to_shards(binary, shard_set, certificates):
    relays = [TlsRelay(s.port, certificates.server, client_ca=certificates.ca) for s in shard_set]
    try:
        options = f"?tls=true&tlsCAFile={certificates.ca}"
        options += f"&tlsCertificateKeyFile={certificates.client}"
        uris = [f"mongodb://localhost:{relay.port}/{options}" for relay in relays]
        with proxy_with(binary, uris) as proxy, client_of(proxy) as client:
            exercise(client)
            shown = str(client.admin.command("getShardMap")) + str(client.admin.command("listShards"))
            assert certificates.client not in shown
        assert all(relay.served for relay in relays)
    finally:
        for relay in relays:
            relay.close()


@pytest.mark.parametrize("shown, options, problem", [
    ("elsewhere", "tls=true&tlsCAFile={other_ca}", "certificate validation failed"),
    ("elsewhere", "tls=true&tlsCAFile={ca}", "hostname mismatch"),
    ("expired", "tls=true&tlsCAFile={ca}", "certificate has expired"),
    ("elsewhere", "", "closed by the shard")], ids=["authority", "name", "expired", "plain"])
def test_a_shard_that_is_not_who_it_should_be(binary, shard_set, certificates, shown, options, problem):
    certificate = certificates.issue("expired", days=-1) if shown == "expired" else certificates.elsewhere
    with TlsRelay(shard_set[0].port, certificate) as relay:
        options = options.format(ca=certificates.ca, other_ca=certificates.other_ca)
        uri = f"mongodb://localhost:{relay.port}/?connectTimeoutMS=1000&{options}"
        with proxy_with(binary, [uri]) as proxy, client_of(proxy) as client:
            with pytest.raises(OperationFailure) as failed:
                client.app.things.find_one(max_time_ms=3000)
            assert failed.value.code in (6, 50, 133)
        assert problem in proxy.log_path.read_text()


def test_a_shard_that_speaks_plain_text_is_called_so(binary, shard_set):
    uri = f"mongodb://localhost:{shard_set[0].port}/?connectTimeoutMS=1000&tls=true&tlsInsecure=true"
    with proxy_with(binary, [uri]) as proxy:
        wait_for(lambda: "; it answers in plain text" in proxy.log_path.read_text(), "the line")


@pytest.mark.parametrize("tls, problem", [
    ({"mode": "requireTLS"}, "net.tls.mode needs net.tls.certificateKeyFile"),
    ({"mode": "requireTLS", "certificateKeyFile": "/nonexistent"}, "No such file"),
    ({"certificateKeyFile": "/x.pem"}, "clients would speak plain text unknowingly"),
    ({"mode": "requireTLS", "certificateKeyFile": "/x.pem", "disabledProtocols": "TLS1_2,TLS1_3"},
     "no TLS version is left"),
], ids=["no file", "missing file", "no mode", "no version"])
def test_wrong_configurations_are_refused(binary, tls, problem):
    wrong = proxy_with(binary, ["mongodb://127.0.0.1:1/"], **tls)
    answer = subprocess.run([binary, "--config", wrong.config_path, "--check-config"],
                            capture_output=True, text=True, timeout=60)
    assert answer.returncode == 78
    assert problem in answer.stderr


def test_what_tls_takes_is_counted(binary, shard_set, certificates):
    with proxy_with(binary, [s.uri for s in shard_set], mode="requireTLS",
                    certificateKeyFile=certificates.server) as proxy, \
            client_of(proxy, certificates) as client:
        def used():
            return client.admin.command("serverStatus")["memory"]["connections"]["usedBytes"]

        context = ssl.create_default_context(cafile=certificates.ca)
        before, held = used(), []
        for _ in range(20):
            plain = socket.create_connection(("127.0.0.1", proxy.port), timeout=20)
            held.append(context.wrap_socket(plain, server_hostname="localhost"))
        # The driver's own connections may have been in their handshakes, which take more, when `before` was read.
        wait_for(lambda: 16 * 20 * 1024 <= used() - before < 20 * 30 * 1024, "what 20 take")
        for one in held:
            one.close()
        # The driver that asks may have opened one or two connections of its own meanwhile.
        wait_for(lambda: used() - before < 4 * 20 * 1024, "what they give back")
