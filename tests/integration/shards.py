"""Real document servers for the tests to stand behind the proxy (standard library only).

Two kinds: "ferretdb" (data on disk, survives kill and restart) and "javaserver" (in memory, loses
its data with the process). Both are built once into build/shards/ and started on loopback ports
that the kernel gives out. A Shard must be started on the main thread: its process is told to die
with the thread that made it, so that nothing outlives a test run that was killed.
"""

import argparse
import ctypes
import fcntl
import hashlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
SOURCES = {kind: ROOT / "tests/shards" / kind for kind in ("ferretdb", "javaserver")}
KINDS = tuple(SOURCES)
MIN_GO = (1, 22)
READY_TIMEOUT_S = 60.0
PR_SET_PDEATHSIG = 1


class ShardError(RuntimeError):
    """A shard could not be built or started; the message says what to do."""


def die_with_parent():
    """Runs in the child before exec."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def find_go():
    """The first Go at least as new as FerretDB wants, or None."""
    candidates = [shutil.which("go"), "/usr/local/go/bin/go"]
    candidates += [str(p / "bin/go") for p in sorted(Path("/usr/lib").glob("go-1.*"), reverse=True)]
    for go in candidates:
        if not go or not os.access(go, os.X_OK):
            continue
        out = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, cwd="/")
        version = re.match(r"go(\d+)\.(\d+)", out.stdout)
        if version and (int(version[1]), int(version[2])) >= MIN_GO:
            return go
    return None


def missing_tools(kind):
    """Names of what the build of one kind lacks on this machine."""
    if kind == "ferretdb":
        return [] if find_go() else [f"go >= {MIN_GO[0]}.{MIN_GO[1]}"]
    return [tool for tool in ("java", "javac", "mvn") if not shutil.which(tool)]


def _fingerprint(source):
    digest = hashlib.sha256()
    for path in sorted(p for p in source.rglob("*") if p.is_file() and "target" not in p.parts):
        digest.update(str(path.relative_to(source)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def build(kind, log=sys.stderr):
    """Builds one kind unless build/shards/ holds it already; returns its command line."""
    out = BUILD / "shards"
    out.mkdir(parents=True, exist_ok=True)
    command = (
        [str(out / "ferretdb/server")]
        if kind == "ferretdb"
        else ["java", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
              f"{out}/javaserver/javaserver.jar:{out}/javaserver/lib/*", "spillway.Main"]
    )
    stamp, fingerprint = out / f"{kind}.stamp", _fingerprint(SOURCES[kind])
    with open(out / f"{kind}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == fingerprint:
            return command
        missing = missing_tools(kind)
        if missing:
            raise ShardError(f"cannot build {kind}: missing {', '.join(missing)}")
        print(f"building {kind} ...", file=log, flush=True)
        shutil.rmtree(out / kind, ignore_errors=True)
        (out / kind).mkdir()
        if kind == "ferretdb":
            step = [find_go(), "build", "-trimpath", "-o", str(out / "ferretdb/server"), "."]
        else:
            step = ["mvn", "-q", "-B", "-ntp", f"-Dout={out}/javaserver", "package"]
        done = subprocess.run(step, cwd=SOURCES[kind], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise ShardError(f"building {kind} failed:\n{done.stdout[-4000:]}")
        stamp.write_text(fingerprint)
    return command


def read_ready_line(process, pattern, timeout_s, what, log_path=None):
    """Reads the process's stdout until a line matches; returns the match. Raises ShardError."""
    deadline, text = time.monotonic() + timeout_s, b""
    fd = process.stdout.fileno()
    while True:
        found = re.search(pattern, text.decode(errors="replace"), re.M)
        if found:
            return found
        left = deadline - time.monotonic()
        chunk = b""
        if left > 0 and select.select([fd], [], [], left)[0]:
            chunk = os.read(fd, 65536)
        if not chunk:
            rc = process.poll()
            tail = text.decode(errors="replace")[-2000:]
            if log_path and Path(log_path).exists():
                tail += Path(log_path).read_text(errors="replace")[-2000:]
            why = f"ended with {rc}" if rc is not None else "printed no ready line in time"
            raise ShardError(f"{what} {why}:\n{tail}")
        text += chunk


class Shard:
    """One server process. `port` stays the same over a restart, `directory` too."""

    def __init__(self, kind, name, directory):
        self.kind, self.name, self.directory = kind, name, Path(directory)
        self.port, self.process = 0, None
        self._command = build(kind)

    @property
    def uri(self):
        return f"mongodb://127.0.0.1:{self.port}/"

    @property
    def pid(self):
        return self.process.pid

    def start(self):
        assert threading.current_thread() is threading.main_thread()
        assert self.process is None, "already running"
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.kind == "ferretdb":
            arguments = ["-listen", f"127.0.0.1:{self.port}", "-dir", str(self.directory / "data")]
        else:
            arguments = [str(self.port)]
        log_path = self.directory / "log"
        with open(log_path, "ab") as log:
            self.process = subprocess.Popen(
                self._command + arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=log, preexec_fn=die_with_parent, start_new_session=True)
        try:
            ready = read_ready_line(self.process, r"ready: mongodb://127\.0\.0\.1:(\d+)/",
                                    READY_TIMEOUT_S, f"shard {self.name}", log_path)
        except ShardError:
            self.kill()
            raise
        self.port = int(ready[1])
        return self

    def kill(self, sig=signal.SIGKILL):
        """Ends the process at once and reaps it; a frozen one too."""
        if self.process is None:
            return
        self.process.send_signal(sig)
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.process = None

    def stop(self):
        self.kill(signal.SIGTERM if self.kind == "ferretdb" else signal.SIGKILL)

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)


class ShardSet:
    """N shards of one kind named shard0, shard1, ... in sub-folders of one directory."""

    def __init__(self, kind, count, directory=None):
        self._own_directory = directory is None
        if directory is None:
            (BUILD / "tmp").mkdir(parents=True, exist_ok=True)
            directory = tempfile.mkdtemp(prefix=f"{kind}-", dir=BUILD / "tmp")
        self.kind, self.directory = kind, Path(directory)
        self.shards = [Shard(kind, f"shard{i}", self.directory / f"shard{i}") for i in range(count)]

    def start(self):
        try:
            for shard in self.shards:
                shard.start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self):
        for shard in self.shards:
            shard.stop()
        if self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def __getitem__(self, index):
        return self.shards[index]

    def __iter__(self):
        return iter(self.shards)

    def __len__(self):
        return len(self.shards)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["build", "run"])
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--count", type=int, default=1)
    args = parser.parse_args()
    try:
        for kind in args.kind or KINDS:
            build(kind)
        if args.action == "run":
            with ShardSet((args.kind or ["ferretdb"])[0], args.count) as shards:
                for shard in shards:
                    print(shard.name, shard.uri, shard.pid, flush=True)
                signal.sigwait({signal.SIGINT, signal.SIGTERM})
    except ShardError as error:
        sys.exit(f"shards: {error}")


if __name__ == "__main__":
    main()
