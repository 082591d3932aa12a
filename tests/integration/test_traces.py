"""Spans of traced commands, as a collector of OpenTelemetry gets them (OTLP over HTTP, in JSON)."""

import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pymongo
import pytest
from admin_port import admin_port, scrape
from certificates import Certificates
from proxy import Proxy, routing
from pymongo.errors import OperationFailure
from waiting import wait_for

pytestmark = [pytest.mark.timeout(180), pytest.mark.proxy_only]

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
SECRET = "078-05-1120"


class Collector:
    """Decodes what is posted to it; `answer` is the status of the next answers, once `pause` is set.
    `certificate`: it speaks TLS."""

    def __init__(self, certificate=None):
        self.spans, self.bodies, self.posts, self.answer, self.pause = [], [], 0, 200, threading.Event()
        self.pause.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
                collector.posts += 1
                collector.pause.wait(30)
                status = collector.answer
                if status == 200:
                    collector.bodies.append(body.decode())
                    collector.spans += spans_of(json.loads(body))
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.scheme = "https" if certificate else "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            # The handshake is the connection's thread's, so that one which fails stops no other.
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
            self.server.handle_error = lambda *_: None
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.server.server_port}/v1/traces"

    def wait_for(self, count):
        wait_for(lambda: len(self.spans) >= count, f"{count} spans")
        return self.spans

    def close(self):
        self.pause.set()
        self.server.shutdown()
        self.server.server_close()


def value_of(value):
    (kind, content), = value.items()
    if kind == "intValue":
        assert isinstance(content, str)
        return int(content)
    if kind == "arrayValue":
        return [value_of(each) for each in content["values"]]
    assert kind == "stringValue"
    return content


def attributes_of(described):
    return {each["key"]: value_of(each["value"]) for each in described["attributes"]}


def spans_of(request):
    spans = []
    for resource in request["resourceSpans"]:
        source = attributes_of(resource["resource"])
        assert source["service.name"] == "spillway" and source["service.instance.id"]
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                span["attributes"] = attributes_of(span)
                assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
                assert abs(int(span["startTimeUnixNano"]) / 1e9 - time.time()) < 120
                assert len(span["spanId"]) == 16 and span["traceId"] == TRACE
                spans.append(span)
    return spans


@pytest.fixture
def collector():
    made = Collector()
    yield made
    made.close()


@pytest.fixture
def traced(binary, shard_set, collector):
    made = []

    def start(**settings):
        parameters = {"enableTestCommands": 1, "opentelemetryHttpEndpoint": collector.url, **settings}
        proxy = Proxy(binary, {"routing": routing([shard.uri for shard in shard_set]),
                               "net": {"port": 0, "bindIp": "127.0.0.1", "admin": {"port": 0}},
                               "setParameter": parameters}).start()
        made.append(proxy)
        return proxy

    yield start
    for proxy in made:
        proxy.stop()


def spans_in_metrics(proxy):
    page = scrape(admin_port(proxy))
    return {outcome: page[f'spillway_spans_total{{outcome="{outcome}"}}']
            for outcome in ("exported", "dropped", "failed")}


def by_kind(spans):
    return [s for s in spans if s["kind"] == 2], [s for s in spans if s["kind"] == 3]


def test_spans_of_a_scan_over_all_shards(traced, collector):
    proxy = traced()
    with pymongo.MongoClient(proxy.uri) as client:
        users = client.app.users
        users.delete_many({})
        users.insert_many([{"_id": i, "ssn": SECRET} for i in range(300)])
        found = users.find({"ssn": SECRET}, comment=TRACEPARENT, batch_size=100)
        assert len(list(found)) == 300
    servers, clients = by_kind(collector.wait_for(6))
    find = next(s for s in servers if s["name"] == "find app.users")
    assert find["parentSpanId"] == PARENT and "status" not in find
    told = find["attributes"]
    assert told["db.system.name"] == "mongodb" and told["db.operation.name"] == "find"
    assert told["db.namespace"] == "app" and told["db.collection.name"] == "users"
    assert told["server.address"] == "127.0.0.1" and told["server.port"] == proxy.port
    assert sorted(told["spillway.shards"]) == ["shard0", "shard1", "shard2"]
    assert 0 <= told["spillway.inside_us"] < 30e6 and told["spillway.reply_bytes"] > 1000
    calls = [s for s in clients if s["parentSpanId"] == find["spanId"]]
    assert sorted(c["attributes"]["spillway.shard"] for c in calls) == ["shard0", "shard1", "shard2"]
    for call in calls:
        assert call["name"] == "find app.users" and call["attributes"]["spillway.attempt"] == 1
        assert call["attributes"]["server.address"] == "127.0.0.1" and call["attributes"]["server.port"] > 0
        assert int(find["startTimeUnixNano"]) <= int(call["startTimeUnixNano"])
        assert int(call["endTimeUnixNano"]) <= int(find["endTimeUnixNano"])
    # The driver sends the comment with getMores, too.
    assert any(s["name"] == "getMore app.users" for s in servers)
    assert SECRET not in "".join(collector.bodies)


