"""A process that is replaced while it serves: SIGUSR2, or SIGHUP."""

import json
import os
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
import uuid

import bson
import pymongo
import pytest
from certificates import Certificates
from conftest import Background
from proxy import routing
from replaced import Replaced
from users import user_entry
from waiting import wait_for
from wire import EXHAUST_ALLOWED, MORE_TO_COME, OP_KILL_CURSORS, WireClient

pytestmark = [pytest.mark.timeout(300), pytest.mark.proxy_only]


def connections_of(client):
    """The id of each connection that has answered a few commands."""
    return {client.admin.command("whatsmyuri")["you"] for _ in range(5)}


def client_of(proxy, **options):
    # Nothing is tried twice: an error would be seen.
    return pymongo.MongoClient(proxy.uri, retryReads=False, retryWrites=False, serverSelectionTimeoutMS=10000,
                               **options)


def write_and_read(client, stopping, index):
    """Counts what it has written, and reads it in batches."""
    collection = client.app[f"handed{index}"]
    written = 0
    while not stopping.is_set():
        for _ in range(10):
            collection.insert_one({"_id": written})
            written += 1
        assert collection.count_documents({}) == written
        ids = [document["_id"] for document in collection.find({}, batch_size=7).limit(100)]
        assert len(ids) == len(set(ids)) == min(written, 100)


def test_no_client_loses_its_connection(replaced):
    proxy = replaced()
    with client_of(proxy, maxPoolSize=1) as client:
        before = connections_of(client)
        for by in (signal.SIGUSR2, signal.SIGUSR2):
            proxy.replace(by)
            assert connections_of(client) == before
            assert client.admin.command("hello")["isWritablePrimary"]


def test_a_stream_of_hellos_goes_on(replaced):
    """Node's driver takes a stream's end for a failure, and drops its pool."""
    proxy = replaced()
    with WireClient(proxy.port) as wire:
        hello = {"hello": 1, "$db": "admin"}
        version = wire.command(hello).document["topologyVersion"]
        previous = wire.send_command({**hello, "topologyVersion": version, "maxAwaitTimeMS": 600_000},
                                     flags=EXHAUST_ALLOWED)
        for _ in range(2):
            proxy.replace()
            reply = wire.receive()
            assert reply.ok and reply.flags & MORE_TO_COME and reply.response_to == previous
            assert reply.document["topologyVersion"]["processId"] != version["processId"]
            version, previous = reply.document["topologyVersion"], reply.request_id
        wire.send_command({"ping": 1, "$db": "admin"})  # ends it
        assert wire.receive().flags & MORE_TO_COME == 0
        assert wire.receive().ok


def test_ten_upgrades_under_load(replaced, shard_kind):
    proxy = replaced()
    with client_of(proxy) as client:
        for index in range(3):
            client.app[f"handed{index}"].drop()
        load = Background(lambda stopping, index: write_and_read(client, stopping, index), threads=3)
        for _ in range(10):
            proxy.replace()
        load.stop()
        for index in range(3):
            client.app[f"handed{index}"].drop()


def test_a_cursor_goes_on_in_the_process_before(replaced):
    proxy = replaced()
    with client_of(proxy) as client, client_of(proxy) as other:
        client.app.ranged.drop()
        client.app.ranged.insert_many([{"_id": n, "p": "x" * 100_000} for n in range(300)])
        cursors = [iter(client.app.ranged.find({}, batch_size=10)) for _ in range(3)]
        heads = [[next(cursor)["_id"] for _ in range(10)] for cursor in cursors]
        killed = other.app.ranged.find({}, batch_size=10)
        next(killed)
        old = proxy.replace(ended=False)
        rests = [[document["_id"] for document in cursor] for cursor in cursors]
        assert all(sorted(head + rest) == list(range(300)) for head, rest in zip(heads, rests))
        assert proxy.process.poll() is None, "a cursor is open"
        killed.close()
        proxy.process.wait(30)  # it has nothing left
        assert old == proxy.process.pid and proxy.process.returncode == 0
        gone = other.app.command({"find": "ranged", "batchSize": 1})["cursor"]["id"]
        other.app.command({"killCursors": "ranged", "cursors": [gone]})
        with pytest.raises(pymongo.errors.OperationFailure) as refusal:
            other.app.command({"getMore": gone, "collection": "ranged"})
        assert refusal.value.code == 43
        client.app.ranged.drop()


