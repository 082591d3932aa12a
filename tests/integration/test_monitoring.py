"""What operators watch with: Prometheus' checks of what is shown and shipped, exporters, mongostat."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pymongo
import pytest
from admin_port import admin_port, ask, samples
from monitoring_tools import find_tool
from proxy import free_port, routing
from shards import die_with_parent
from users import user_entry
from waiting import wait_for
from wire import WireClient

pytestmark = [pytest.mark.proxy_only, pytest.mark.ferretdb_only, pytest.mark.timeout(240)]
SHIPPED = Path(__file__).resolve().parents[2] / "conf/monitoring"
OURS = re.compile(r"\b(?:spillway|process)_[a-z0-9_]+")
RUN_TIMEOUT_S = 60
# What only members of replica sets have; before a mongos they are switched off, too.
NOT_OF_ROUTERS = ("-mongodb.collect.replset=false", "-mongodb.collect.oplog=false")


@pytest.fixture(scope="module")
def proxy(binary, shard_set):
    """A router that has seen something of everything that is cheap."""
    from proxy import Proxy
    config = {"routing": routing([shard.uri for shard in shard_set]),
              "net": {"port": 0, "bindIp": "127.0.0.1", "admin": {"port": 0}}}
    with Proxy(binary, config, name="monitored") as made:
        with pymongo.MongoClient(made.uri) as client:
            client.app.ranged.drop()
            client.app.ranged.insert_many([{"_id": i} for i in range(500)])
            assert len(list(client.app.ranged.find(batch_size=10))) == 500
            with pytest.raises(pymongo.errors.OperationFailure):
                client.app.command("nothing")
        yield made


def page(proxy):
    status, text, _ = ask(admin_port(proxy), "/metrics")
    assert status == 200
    return text


def run(*command, **keywords):
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, **keywords)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_exporters_find_the_key_that_only_routers_have(proxy):
    with pymongo.MongoClient(proxy.uri) as client:
        assert client.admin.command("getCmdLineOpts")["parsed"]["sharding"] == {"configDB": ""}


def test_prometheus_finds_nothing_wrong_with_the_page(proxy):
    assert run(find_tool("promtool"), "check", "metrics", input=page(proxy)).strip() == ""


def test_prometheus_takes_the_alerts_and_they_fire(tmp_path):
    said = run(find_tool("promtool"), "check", "rules", str(SHIPPED / "alerts.yaml"))
    assert "SUCCESS" in said
    run(find_tool("promtool"), "test", "rules", str(Path(__file__).parent / "alerts_test.yaml"))


def test_what_is_shipped_names_only_metrics_that_are_there(proxy):
    text = page(proxy)
    families = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    there = set(families) | {"spillway_certificate_expiry_timestamp_seconds"}  # with a certificate: metrics_page_test
    for name, kind in families.items():
        if kind == "histogram":
            there |= {name + suffix for suffix in ("_bucket", "_sum", "_count")}
    alerts = (SHIPPED / "alerts.yaml").read_text()
    dashboard = json.loads((SHIPPED / "dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert len(expressions) > 50
    for where, named in (("alerts", alerts), ("dashboard", "\n".join(expressions)),
                         ("README", (SHIPPED / "README.md").read_text())):
        names = set(OURS.findall(named)) - {"spillway_"}
        assert len(names) > 5 and not names - there, (where, names - there)
    runbooks = re.findall(r"- alert: (\w+)\n(?:(?!- alert:).)*?runbook: \S", alerts, re.S)
    assert len(runbooks) == alerts.count("- alert:")


def test_grafana_will_parse_the_queries_of_the_dashboard(proxy, tmp_path):
    """As rules: promtool then reads each expression, its variables replaced as Grafana does."""
    dashboard = json.loads((SHIPPED / "dashboard.json").read_text())
    rules = []
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("$__rate_interval", "1m").replace("$job", ".*")
            rules.append({"record": f"panel:{panel['id']}:{target['refId']}",
                          "expr": expression.replace("$instance", ".*")})
    file = tmp_path / "panels.yaml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"SUCCESS: {len(rules)} rules" in run(find_tool("promtool"), "check", "rules", str(file))


class Exporter:
    """Debian's exporter before the proxy, as it is meant to be run."""

    def __init__(self, uri, directory, *options):
        self.port, self.log = free_port(), directory / "exporter.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [find_tool("prometheus-mongodb-exporter"), "-logtostderr", "-mongodb.uri", uri,
                 "-web.listen-address", f"127.0.0.1:{self.port}", *NOT_OF_ROUTERS, *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def answers(self):
        try:
            return ask(self.port, "/metrics")[0] == 200
        except ConnectionRefusedError:
            return False

    def page(self):
        wait_for(self.answers, "the exporter")
        return samples(ask(self.port, "/metrics")[1])


