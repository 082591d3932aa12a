"""The examples for Kubernetes: the API's own types take them, and what they say holds here."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from certificates import Certificates
from conftest import ROOT
from users import user_entry

pytestmark = pytest.mark.timeout(300)
EXAMPLES = sorted((ROOT / "conf/kubernetes").glob("*.yaml"))
PROBES = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}


@pytest.fixture(scope="module")
def objects(decode):
    code, said, found = decode(*EXAMPLES)
    assert code == 0, said
    return found


def of_kind(objects, kind):
    return [each for each in objects if each["kind"] == kind]


def routers(objects):
    """(pod, container) of each router."""
    pods = [each["spec"]["template"]["spec"] for each in of_kind(objects, "Deployment")]
    return [(pod, container) for pod in pods
            for container in pod.get("initContainers", []) + pod["containers"]
            if container["name"] == "spillway"]


def test_the_api_knows_every_field(objects):
    assert [each["kind"] for each in objects] == [
        "Secret", "ConfigMap", "Deployment",  # sidecar-cluster.yaml
        "Secret", "Deployment",  # sidecar.yaml
        "ConfigMap", "Deployment", "Service", "PodDisruptionBudget"]  # standalone.yaml


@pytest.mark.parametrize("old,new,says", [
    ("    restartPolicy: Always", "    restartPolice: Always", "restartPolice"),
    ("readOnlyRootFilesystem", "readonlyRootFilesystem", "readonlyRootFilesystem"),
    ("failureThreshold: 60", "failureThreshold: many", "failureThreshold"),
    ("kind: Deployment", "kind: Deplyoment", "Deplyoment"),
])
def test_what_it_does_not_know_is_found(decode, tmp_path, old, new, says):
    text = (ROOT / "conf/kubernetes/sidecar.yaml").read_text()
    assert old in text
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(text.replace(old, new, 1))
    code, said, _ = decode(wrong)
    assert code == 1 and says in said, said


def test_routers_are_confined_probed_and_drained(objects):
    assert len(routers(objects)) == 3
    for pod, container in routers(objects):
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 65532
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
        assert not container["securityContext"]["allowPrivilegeEscalation"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["admin"] == 9216
        asked = {name: container[name]["httpGet"] for name in PROBES}
        assert {name: asked[name]["path"] for name in PROBES} == PROBES
        assert {probe["port"] for probe in asked.values()} == {"admin"}
        assert container["resources"]["limits"]["memory"]
        # 25 s at most by default, and what preStop takes.
        sleep = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        assert pod["terminationGracePeriodSeconds"] >= 25 + sleep
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted <= {volume["name"] for volume in pod["volumes"]}
        assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]
    for _, sidecar in routers(objects)[:2]:
        assert sidecar["resources"]["limits"]["memory"] == "256Mi" and sidecar["restartPolicy"] == "Always"
        assert sidecar["resources"]["requests"]["memory"] == "256Mi"
    # No other user may read the cluster's key, or a certificate's.
    assert routers(objects)[0][0]["volumes"][1]["secret"]["defaultMode"] == 0o400
    assert routers(objects)[2][0]["volumes"][1]["secret"]["defaultMode"] == 0o440


def test_labels_and_ports_fit_together(objects):
    (service,) = of_kind(objects, "Service")
    (budget,) = of_kind(objects, "PodDisruptionBudget")
    deployment = of_kind(objects, "Deployment")[2]
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    for selector in (service["spec"]["selector"], budget["spec"]["selector"]["matchLabels"],
                     deployment["spec"]["selector"]["matchLabels"]):
        assert selector.items() <= labels
    ports = {port["name"]: port["containerPort"] for port in routers(objects)[2][1]["ports"]}
    assert ports[service["spec"]["ports"][0]["targetPort"]] == 27016
    assert budget["spec"]["minAvailable"] < deployment["spec"]["replicas"]


def test_the_sidecars_variables_are_a_configuration(binary, objects, tmp_path):
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "password").chmod(0o440)
    secret = of_kind(objects, "Secret")[1]["stringData"]
    environment = {"SPILLWAY_CONFIG": str(ROOT / "conf/sidecar.yaml")}  # the image's file
    for variable in routers(objects)[1][1]["env"]:
        source = variable.get("valueFrom", {}).get("secretKeyRef")
        value = secret[source["key"]] if source else variable["value"]
        environment[variable["name"]] = value.replace("/etc/spillway-secrets", str(tmp_path))
    done = subprocess.run([binary, "--check-config"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    environment["SPILLWAY_SHARD_PASSWORD_FILE"] = "/nonexistent"
    done = subprocess.run([binary, "--check-config"], env=environment, capture_output=True, text=True)
    assert done.returncode == 78 and "SPILLWAY_SHARD_PASSWORD_FILE" in done.stderr


def test_the_key_file_of_a_cluster_is_taken_as_it_is_mounted(binary, objects, tmp_path):
    """As the kubelet does it: root's, and readable for the group of the pod's user."""
    (text,) = of_kind(objects, "ConfigMap")[0]["data"].values()
    (name, key), = of_kind(objects, "Secret")[0]["stringData"].items()
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # tmp_path is closed to others
    try:
        folder.chmod(0o755)
        mounted, config = folder / name, folder / "spillway.yaml"
        mounted.write_text(key)
        config.write_text(text.replace("/etc/spillway-secrets", str(folder)))
        shutil.copy(binary, folder / "spillway")

        def check(mode, owner, group):
            mounted.chmod(mode)
            os.chown(mounted, owner, group)
            done = subprocess.run(["setpriv", "--reuid=65532", "--regid=65532", "--clear-groups", folder / "spillway",
                                   "--config", config, "--check-config"], capture_output=True, text=True)
            return done.returncode, done.stderr

        assert check(0o440, 0, 65532) == (0, "")
        assert check(0o400, 65532, 65532) == (0, "")
        for mode, owner, group, why in ((0o400, 0, 0, "Permission denied"), (0o440, 65532, 65532, "open to its group"),
                                        (0o444, 0, 65532, "world-readable"), (0o460, 0, 65532, "open to its group")):
            code, said = check(mode, owner, group)
            assert code == 78 and why in said, (mode, said)
    finally:
        shutil.rmtree(folder)


def test_the_services_file_is_a_configuration(binary, objects, tmp_path):
    (text,) = of_kind(objects, "ConfigMap")[1]["data"].values()
    assert Certificates(tmp_path).server == str(tmp_path / "server.pem")
    (tmp_path / "shard-password").write_text("secret\n")
    (tmp_path / "users.yaml").write_text(json.dumps([user_entry(binary, "ann", "secret", ("read", "app"))]))
    for name in ("shard-password", "users.yaml"):
        (tmp_path / name).chmod(0o440)
    wanted = set(re.findall(r"/etc/spillway-secrets/([\w.-]+)", text))
    assert wanted == {"server.pem", "users.yaml", "shard-password"}
    path = tmp_path / "spillway.yaml"
    path.write_text(text.replace("/etc/spillway-secrets", str(tmp_path)))
    done = subprocess.run([binary, "--config", path, "--check-config"], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