def opened(client):
    return client.app.command({"find": "killed", "batchSize": 1})["cursor"]["id"]


def test_cursors_of_both_processes_are_killed_by_one_command(replaced):
    """As pymongo kills those that were not read to their end."""
    proxy = replaced()
    with client_of(proxy) as client:
        client.app.killed.drop()
        client.app.killed.insert_many([{"_id": n} for n in range(50)])
        old = [opened(client) for _ in range(20)]
        proxy.replace(ended=False)
        new = [opened(client) for _ in range(3)]
        nobodys = [bson.Int64(n) for n in range(1, 1201)]  # the older process is asked in several turns
        ids = [new[0], *old[:10], *nobodys, *old[10:], *new[1:]]
        answer = client.app.command({"killCursors": "killed", "cursors": ids})
        assert sorted(answer["cursorsKilled"]) == sorted(old + new)
        assert answer["cursorsNotFound"] == nobodys
        proxy.process.wait(30)  # it has nothing left
        assert client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"] == 0
        client.app.killed.drop()


def test_an_op_kill_cursors_reaches_both_processes(replaced):
    proxy = replaced()
    with client_of(proxy) as client, WireClient(proxy.port) as wire:
        client.app.killed.drop()
        client.app.killed.insert_many([{"_id": n} for n in range(50)])
        old = opened(client)
        proxy.replace(ended=False)
        ids = [opened(client), old]
        wire.send(OP_KILL_CURSORS, struct.pack("<ii2q", 0, len(ids), *ids))
        assert wire.command({"ping": 1, "$db": "admin"}).ok
        proxy.process.wait(30)  # it has nothing left
        assert client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"] == 0
        client.app.killed.drop()


@pytest.mark.parametrize("command", ["endSessions", "killSessions"])
def test_sessions_end_in_both_processes(replaced, command):
    proxy = replaced()
    with client_of(proxy) as client:
        client.app.killed.drop()
        client.app.killed.insert_many([{"_id": n} for n in range(50)])
        lsid = {"id": bson.Binary(uuid.uuid4().bytes, 4)}
        find = {"find": "killed", "batchSize": 1, "lsid": lsid}
        client.app.command(find)
        proxy.replace(ended=False)
        client.app.command(find)
        client.admin.command({command: [lsid]})
        proxy.process.wait(30)  # it has nothing left
        assert client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"] == 0
        client.app.killed.drop()


def test_an_operation_that_was_killed_does_not_end_the_next_one(replaced):
    proxy = replaced(setParameter={"enableTestCommands": 1})
    with client_of(proxy) as client, WireClient(proxy.port) as wire:
        def block(command, ms):
            client.admin.command({"configureFailPoint": "failCommand", "mode": "alwaysOn", "data":
                                  {"failCommands": [command], "blockConnection": True, "blockTimeMS": ms}})

        client.app.killed.drop()
        client.app.killed.insert_many([{"_id": n} for n in range(50)])
        cursor = wire.command({"find": "killed", "batchSize": 1, "$db": "app"}).document["cursor"]["id"]
        block("getMore", 1000)  # in the process before
        proxy.replace(ended=False)
        block("count", 60_000)
        wire.send_command({"count": "killed", "$db": "app"})

        def running():
            return [op["opid"] for op in client.admin.command("currentOp")["inprog"] if "count" in op.get("command", {})]

        wait_for(running, "the operation")
        client.admin.command({"killOp": 1, "op": running()[0]})
        assert wire.receive().code == 11601
        assert wire.command({"getMore": cursor, "collection": "killed", "$db": "app"}).ok
        client.app.killed.drop()


def test_the_process_before_waits_for_cursors_no_longer_than_they_may_be_idle(replaced):
    proxy = replaced(setParameter={"cursorTimeoutMillis": 1000, "enableTestCommands": 1})
    with client_of(proxy) as client:
        client.app.users.drop()
        client.app.users.insert_many([{"_id": n} for n in range(100)])
        cursor = client.app.users.find({}, batch_size=10)
        next(cursor)
        proxy.replace()
        with pytest.raises(pymongo.errors.CursorNotFound):
            list(cursor)
        client.app.users.drop()