def test_the_mongodb_exporter_sees_a_router(proxy, tmp_path):
    with Exporter(proxy.uri, tmp_path, "-mongodb.collect.connpoolstats") as exporter:
        found = exporter.page()
        said = exporter.log.read_text()
    assert found["mongodb_up"] == 1, said
    assert not re.search(r"^[EWF]\d{4} ", said, re.M), said
    ours = samples(page(proxy))
    assert found['mongodb_op_counters_total{type="query"}'] == ours['spillway_operations_total{type="query"}']
    assert found['mongodb_connections{state="current"}'] >= 1
    assert found['mongodb_network_bytes_total{state="out_bytes"}'] > 0
    assert found['mongodb_memory{type="resident"}'] > 0


def test_the_mongodb_exporter_logs_in(binary, shard_set, make_proxy, tmp_path):
    users = [user_entry(binary, "watcher", "a secret", ("clusterMonitor", "admin"))]
    locked = make_proxy({"routing": routing([shard.uri for shard in shard_set]),
                         "security": {"authorization": "enabled", "users": users}})
    uri = f"mongodb://watcher:a%20secret@127.0.0.1:{locked.port}/admin"
    with Exporter(uri, tmp_path) as exporter:
        assert 'mongodb_op_counters_total{type="query"}' in exporter.page(), exporter.log.read_text()
    with Exporter(locked.uri, tmp_path) as exporter:
        assert 'mongodb_op_counters_total{type="query"}' not in exporter.page()


def test_mongostat_shows_sensible_columns(proxy):
    """Where it is installed; what it reads of serverStatus is checked below in any case."""
    if not shutil.which("mongostat"):
        pytest.skip("mongostat is not installed")
    said = run("mongostat", "--uri", proxy.uri, "-n", "2", "1", "--json")
    last = json.loads(said.strip().splitlines()[-1])
    (line,) = last.values()
    assert int(line["conn"]) >= 1 and line["res"].endswith(("M", "G"))
    assert not {"error", "no data received"} & set(line)


def test_server_status_has_what_mongostat_reads(proxy):
    with WireClient(proxy.port) as client:
        status = client.command({"serverStatus": 1, "$db": "admin"}).document
    assert status["process"] == "mongos" and status["uptime"] >= 0
    for section, fields in {"opcounters": "insert query update delete getmore command",
                            "network": "bytesIn bytesOut numRequests",
                            "connections": "current available totalCreated",
                            "mem": "bits resident virtual", "extra_info": "page_faults",
                            "asserts": "regular warning msg user rollovers"}.items():
        for field in fields.split():
            assert isinstance(status[section][field], int), (section, field)
    assert status["mem"]["resident"] > 0 and status["mem"]["supported"] is True


def test_no_other_command_is_answered_over_op_query(proxy):
    """Writes and reads of documents keep to OP_MSG."""
    with WireClient(proxy.port) as client:
        def query(command, namespace="admin.$cmd"):
            client.send_query(command, namespace)
            return client.receive().document

        for command in ({"insert": "c", "documents": [{}]}, {"find": "ranged"}, {"drop": "ranged"}):
            assert query(command, "app.$cmd")["code"] == 352
        assert query({"ping": 1})["ok"] == 1
        assert re.fullmatch("[0-9a-f]{16}", query({"getnonce": 1})["nonce"])
        assert query({"ping": 1, "x": "x" * 70_000})["code"] == 352
        assert query({"listDatabases": 1})["databases"]
        assert len(query({"find": "shards"}, "config.$cmd")["cursor"]["firstBatch"]) == 3
