"""A process that is replaced at a bad moment, or by one that differs."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess

import bson
import pymongo
import pytest
from certificates import Certificates
from proxy import routing
from replaced import REPLACED
from test_handover import client_of, connections_of
from test_renewal import shown_to
from users import user_entry
from waiting import wait_for
from wire import WireClient

pytestmark = [pytest.mark.timeout(300), pytest.mark.proxy_only]

# A new process that takes no client before it is told to, and counts them.
SLOW = """
import os, socket, time, bson
channel = socket.socket(fileno=3)
channel.setblocking(True)
socket.recv_fds(channel, 16384, 64)
channel.send(bson.encode({"ready": {}, "v": 1}))
while not os.path.exists("GO"):
    time.sleep(0.01)
clients = 0
while data := socket.recv_fds(channel, 16384, 64)[0]:
    clients += "client" in bson.decode(data)
with open("COUNT.new", "w") as file:
    file.write(str(clients))
os.rename("COUNT.new", "COUNT")
"""


def test_a_process_does_not_end_before_its_clients_have_left(replaced):
    """More clients than the kernel keeps on their way."""
    proxy = replaced()
    go, count = proxy.directory / "go", proxy.directory / "count"
    proxy.install_script(SLOW.replace("GO", str(go)).replace("COUNT", str(count)))
    clients = [WireClient(proxy.port) for _ in range(900)]
    for client in clients:
        assert client.command({"hello": 1, "$db": "admin"}).ok
    os.kill(proxy.pid, signal.SIGUSR2)
    wait_for(lambda: REPLACED.search(proxy.log()), "the new process")
    with pytest.raises(subprocess.TimeoutExpired):
        proxy.process.wait(2)
    go.touch()
    proxy.process.wait(30)
    wait_for(count.exists, "the count")
    assert count.read_text() == "900"
    for client in clients:
        client.close()


# A new process that never serves: says this, and stays.
STUCK = """
import os, socket, time
with open("PID.new", "w") as file:
    file.write(str(os.getpid()))
