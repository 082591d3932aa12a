"""The program's command line and its configuration file, from outside."""

import json
import re
import subprocess

import pymongo
import pytest
from proxy import free_port, routing

pytestmark = [pytest.mark.timeout(60), pytest.mark.proxy_only]
GOOD = {"security": {"authorization": "disabled"},
        "routing": {"shards": [{"name": "shard0", "uri": "mongodb://127.0.0.1:1/"},
                               {"name": "shard1", "uri": "mongodb://127.0.0.1:2/"}]}}


@pytest.fixture
def run(binary, tmp_path):
    def start(*arguments, config=None):
        if config is not None:
            path = tmp_path / "spillway.conf"
            path.write_text(config if isinstance(config, str) else json.dumps(config, indent=1))
            arguments = ("--config", path, *arguments)
        return subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=30)
    return start


def test_version(run):
    done = run("--version")
    assert done.returncode == 0 and re.search(r"\d+\.\d+\.\d+", done.stdout)


def test_print_config_names_every_section(run):
    done = run("--print-config")
    assert done.returncode == 0
    for key in ("net", "port", "bindIp", "routing", "memory", "workers", "setParameter",
                "systemLog", "cursorTimeoutMillis", "defaultShardKey"):
        assert key in done.stdout, key


def test_check_config_accepts(run):
    done = run("--check-config", config=GOOD)
    assert done.returncode == 0, done.stderr


def ranged(*chunks):
    return {**GOOD, "routing": {**GOOD["routing"], "collections": [
        {"ns": "a.b", "key": {"x": 1}, "chunks": [
            {"min": {"x": low}, "max": {"x": high}, "shard": shard}
            for low, high, shard in chunks]}]}}


LOW, HIGH = {"$minKey": 1}, {"$maxKey": 1}


@pytest.mark.parametrize("config,says", [
    ({**GOOD, "net": {"prot": 1}}, "port"),
    ({**GOOD, "net": {"port": "abc"}}, "port"),
    ({**GOOD, "net": {"port": 70000}}, "port"),
    ({**GOOD, "routing": {}}, "shards"),
    ({**GOOD, "memory": {"limit": "96MiB"}, "workers": 64}, "raise the limit, or lower workers"),
    ({**GOOD, "sharding": {"configDB": "c/a:1"}, "routing": None, "memory": {"limit": "96MiB"}, "workers": 64},
     "raise the limit, or lower workers"),
    (ranged((LOW, 5, "shard0"), (6, HIGH, "shard1")), "gap"),
    (ranged((LOW, 7, "shard0"), (6, HIGH, "shard1")), "overlap"),
    (ranged((LOW, HIGH, "nowhere")), "nowhere"),
    ("net: [1, 2\n", "spillway.conf:2: not valid yaml"),
    ("net:\n  port: 1\n  port: 2\n", "port"),
])
def test_check_config_and_a_start_refuse(run, config, says):
    for done in (run("--check-config", config=config), run(config=config)):
        assert done.returncode == 78  # a start, too: systemd does not try it again
        assert says in (done.stderr + done.stdout).lower()
        assert "terminate called" not in done.stderr


def test_a_log_file_that_cannot_be_opened_is_named_with_its_key(run, tmp_path):
    (tmp_path / "no-folder").write_text("")
    log = {"destination": "file", "path": str(tmp_path / "no-folder" / "spillway.log")}
    done = run(config={**GOOD, "systemLog": log})
    assert done.returncode == 1 and "systemLog.path: " in done.stderr and "no-folder" in done.stderr


def test_errors_name_the_line(run):
    text = "net:\n  port: 1\n  bindIpp: 127.0.0.1\n"
    done = run("--check-config", config=text)
    assert done.returncode != 0
    assert re.search(r"\b(line )?3\b", done.stderr + done.stdout)
    assert "bindIp" in done.stderr + done.stdout


def test_missing_file(run, tmp_path):
    done = run("--config", tmp_path / "absent.conf")
    assert done.returncode != 0 and "absent.conf" in done.stderr + done.stdout


@pytest.mark.parametrize("override,good", [
    ("net.port=0", True), ("workers=1", True), ("net.port=99999", False), ("net.prot=1", False),
    ("nonsense", False)])
def test_set_overrides(run, override, good):
    done = run("--check-config", "--set", override, config=GOOD)
    assert (done.returncode == 0) == good, done.stderr


def test_given_port(make_proxy, shard_set):
    port = free_port()
    proxy = make_proxy({"routing": routing([s.uri for s in shard_set]),
                        "net": {"port": port, "bindIp": "127.0.0.1"}})
    assert proxy.port == port
    with pymongo.MongoClient(proxy.uri) as client:
        assert client.admin.command("ping")["ok"] == 1


def test_other_address_needs_authorization_spelt_out(run, shard_set):
    config = {"net": {"port": 0, "bindIp": "0.0.0.0"},
              "routing": routing([s.uri for s in shard_set])}
    done = run("--check-config", config=config)
    assert done.returncode != 0
    assert "authorization" in done.stderr + done.stdout


def test_taken_port_is_a_clear_error(run, target, shard_set):
    config = {"net": {"port": target.port, "bindIp": "127.0.0.1"},
              "security": {"authorization": "disabled"},
              "routing": routing([s.uri for s in shard_set])}
    done = run(config=config)
    assert done.returncode != 0
    assert str(target.port) in done.stderr + done.stdout


def test_a_changed_table_is_refused(make_proxy, run, shard_set):
    """Documents lie where the first table said: a second one must not send reads elsewhere."""
    table = routing([s.uri for s in shard_set])
    table["collections"] = [{"ns": "guard.c", "key": {"x": 1}, "chunks": [
        {"min": {"x": LOW}, "max": {"x": 5}, "shard": "shard0"},
        {"min": {"x": 5}, "max": {"x": HIGH}, "shard": "shard1"}]}]
    first = make_proxy({"routing": table})
    with pymongo.MongoClient(first.uri) as client:
        client.guard.c.insert_many([{"x": i} for i in range(10)])
    first.stop()
    again = make_proxy({"routing": table})
    again.stop()
    moved = json.loads(json.dumps(table))
    moved["collections"][0]["chunks"][0]["shard"] = "shard2"
    done = run(config={"net": {"port": 0, "bindIp": "127.0.0.1"}, "routing": moved,
                       "security": {"authorization": "disabled"}})
    assert done.returncode != 0
    assert "guard.c" in done.stderr + done.stdout


def test_shard_of_a_cluster_is_refused(run, shard_set, shard_kind):
    if shard_kind == "javaserver":
        pytest.skip("javaserver: has no writes to the database admin")
    with pymongo.MongoClient(shard_set[2].uri) as direct:
        direct.admin["system.version"].insert_one({"_id": "shardIdentity", "shardName": "s"})
        try:
            done = run(config={"net": {"port": 0, "bindIp": "127.0.0.1"},
                               "routing": routing([s.uri for s in shard_set]),
                               "security": {"authorization": "disabled"}})
            assert done.returncode != 0
            assert "shardIdentity" in done.stderr + done.stdout
        finally:
            direct.admin["system.version"].delete_one({"_id": "shardIdentity"})
