"""What the process tells a service manager, and takes from it; systemd itself is not needed."""

import json
import signal
import socket
import subprocess
import time

import pymongo
import pytest
from proxy import Proxy, routing
from shards import ShardError, die_with_parent, read_ready_line

pytestmark = [pytest.mark.timeout(120), pytest.mark.proxy_only]


class Manager:
    """The receiving end of sd_notify."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(20)

    def next(self, skip="WATCHDOG=1"):
        while (text := self.socket.recv(4096).decode()) == skip:
            pass
        return dict(line.split("=", 1) for line in text.splitlines())


@pytest.fixture
def manager(tmp_path, monkeypatch):
    made = Manager(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    yield made
    made.socket.close()


def config_of(shard_set):
    return {"routing": routing([shard.uri for shard in shard_set])}


def test_readiness_reloads_and_the_end_are_told(binary, shard_set, manager):
    with Proxy(binary, config_of(shard_set)) as proxy:
        told = manager.next()
        assert told["READY"] == "1" and str(proxy.port) in told["STATUS"]
        proxy.process.send_signal(signal.SIGHUP)
        told = manager.next()
        assert told["RELOADING"] == "1"
        assert 0 < int(told["MONOTONIC_USEC"]) <= time.monotonic() * 1e6
        told = manager.next()
        assert told == {"READY": "1", "STATUS": "reloaded: nothing has changed"}
        proxy.config_path.write_text("workers: many\n")
        proxy.process.send_signal(signal.SIGHUP)
        assert manager.next()["RELOADING"] == "1"
        told = manager.next()
        assert told["READY"] == "1" and "reload refused" in told["STATUS"]
        proxy.process.send_signal(signal.SIGTERM)
        told = manager.next()
        assert told["STOPPING"] == "1" and int(told["EXTEND_TIMEOUT_USEC"]) > 25_000_000


def test_a_start_that_is_refused_leaves_the_pid_file_of_another(binary, shard_set, tmp_path):
    path = tmp_path / "spillway.pid"
    config, wrong = config_of(shard_set), config_of(shard_set)
    wrong["routing"]["collections"][0]["key"] = {"another": "hashed"}  # not what the shards keep
    config["processManagement"] = wrong["processManagement"] = {"pidFilePath": str(path)}
    with Proxy(binary, config) as proxy:
        assert int(path.read_text()) == proxy.pid
        with pytest.raises(ShardError, match="its shard key was"):
            Proxy(binary, wrong).start()
        assert int(path.read_text()) == proxy.pid
    assert not path.exists()


def test_the_watchdog_is_fed(binary, shard_set, manager, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "800000")
    with Proxy(binary, config_of(shard_set)):
        assert manager.next()["READY"] == "1"
        feedings = []
        while len(feedings) < 6:
            assert manager.next(skip=None) == {"WATCHDOG": "1"}
            feedings.append(time.monotonic())
        gaps = [later - earlier for earlier, later in zip(feedings, feedings[1:])]
        assert max(gaps) < 0.8, gaps


def start_with_socket(binary, config, path, listening):
    """The process with a listening socket as its descriptor 3."""
    path.write_text(json.dumps(config))
    number = listening.fileno()
    script = f'exec 3<&{number}; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"'
    return subprocess.Popen(
        ["bash", "-c", script, "bash", str(binary), "--config", str(path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[number],
        preexec_fn=die_with_parent)


def test_a_socket_that_is_passed_is_served(binary, shard_set, tmp_path):
    config = {**config_of(shard_set), "net": {"port": 1}}
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        early = pymongo.MongoClient("127.0.0.1", port, serverSelectionTimeoutMS=30000)
        process = start_with_socket(binary, config, tmp_path / "c.conf", listening)
        try:
            ready = read_ready_line(process, r"ready: mongodb://127\.0\.0\.1:(\d+)/", 60, "proxy",
                                    None)
            assert int(ready[1]) == port
            assert early.admin.command("ping")["ok"] == 1
        finally:
            early.close()
            process.terminate()
            process.communicate()
        assert process.returncode == 0


def test_a_passed_socket_for_the_world_needs_a_word(binary, shard_set, tmp_path):
    with socket.create_server(("0.0.0.0", 0)) as listening:
        process = start_with_socket(binary, config_of(shard_set), tmp_path / "c.conf", listening)
        errors = process.communicate(timeout=30)[1].decode()
        assert process.returncode == 1
        assert "is not loopback" in errors and "security.authorization" in errors