def test_users_stay_logged_in(binary, replaced):
    users = [user_entry(binary, "ann", "secret", ("readWrite", "app"))]
    proxy = replaced(security={"authorization": "enabled", "users": users})
    with client_of(proxy, maxPoolSize=1, username="ann", password="secret") as client, \
            client_of(proxy, maxPoolSize=1) as stranger:
        client.app.users.drop()
        client.app.users.insert_many([{"_id": n} for n in range(50)])
        assert stranger.admin.command("hello")["ok"] == 1
        cursor = client.app.users.find({}, batch_size=10)
        next(cursor)
        proxy.replace(ended=False)
        log = len(proxy.log())
        assert len(list(cursor)) == 49
        client.app.users.drop()
        assert "Successfully authenticated" not in proxy.log()[log:]
        with pytest.raises(pymongo.errors.OperationFailure) as refusal:
            stranger.app.users.find_one()
        assert refusal.value.code == 13


# Reads two batches, the second one when it is told to, and waits to be killed.
PROGRAM = """
import sys, pymongo
cursor = pymongo.MongoClient(sys.argv[1], retryReads=False).app.ranged.find(batch_size=20)
for _ in range(2):
    print(len([next(cursor) for _ in range(20)]), flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("reads", [True, False])
def test_a_cursor_that_a_load_balancer_ties_to_a_connection_goes_on_and_ends_with_it(replaced, reads):
    proxy = replaced(net={"port": 0, "bindIp": "127.0.0.1", "loadBalancerPort": 0})
    with client_of(proxy) as watcher:
        port = watcher.admin.command("getCmdLineOpts")["parsed"]["net"]["loadBalancerPort"]
        watcher.app.ranged.drop()
        watcher.app.ranged.insert_many([{"_id": n} for n in range(900)])
        with subprocess.Popen([sys.executable, "-c", PROGRAM, f"mongodb://127.0.0.1:{port}/?loadBalanced=true"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout.readline() == "20\n"
            proxy.replace(ended=False)
            if reads:
                program.stdin.write("\n")
                program.stdin.flush()
                assert program.stdout.readline() == "20\n"
            assert proxy.process.poll() is None, "a cursor is open"
            program.kill()
        proxy.process.wait(30)  # it has ended with its connection
        watcher.app.ranged.drop()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


def test_clients_with_tls_are_told(replaced, certificates):
    proxy = replaced(net={"port": 0, "bindIp": "127.0.0.1",
                          "tls": {"mode": "requireTLS", "certificateKeyFile": certificates.server}})
    with pymongo.MongoClient(proxy.uri, tls=True, tlsCAFile=certificates.ca, heartbeatFrequencyMS=500) as client:
        client.app.users.drop()
        client.app.users.insert_many([{"_id": n} for n in range(100)])


        def find(stopping, index):
            while not stopping.is_set():
                assert client.app.users.find_one({"_id": index}) == {"_id": index}

        load = Background(find, threads=2)
        cursor = client.app.users.find({}, batch_size=10)
        head = [next(cursor)["_id"] for _ in range(10)]
        proxy.replace(ended=False)

        def has_moved():
            try:
                return client.admin.command("serverStatus")["pid"] == proxy.pid
            except pymongo.errors.AutoReconnect:  # drivers try finds and writes again, but not this
                return False

        wait_for(has_moved, "the new process")
        assert sorted(head + [document["_id"] for document in cursor]) == list(range(100))
        proxy.process.wait(60)
        load.stop()
        client.app.users.drop()


def test_a_client_with_tls_that_does_not_ask_is_served_while_it_is_busy(replaced, certificates):
    """As one with loadBalanced=true: its connection closes once it is idle."""
    announced_s = 1
    proxy = replaced(net={"port": 0, "bindIp": "127.0.0.1",
                          "tls": {"mode": "requireTLS", "certificateKeyFile": certificates.server}},
                     setParameter={"enableTestCommands": 1,
                                   "mongosShutdownTimeoutMillisForSignaledShutdown": 1000 * announced_s})
    with WireClient(proxy.port) as wire:
        wire.socket = ssl.create_default_context(cafile=certificates.ca).wrap_socket(wire.socket,
                                                                                     server_hostname="localhost")
        status = {"serverStatus": 1, "$db": "admin"}
        assert wire.command(status).ok
        proxy.replace(ended=False)
        until = time.monotonic() + 3 * announced_s
        while time.monotonic() < until:
            assert wire.command(status).document["pid"] == proxy.process.pid
        proxy.process.wait(30)
        with pytest.raises(ConnectionError):
            wire.receive()


def test_keys_that_need_a_restart_change(replaced):
    proxy = replaced(workers=2)
    with client_of(proxy) as client:
        assert client.admin.command("serverStatus")["ok"] == 1
        config = json.loads(proxy.config_path.read_text())
        config["workers"] = 1
        config["net"]["loadBalancerPort"] = 0
        proxy.config_path.write_text(json.dumps(config))
        proxy.replace()
        assert "with 1 workers" in proxy.log()
        assert client.admin.command("ping")["ok"] == 1


def test_sighup_replaces_the_process_once_another_program_is_there(binary, replaced):
    proxy = replaced()
    os.kill(proxy.pid, signal.SIGHUP)
    wait_for(lambda: "reloaded: nothing has changed" in proxy.log(), "a reload")
    copy = proxy.directory / "copy"
    copy.write_bytes(binary.read_bytes())
    copy.chmod(0o700)
    proxy.install(copy)
    with client_of(proxy, maxPoolSize=1) as client:
        before = connections_of(client)
        proxy.replace(signal.SIGHUP)
        assert os.readlink(f"/proc/{proxy.pid}/exe") == str(copy)
        assert connections_of(client) == before


NO_SUCCESSORS = {
    "ends at once": ("import sys; sys.exit(3)", "the other process has gone"),
    "crashes": ("import os; os.kill(os.getpid(), 11)", "the other process has gone"),
    "says no document": ("import socket; socket.socket(fileno=3).send(b'x' * 100)", "it is no document"),
    "says too much": ("import socket; socket.socket(fileno=3).send(b'x' * 20000)", "is too long"),
    "says nothing": ("import socket; socket.socket(fileno=3).send(b'\\5\\0\\0\\0\\0')", "its form is another version's"),
}


@pytest.mark.parametrize("what", sorted(NO_SUCCESSORS))
def test_a_program_that_does_not_start_leaves_the_old_one_serving(binary, replaced, what):
    script, why = NO_SUCCESSORS[what]
    proxy = replaced()
    with client_of(proxy, maxPoolSize=1) as client:
        before = connections_of(client)
        proxy.install_script(script)
        proxy.fail_to_replace(why)
        assert connections_of(client) == before
        proxy.install(binary)
        proxy.replace()
        assert connections_of(client) == before


def test_a_wrong_configuration_leaves_the_old_one_serving(replaced):
    proxy = replaced()
    good = proxy.config_path.read_text()
    proxy.config_path.write_text("workers: many\n")
    with client_of(proxy) as client:
        proxy.fail_to_replace("the other process has gone")
        assert "workers" in proxy.log()
        assert client.admin.command("ping")["ok"] == 1
        proxy.config_path.write_text(good)
        proxy.replace()


def start_with_channel(binary, folder, channel):
    script = f'exec 3<&{channel.fileno()}; exec "$@"'
    return subprocess.Popen(
        ["bash", "-c", script, "bash", str(binary), "--set", "net.port=0",
         "--set", "routing={shards: [{name: a, uri: 'mongodb://127.0.0.1:1/'}]}"],
        env={**os.environ, "SPILLWAY_HANDOVER_SOCKET": "3"}, pass_fds=[channel.fileno()],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def offer(count):
    sockets = [{"use": 0, "port": 0}] * count
    return bson.encode({"offer": {"sockets": sockets}, "v": 1})


HOSTILE_OFFERS = {
    "no document": (b"\0" * 50, []),
    "another form": (bson.encode({"offer": {}, "v": 2}), []),
    "no content": (bson.encode({"v": 1}), []),
    "fewer descriptors than it says": (offer(2), ["socket"]),
    "more descriptors than it says": (offer(0), ["socket"]),
    "a pipe": (offer(1), ["pipe"]),
    "a use that there is not": (bson.encode({"offer": {"sockets": [{"use": 9, "port": 0}]}, "v": 1}), ["socket"]),
    "no offer": (bson.encode({"serve": {}, "v": 1}), []),
    "too long": (b"\0" * 20_000, []),
}


@pytest.mark.parametrize("what", sorted(HOSTILE_OFFERS))
def test_a_hostile_offer_is_refused(binary, tmp_path, what):
    message, kinds = HOSTILE_OFFERS[what]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reader, writer = os.pipe()
    with ours, theirs, socket.create_server(("127.0.0.1", 0)) as listening:
        numbers = [{"socket": listening.fileno(), "pipe": reader}[kind] for kind in kinds]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(numbers)}i", *numbers))] if numbers else []
        ours.sendmsg([message], rights)
        process = start_with_channel(binary, tmp_path, theirs)
        output = process.communicate(timeout=60)[0].decode()
    os.close(reader)
    os.close(writer)
    assert process.returncode == 1, output
    assert "spillway:" in output


def test_a_wrong_channel_is_refused(binary):
    process = subprocess.run([str(binary), "--canned", "1", "--set", "net.port=0"], capture_output=True, text=True,
                             env={**os.environ, "SPILLWAY_HANDOVER_SOCKET": "1"}, timeout=60)
    assert process.returncode == 1
    assert "names no channel" in process.stderr


def test_the_service_manager_follows(binary, shard_set, tmp_path, monkeypatch):
    path = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    monkeypatch.setenv("WATCHDOG_USEC", "2000000")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        manager.bind(path)
        manager.settimeout(30)

        def told():
            text, rights, _, _ = manager.recvmsg(4096, 1024)
            pid = struct.unpack("3i", rights[0][2][:12])[0]
            return pid, text.decode()

        def until(word):
            while not (heard := told())[1].startswith(word):
                pass
            return heard

        with Replaced(binary, {"routing": routing([s.uri for s in shard_set])}) as proxy:
            old = proxy.pid
            assert until("READY=1")[0] == old
            proxy.install_script("import sys; sys.exit(3)")
            proxy.fail_to_replace("the other process has gone")
            assert until("RELOADING=1")[0] == old
            refused = until("READY=1")
            assert refused[0] == old and "STATUS=Not replaced: the other process has gone" in refused[1]
            proxy.install(binary)
            config = json.loads(proxy.config_path.read_text())
            wrong = {**config, "processManagement": {"pidFilePath": "/nowhere/pid"}}
            proxy.config_path.write_text(json.dumps(wrong))
            proxy.fail_to_replace("the other process has gone")  # when its workers are there
            proxy.config_path.write_text(json.dumps(config))
            heard = [told()]
            while not heard[-1][1].startswith("READY=1"):
                heard.append(told())
            assert not [text for _, text in heard if text.startswith("STOPPING=1")]
            proxy.replace(ended=False)
            assert until("RELOADING=1")[0] == old
            assert until("MAINPID=") == (old, f"MAINPID={proxy.pid}")
            assert until("READY=1")[0] == proxy.pid
            fed = [until("WATCHDOG=1")[0] for _ in range(4)]
            assert fed == [proxy.pid] * 4
            proxy.process.wait(60)
        end = until("STOPPING=1")
        assert end[0] == proxy.latest


@pytest.mark.ferretdb_only  # of mongo-java-server the four cursors hold more than there is
def test_both_processes_together_keep_to_the_limit(replaced):
    limit = 256 * 1024 * 1024
    proxy = replaced(memory={"limit": limit})
    with client_of(proxy) as client:
        client.app.ranged.drop()
        client.app.ranged.insert_many([{"_id": n, "p": os.urandom(100_000)} for n in range(400)])
        held = [client.app.ranged.find({}, batch_size=20) for _ in range(4)]
        for cursor in held:
            next(cursor)
        old = proxy.replace(ended=False)

        def rss(pid):
            try:
                text = open(f"/proc/{pid}/smaps_rollup").read()
            except OSError:
                return 0
            found = re.search(r"^Rss:\s+(\d+) kB", text, re.M)
            return int(found[1]) * 1024 if found else 0

        most = 0
        for cursor in held:
            for _ in cursor:
                most = max(most, rss(old) + rss(proxy.pid))
        assert 0 < most <= limit, most
        client.app.ranged.drop()
