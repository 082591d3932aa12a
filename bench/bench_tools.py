"""What the benches written in Python share: a small client of the wire protocol, programs that say
when they are ready, a proxy's configuration, its memory as the kernel counts it, and what a result
is to be read with: machine and commit."""

import json
import math
import os
import pathlib
import platform
import re
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEAPS = ("jemalloc", "tcmalloc")
HAPROXY_PEERS = ("haproxy", "haproxy-splice")
MIB = 1 << 20
READY_TIMEOUT_S = 20


class Refused(Exception):
    """An answer with ok: 0 or with write errors; `answer` is the document."""

    def __init__(self, command, answer):
        super().__init__(f"{command}: {answer.get('code')}: {answer.get('errmsg')}")
        self.answer = answer


class Closed(Exception):
    """The peer closed the connection, or reset it."""


def bson(fields):
    """A document of int, float, str, bytes, bool, dict and list values; ints are int64."""
    out = b""
    for name, value in fields.items():
        key = name.encode() + b"\0"
        if isinstance(value, bool):
            out += b"\x08" + key + bytes([value])
        elif isinstance(value, int):
            out += b"\x12" + key + struct.pack("<q", value)
        elif isinstance(value, float):
            out += b"\x01" + key + struct.pack("<d", value)
        elif isinstance(value, str):
            data = value.encode() + b"\0"
            out += b"\x02" + key + struct.pack("<i", len(data)) + data
        elif isinstance(value, bytes):
            out += b"\x05" + key + struct.pack("<iB", len(value), 0) + value
        elif isinstance(value, dict):
            out += b"\x03" + key + bson(value)
        else:
            out += b"\x04" + key + bson({str(i): item for i, item in enumerate(value)})
    return struct.pack("<i", len(out) + 5) + out + b"\0"


def values(data, start=0):
    """The fields of a document as a dict; arrays become dicts, dull types are left out."""
    at, found = start + 4, {}
    while data[at]:
        kind, end = data[at], data.index(0, at + 1)
        name, at = data[at + 1:end].decode(), end + 1
        if kind in (3, 4):
            size = struct.unpack_from("<i", data, at)[0]
            found[name] = values(data, at)
        elif kind == 2:
            size = 4 + struct.unpack_from("<i", data, at)[0]
            found[name] = data[at + 4:at + size - 1].decode()
        elif kind in (1, 9, 16, 17, 18):
            size = 4 if kind == 16 else 8
            form = {1: "<d", 16: "<i"}.get(kind, "<q")
            found[name] = struct.unpack_from(form, data, at)[0]
        elif kind in (7, 8, 10):
            size = {7: 12, 8: 1, 10: 0}[kind]
            found[name] = bool(data[at]) if kind == 8 else data[at:at + size]
        elif kind == 5:
            size = 5 + struct.unpack_from("<i", data, at)[0]
        else:
            raise ValueError(f"BSON type {kind} in an answer")
        at += size
    return found


def op_msg(body, request_id=1):
    return struct.pack("<iiiiIB", 21 + len(body), request_id, 0, 2013, 0, 0) + body


class Client:
    """One connection, one command at a time. Raises Refused and Closed."""

    def __init__(self, port, timeout_s=60):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def receive(self, count):
        data = bytearray(count)
        view, got = memoryview(data), 0
        while got < count:
            try:
                more = self.socket.recv_into(view[got:])
            except ConnectionError as error:
                raise Closed(str(error)) from error
            if not more:
                raise Closed("the peer closed the connection")
            got += more
        return bytes(data)

    def send(self, data):
        try:
            self.socket.sendall(data)
        except ConnectionError as error:
            raise Closed(str(error)) from error

    def receive_message(self):
        """The next message without its length."""
        return self.receive(struct.unpack("<i", self.receive(4))[0] - 4)

    def command(self, fields, database="admin"):
        self.send(op_msg(bson({**fields, "$db": database})))
        answer = values(self.receive_message(), 17)
        if answer.get("ok") != 1.0 or "writeErrors" in answer:
            raise Refused(next(iter(fields)), answer)
        return answer

    def close(self):
        self.socket.close()


