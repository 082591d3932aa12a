"""Watching a router: `spillway top` on a terminal and in scripts, the admin port's page and its events."""

import http.client
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import termios

import pymongo
import pytest
from admin_port import ask
from canned_router import Router
from proxy import free_port
from shards import die_with_parent
from waiting import wait_for

pytestmark = [pytest.mark.timeout(90), pytest.mark.proxy_only]
ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def router(binary, tmp_path_factory):
    made = Router(binary, tmp_path_factory.mktemp("watch"))
    with pymongo.MongoClient(f"mongodb://127.0.0.1:{made.port}/", appname="census") as client:
        for _ in range(20):
            client.app.people.find_one({"_id": 1})
        yield made
    made.end()


def top(binary, port, *options):
    return subprocess.run([binary, "top", "--set", f"net.admin.port={port}", *options], capture_output=True, text=True,
                          timeout=30, stdin=subprocess.DEVNULL)


def test_a_document_for_scripts(binary, router):
    done = top(binary, router.admin, "--once", "--json")
    assert done.returncode == 0, done.stderr
    live = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert live["operations"]["query"] >= 20 and live["inside"]["point"]["count"] >= 20
    assert [shard["name"] for shard in live["shards"]] == ["canned0", "canned1"]
    assert all(shard["writable"] for shard in live["shards"]) and sum(shard["calls"] for shard in live["shards"]) >= 20
    assert sum(live["map"]) == sum(kind["count"] for kind in live["inside"].values())
    assert live["memory"]["limit"] == 160 << 20 and live["memory"]["resident"] > 0
    assert live["details"] is True and live["draining"] is False


def test_two_looks_are_one_picture(binary, router):
    done = top(binary, router.admin)  # no terminal: once
    assert done.returncode == 0, done.stderr
    for part in ("MEMORY  [", "OPERATIONS/S", "SHARD ", "canned0", "canned1"):
        assert part in done.stdout
    assert "\x1b" not in done.stdout


def test_a_terminal_is_drawn_on_until_q_and_left_as_it_was(binary, router):
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen([binary, "top", "--set", f"net.admin.port={router.admin}"], stdin=theirs, stdout=theirs,
                               stderr=theirs, preexec_fn=die_with_parent)
    screen = b""

    def read_until(part):
        nonlocal screen
        while part not in screen:
            assert select.select([ours], [], [], 30)[0], screen
            screen += os.read(ours, 65536)

    read_until(b"canned1")
    screen = b""
    read_until(b"\x1b[H")  # the next picture
    assert not termios.tcgetattr(theirs)[3] & (termios.ECHO | termios.ICANON)
    os.write(ours, b"q")
    read_until(b"\x1b[?1049l")
    assert process.wait(30) == 0
    assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    os.close(ours)


def test_a_terminal_is_left_as_it_was_after_sigterm(binary, router):
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen([binary, "top", "--set", f"net.admin.port={router.admin}"], stdin=theirs, stdout=theirs,
                               stderr=theirs, preexec_fn=die_with_parent)
    assert select.select([ours], [], [], 30)[0]
    wait_for(lambda: b"canned1" in os.read(ours, 65536), "a picture")
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    os.close(ours)


def test_without_a_port_and_without_a_router_it_says_so(binary):
    done = subprocess.run([binary, "top"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "net.admin.port" in done.stderr
    port = free_port()
    done = top(binary, port)
    assert done.returncode == 1 and f"127.0.0.1:{port} does not answer" in done.stderr


def test_the_page_needs_nothing_from_elsewhere(router):
    status, page, headers = ask(router.admin, "/")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert page == (ROOT / "proxy/server/admin/admin_page.html").read_text() and len(page.encode()) <= 100_000
    assert not re.search(r"https?://|src=|@import|url\(", page)
    assert "innerHTML" not in page


def test_the_page_advises_what_the_manual_does(router):
    page = ask(router.admin, "/")[1]
    parts = re.findall(r'^  \["(.+?)", ', page, re.M)
    assert len(parts) > 10
    manual = (ROOT / "conf/manual/operating.md").read_text()
    for part in parts:
        assert part in manual, part


class Events:
    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        self.connection.request("GET", "/events")
        self.answer = self.connection.getresponse()

    def next(self):
        line = self.answer.readline().decode()
        assert line.startswith("data: ") and self.answer.readline() == b"\n"
        return json.loads(line.removeprefix("data: "))

    def close(self):
        self.answer.close()
        self.connection.close()


def test_events_come_each_second_to_four_at_most(router):
    streams = [Events(router.admin) for _ in range(4)]
    assert {stream.answer.status for stream in streams} == {200}
    assert streams[0].answer.headers["Content-Type"] == "text/event-stream"
    first, second = streams[0].next(), streams[0].next()
    assert first["upMillis"] < second["upMillis"] < first["upMillis"] + 10_000
    assert first["details"] is True
    assert ask(router.admin, "/events")[0] == 503
    assert ask(router.admin, "/healthz")[0] == 200  # they do not keep others out
    streams[0].close()

    def again():
        stream = Events(router.admin)
        stream.close()
        return stream.answer.status == 200

    wait_for(again, "a place that became free")
    for stream in streams[1:]:
        stream.close()


def test_a_stream_does_not_hold_up_the_end(binary, tmp_path):
    router = Router(binary, tmp_path)
    stream = Events(router.admin)
    stream.next()
    router.end()
    stream.close()
