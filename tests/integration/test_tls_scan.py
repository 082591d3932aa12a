"""What scanners find of the default TLS settings."""

import errno
import re
import socket
import subprocess
import xml.etree.ElementTree

import pytest
from certificates import Certificates
from proxy import Proxy, routing

pytestmark = [pytest.mark.timeout(180), pytest.mark.proxy_only]
# Worth having: no known weakness, forward secrecy, authenticated encryption.
CIPHERS = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256",
           "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-RSA-AES128-GCM-SHA256"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def port(binary, shard_set, certificates):
    proxy = Proxy(binary, {
        "routing": routing([s.uri for s in shard_set]),
        "net": {"port": 0, "bindIp": "127.0.0.1",
                "tls": {"mode": "requireTLS", "certificateKeyFile": certificates.server}}}).start()
    yield proxy.port
    proxy.stop()


def output(*command, stdin=""):
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


def test_sslscan(port):
    found = xml.etree.ElementTree.fromstring(output("sslscan", "--xml=-", f"127.0.0.1:{port}"))
    enabled = {f"{p.get('type')} {p.get('version')}" for p in found.iter("protocol")
               if p.get("enabled") == "1"}
    assert enabled == {"tls 1.2", "tls 1.3"}
    assert {c.get("cipher") for c in found.iter("cipher")} == CIPHERS
    assert all(int(g.get("bits")) >= 128 for g in found.iter("group"))
    assert [g.get("name") for g in found.iter("group") if "ffdhe" in g.get("name")] == []
    assert next(found.iter("renegotiation")).get("supported") == "0"
    assert all(h.get("vulnerable") == "0" for h in found.iter("heartbleed"))


def test_nmap(port):
    scripts = "ssl-enum-ciphers,ssl-heartbleed,ssl-poodle,ssl-ccs-injection,ssl-dh-params,sslv2"
    found = output("nmap", "-Pn", "-n", "-p", str(port), "--script", scripts, "127.0.0.1")
    assert "least strength: A" in found
    assert "VULNERABLE" not in found
    assert re.findall(r"^\|   (TLSv1\.\d|SSLv\d):", found, re.M) == ["TLSv1.2", "TLSv1.3"]
    assert "warnings" not in found


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1"])
def test_old_versions_are_refused(port, version):
    told = output("openssl", "s_client", "-connect", f"127.0.0.1:{port}", version,
                  "-cipher", "ALL:@SECLEVEL=0")
    assert "New, (NONE)" in told, told
    assert "alert protocol version" in told, told


def test_sessions_are_resumed(port, certificates, tmp_path):
    session = str(tmp_path / "session")
    asked = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", certificates.ca,
             "-tls1_2"]
    first = output(*asked, "-sess_out", session)
    assert "Verify return code: 0 (ok)" in first and "New, TLSv1.2" in first, first
    again = output(*asked, "-sess_in", session)
    assert "Reused, TLSv1.2" in again, again


def test_renegotiation_is_refused(port, certificates):
    told = output("openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile",
                  certificates.ca, "-tls1_2", "-legacy_renegotiation", stdin="R\n")
    assert "no renegotiation" in told, told


@pytest.mark.parametrize("noise", [
    b"\x16\x03\x01\x00\x00", b"\x16\x03\x03\xff\xff" + b"x" * 70_000, b"\x80\x2e\x01\x00\x02",
    b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", b"\x15\x03\x01\x00\x02\x02\x28",
    b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64])
def test_noise_ends_the_connection(port, noise):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as raw:
        try:
            raw.sendall(noise)
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(65536):
                pass
        except OSError as error:  # it may have been reset before the shutdown, too
            assert error.errno in (errno.ECONNRESET, errno.ENOTCONN, errno.EPIPE)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as raw:
        assert raw.fileno() >= 0  # the others are served