class Process:
    """A child that prints a line when it is ready (without `ready_text`: is not waited for, and has
    no port), on one core if that is named; ended by its pid, and only that."""

    def __init__(self, arguments, ready_text, log_path, preexec=None, pass_fds=(), core=None):
        self.log_path = pathlib.Path(log_path)
        command = [str(argument) for argument in arguments]
        if core is not None:
            command = ["taskset", "-c", str(core)] + command
        with open(log_path, "wb") as log:
            self.child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT,
                                          stdin=subprocess.DEVNULL, preexec_fn=preexec,
                                          pass_fds=pass_fds)
        self.pid = self.child.pid  # taskset replaces itself
        if not ready_text:
            return
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline and self.alive():
            for line in self.log().splitlines():
                if line.startswith(ready_text):
                    self.port = int(re.search(r"mongodb://[^/]*:(\d+)/", line)[1])
                    return
            time.sleep(0.01)
        self.stop()
        raise SystemExit(f"{pathlib.Path(arguments[0]).name} did not become ready:\n{self.log()}")

    def log(self):
        return self.log_path.read_text(errors="replace")

    def alive(self):
        return self.child.poll() is None

    def rss_bytes(self):
        try:
            text = pathlib.Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        except OSError:
            text = ""
        found = re.search(r"^Rss:\s+(\d+) kB", text, re.M)
        return int(found[1]) * 1024 if found else 0

    def cpu_s(self):
        """User and system time so far."""
        text = pathlib.Path(f"/proc/{self.pid}/stat").read_text()
        user, system = text.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        if self.alive():
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(20)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        return self.child.returncode


def cores(pin=True):
    """The core of the peers and the core of everything else, or None twice."""
    allowed = sorted(os.sched_getaffinity(0))
    if not pin or len(allowed) < 2 or not shutil.which("taskset"):
        return None, None
    return allowed[0], allowed[1]


def start_shards(build, folder, count=3, core=None, extra=()):
    shards = []
    try:
        for index in range(count):
            shards.append(Process([build / "null_shard", "--index", index, "--of", count, *extra],
                                  "null_shard ready:", folder / f"shard-{index}-of-{count}.log",
                                  core=core))
    except SystemExit:
        for shard in shards:
            shard.stop()
        raise
    return shards


def start_proxy(spillway, folder, shards, name, memory, collections, extra=(), preexec=None,
                workers=2, core=None, shard_compression="disabled"):
    """`memory` is the configuration's memory section as YAML, or None for the defaults; `collections`
    are sharded by hash."""
    lines = ["net: {port: 0, bindIp: 127.0.0.1, compression: {compressors: 'snappy,zstd,zlib'}, "
             f"shardCompression: '{shard_compression}'}}",
             f"workers: {workers}", "security: {authorization: disabled}"]
    if memory:
        lines.append(f"memory: {memory}")
    lines += ["routing:", "  shards:"]
    lines += [f'    - {{name: shard{i}, uri: "mongodb://127.0.0.1:{shard.port}/"}}'
              for i, shard in enumerate(shards)]
    if collections:
        lines.append("  collections:")
    lines += [f"    - {{ns: bench.{collection}, key: {{_id: hashed}}}}"
              for collection in collections]
    path = folder / f"{name}.yaml"
    path.write_text("\n".join(lines) + "\n")
    return Process([spillway, "--config", path, *extra], "spillway ready:",
                   folder / f"spillway-{name}.log", preexec, core=core)


def make_certificate(folder):
    """A certificate of its own and its key, in one file."""
    path = folder / "tls.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-days", "2", "-subj", "/CN=localhost", "-keyout", path, "-out", folder / "tls.crt"],
                   check=True, stdin=subprocess.DEVNULL, capture_output=True)
    path.write_text(path.read_text() + (folder / "tls.crt").read_text())
    return path


