"""A client that asks for new keys (TLS 1.3, RFC 8446 section 4.6.3) again and again, and reads no answer."""

import ctypes
import ctypes.util
import socket

import pymongo
import pytest
from certificates import Certificates
from proxy import Proxy, routing

pytestmark = [pytest.mark.timeout(120), pytest.mark.proxy_only]
UPDATES_MAX = 400_000  # their unread answers would be 11 MB
UPDATE_REQUESTED = 1


class KeyUpdates:
    """By the system's libssl: Python's ssl module cannot ask for keys."""

    def __init__(self, port):
        name = ctypes.util.find_library("ssl")
        if not name or not hasattr(ctypes.CDLL(name), "SSL_key_update"):
            pytest.skip("libssl 1.1.1 or newer is needed")
        self.ssl = ctypes.CDLL(name)
        for function in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
            getattr(self.ssl, function).restype = ctypes.c_void_p
        self.socket = socket.socket()
        # The kernel's share is small and the same everywhere: with what it grants by itself (for the proxy's end it
        # goes by the segments' size) several MB of answers would pass before the proxy holds the first.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        self.socket.connect(("127.0.0.1", port))
        self.context = ctypes.c_void_p(self.ssl.SSL_CTX_new(ctypes.c_void_p(self.ssl.TLS_client_method())))
        self.connection = ctypes.c_void_p(self.ssl.SSL_new(self.context))
        assert self.ssl.SSL_set_fd(self.connection, self.socket.fileno()) == 1
        assert self.ssl.SSL_connect(self.connection) == 1

    def send(self):
        """False: the connection has ended."""
        assert self.ssl.SSL_key_update(self.connection, UPDATE_REQUESTED) == 1
        return self.ssl.SSL_do_handshake(self.connection) == 1

    def close(self):
        self.ssl.SSL_free(self.connection)
        self.ssl.SSL_CTX_free(self.context)
        self.socket.close()


def test_who_asks_for_keys_and_reads_nothing_is_left(binary, shard_set, tmp_path):
    certificates = Certificates(tmp_path)
    tls = {"mode": "requireTLS", "certificateKeyFile": certificates.server}
    config = {"net": {"port": 0, "bindIp": "127.0.0.1", "tls": tls}, "routing": routing([s.uri for s in shard_set])}
    with Proxy(binary, config) as proxy:
        client = KeyUpdates(proxy.port)
        try:
            sent = 0
            while sent < UPDATES_MAX and client.send():
                sent += 1
        finally:
            client.close()
        assert 0 < sent < UPDATES_MAX
        with pymongo.MongoClient(proxy.uri, tls=True, tlsCAFile=certificates.ca) as other:
            assert other.admin.command("ping")["ok"] == 1
