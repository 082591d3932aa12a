"""The Helm chart: rendered and linted by Helm's own engine, its objects read as the API server reads them, and the
configurations in them loaded by the router. Helm takes minutes to compile, so most of it is for --long.
"""

import json
import re
import subprocess

import pytest
import yaml
from certificates import Certificates
from conftest import ROOT, go_program
from test_kubernetes import PROBES, of_kind, routers
from users import user_entry

pytestmark = pytest.mark.timeout(1800)
CHART = ROOT / "conf/helm/spillway"
SHARDS = {"routing": {"shards": [{"name": "rs0", "uri": "mongodb://db0,db1/?replicaSet=rs0"}]}}
CLUSTER = {"sharding": {"configDB": "configReplSet/cfg-0.cfg:27019,cfg-1.cfg:27019"}}
OPEN = {**SHARDS, "security": {"authorization": "disabled"}}
VALUES = {
    "static": {"config": {**OPEN, "net": {"bindIp": "0.0.0.0, ::", "admin": {"bindIp": "*"}}}, "replicas": 1, "memory": "176Mi"},
    "users": {"config": {**SHARDS, "memory": {"limit": "200MiB"}}, "users": {"secretName": "people"}, "memory": "512Mi",
              "shards": {"user": "router", "secretName": "to-shards"}, "tls": {"secretName": "router", "mode": "preferTLS"},
              "cpu": {"request": "1", "limit": "2"}, "service": {"annotations": {"a": "b"}, "type": "LoadBalancer"}},
    "cluster": {"config": CLUSTER, "keyFile": {"secretName": "members"}, "tls": {"secretName": "router", "ca": "ca.crt"},
                "serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True, "labels": {"release": "p"}},
                "podLabels": {"team": "data"}, "tolerations": [{"operator": "Exists"}], "image": {"tag": "9"},
                "nodeSelector": {"disk": "fast"}, "imagePullSecrets": [{"name": "pull"}], "priorityClassName": "high"},
}
REFUSED = {
    "config.routing.shards": {},
    "clients are on other machines": {"config": SHARDS},
    "keyFile is for a cluster": {"config": SHARDS, "keyFile": {"secretName": "members"}},
    "users is for config.routing": {"config": CLUSTER, "users": {"secretName": "people"}},
    "as whom the router logs in": {"config": OPEN, "shards": {"secretName": "to-shards"}},
    "memroy": {"config": SHARDS, "memroy": "1Gi"},
    "memory": {"config": SHARDS, "memory": "lots"},
    "needs 176Mi": {"config": SHARDS, "memory": "175Mi"},
    "config.net: leave out port": {"config": {**OPEN, "net": {"port": 27018}}},
    "loadBalancerPort": {"config": {**OPEN, "net": {"loadBalancerPort": 27017}}},
    "admin.port": {"config": {**OPEN, "net": {"admin": {"port": 9217}}}},
    "config.net.bindIp": {"config": {**OPEN, "net": {"bindIp": "127.0.0.1,::1"}}},
    "config.net.admin.bindIp": {"config": {**OPEN, "net": {"admin": {"bindIp": "127.0.0.1"}}}},
}


def test_the_chart_is_of_this_version_and_its_values_are_described():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.search(r"^project\(spillway VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
    assert chart["appVersion"] == version and chart["name"] == CHART.name
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}
    for name, value in values.items():
        if isinstance(value, dict) and value:
            assert set(value) == set(schema["properties"][name]["properties"]), name
    templates = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    assert not [name for name in values if f'.Values.{name}' not in templates]
    assert (CHART / "alerts.yaml").resolve() == ROOT / "conf/monitoring/alerts.yaml"


@pytest.fixture(scope="module")
def helm(tmp_path_factory):
    program, folder = go_program("chart"), tmp_path_factory.mktemp("values")

    def run(action, values, release=()):
        given = folder / "values.yaml"
        given.write_text(json.dumps(values))
        done = subprocess.run([program, action, CHART, *release, given], capture_output=True, text=True)
        said = "\n".join(row for row in done.stderr.splitlines() if "symbolic link" not in row)
        return done.returncode, done.stdout, said
    return run


@pytest.fixture
def rendered(helm, decode, tmp_path):
    """The objects, and the notes, of some values."""
    def run(values, release="db"):
        code, text, said = helm("template", values, [release])
        assert code == 0, said
        notes, text = text.split("---\n", 2)[1:]
        assert notes.startswith("# Source: spillway/templates/NOTES.txt")
        path = tmp_path / "rendered.yaml"
        path.write_text(text)
        code, said, objects = decode(path)
        assert code == 0, said
        return objects, notes
    return run