os.rename("PID.new", "PID")
socket.socket(fileno=os.dup(3)).send(WORD)
time.sleep(1000)
"""


def test_a_process_that_was_refused_does_not_live_on(binary, replaced):
    proxy = replaced()
    pid = proxy.directory / "pid"
    proxy.install_script(STUCK.replace("PID", str(pid)).replace("WORD", "b'nonsense'"))
    proxy.fail_to_replace("it is no document")
    refused = int(pid.read_text())
    wait_for(lambda: not os.path.exists(f"/proc/{refused}"), "its end")
    proxy.install(binary)


def test_a_process_that_ends_ends_the_one_that_starts(replaced):
    proxy = replaced()
    pid = proxy.directory / "pid"
    proxy.install_script(STUCK.replace("PID", str(pid)).replace("WORD", "bson.encode({'unknown': {}, 'v': 1})")
                         .replace("import os", "import bson, os"))
    os.kill(proxy.pid, signal.SIGUSR2)
    wait_for(lambda: 'says "unknown", which means nothing now' in proxy.log(), "its word")
    started = int(pid.read_text())
    os.kill(proxy.pid, signal.SIGTERM)
    proxy.process.wait(40)
    wait_for(lambda: not os.path.exists(f"/proc/{started}"), "its end")


def listening_inode(port):
    rows = [line.split() for line in open("/proc/net/tcp").readlines()[1:]]
    return next(int(row[9]) for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}"))


def half_read_cursor(client, documents):
    """Over new documents of app.users; one of them has been taken from it."""
    client.app.users.drop()
    client.app.users.insert_many([{"_id": n} for n in range(documents)])
    cursor = client.app.users.find({}, batch_size=10)
    next(cursor)
    return cursor


def watched_inodes(pid):
    """What the epoll sets of a process watch."""
    folder = f"/proc/{pid}/fdinfo"
    text = "".join(open(f"{folder}/{name}").read() for name in os.listdir(folder))
    return {int(inode, 16) for inode in re.findall(r"^tfd:.*\bino:([0-9a-f]+)", text, re.M)}


def test_the_process_before_is_not_woken_by_new_clients(replaced):
    proxy = replaced()
    with client_of(proxy) as client:
        cursor = half_read_cursor(client, 100)
        assert listening_inode(proxy.port) in watched_inodes(proxy.pid)
        old = proxy.replace(ended=False)
        assert listening_inode(proxy.port) in watched_inodes(proxy.pid)
        assert listening_inode(proxy.port) not in watched_inodes(old)
        assert len(list(cursor)) == 99
        client.app.users.drop()


def test_clients_without_tls_stay_where_others_may_have_it(replaced, tmp_path):
    certificates = Certificates(tmp_path)
    proxy = replaced(net={"port": 0, "bindIp": "127.0.0.1",
                          "tls": {"mode": "allowTLS", "certificateKeyFile": certificates.server}})
    with client_of(proxy, maxPoolSize=1) as client:
        before = connections_of(client)
        proxy.replace()
        assert connections_of(client) == before


def change(proxy, **keys):
    config = json.loads(proxy.config_path.read_text())
    config.update(keys)
    proxy.config_path.write_text(json.dumps(config))


def test_addresses_change_on_the_same_port(replaced):
    proxy = replaced(net={"port": 0, "bindIp": "127.0.0.1", "admin": {"port": 0, "bindIp": "127.0.0.1"}})
    with client_of(proxy, maxPoolSize=1) as client:
        before = connections_of(client)
        for addresses in ("0.0.0.0", "127.0.0.1,127.0.0.2", "0.0.0.0", "127.0.0.1"):
            change(proxy, net={"port": proxy.port, "bindIp": addresses})
            proxy.replace()
            assert connections_of(client) == before
            for address in ("127.0.0.1", "127.0.0.2"):
                listens = address in addresses or addresses == "0.0.0.0"
                with pymongo.MongoClient(f"mongodb://{address}:{proxy.port}/", serverSelectionTimeoutMS=300) as other:
                    if listens:
                        assert other.admin.command("ping")["ok"] == 1
                    else:
                        with pytest.raises(pymongo.errors.ServerSelectionTimeoutError):
                            other.admin.command("ping")


def test_a_process_whose_pid_file_cannot_be_written_does_not_replace_one(replaced):
    proxy = replaced()
    with client_of(proxy, maxPoolSize=1) as client:
        before = connections_of(client)
        change(proxy, processManagement={"pidFilePath": str(proxy.directory / "nowhere" / "pid")})
        proxy.fail_to_replace("the other process has gone")
        assert "cannot write the pid file" in proxy.log()
        path = proxy.directory / "pid"
        change(proxy, processManagement={"pidFilePath": str(path)})
        proxy.replace()
        assert path.read_text() == f"{proxy.pid}\n"
        proxy.replace()
        assert path.read_text() == f"{proxy.pid}\n"
        assert connections_of(client) == before


@pytest.mark.ferretdb_only
def test_a_process_that_cannot_read_users_does_not_replace_one(binary, replaced, shard_set):
    users = [user_entry(binary, "ann", "secret", ("readWrite", "app"))]
    proxy = replaced(security={"authorization": "enabled", "users": users, "usersFrom": "shard0"})
    with client_of(proxy, maxPoolSize=1, username="ann", password="secret") as client:
        assert client.app.command("ping")["ok"] == 1
        shard_set[0].freeze()
        try:
            proxy.fail_to_replace("the other process has gone")
        finally:
            shard_set[0].thaw()
        assert "does not replace a process that has them" in proxy.log()
        assert client.app.command("ping")["ok"] == 1
        proxy.replace()
        assert client.app.command("ping")["ok"] == 1


@pytest.mark.ferretdb_only
def test_a_process_that_can_read_users_after_a_while_replaces_one(binary, replaced, shard_set):
    users = [user_entry(binary, "ann", "secret", ("readWrite", "app"))]
    proxy = replaced(security={"authorization": "enabled", "users": users, "usersFrom": "shard0"})
    with client_of(proxy, maxPoolSize=1, username="ann", password="secret") as client:
        before = connections_of(client)
        shard_set[0].freeze()
        try:
            os.kill(proxy.pid, signal.SIGUSR2)
            wait_for(lambda: "users cannot be read" in proxy.log(), "the first attempt", 30)
        finally:
            shard_set[0].thaw()
        proxy.follow(1)
        assert client.app.command("ping")["ok"] == 1
        assert connections_of(client) == before


def test_a_user_who_is_no_more_loses_the_connection(binary, replaced):
    users = [user_entry(binary, name, "secret", ("readWrite", "app")) for name in ("ann", "bob")]
    proxy = replaced(security={"authorization": "enabled", "users": users})
    with client_of(proxy, maxPoolSize=1, username="ann", password="secret") as ann, \
            client_of(proxy, maxPoolSize=1, username="bob", password="secret") as bob:
        for client in (ann, bob):
            client.app.users.drop()
        change(proxy, security={"authorization": "enabled", "users": users[:1]})
        proxy.replace()
        ann.app.users.drop()
        with pytest.raises(pymongo.errors.PyMongoError) as refusal:
            bob.app.users.drop()
        assert isinstance(refusal.value, pymongo.errors.AutoReconnect) or refusal.value.code == 18
        with pytest.raises(pymongo.errors.OperationFailure) as refusal:
            bob.app.users.drop()
        assert refusal.value.code == 18


def test_clients_that_never_logged_in_must_when_the_new_process_says_so(binary, replaced):
    proxy = replaced()
    with client_of(proxy, maxPoolSize=1) as client:
        cursor = half_read_cursor(client, 50)
        users = [user_entry(binary, "ann", "secret", ("readWrite", "app"))]
        change(proxy, security={"authorization": "enabled", "users": users})
        proxy.replace(ended=False)
        with pytest.raises(pymongo.errors.OperationFailure) as refusal:
            list(cursor)
        assert refusal.value.code == 13
        with client_of(proxy, username="ann", password="secret") as ann:
            ann.app.command({"killCursors": "users", "cursors": [cursor.cursor_id]})
            ann.app.users.drop()


def test_a_request_waits_for_the_process_before(replaced):
    proxy = replaced()
    with client_of(proxy) as client:
        cursor = half_read_cursor(client, 50)
        proxy.replace(ended=False)
        second = proxy.pid
        os.kill(second, signal.SIGUSR2)
        wait_for(lambda: "when the one before it has ended" in proxy.log(), "its answer")
        assert len(REPLACED.findall(proxy.log())) == 1
        assert len(list(cursor)) == 49
        proxy.follow(2)
        wait_for(lambda: not os.path.exists(f"/proc/{second}"), "the second one's end")
        client.app.users.drop()


LATE = """
import os, sys, time
while not os.path.exists("GO"):
    time.sleep(0.01)
