"""pymongo, the shell and the Node driver run the same script and see the same results."""

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path

import pymongo
import pytest
from certificates import Certificates
from clients.exercise import exercise
from proxy import Proxy, routing
from shards import BUILD
from users import user_entry

pytestmark = [pytest.mark.timeout(300)]
SOURCES = Path(__file__).parent / "clients"
# What exercise.js computes, worked out by hand from its first lines.
EXPECTED = {
    "inserted": 2000, "count": 2000, "one": {"_id": 1234, "k": 1234 * 7919 % 2000, "g": 2,
                                             "s": "v1234"},
    "updated": 286, "upserted": 5000, "duplicate": 11000, "after_duplicate": 3,
    "bulk": [1, 1 + 286 + 1, 1 + 284],
    "found": {"_id": 17, "k": 17 * 7919 % 2000, "g": 13, "s": "v17"},
    "indexes": ["_id_", "by_group"],
}


@pytest.fixture(scope="session")
def node_modules():
    """The packages of clients/package-lock.json, installed once under build/."""
    out = BUILD / "clients"
    out.mkdir(parents=True, exist_ok=True)
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.fail("node and npm are missing", pytrace=False)
    wanted = (SOURCES / "package-lock.json").read_text()
    with open(out / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = out / "stamp"
        if not stamp.exists() or stamp.read_text() != wanted:
            for name in ("package.json", "package-lock.json"):
                shutil.copy(SOURCES / name, out / name)
            done = subprocess.run(
                ["npm", "ci", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund"],
                cwd=out, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-3000:]
            stamp.write_text(wanted)
    return out / "node_modules"


def run(command, tmp_path, **environment):
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=tmp_path,
                          env={**os.environ, "HOME": str(tmp_path), **environment})
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def mongosh(node_modules, tmp_path, uri, *arguments):
    shell = node_modules / "@mongosh/cli-repl/bin/mongosh.js"
    return run(["node", str(shell), "--quiet", "--norc", uri, *arguments], tmp_path)


def result_of(output):
    lines = [line for line in output.splitlines() if line.startswith("RESULT ")]
    assert len(lines) == 1, output[-3000:]
    return json.loads(lines[0][len("RESULT "):])


def check(result):
    assert {key: result.get(key) for key in EXPECTED} == EXPECTED
    order = sorted(range(2000), key=lambda i: i * 7919 % 2000)
    assert result["sorted"] == order[::97]
    assert result["page"] == [i for i in reversed(order) if i % 7 == 3][10:50]
    sizes = {g: len(range(g, 2000, 7)) for g in range(7)}
    # 17 left group 3, 18 left group 4, and 19 and the rest of group 5 were deleted.
    expected = [[0, sizes[0]], [1, sizes[1]], [2, sizes[2]], [3, sizes[3] - 1], [4, sizes[4] - 1],
                [6, sizes[6]]]
    assert result["groups"] == expected
    assert result["distinct"] == [0, 1, 2, 3, 4, 6, 9, 10, 11, 12]
    assert result["deleted"] == sum(n for _, n in expected) + 2 + 4


WHERE = pytest.mark.parametrize("where", ["app.users", "app.plain"])


@WHERE
def test_pymongo(client, where):
    database, name = where.split(".")
    check(exercise(client[database][name]))


@WHERE
def test_node_driver(target, node_modules, tmp_path, where):
    out = run(["node", str(SOURCES / "exercise_node.js"), target.uri, *where.split(".")], tmp_path,
              NODE_PATH=str(node_modules), EXERCISE=str(SOURCES / "exercise.js"))
    check(result_of(out))


@WHERE
def test_mongosh(target, node_modules, tmp_path, where):
    database, name = where.split(".")
    check(result_of(mongosh(
        node_modules, tmp_path, target.uri + database,
        "--eval", f"load({json.dumps(str(SOURCES / 'exercise.js'))})",
        "--eval", f"exercise(db.getCollection({json.dumps(name)}))"
                  ".then((result) => print('RESULT ' + JSON.stringify(result)))")))


@pytest.mark.proxy_only
def test_sh_status(target, client, node_modules, tmp_path):
    """The shell's own view of the cluster shows the table."""
    out = mongosh(node_modules, tmp_path, target.uri, "--eval", "sh.status()")
    for text in ("shardingVersion", "shard0", "shard1", "shard2", "app.users", "app.orders",
                 "app.ranged", "hashed", "region", "active mongoses", "balancer"):
        assert text in out, f"{text!r} is not in:\n{out}"


def test_shell_helpers(target, client, node_modules, tmp_path):
    client.app.users.drop()
    client.app.users.insert_many([{"_id": i} for i in range(10)])
    out = mongosh(node_modules, tmp_path, target.uri + "app", "--eval",
                  "print(db.getCollectionNames().includes('users'), db.users.countDocuments(), "
                  "db.adminCommand('listDatabases').databases.some(d => d.name == 'app'), "
                  "db.version().length > 0, db.hello().ok, db.stats().ok)")
    assert out.split() == ["true", "10", "true", "true", "1", "1"]
    client.app.users.drop()


@pytest.fixture(scope="module")
def guarded(binary, shard_set, tmp_path_factory):
    """A proxy with TLS and users; the URI of a user that may write to the database app."""
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    config = {"routing": routing([shard.uri for shard in shard_set]),
              "net": {"port": 0, "bindIp": "127.0.0.1",
                      "tls": {"mode": "requireTLS", "certificateKeyFile": made.server}},
              "security": {"authorization": "enabled",
                           "users": [user_entry(binary, "ann", "pen=cil", ("readWrite", "app"))]}}
    with Proxy(binary, config) as proxy:
        yield f"mongodb://ann:pen%3Dcil@127.0.0.1:{proxy.port}/app?authSource=admin&tls=true" \
              f"&tlsCAFile={made.ca}&compressors=zlib"


@pytest.mark.proxy_only
def test_tls_a_user_and_compression_at_once(guarded, node_modules, tmp_path):
    with pymongo.MongoClient(guarded) as client:
        check(exercise(client.app.users))
    out = run(["node", str(SOURCES / "exercise_node.js"), guarded, "app", "users"], tmp_path,
              NODE_PATH=str(node_modules), EXERCISE=str(SOURCES / "exercise.js"))
    check(result_of(out))
    out = mongosh(node_modules, tmp_path, guarded, "--eval",
                  f"load({json.dumps(str(SOURCES / 'exercise.js'))})",
                  "--eval", "exercise(db.users)"
                            ".then((result) => print('RESULT ' + JSON.stringify(result)))")
    check(result_of(out))
    out = mongosh(node_modules, tmp_path, guarded, "--eval",
                  "try { db.getSiblingDB('other').x.findOne() } catch (e) { print('CODE', e.code) }; "
                  "print(JSON.stringify(db.runCommand({connectionStatus: 1}).authInfo"
                  ".authenticatedUsers))")
    assert "CODE 13" in out and '"user":"ann"' in out
