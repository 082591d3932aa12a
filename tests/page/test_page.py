"""The admin port's page in Chromium, while a storm of clients runs."""

import contextlib
import json
import threading
from pathlib import Path

import pymongo
import pytest
from browser import ENTER, ESCAPE, TAB
from canned_router import Router
from users import user_entry
from waiting import wait_for

pytestmark = pytest.mark.timeout(180)
REPORTS = Path(__file__).parents[2] / "build/reports"
PASSWORD = "the ops' pencil"
NASTY = "<img src=x onerror=\"document.title='broken in'\">"


@pytest.fixture
def router(binary, tmp_path):
    users = tmp_path / "users"
    users.write_text(json.dumps([user_entry(binary, "ops", PASSWORD, ("root", "admin"))]))
    users.chmod(0o600)
    made = Router(binary, tmp_path, "--set", "security.authorization=enabled", "--set", f"security.usersFile={users}")
    yield made
    made.process.terminate()
    assert made.process.wait(30) == 0


def clients_of(router, name):
    return pymongo.MongoClient("127.0.0.1", router.port, username="ops", password=PASSWORD, appname=name)


@pytest.fixture
def storm(router):
    """Reads of points, sorted scans, cursors that are left, and failures."""
    stopping = threading.Event()

    def points():
        with clients_of(router, "shop") as client:
            while not stopping.is_set():
                client.bench.point_1024x100000.find_one({"_id": 7})
                client.bench.point_1024x100000.update_one({"_id": 7}, {"$set": {"n": 1}})

    def reports():
        with clients_of(router, "reports") as client:
            while not stopping.is_set():
                for i, _ in enumerate(client.bench.docs_4096x200000.find({}).sort("_id", 1)):
                    if i > 20_000 or stopping.is_set():
                        break

    def leaves():
        with clients_of(router, NASTY) as client:
            left = []
            while not stopping.wait(0.25):
                cursor = client.bench.docs_4096x200000.find({}).sort("_id", 1).batch_size(200)
                next(cursor)
                left.append(cursor)
                for old in left[:-10]:
                    old.close()
                del left[:-10]

    threads = [threading.Thread(target=work) for work in (points, points, reports, reports, leaves)]
    for thread in threads:
        thread.start()
    yield
    stopping.set()
    for thread in threads:
        with contextlib.suppress(RuntimeError):
            thread.join(60)


def open_page(browser, router):
    browser.open(f"http://localhost:{router.admin}/")
    browser.wait("document.getElementById('state').textContent === 'live'", "the first event")


def rows(table):
    return f"document.querySelectorAll('#{table} tr').length"


def ink(canvas):
    """How many different colours a canvas shows."""
    return (f"(() => {{ const at = document.getElementById('{canvas}'), all = new Set(), "
            "d = at.getContext('2d').getImageData(0, 0, at.width, at.height).data; "
            "for (let i = 0; i < d.length; i += 4) all.add(`${d[i]} ${d[i + 1]} ${d[i + 2]} ${d[i + 3]}`); return all.size; })()")


def log_in(browser, password=PASSWORD):
    """By the keyboard alone."""
    browser.press("l")
    browser.wait("document.activeElement.name === 'user'", "the form")
    browser.press("ops", TAB, password, ENTER)


def test_a_storm_is_seen_in_light_and_dark(browser, router, storm):
    open_page(browser, router)
    browser.wait(f"{rows('cursors')} > 8 && {rows('shards')} === 3 && {rows('operations')} > 1 && {rows('holders')} > 3",
                 "the tables")
    browser.wait("samples.length > 20", "twenty events")
    for canvas in ("memoryChart", "rateChart", "heat"):
        assert browser.run("return " + ink(canvas)) > 5, canvas
    REPORTS.mkdir(parents=True, exist_ok=True)
    seen = []
    for _ in range(2):
        theme = browser.run("return document.documentElement.dataset.theme")
        seen.append((theme, browser.run("return getComputedStyle(document.body).backgroundColor")))
        browser.picture(REPORTS / f"page-{theme}.png")
        browser.press("t")
    assert {theme for theme, _ in seen} == {"light", "dark"} and seen[0][1] != seen[1][1]
    # What clients call themselves stays text; nothing came from elsewhere; nothing was refused by the page's own rules.
    assert "<img" in browser.text("cursors") and browser.run("return document.images.length") == 0
    assert browser.run("return document.title").startswith("Spillway ")
    origins = browser.run("return performance.getEntriesByType('resource').map(one => new URL(one.name).origin)")
    assert set(origins) <= {f"http://localhost:{router.admin}"}
    assert browser.complaints() == []