def haproxy_config(folder, peer, shard_port, threads=1, bind_tls="", server_tls=""):
    """(configuration file, socket that it listens on): HAProxy inherits the socket."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    listener.set_inheritable(True)
    text = (ROOT / "bench" / "haproxy.cfg.in").read_text()
    splice = "option splice-response" if peer == "haproxy-splice" else "# no splice"
    for name, value in (("@SPLICE_OPTION@", splice), ("@LISTEN_FD@", listener.fileno()),
                        ("@BIND_TLS@", bind_tls), ("@SERVER_TLS@", server_tls),
                        ("@SHARD_PORT@", shard_port), ("@THREADS@", threads)):
        text = text.replace(name, str(value))
    path = folder / f"{peer}.cfg"
    path.write_text(text)
    return path, listener


def start_haproxy(haproxy, folder, peer, shard_port, core=None, threads=1, **tls):
    path, listener = haproxy_config(folder, peer, shard_port, threads, **tls)
    process = Process([haproxy, "-db", "-f", path], None, folder / f"{peer}.log",
                      pass_fds=(listener.fileno(),), core=core)
    process.port = listener.getsockname()[1]
    listener.close()
    return process


def read_points(clients, total):
    for i in range(total):
        clients[i % len(clients)].command(
            {"find": "point_200", "filter": {"_id": i}, "limit": 1}, "bench")


class InsideTimes:
    """Time inside a Spillway (proxy/README.md), of one class of operations, between two looks."""

    def __init__(self, port, operation_class="point"):
        self.client, self.operation_class = Client(port), operation_class

    def look(self):
        """How many took so long: {upper bound in microseconds: count}."""
        status = self.client.command({"serverStatus": 1, "metrics": {"histograms": True}})
        cells = status["metrics"]["inside"][self.operation_class]["histogram"].values()
        return {cell.get("upToMicros", float("inf")): cell["count"] for cell in cells}

    @staticmethod
    def between(before, after):
        """Percentiles of what came between, as bounds that were kept to; empty if nothing did."""
        came = {bound: count - before.get(bound, 0) for bound, count in sorted(after.items())}
        total = sum(came.values())
        found = {"inside_ops": total} if total else {}
        for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999)):
            below = 0
            for bound, count in came.items():
                below += count
                if total and below >= math.ceil(share * total):
                    found[f"inside_{name}_us"] = bound
                    break
        return found

    def close(self):
        self.client.close()


class Sampler:
    """Calls `read` every 20 ms on a thread; keeps (seconds, what it returned, phase)."""

    def __init__(self, read, interval_s=0.02):
        self.read, self.interval_s, self.samples, self.phase = read, interval_s, [], "start"
        self.done = threading.Event()
        self.start = time.monotonic()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.done.is_set():
            self.samples.append((time.monotonic() - self.start, self.read(), self.phase))
            self.done.wait(self.interval_s)

    def stop(self):
        self.done.set()
        self.thread.join()

    def of(self, phase):
        return [value for _, value, at in self.samples if at == phase]


def load_json(done):
    """The report of a finished `load --json`."""
    if not done.stdout.startswith("{"):
        raise SystemExit(f"load failed: {done.stderr or done.returncode}")
    return json.loads(done.stdout)


def preload_of(heap):
    """The file that LD_PRELOAD makes a program's malloc: "tcmalloc" or "jemalloc"."""
    name = {"tcmalloc": "libtcmalloc_minimal.so.4", "jemalloc": "libjemalloc.so.2"}[heap]
    found = sorted([*pathlib.Path("/usr/lib").glob(f"*/{name}"),
                    *pathlib.Path("/usr/lib").glob(name)])
    if not found:
        raise SystemExit(f"{name} is not installed")
    return str(found[0])


def machine():
    model = next((line.split(":", 1)[1].strip()
                  for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, "
            f"load average at the start {load}")


def commit():
    def git(*arguments):
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""
    head = git("rev-parse", "--short", "HEAD") or "unknown"
    return head + (" with local changes" if git("status", "--porcelain", "-uno") else "")


def version_of(command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.splitlines()[0] if done.stdout else "unknown"