os.execv("BINARY", ["PROGRAM"] + sys.argv[1:])
"""


def test_a_request_while_a_process_starts_comes_after_it(binary, replaced):
    """That one may have read its configuration before it changed."""
    proxy = replaced()
    go = proxy.directory / "go"
    proxy.install_script(LATE.replace("GO", str(go)).replace("BINARY", str(binary)).replace("PROGRAM",
                                                                                            str(proxy.program)))
    os.kill(proxy.pid, signal.SIGUSR2)
    wait_for(lambda: "is to be replaced by" in proxy.log(), "its start")
    os.kill(proxy.pid, signal.SIGHUP)
    wait_for(lambda: "once more, after it has been" in proxy.log(), "its answer")
    go.touch()
    proxy.follow(2)
    proxy.process.wait(30)


def test_a_reload_replaces_the_process_for_a_key_that_it_cannot_take(replaced):
    proxy = replaced(workers=2)
    with client_of(proxy, maxPoolSize=1) as client:
        before = connections_of(client)
        change(proxy, workers=1, systemLog={"verbosity": 1})
        proxy.replace(signal.SIGHUP)
        assert "workers cannot be changed while the process runs" in proxy.log()
        assert "with 1 workers" in proxy.log()
        assert connections_of(client) == before


def test_a_reload_is_this_process_s_when_the_installed_program_fails(replaced, tmp_path):
    certificates, file = Certificates(tmp_path), tmp_path / "current.pem"
    shutil.copy(certificates.server, file)
    proxy = replaced(workers=2, net={"port": 0, "bindIp": "127.0.0.1",
                                     "tls": {"mode": "allowTLS", "certificateKeyFile": str(file)}})
    proxy.install_script("raise SystemExit(1)")
    shutil.copy(certificates.issue("renewed"), file)
    os.kill(proxy.pid, signal.SIGHUP)
    wait_for(lambda: " reloaded: " in proxy.log(), "the reload")
    assert "the process is not replaced, and goes on: the other process has gone" in proxy.log()
    assert shown_to(proxy, certificates) == "renewed"
    # What no process takes is refused as a whole, and does not stay in the way of the next.
    shutil.copy(certificates.issue("again"), file)
    change(proxy, workers=1)
    os.kill(proxy.pid, signal.SIGHUP)
    wait_for(lambda: "reload refused, the old configuration stays: workers cannot be changed" in proxy.log(),
             "the refusal")
    assert shown_to(proxy, certificates) == "renewed"
    change(proxy, workers=2)
    os.kill(proxy.pid, signal.SIGHUP)
    wait_for(lambda: proxy.log().count(" reloaded: ") == 2, "the next reload")
    assert shown_to(proxy, certificates) == "again"
    os.kill(proxy.pid, signal.SIGUSR2)
    wait_for(lambda: proxy.log().count("and goes on: ") == 4, "one that is no reload")


def test_a_reload_that_no_process_takes_is_refused(replaced):
    """The program is the same: it is replaced for a key that it cannot take while it runs."""
    proxy = replaced()
    change(proxy, processManagement={"pidFilePath": str(proxy.directory / "nowhere" / "pid")})
    os.kill(proxy.pid, signal.SIGHUP)
    wait_for(lambda: "reload refused, the old configuration stays: processManagement.pidFilePath cannot" in proxy.log(),
             "the refusal")
    assert "the process is not replaced, and goes on: the other process has gone" in proxy.log()


def test_a_new_process_that_waits_for_its_turn_can_be_ended(binary, shard_set, tmp_path):
    older, newer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    config = {"routing": routing([shard.uri for shard in shard_set]), "net": {"port": 0, "bindIp": "127.0.0.1"},
              "security": {"authorization": "disabled"}}
    (tmp_path / "conf").write_text(json.dumps(config))
    older.send(bson.encode({"offer": {"sockets": []}, "v": 1}))
    environment = {**os.environ, "SPILLWAY_HANDOVER_SOCKET": str(newer.fileno())}
    with subprocess.Popen([binary, "--config", tmp_path / "conf"], env=environment, pass_fds=[newer.fileno()]) as process:
        try:
            newer.close()
            assert "ready" in bson.decode(older.recv(16384))  # and is never told to serve
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
            older.close()


def test_a_reload_does_not_replace_the_process_for_another_routing(replaced):
    proxy = replaced(workers=2)
    config = json.loads(proxy.config_path.read_text())
    config["routing"]["databases"].append({"name": "other", "primary": "shard2"})
    change(proxy, workers=1, routing=config["routing"])
    os.kill(proxy.pid, signal.SIGHUP)
    wait_for(lambda: "reload refused, " in proxy.log(), "the refusal")
    assert "change that by a reload alone, or restart" in proxy.log()
    assert not REPLACED.search(proxy.log())
