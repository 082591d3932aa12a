"""The actions of the admin port's page, over real sockets: logins, what ends, what is written down."""

import base64
import hashlib
import http.client
import json
import re

import pymongo
import pytest
from admin_port import ask, scrape
from canned_router import Router
from users import user_entry, without_secrets
from waiting import wait_for

pytestmark = [pytest.mark.timeout(90), pytest.mark.proxy_only]
PASSWORDS = {"ops": "the ops' p\u00e4ss", "ann": "pencil"}


class Page:
    """What the page does, without a browser."""

    def __init__(self, port, origin=None):
        self.port, self.cookie, self.token = port, None, None
        self.headers = {"Content-Type": "application/json", "Origin": origin or f"http://127.0.0.1:{port}"}

    def post(self, path, fields=None, **headers):
        sent = {**self.headers, **({"Cookie": self.cookie} if self.cookie else {}),
                **({"X-Spillway-Token": self.token} if self.token else {}), **headers}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("POST", path, json.dumps(fields or {}), sent)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()), answer.headers
        finally:
            connection.close()

    def log_in(self, name, password=None):
        status, said, headers = self.post("/login", {"user": name, "password": password or PASSWORDS[name]})
        if status == 200:
            cookie = headers["Set-Cookie"]
            assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
            self.cookie, self.token = cookie.split(";")[0], said["token"]
            assert self.cookie.startswith(f"spillway-{self.port}=") and said["idleSeconds"] == 900
        return status, said


