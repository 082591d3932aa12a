"""Starts the proxy under test and checks how it ends (standard library only)."""

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

from shards import BUILD, ShardError, die_with_parent, read_ready_line

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
SANITIZER_REPORT = re.compile(
    r"(Address|Thread|Leak|Memory|UndefinedBehavior)Sanitizer|runtime error:", re.M)
MIN, MAX = {"$minKey": 1}, {"$maxKey": 1}


def find_binary(given=None):
    """The binary named, else the newest of the presets' builds; None when there is none."""
    if given:
        return Path(given)
    found = [BUILD / preset / "spillway" for preset in ("release", "dev", "asan", "tsan")]
    found = [path for path in found if os.access(path, os.X_OK)]
    return max(found, key=lambda path: path.stat().st_mtime) if found else None


def is_sanitized(binary):
    """Whether a binary was built with a sanitizer: its memory and its pace then mean little."""
    content = Path(binary).read_bytes()
    return b"__asan_init" in content or b"__tsan_init" in content


def even_ranges(field, bounds, shards):
    """Chunks of a one-field ranged collection, dealt out to the shards in turn."""
    edges = [MIN, *bounds, MAX]
    return [{"min": {field: low}, "max": {field: high}, "shard": shards[i % len(shards)]}
            for i, (low, high) in enumerate(zip(edges, edges[1:]))]


def routing(uris, **extra):
    """The routing table of the integration tests over the given shards.

    app.users, app.big    hashed _id, pre-split evenly
    app.orders            {region, n}, one border at 'm', each shard owns something
    app.ranged            _id at 100, 200, ... so that scans touch every shard several times
    everything else       unsharded; database app lives on the second shard, others on the first
    """
    names = [f"shard{i}" for i in range(len(uris))]
    second = names[1 % len(names)]
    last = names[-1]
    table = {
        "shards": [{"name": n, "uri": u} for n, u in zip(names, uris)],
        "defaultPrimary": names[0],
        "databases": [{"name": "app", "primary": second}],
        "collections": [
            {"ns": "app.users", "key": {"_id": "hashed"}},
            {"ns": "app.big", "key": {"_id": "hashed"}},
            {"ns": "app.orders", "key": {"region": 1, "n": 1}, "chunks": [
                {"min": {"region": MIN, "n": MIN}, "max": {"region": "h", "n": MIN},
                 "shard": names[0]},
                {"min": {"region": "h", "n": MIN}, "max": {"region": "p", "n": 50},
                 "shard": second},
                {"min": {"region": "p", "n": 50}, "max": {"region": MAX, "n": MAX},
                 "shard": last}]},
            {"ns": "app.ranged", "key": {"_id": 1},
             "chunks": even_ranges("_id", [100 * i for i in range(1, 9)], names)},
        ],
    }
    table.update(extra)
    return table


class Proxy:
    """One proxy process. stop() raises AssertionError unless it ended cleanly with code 0."""

    def __init__(self, binary, config, directory=None, name="proxy"):
        (BUILD / "tmp").mkdir(parents=True, exist_ok=True)
        self.directory = Path(directory or tempfile.mkdtemp(prefix=f"{name}-", dir=BUILD / "tmp"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.binary, self.process, self.port = Path(binary), None, 0
        self.sanitized = is_sanitized(binary)
        self.log_path = self.directory / f"{name}.log"
        base = {
            "net": {"port": 0, "bindIp": "127.0.0.1"},
            "workers": 2,
            "setParameter": {"enableTestCommands": 1},
            "security": {"authorization": "disabled"},
        }
        base.update(config)
        self.config_path = self.directory / f"{name}.conf"
        # JSON is YAML; it keeps the quotes that tell a string bound from a number.
        self.config_path.write_text(json.dumps(base, indent=1))

    @property
    def uri(self):
        return f"mongodb://127.0.0.1:{self.port}/"

    @property
    def pid(self):
        return self.process.pid

    def start(self):
        assert threading.current_thread() is threading.main_thread()
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [str(self.binary), "--config", str(self.config_path)], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=log, preexec_fn=die_with_parent,
                start_new_session=True)
        try:
            ready = read_ready_line(self.process, r"ready: mongodb://127\.0\.0\.1:(\d+)/",
                                    READY_TIMEOUT_S, "proxy", self.log_path)
        except ShardError:
            self.kill()
            raise
        self.port = int(ready[1])
        # Whatever else it prints must not fill the pipe.
        threading.Thread(target=self._drain, args=(self.process.stdout,), daemon=True).start()
        return self

    @staticmethod
    def _drain(stream):
        while stream.read(65536):
            pass

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process = None

    def stop(self):
        """SIGTERM, then checks the exit code and the log. Safe to call twice."""
        if self.process is None:
            return
        process, self.process = self.process, None
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = "none within the time-out"
        log = self.log_path.read_text(errors="replace")
        report = SANITIZER_REPORT.search(log)
        assert not report, f"sanitizer report:\n{log[max(0, report.start() - 200):][:8000]}"
        assert code == 0, f"the proxy ended with {code}:\n{log[-3000:]}"

    def rss_bytes(self):
        """Resident memory now, from the kernel's exact sum."""
        rollup = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        return int(re.search(r"^Rss:\s+(\d+) kB", rollup, re.M)[1]) * 1024

    def vm_rss_bytes(self):
        """Resident memory now, cheap to read often (may lag by a few pages a thread)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.M)[1]) * 1024

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        if kind is None:
            self.stop()
        else:
            self.kill()


def free_port():
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