def test_keys_do_what_buttons_do(browser, router, storm):
    open_page(browser, router)
    browser.press("?")
    assert "Pause" in browser.text("keysTable") and "Memory" in browser.text("keysTable")
    browser.press("p", ESCAPE)  # a dialog takes the keys
    assert browser.text("state") == "live"
    browser.press("p")
    assert browser.text("state") == "paused"
    browser.press("p")
    browser.press("3")
    assert browser.run("return document.activeElement.querySelector('h2').textContent").startswith("Time inside")
    assert browser.run("return document.getElementById('drain').hidden")
    browser.press("d", "r")  # needs a login
    assert not browser.run("return !!document.querySelector('dialog[open]')")
    assert browser.complaints() == []


def test_an_operator_logs_in_and_ends_a_cursor_by_the_keyboard(browser, router):
    with clients_of(router, "census") as client:
        cursor = client.bench.docs_4096x2000.find({}).batch_size(10)
        next(cursor)
        open_page(browser, router)
        log_in(browser, "wrong")
        browser.wait("document.getElementById('loginError').textContent === 'Authentication failed.'", "the refusal")
        browser.press(PASSWORD, ENTER)  # the wrong one is selected
        browser.wait("document.getElementById('operator').textContent === 'ops, of admin'", "the session")
        assert PASSWORD not in browser.run("return JSON.stringify({...sessionStorage}) + document.cookie")
        browser.wait("document.querySelector('#cursors td button')", "a button")
        browser.run("document.querySelector('#cursors td button').focus()")
        kept = browser.run("return samples.length")
        browser.wait(f"samples.length > {kept + 2}", "events")
        assert browser.focused() == "end"  # which new rows do not take away
        browser.press(ENTER)
        assert browser.focused() == "Cancel"
        assert "census" in browser.text("askText")
        browser.press(ESCAPE)
        assert client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"] == 1
        browser.press(ENTER)
        browser.press(TAB, ENTER)
        browser.wait("document.getElementById('said').textContent === 'The cursor has ended.'", "the end")
        with pytest.raises(pymongo.errors.CursorNotFound):
            list(cursor)
        browser.press("r")
        browser.wait("document.getElementById('said').textContent.includes('went back to the system')", "the release")
        browser.call("POST", "/refresh", {})  # the session outlives the page
        browser.wait("!document.getElementById('drain').hidden", "the session again")
        browser.press("l")
        browser.wait("document.getElementById('said').textContent === 'Logged out.'", "the log-out")
        browser.wait("document.getElementById('drain').hidden && !document.querySelector('#cursors td button')", "no actions")


def test_a_drain_is_confirmed_and_seen(browser, router):
    open_page(browser, router)
    log_in(browser)
    browser.wait("!document.getElementById('drain').hidden", "the session")
    with clients_of(router, "shop") as client:  # the announcement lasts while a client is there
        client.admin.command("ping")
        browser.press("d", ENTER)  # Cancel has the focus
        assert not browser.run("return !!document.querySelector('dialog[open]')")
        assert client.admin.command("hello")["isWritablePrimary"]
        browser.press("d", TAB, ENTER)
        browser.wait("document.getElementById('said').textContent === 'The router drains.'", "the answer")
    wait_for(lambda: router.process.poll() is not None, "the end of the process")


def test_without_authorization_the_page_says_that_it_only_shows(browser, binary, tmp_path):
    router = Router(binary, tmp_path)
    open_page(browser, router)
    assert browser.text("operator") == "this page only shows: security.authorization is disabled"
    assert browser.run("return document.getElementById('login').hidden")
    browser.press("l")
    assert not browser.run("return !!document.querySelector('dialog[open]')")
    router.end()