@pytest.fixture(scope="module")
def settings(binary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("actions")
    users = [user_entry(binary, "ops", PASSWORDS["ops"], ("clusterAdmin", "admin")),
             user_entry(binary, "ann", PASSWORDS["ann"], ("readWriteAnyDatabase", "admin"))]
    path = folder / "users.json"
    path.write_text(json.dumps(users))
    path.chmod(0o600)
    return ["--set", "security.authorization=enabled", "--set", f"security.usersFile={path}",
            "--set", "auditLog.destination=file", "--set", "auditLog.format=JSON",
            "--set", "setParameter.enableTestCommands=true"]


class Guarded(Router):
    def __init__(self, binary, folder, settings):
        self.folder = folder
        super().__init__(binary, folder, *settings, "--set", f"auditLog.path={folder / 'audit'}")

    def log(self):
        return (self.folder / "log").read_text()

    def audited(self, count=1, **param):
        """The lines with these parameters, once there are `count` of them: a thread of its own writes them."""
        def found():
            lines = [json.loads(text) for text in (self.folder / "audit").read_text().split("\n")[:-1]]
            return [line for line in lines if param.items() <= line["param"].items()]

        wait_for(lambda: len(found()) >= count, f"{count} lines of {param}")
        return found()

    def client(self, name):
        return pymongo.MongoClient("127.0.0.1", self.port, username=name, password=PASSWORDS[name], appname="census")


@pytest.fixture(scope="module")
def router(binary, settings, tmp_path_factory):
    made = Guarded(binary, tmp_path_factory.mktemp("guarded"), settings)
    yield made
    made.end()
    for text in (made.log(), (made.folder / "audit").read_text()):
        assert without_secrets(text, *PASSWORDS.values())


def test_a_cluster_admin_ends_a_cursor_of_another_user(router):
    page = Page(router.admin)
    assert page.log_in("ops")[0] == 200
    with router.client("ann") as client:
        cursor = client.bench.docs_4096x2000.find({}).batch_size(10)
        next(cursor)
        live = json.loads(ask(router.admin, "/live")[1])
        assert live["authorization"] is True
        row = next(row for row in live["cursorsByAge"] if row["application"] == "census")
        assert row["id"] == str(cursor.cursor_id)
        status, said, _ = page.post("/kill-cursor", {"id": row["id"]})
        assert status == 200 and str(said["cursorsKilled"][0]) == row["id"]
        with pytest.raises(pymongo.errors.CursorNotFound):
            list(cursor)
    killed = router.audited(command="killCursors")[-1]
    assert killed["users"] == [{"user": "ops", "db": "admin"}] and killed["remote"]["ip"] == "127.0.0.1"
    assert killed["param"]["ns"] == "bench.docs_4096x2000" and killed["result"] == 0
    assert re.search(r"the admin port's page: admin\.ops from 127\.0\.0\.1:\d+ asks for .*killCursors", router.log())


def test_an_operation_is_told_to_end(router, background):
    page = Page(router.admin)
    assert page.log_in("ops")[0] == 200
    ended = []

    def work(_, index):
        with router.client("ann") as client:
            try:
                client.bench.docs_4096x2000.distinct("_id")
            except pymongo.errors.OperationFailure as error:
                ended.append((index, error.code))

    with router.client("ops") as client:
        hold = {"failCommands": ["distinct"], "blockConnection": True, "blockTimeMS": 60_000}
        client.admin.command({"configureFailPoint": "failCommand", "mode": "alwaysOn", "data": hold})
        background(work, threads=2)

        def running():
            rows = json.loads(ask(router.admin, "/live")[1])["operationsByAge"]
            return [row for row in rows if row["command"] == "distinct"]

        wait_for(lambda: len(running()) == 2, "both operations")
        assert {row["ns"] for row in running()} == {"bench.docs_4096x2000"}
        assert page.post("/kill-operation", {"opid": running()[0]["opid"]})[0] == 200
        wait_for(lambda: ended, "the end of one")
        assert [code for _, code in ended] == [11601]
        wait_for(lambda: len(running()) == 1, "a document that shows it")
        client.admin.command({"configureFailPoint": "failCommand", "mode": "off"})
        assert page.post("/kill-operation", {"opid": running()[0]["opid"]})[0] == 200
        wait_for(lambda: len(ended) == 2, "the end of the other")
    killed = router.audited(2, command="killOp")
    assert len(killed) == 2 and killed[0]["users"] == [{"user": "ops", "db": "admin"}]


def test_memory_is_released(router):
    before = scrape(router.admin)['spillway_memory_releases_total{reason="command"}']
    page = Page(router.admin)
    assert page.log_in("ops")[0] == 200
    status, said, _ = page.post("/release-memory")
    assert status == 200 and said["givenBackBytes"] >= 0 and "command" in said["reasons"]
    assert scrape(router.admin)['spillway_memory_releases_total{reason="command"}'] == before + 1


def test_strangers_do_nothing(router):
    page = Page(router.admin)
    for path in ("/session", "/logout", "/kill-operation", "/kill-cursor", "/release-memory", "/drain"):
        assert page.post(path)[0] == 401
        assert ask(router.admin, path)[0] == 405
    assert page.log_in("ann") == (403, {"error": "admin.ann has not the role clusterAdmin"})
    assert page.log_in("ops", "wrong")[0] == page.log_in("nobody", "wrong")[0] == 401
    assert page.log_in("ops")[0] == 200
    other = Page(router.admin, "http://127.0.0.1:80")  # a page of another port has the cookie, not the token
    other.cookie = page.cookie
    assert other.post("/drain")[0] == 403
    other.headers["Origin"] = page.headers["Origin"]
    assert other.post("/drain")[0] == 403
    assert page.post("/drain", **{"X-Spillway-Token": page.cookie.split("=")[1]})[0] == 403
    assert page.post("/drain", Host="router.example")[0] == 403
    assert page.post("/drain", **{"X-Forwarded-For": "10.0.0.9"})[0] == 403
    assert page.post("/logout")[0] == 200
    assert page.post("/session")[0] == 401
    assert scrape(router.admin)["spillway_draining"] == 0


def test_failed_logins_are_limited(router):
    page = Page(router.admin)
    answers = [page.log_in("guessed", "guess")[1]["error"] for _ in range(12)]
    assert answers[0] == "Authentication failed." and "try again in" in answers[-1]
    assert page.log_in("ops")[0] == 200  # others are not affected


def test_a_session_holds_one_place_of_sixteen(router):
    first = Page(router.admin)
    assert first.log_in("ops")[0] == 200
    for _ in range(16):
        assert Page(router.admin).log_in("ops")[0] == 200
    assert first.post("/session")[0] == 401


def test_bodies_are_small_and_json(router):
    page = Page(router.admin)
    with pytest.raises(json.JSONDecodeError):  # refused before it is read: plain text
        page.post("/login", {"user": "x" * 3000})
    assert page.post("/login", **{"Content-Type": "text/plain"})[0] == 415


def test_the_page_runs_nothing_but_itself(router):
    _, page, headers = ask(router.admin, "/")
    for tag in ("script", "style"):
        text = re.search(f"<{tag}>(.*?)</{tag}>", page, re.S)[1]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert not re.search(r"\bstyle=|\bon\w+=", page)
    for path in ("/", "/live", "/metrics", "/nowhere", "/login"):
        headers = ask(router.admin, path)[2]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Frame-Options"] == "DENY" and headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer" and headers["Cache-Control"] == "no-store"


def test_without_authorization_nobody_acts(binary, tmp_path):
    router = Router(binary, tmp_path, "--set", "security.authorization=disabled")
    status, said, _ = Page(router.admin).post("/drain")
    assert status == 403 and "security.authorization is disabled" in said["error"]
    router.end()


def test_a_drain_ends_the_process_as_sigterm_does(binary, settings, tmp_path):
    router = Guarded(binary, tmp_path, settings)
    page = Page(router.admin)
    assert page.log_in("ops")[0] == 200
    assert page.post("/drain")[:2] == (200, {"draining": True})
    assert router.process.wait(30) == 0
    assert "shutdown: clients are told" in router.log()
    assert [line["users"] for line in router.audited() if line["atype"] == "shutdown"][0] == [{"user": "ops", "db": "admin"}]
