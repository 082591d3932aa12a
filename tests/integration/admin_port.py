"""Asks the admin port, and reads what it shows."""

import http.client
import re

SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? (\S+)$")


def admin_port(proxy):
    """The port that the proxy's log names; its configuration asks for a free one."""
    found = re.findall(r"the admin port is (\d+)", proxy.log_path.read_text())
    assert found, "no admin port"
    return int(found[-1])


def ask(port, path, method="GET"):
    """(status, body, headers) of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def samples(page):
    """{"name{labels}": value} of a page."""
    found = {}
    for line in page.splitlines():
        if line.startswith("#"):
            continue
        matched = SAMPLE.match(line)
        assert matched, line
        key = matched[1] + (matched[2] or "")
        assert key not in found, key
        found[key] = float(matched[3])
    return found


def scrape(port):
    status, page, headers = ask(port, "/metrics")
    assert status == 200, page
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return samples(page)
