"""Chromium by the W3C's WebDriver protocol, over loopback (standard library only)."""

import base64
import http.client
import json
import re
import shutil
import subprocess

import pytest
from shards import die_with_parent
from waiting import wait_for

OPTIONS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
           "--disable-background-networking", "--disable-component-update", "--disable-sync",
           "--disable-dev-shm-usage", "--hide-scrollbars", "--force-device-scale-factor=1"]
ENTER, TAB, ESCAPE = "\ue007", "\ue004", "\ue00c"


class Browser:
    def __init__(self, folder, size=(1180, 1300)):
        missing = [tool for tool in ("chromium", "chromedriver") if not shutil.which(tool)]
        if missing:
            pytest.fail(f"missing: {' '.join(missing)} (Debian's chromium and chromium-driver)", pytrace=False)
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True,
                                       stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)
        port = next(found for line in self.driver.stdout if (found := re.search(r"successfully on port (\d+)", line)))[1]
        self.connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
        self.session = ""
        self.session = "/session/" + self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"binary": shutil.which("chromium"), "args": [
                *OPTIONS, f"--user-data-dir={folder}/chromium", f"--window-size={size[0]},{size[1]}"]}}}})["sessionId"]

    def call(self, method, path, body=None):
        self.connection.request(method, self.session + path, None if body is None else json.dumps(body),
                                {"Content-Type": "application/json"})
        said = json.loads(self.connection.getresponse().read())["value"]
        assert not (isinstance(said, dict) and "error" in said and "stacktrace" in said), said["message"]
        return said

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def run(self, script):
        """The value of a script's `return`."""
        return self.call("POST", "/execute/sync", {"script": script, "args": []})

    def text(self, element_id):
        return self.run(f"return document.getElementById('{element_id}').textContent")

    def press(self, *keys):
        """On the keyboard, wherever the focus is."""
        strokes = [{"type": kind, "value": key} for text in keys for key in text for kind in ("keyDown", "keyUp")]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]})

    def focused(self):
        return self.run("const at = document.activeElement; return at.id || at.name || at.textContent")

    def wait(self, script, what):
        wait_for(lambda: self.run("return " + script), what)

    def complaints(self):
        """What its console says since the last call."""
        return [line["message"] for line in self.call("POST", "/se/log", {"type": "browser"}) if line["level"] != "INFO"]

    def picture(self, path, whole=True):
        taken = self.call("POST", "/goog/cdp/execute", {"cmd": "Page.captureScreenshot",
                                                        "params": {"captureBeyondViewport": whole}})
        path.write_bytes(base64.b64decode(taken["data"]))

    def quit(self):
        self.call("DELETE", "")
        self.connection.close()
        self.driver.terminate()
        self.driver.wait(20)
