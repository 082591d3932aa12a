"""Limits as drivers meet them: per user, application and address, of connections and of logins."""

import socket
import threading

import pymongo
import pytest
from proxy import routing
from pymongo.errors import ConnectionFailure, OperationFailure
from test_reload import Reloaded
from users import user_entry
from waiting import wait_for
from wire import WireClient

pytestmark = [pytest.mark.timeout(180), pytest.mark.proxy_only]
OVERLOADED = ["SystemOverloadedError", "RetryableError"]
PASSWORDS = {"ann": "pencil", "bob": "p\u00e4ssw\u00f6rd"}
FAST = {"serverSelectionTimeoutMS": 3000, "connectTimeoutMS": 3000}


@pytest.fixture(scope="module")
def users(binary):
    return [user_entry(binary, name, password, ("root", "admin"))
            for name, password in PASSWORDS.items()]


@pytest.fixture
def start(binary, shard_set):
    made = []

    def start(**config):
        config = {"routing": routing([shard.uri for shard in shard_set]), **config}
        made.append(Reloaded(binary, config).start())
        return made[-1]

    yield start
    for proxy in made:
        proxy.stop()


class Relay:
    """Forwards connections to a proxy from an address of its own."""

    def __init__(self, port, source):
        self.target, self.source = ("127.0.0.1", port), source
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.uri = f"mongodb://127.0.0.1:{self.listener.getsockname()[1]}/"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(self.target, source_address=(self.source, 0))
            except OSError:
                return
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=ends, daemon=True).start()

    @staticmethod
    def _copy(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()


class Connection(WireClient):
    def ask(self, document):
        return self.command(document).document


def status(client, *path):
    value = client.admin.command("serverStatus")
    for name in path:
        value = value[name]
    return value


def refused(do, code=462):
    with pytest.raises(OperationFailure) as failed:
        do()
    assert failed.value.code == code, failed.value.details
    return failed.value


def test_operations_per_second(start):
    proxy = start(limits={"perAddress": {"operationsPerSecond": 30},
                          "overrides": [{"address": "127.0.0.1", "operationsPerSecond": "unlimited"}]})
    relay = Relay(proxy.port, "127.0.0.4")
    with pymongo.MongoClient(proxy.uri) as watcher, \
            pymongo.MongoClient(relay.uri, retryReads=False, retryWrites=False) as shop:
        watcher.app.ranged.drop()
        watcher.app.ranged.insert_many([{"_id": i} for i in range(900)])
        cursor = shop.app.ranged.find({}, batch_size=20)
        assert next(cursor)
        done = 0
        with pytest.raises(OperationFailure) as failed:
            for done in range(1000):
                shop.app.command("ping")
        assert 20 <= done < 1000
        assert failed.value.code == 462
        assert failed.value.details["codeName"] == "IngressRequestRateLimitExceeded"
        assert failed.value.details["errorLabels"] == OVERLOADED
        # A scan that was begun ends, and others are not concerned.
        assert len(list(cursor)) == 899
        for _ in range(100):
            watcher.app.command("ping")
        counts = status(watcher, "limits", "perAddress")
        assert counts["refused"]["operationsPerSecond"] >= 1 and counts["tracked"] >= 2
    relay.close()
    assert proxy.log().count("limits.perAddress.operationsPerSecond: the address '127.0.0.4'") == 1


def test_a_driver_that_knows_of_back_pressure_tries_again(start):
    proxy = start(limits={"perAddress": {"operationsPerSecond": 20}})
    with pymongo.MongoClient(proxy.uri) as shop:
        done = 0
        for n in range(40):
            try:
                shop.app.ranged.find_one({"_id": n})
                done += 1
            except OperationFailure as failed:
                assert failed.code == 462
        assert done >= 20


def test_cursors_and_reload(start):
    proxy = start()
    with pymongo.MongoClient(proxy.uri, appname="w") as client:
        client.app.ranged.drop()
        client.app.ranged.insert_many([{"_id": i} for i in range(900)])
        cursors = [client.app.ranged.find({}, batch_size=5) for _ in range(4)]
        for cursor in cursors[:3]:
            next(cursor)
        proxy.config["limits"] = {"perAddress": {"cursors": 3}}
        assert "limits" in proxy.reload()
        error = refused(lambda: next(cursors[3]))
        assert error.details["errorLabels"] == OVERLOADED
        assert client.app.ranged.find_one({"_id": 7}) == {"_id": 7}
        cursors[0].close()
        cursors[3] = client.app.ranged.find({}, batch_size=5)
        assert len(list(cursors[3])) == 900
        assert status(client, "limits", "perAddress", "refused", "cursors") >= 1
        proxy.config["limits"] = {"perUser": {"cursors": 0}}
        assert "reload refused" in proxy.reload()
        del proxy.config["limits"]
        assert "reloaded" in proxy.reload()
        more = [client.app.ranged.find({}, batch_size=5) for _ in range(5)]
        for cursor in more:
            next(cursor)


def test_connections_of_an_address(start):
    proxy = start(limits={"perAddress": {"connections": 3},
                          "overrides": [{"address": "127.0.0.2", "connections": 1}]})
    raw = [Connection(proxy.port) for _ in range(3)]
    for connection in raw:
        assert connection.ask({"ping": 1, "$db": "admin"})["ok"] == 1
    last = Connection(proxy.port)
    reply = last.ask({"hello": 1, "$db": "admin"})
    assert reply["code"] == 462 and reply["errorLabels"] == OVERLOADED and "127.0.0.1" in reply["errmsg"]
    last.expect_close()
    relay = Relay(proxy.port, "127.0.0.2")
    port = int(relay.uri.split(":")[-1].strip("/"))
    first = Connection(port)
    assert first.ask({"ping": 1, "$db": "admin"})["ok"] == 1
    assert Connection(port).ask({"hello": 1, "$db": "admin"})["code"] == 462
    relay.close()
    raw.pop().close()
    wait_for(lambda: Connection(proxy.port).ask({"ping": 1, "$db": "admin"})["ok"] == 1, "room")


def test_connections_of_a_user(start, users):
    proxy = start(security={"authorization": "enabled", "users": users},
                  limits={"perUser": {"connections": 2}})
    options = {"username": "ann", "password": PASSWORDS["ann"], "authSource": "admin", **FAST}
    with pymongo.MongoClient(proxy.uri, **options) as one, pymongo.MongoClient(proxy.uri, **options) as two, \
            pymongo.MongoClient(proxy.uri, **options) as three, \
            pymongo.MongoClient(proxy.uri, **{**options, "username": "bob", "password": PASSWORDS["bob"]}) as bob:
        assert one.app.command("ping")["ok"] == two.app.command("ping")["ok"] == 1
        error = refused(lambda: three.app.command("ping"))
        assert "admin.ann" in str(error)
        assert bob.app.command("ping")["ok"] == 1
        assert status(bob, "limits", "perUser", "refused", "connections") >= 1
        one.close()
        wait_for(lambda: not fails(lambda: three.app.command("ping")), "a place")


def fails(do):
    try:
        do()
    except (OperationFailure, ConnectionFailure):
        return True
    return False


def test_failed_logins(start, users):
    proxy = start(security={"authorization": "enabled", "users": users,
                            "failedLogins": {"allowed": 3}})

    def log_in(name, password, uri=proxy.uri):
        with pymongo.MongoClient(uri, username=name, password=password, authSource="admin", **FAST) as client:
            client.app.command("ping")
            return status(client, "security", "failedLogins")

    for _ in range(3):
        error = refused(lambda: log_in("ann", "wrong"), 18)
        assert error.details["errmsg"] == "Authentication failed."
    # Not even the right password is looked at; it is only this user, at this address.
    error = refused(lambda: log_in("ann", PASSWORDS["ann"]), 18)
    assert "too many logins of this user" in error.details["errmsg"]
    assert log_in("bob", PASSWORDS["bob"])["refused"] >= 1
    relay = Relay(proxy.port, "127.0.0.3")
    assert log_in("ann", PASSWORDS["ann"], relay.uri)["tracked"] == 1
    relay.close()
    wait_for(lambda: not fails(lambda: log_in("ann", PASSWORDS["ann"])), "the end of the wait")
    assert log_in("ann", PASSWORDS["ann"])["tracked"] == 0
    # An unknown user waits as others do.
    for _ in range(3):
        refused(lambda: log_in("nobody", "wrong"), 18)
    assert "too many logins of this user" in str(refused(lambda: log_in("nobody", "wrong"), 18))
    assert all(password not in proxy.log() for password in PASSWORDS.values())


def test_max_incoming_connections(start):
    proxy = start(net={"port": 0, "bindIp": "127.0.0.1", "maxIncomingConnections": 3})
    held = [Connection(proxy.port) for _ in range(3)]
    for connection in held:
        assert connection.ask({"ping": 1, "$db": "admin"})["ok"] == 1
    with pytest.raises((OSError, AssertionError, EOFError)):
        Connection(proxy.port).ask({"ping": 1, "$db": "admin"})
    seen = held[0].ask({"serverStatus": 1, "$db": "admin"})["connections"]
    assert (seen["rejected"], seen["current"], seen["available"]) == (1, 3, 0)


def test_idle_and_silent_clients(start):
    proxy = start(net={"port": 0, "bindIp": "127.0.0.1", "idleClientTimeoutMillis": 1000,
                       "slowSenderTimeoutMillis": 1000})
    silent, idle, halfway = (Connection(proxy.port) for _ in range(3))
    for connection in (idle, halfway):
        assert connection.ask({"ping": 1, "$db": "admin"})["ok"] == 1
    halfway.socket.sendall(b"\x40\0\0\0")
    silent.socket.settimeout(40)  # a first message may take 30 s
    for connection in (idle, halfway, silent):
        connection.expect_close()
    with pymongo.MongoClient(proxy.uri, maxIdleTimeMS=None) as client:
        seen = status(client, "connections")
        assert seen["silentClosed"] >= 1 and seen["idleClosed"] >= 1
        # A driver does not notice.
        client.app.ranged.find_one({})
        wait_for(lambda: status(client, "connections", "idleClosed") >= 1, "idle ends")
        client.app.ranged.find_one({})
