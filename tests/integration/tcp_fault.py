"""A TCP relay between the proxy and a shard that can lose a reply or hold the bytes back."""

import socket
import threading


class Relay:
    """Listens on a free loopback port and passes bytes to and from 127.0.0.1:`port`.

    lose_reply_to(marker): the next request that contains `marker` reaches the shard; when the
    shard answers, the answer is dropped and both connections are closed. `lost` counts those.
    """

    def __init__(self, port):
        self._target, self._closing, self._lock = port, False, threading.Lock()
        self._marker, self.lost, self.seen = None, 0, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def uri(self):
        return f"mongodb://127.0.0.1:{self.port}/"

    def lose_reply_to(self, marker):
        with self._lock:
            self._marker = marker

    def count_requests_with(self, marker):
        """Starts a count, in `seen`, of requests that contain `marker`."""
        with self._lock:
            self._counted, self.seen = marker, 0

    _counted = None

    def close(self):
        self._closing = True
        for one in [self._listener, *self._sockets]:
            self._shut(one)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @staticmethod
    def _shut(one):
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        one.close()

    def _accept(self):
        while not self._closing:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target), 10)
                far.settimeout(None)
            except OSError:
                near.close()
                continue
            for one in (near, far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets += [near, far]
            state = {"armed": False}
            for source, sink, forward in ((near, far, True), (far, near, False)):
                threading.Thread(target=self._pump, args=(source, sink, forward, state),
                                 daemon=True).start()

    def _pump(self, source, sink, forward, state):
        tail = b""
        try:
            while True:
                data = source.recv(1 << 16)
                if not data:
                    break
                if forward:
                    tail = self._inspect(tail + data, state)
                elif state["armed"]:
                    with self._lock:
                        self.lost += 1
                    break
                self._pass_on(sink, data, forward)
        except OSError:
            pass
        self._shut(source)
        self._shut(sink)

    def _pass_on(self, sink, data, forward):
        """What comes of bytes, to the shard (`forward`) or from it; on a thread of the connection's direction."""
        sink.sendall(data)

    def _inspect(self, window, state):
        """Looks for the markers in what the proxy sent; returns what may begin a split one."""
        keep = 0
        with self._lock:
            if self._marker and self._marker in window:
                self._marker, state["armed"] = None, True
            if self._counted:
                self.seen += window.count(self._counted)
                keep = len(self._counted) - 1
            if self._marker:
                keep = max(keep, len(self._marker) - 1)
            if self._counted and keep >= len(self._counted):
                keep = len(self._counted) - 1
        return window[-keep:] if keep else b""
