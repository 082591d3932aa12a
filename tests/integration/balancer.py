"""Load balancers in front of the proxy: a relay of our own that sends the PROXY protocol's header, and
HAProxy (standard library only)."""

import select
import shutil
import socket
import struct
import subprocess
import threading
from pathlib import Path

from shards import die_with_parent

HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
HAPROXY_CONFIG = """
defaults
  mode tcp
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen balancer
  bind fd@{listener}
  server proxy 127.0.0.1:{port} {send}
"""


def header_v1(source, destination):
    return f"PROXY TCP4 {source[0]} {destination[0]} {source[1]} {destination[1]}\r\n".encode()


def header_v2(source, destination):
    ends = (socket.inet_aton(source[0]) + socket.inet_aton(destination[0])
            + struct.pack(">HH", source[1], destination[1]))
    return b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + struct.pack(">H", len(ends)) + ends


class Relay:
    """Listens on a free loopback port; each connection is passed to 127.0.0.1:`port`, behind what
    `header` (a function of the client's and our address, or None) makes. `clients` has the addresses of
    the clients, `ours` those that the proxy sees without a header."""

    def __init__(self, port, header):
        self._target, self._header = port, header
        self.clients, self.ours = [], []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                near, address = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass, args=(near, address), daemon=True).start()

    def _pass(self, near, address):
        with near, socket.create_connection(("127.0.0.1", self._target)) as far:
            self.clients.append("%s:%d" % address)
            self.ours.append("%s:%d" % far.getsockname())
            if self._header:
                far.sendall(self._header(address, near.getsockname()))
            other = {near: far, far: near}
            while True:
                for ready in select.select([near, far], [], [])[0]:
                    try:
                        data = ready.recv(65536)
                        if not data:
                            return
                        other[ready].sendall(data)
                    except OSError:
                        return


class HaProxy:
    """HAProxy in front of 127.0.0.1:`port`; `send` is "send-proxy", "send-proxy-v2" or empty."""

    def __init__(self, port, send, directory):
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
            self.port = listener.getsockname()[1]
            config = Path(directory) / "haproxy.cfg"
            config.write_text(HAPROXY_CONFIG.format(listener=listener.fileno(), port=port, send=send))
            self._process = subprocess.Popen([HAPROXY, "-db", "-f", str(config)],
                                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                             stderr=subprocess.DEVNULL, preexec_fn=die_with_parent,
                                             pass_fds=(listener.fileno(),))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait()
