"""Memory pressure: limits derived from a real memory cgroup, levels by its usage and by signals."""

import contextlib
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from proxy import Proxy, routing
from wire import WireClient

pytestmark = [pytest.mark.timeout(120), pytest.mark.proxy_only]
MIB = 1 << 20
GROUP_LIMIT = 400 * MIB
HOG = "import sys; held = b'x' * {}; print('held', flush=True); sys.stdin.read()"


@contextlib.contextmanager
def memory_group():
    """A version 1 memory cgroup below this process's own; skips where none can be made."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = [line.split(":", 2)[2] for line in lines if "memory" in line.split(":", 2)[1].split(",")]
    if not own:
        pytest.skip("there is no memory cgroup of version 1")
    group = Path("/sys/fs/cgroup/memory") / own[0].lstrip("/") / f"spillway-pressure-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made: {error}")
    try:
        (group / "memory.limit_in_bytes").write_text(str(GROUP_LIMIT))
        yield group
    finally:
        remove_group(group)


def remove_group(group, seconds=10):
    """The kernel refuses while a process in it has not quite ended."""
    end = time.monotonic() + seconds
    while True:
        try:
            return group.rmdir()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def pressure_of(wire):
    return wire.command({"serverStatus": 1, "$db": "admin"}).document["memory"]["pressure"]


def wait_for(wire, done, what, seconds=30):
    end = time.monotonic() + seconds
    while True:
        pressure = pressure_of(wire)
        if done(pressure):
            return pressure
        assert time.monotonic() < end, f"{what} did not come: {pressure}"
        time.sleep(0.05)


def changes_logged(proxy):
    return [line for line in proxy.log_path.read_text().splitlines()
            if "memory pressure is " in line and " now, after " in line]


def run_in_group(group, command):
    """A command line that enters the group before it runs."""
    return ["/bin/sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *command]


@contextlib.contextmanager
def neighbour(group, size):
    """A process in the same group that holds `size` bytes: the limit is common."""
    hog = subprocess.Popen(run_in_group(group, [sys.executable, "-c", HOG.format(size)]),
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert hog.stdout.readline() == b"held\n"
        yield
    finally:
        hog.communicate()


def test_limits_and_levels_of_a_real_cgroup(shard_set, binary, tmp_path):
    with memory_group() as group:
        wrapper = tmp_path / "in_group"
        wrapper.write_text(f'#!/bin/sh\necho $$ > {group}/cgroup.procs\nexec {binary} "$@"\n')
        wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
        config = {"routing": routing([shard.uri for shard in shard_set])}
        with Proxy(wrapper, config) as proxy, WireClient(proxy.port, 60) as wire:
            assert "memory limit 200 MiB (50 % of the cgroup's 400 MiB" in proxy.log_path.read_text()
            pressure = wait_for(wire, lambda p: p["samples"] > 1, "a sample")
            assert pressure["cgroup"]["version"] == "v1"
            assert pressure["cgroup"]["limitBytes"] == GROUP_LIMIT
            assert 0 < pressure["cgroup"]["usageBytes"] < GROUP_LIMIT
            if pressure["level"] != "normal" or pressure["stall"]["someAvg10"] >= 5:
                pytest.skip(f"this machine itself is short of memory: {pressure}")
            room = int(GROUP_LIMIT * 0.92) - pressure["cgroup"]["usageBytes"]
            with neighbour(group, room - 12 * MIB):
                raised = wait_for(wire, lambda p: p["level"] != "normal" and p["cgroup"]["limitShare"] > 0.8,
                                  "a higher level")
                assert raised["cause"] in ("cgroupMax", "stall", "signal")  # the kernel's signal may come first
            calm = wait_for(wire, lambda p: p["level"] == "normal", "the calm")
            assert len(changes_logged(proxy)) == calm["changes"]


def test_a_service_managers_signal_makes_it_tight(make_proxy, shard_set, tmp_path, monkeypatch):
    fifo = tmp_path / "watch"
    os.mkfifo(fifo)
    monkeypatch.setenv("MEMORY_PRESSURE_WATCH", str(fifo))
    proxy = make_proxy({"routing": routing([shard.uri for shard in shard_set])})
    with WireClient(proxy.port, 60) as wire:
        if pressure_of(wire)["level"] != "normal":
            pytest.skip("this machine itself is short of memory")
        writer = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        os.write(writer, b"!")
        os.close(writer)
        tight = wait_for(wire, lambda p: p["level"] == "tight", "the signal")
        assert tight["cause"] == "signal" and tight["signals"] == 1
        calm = wait_for(wire, lambda p: p["level"] == "normal", "the calm")
        assert calm["changes"] == 2
    logged = changes_logged(proxy)
    assert len(logged) == 2 and "is tight now, after normal" in logged[0], logged