@pytest.mark.long
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_lint_finds_nothing(helm, values):
    code, found, said = helm("lint", values)
    assert code == 0 and set(found.splitlines()) <= {"[INFO] Chart.yaml: icon is recommended"}, found + said


@pytest.mark.long
@pytest.mark.parametrize("why", REFUSED)
def test_what_would_not_serve_is_refused(helm, why):
    code, _, said = helm("template", REFUSED[why], ["db"])
    assert code == 1 and why in said, said


@pytest.mark.long
@pytest.mark.parametrize("name", VALUES)
def test_the_objects_fit_together(rendered, name):
    values, (objects, notes) = VALUES[name], rendered(VALUES[name])
    kinds = [each["kind"] for each in objects]
    assert kinds.count("ConfigMap") == kinds.count("Deployment") == 1
    assert kinds.count("PodDisruptionBudget") == (values.get("replicas") != 1)
    assert {"ServiceMonitor", "PrometheusRule"} <= set(kinds) or "serviceMonitor" not in values
    (pod, container), = routers(objects)
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["fsGroup"] == 65532
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert {probe: container[probe]["httpGet"]["path"] for probe in PROBES} == PROBES
    resources = container["resources"]
    assert resources["limits"]["memory"] == resources["requests"]["memory"] == values.get("memory", "1Gi")
    assert pod["terminationGracePeriodSeconds"] >= 25 + container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert all(volume["secret"]["defaultMode"] == 0o400 for volume in pod["volumes"] if "secret" in volume)
    labels = of_kind(objects, "Deployment")[0]["spec"]["template"]["metadata"]["labels"].items()
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    service, *others = of_kind(objects, "Service")
    assert ports[service["spec"]["ports"][0]["targetPort"]] == 27016
    for each in (service, *others):
        assert each["spec"]["selector"].items() <= labels
    for monitor in of_kind(objects, "ServiceMonitor"):
        assert monitor["spec"]["selector"]["matchLabels"].items() <= others[0]["metadata"]["labels"].items()
        assert not monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert ports[others[0]["spec"]["ports"][0]["targetPort"]] == 9216
    for rule in of_kind(objects, "PrometheusRule"):
        assert rule["spec"] == yaml.safe_load((ROOT / "conf/monitoring/alerts.yaml").read_text())
        assert rule["metadata"]["labels"]["release"] == "p"
    assert f"mongodb://{service['metadata']['name']}.default.svc:27017/?loadBalanced=true" in notes
    assert ("tls=true" in notes) == ("tls" in values)


@pytest.mark.long
@pytest.mark.parametrize("name", VALUES)
def test_the_router_takes_the_file(binary, rendered, name, tmp_path):
    objects, _ = rendered(VALUES[name])
    (text,) = of_kind(objects, "ConfigMap")[0]["data"].values()
    (pod, container), = routers(objects)
    made = Certificates(tmp_path)
    contents = {"router": {"tls-combined.pem": made.server, "ca.crt": made.ca},
                "people": {"users.yaml": json.dumps([user_entry(binary, "ann", "secret", ("read", "app"))])},
                "members": {"keyfile": "changeme"}, "to-shards": {"password": "secret"}}
    secrets = {volume["name"]: volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    for mount in container["volumeMounts"]:
        if mount["name"] in secrets:
            folder = tmp_path / mount["mountPath"].lstrip("/")
            folder.mkdir(parents=True)
            for file, content in contents[secrets[mount["name"]]].items():
                if content.startswith("/"):
                    with open(content, encoding="utf-8") as source:
                        content = source.read()
                (folder / file).write_text(content)
                (folder / file).chmod(0o440)
    config = tmp_path / "spillway.yaml"
    config.write_text(text.replace("/etc/spillway-secrets", f"{tmp_path}/etc/spillway-secrets"))
    done = subprocess.run([binary, "--config", config, "--check-config"], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr + text
    if name == "users":  # what is written goes before what the chart knows
        assert "limit: 200MiB" in text and "50%" not in text


@pytest.mark.long
def test_another_configuration_rolls_the_pods_and_a_release_names_its_objects(rendered):
    def stamp(values, release="db"):
        objects, _ = rendered(values, release)
        deployment = of_kind(objects, "Deployment")[0]
        return deployment["metadata"]["name"], deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"]

    name, before = stamp(VALUES["static"])
    changed = {**VALUES["static"], "config": {**VALUES["static"]["config"], "workers": 3}}
    assert stamp(VALUES["static"]) == (name, before) and stamp(changed)[1] != before
    assert name == "db-spillway" and stamp(changed, "my-spillway")[0] == "my-spillway"