def test_what_is_not_sampled_gives_no_span_and_a_failure_has_its_code(traced, collector):
    proxy = traced()
    with pymongo.MongoClient(proxy.uri) as client:
        app = client.app
        app.users.find_one({"_id": 1}, comment=TRACEPARENT[:-1] + "0")
        app.users.find_one({"_id": 1}, comment="00-nonsense")
        app.users.find_one({"_id": 1})
        app.command({"ping": 1, "comment": {"traceparent": TRACEPARENT}})
        with pytest.raises(OperationFailure) as refused:
            app.command({"noSuchCommand": SECRET, "$traceCtx": {"traceparent": TRACEPARENT}})
        app.users.delete_many({"_id": 7})
        app.users.insert_one({"_id": 7})
        # Shards that know no $traceCtx do not get it.
        app.command({"find": "users", "filter": {"_id": 7}, "$traceCtx": {"traceparent": TRACEPARENT}})
    servers, clients = by_kind(collector.wait_for(4))
    assert sorted(s["name"] for s in servers) == ["find app.users", "noSuchCommand app", "ping app"]
    assert [c["name"] for c in clients] == ["find app.users"]
    failed = next(s for s in servers if s["name"].startswith("noSuch"))
    assert failed["status"] == {"code": 2, "message": "CommandNotFound"}
    assert failed["attributes"]["error.type"] == str(refused.value.code) == "59"
    wait_for(lambda: spans_in_metrics(proxy)["exported"] == 4, "the count")
    assert spans_in_metrics(proxy) == {"exported": 4, "dropped": 0, "failed": 0}
    with pymongo.MongoClient(proxy.uri) as client:
        assert client.admin.command("serverStatus")["metrics"]["spans"] == {
            "exported": 4, "dropped": 0, "failed": 0}


def run_traced(proxy, count):
    with pymongo.MongoClient(proxy.uri) as client:
        for _ in range(count):
            client.app.command({"ping": 1, "comment": TRACEPARENT})


def test_a_flood_is_bounded_and_delays_no_command(traced, collector):
    collector.pause.clear()  # it takes nothing meanwhile
    proxy = traced()
    threads = [threading.Thread(target=run_traced, args=(proxy, 1500)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    counts = spans_in_metrics(proxy)
    assert counts["exported"] == 0 and counts["dropped"] > 0
    page = scrape(admin_port(proxy))
    used, limit = (page[f'spillway_memory_budget_{what}_bytes{{budget="traces"}}'] for what in ("used", "limit"))
    assert used <= limit == 4 << 20
    collector.pause.set()
    wait_for(lambda: sum(spans_in_metrics(proxy).values()) == 6000, "the rest")
    assert 500 < spans_in_metrics(proxy)["exported"] <= len(collector.spans)


def test_an_overloaded_collector_gets_them_later(traced, collector):
    collector.answer = 503
    proxy = traced()
    run_traced(proxy, 10)
    wait_for(lambda: collector.posts >= 2, "another attempt")
    collector.answer = 200
    collector.wait_for(10)
    assert spans_in_metrics(proxy)["failed"] == 0


def test_the_end_sends_the_rest_and_waits_for_nobody(traced, collector):
    proxy = traced(mongosShutdownTimeoutMillisForSignaledShutdown=0)
    run_traced(proxy, 5)
    proxy.stop()
    assert len(collector.spans) == 5
    collector.pause.clear()
    proxy = traced(mongosShutdownTimeoutMillisForSignaledShutdown=0)
    run_traced(proxy, 5)
    begun = time.monotonic()
    proxy.stop()
    assert time.monotonic() - begun < 10
    assert "spans are lost" in proxy.log_path.read_text()


def test_a_collector_that_is_away_is_told_of_once(binary, shard_set):
    """Its port is closed: commands go on, and the log has a line."""
    closed = Collector()
    closed.close()
    proxy = Proxy(binary, {"routing": routing([shard.uri for shard in shard_set]),
                           "setParameter": {"enableTestCommands": 1, "opentelemetryHttpEndpoint": closed.url,
                                            "mongosShutdownTimeoutMillisForSignaledShutdown": 0}}).start()
    run_traced(proxy, 100)
    proxy.stop()
    assert proxy.log_path.read_text().count("spans are lost") == 1


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("traces"))


@pytest.fixture
def over_tls(traced, monkeypatch):
    """Starts a router that trusts `ca` as the system's, and a collector with a certificate; runs three commands."""
    made = []

    def start(certificate, ca):
        made.append(Collector(certificate))
        monkeypatch.setenv("SSL_CERT_FILE", ca)
        proxy = traced(opentelemetryHttpEndpoint=made[0].url, mongosShutdownTimeoutMillisForSignaledShutdown=0)
        run_traced(proxy, 3)
        return proxy, made[0]

    yield start
    for collector in made:
        collector.close()


def test_a_collector_with_tls_gets_them(over_tls, certificates):
    proxy, collector = over_tls(certificates.server, certificates.ca)
    assert len(collector.wait_for(3)) == 3
    wait_for(lambda: spans_in_metrics(proxy)["exported"] == 3, "the count")


@pytest.mark.parametrize(("issued", "trusted", "why"), [
    ("elsewhere", "ca", "127.0.0.1"),
    ("server", "other_ca", "unable to get local issuer certificate")], ids=["another-name", "an-unknown-authority"])
def test_a_collector_that_is_not_who_it_should_be_gets_nothing(over_tls, certificates, issued, trusted, why):
    proxy, collector = over_tls(getattr(certificates, issued), getattr(certificates, trusted))
    wait_for(lambda: spans_in_metrics(proxy)["failed"] == 3, "the count")
    assert collector.posts == 0
    (line,) = [line for line in proxy.log_path.read_text().splitlines() if "spans are lost" in line]
    assert collector.url in line and why in line
