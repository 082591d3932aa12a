"""`spillway doctor` as a program: its exit codes, and what it says of real sockets and of TLS."""

import json
import socket
import subprocess

import pytest
from certificates import Certificates
from hello_server import a_mongod
from proxy import free_port
from shards import die_with_parent, read_ready_line

pytestmark = [pytest.mark.timeout(60), pytest.mark.proxy_only]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Canned:
    """A spillway over a canned shard: a server to be examined."""

    def __init__(self, binary, folder, **tls):
        arguments = [binary, "--canned", "1", "--set", "net.port=0", "--set", "memory.limit=128MiB"]
        if tls:
            arguments += ["--set", "net.tls=" + json.dumps({"mode": "requireTLS", **tls})]
        self.log = folder / "canned.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([str(a) for a in arguments], stdout=subprocess.PIPE, stderr=log,
                                            stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)

    def __enter__(self):
        self.port = int(read_ready_line(self.process, r"ready: mongodb://127\.0\.0\.1:(\d+)/", 60, "canned", self.log)[1])
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture
def doctor(binary, tmp_path):
    def ask(*uris, **more):
        config = {"net": {"port": free_port()}, "security": {"authorization": "disabled"}, "memory": {"limit": "128MiB"},
                  "routing": {"shards": [{"name": f"s{i}", "uri": uri} for i, uri in enumerate(uris)]}, **more}
        path = tmp_path / "spillway.yaml"
        path.write_text(json.dumps(config, indent=1))
        done = subprocess.run([binary, "doctor", "--json", "--config", path], capture_output=True, text=True, timeout=50)
        said = json.loads(done.stdout)
        assert len([f for f in said["findings"] if f["severity"] == "error"]) == said["errors"]
        assert done.returncode == (1 if said["errors"] else 0), done.stdout
        return {f["subject"]: f for f in said["findings"]}
    return ask


def test_a_port_in_use_and_a_closed_one(doctor):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        closed = free_port()
        found = doctor(f"mongodb://127.0.0.1:{closed}/", net={"port": port})
    assert found["net.port"]["severity"] == "error" and "in use" in found["net.port"]["text"]
    assert f"ss -ltnp 'sport = :{port}'" in found["net.port"]["remedy"]
    refused = found[f"s0 127.0.0.1:{closed}"]
    assert refused["severity"] == "error" and "refused" in refused["text"] and "ss -ltn" in refused["remedy"]


def test_the_admin_port_in_use(doctor):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = doctor("mongodb://127.0.0.1:1/", net={"port": free_port(), "admin": {"port": port}})
    assert found["net.port"]["severity"] == "error" and "net.admin" in found["net.port"]["text"]
    assert f"sport = :{port}" in found["net.port"]["remedy"]


def test_beside_a_mongod_on_the_port(doctor):
    with a_mongod() as port:
        found = doctor("mongodb://127.0.0.1:1/", net={"port": port})
    assert found["net.port"]["severity"] == "error"


def test_beside_the_service(binary, doctor, tmp_path):
    with Canned(binary, tmp_path) as canned:
        found = doctor("mongodb://127.0.0.1:1/", net={"port": canned.port})
    assert found["net.port"]["severity"] == "ok" and "already" in found["net.port"]["text"]


def test_a_name_that_does_not_resolve(doctor):
    found = doctor("mongodb://no-such-host.invalid:27017/")["s0 no-such-host.invalid:27017"]
    assert found["severity"] == "error" and "getent hosts no-such-host.invalid" in found["remedy"]


def test_folders_and_memory(doctor, tmp_path):
    found = doctor("mongodb://127.0.0.1:1/", memory={"limit": "96MiB", "spill": {"path": str(tmp_path / "none")}}, workers=64,
                   processManagement={"pidFilePath": str(tmp_path / "none" / "pid")})
    assert "none" in found["memory.spill.path"]["text"] and "install -d" in found["memory.spill.path"]["remedy"]
    assert found["processManagement.pidFilePath"]["severity"] == "error"
    assert found["memory.limit"]["severity"] == "error" and "too small" in found["memory.limit"]["text"]


def test_the_configuration_is_wrong(binary, tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text("net: {prot: 1}\n")
    done = subprocess.run([binary, "doctor", "-f", path], capture_output=True, text=True, timeout=30)
    assert done.returncode == 78 and "error    configuration: " in done.stdout and "port" in done.stdout


def test_a_secret_that_everybody_may_read(binary, tmp_path):
    secret = tmp_path / "password"
    secret.write_text("secret\n")
    secret.chmod(0o644)
    path = tmp_path / "f.yaml"
    path.write_text(json.dumps({
        "security": {"authorization": "disabled", "shards": {"user": "u", "passwordFile": str(secret)}},
        "routing": {"shards": [{"name": "s0", "uri": "mongodb://127.0.0.1:1/"}]}}))
    done = subprocess.run([binary, "doctor", "-f", path], capture_output=True, text=True, timeout=30)
    assert done.returncode == 78 and "chmod o-rwx" in done.stdout


# A router cannot be a shard: where TLS is right, that is what is said.
@pytest.mark.parametrize("server,options,says,remedy", [
    ("server", "tls=true&tlsCAFile={ca}", "router", "sharding.configDB"),
    ("server", "tls=true&tlsCAFile={other_ca}", "certificate", "tlsCAFile="),
    ("elsewhere", "tls=true&tlsCAFile={ca}", "mismatch", "subjectAltName"),
    ("server", "", "answers over TLS", "add tls=true"),
    (None, "tls=true&tlsCAFile={ca}", "answers in plain text", "leave tls=true out"),
])
def test_tls(binary, doctor, certificates, tmp_path, server, options, says, remedy):
    tls = {"certificateKeyFile": getattr(certificates, server)} if server else {}
    options = options.format(ca=certificates.ca, other_ca=certificates.other_ca)
    with Canned(binary, tmp_path, **tls) as canned:
        found = doctor(f"mongodb://localhost:{canned.port}/?{options}")[f"s0 localhost:{canned.port}"]
    assert found["severity"] == "error"
    assert says in found["text"] and remedy in found["remedy"], found


def test_a_server_that_wants_a_certificate(binary, doctor, certificates, tmp_path):
    with Canned(binary, tmp_path, certificateKeyFile=certificates.server, CAFile=certificates.ca) as canned:
        uri = f"mongodb://localhost:{canned.port}/?tls=true&tlsCAFile={certificates.ca}"
        found = doctor(uri)[f"s0 localhost:{canned.port}"]
        shown = doctor(f"{uri}&tlsCertificateKeyFile={certificates.client}")[f"s0 localhost:{canned.port}"]
    assert "tlsCertificateKeyFile=" in found["remedy"], found
    assert "router" in shown["text"]
