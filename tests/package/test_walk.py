"""A newcomer's walk: the commands of conf/manual/operating.md, typed into an empty Debian, with a clock.

The commands are those of its section "From an empty machine", block by block. What a chroot has not
is done in its place: the addresses of the shard and the port are put in, and `systemctl` becomes the
unit's own command line, run as its user. Then a driver connects as the section says.
"""

import re
import shutil
import subprocess
import time

import pymongo
import pymongo.errors
import pytest
import roots
from conftest import ROOT
from proxy import free_port
from shards import die_with_parent, read_ready_line
from test_debian import as_service, unit_lines

pytestmark = pytest.mark.timeout(400)
PASSWORD = "correct horse"
SECTION = "## From an empty machine"


def blocks():
    """(title, commands) of each step of the section."""
    text = (ROOT / "conf/manual/operating.md").read_text()
    section = text.split(f"{SECTION}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^(\d\. [^\n]*?)[.:]?\n.*?^```sh\n(.*?)^```$", section, re.M | re.S)


def test_the_walk(deb, empty_root, shard, tmp_path):
    port, clock, process = free_port(), [], None
    folder = empty_root / "root"
    shutil.copy(deb, folder)
    (folder / "password").write_text(PASSWORD + "\n")
    try:
        for title, commands in blocks():
            commands = commands.replace("mongodb://127.0.0.1:27018/", shard.uri)
            commands = re.sub(r"\b27017\b", str(port), commands)
            uri = re.search(r'^mongosh "(.*)"$', commands, re.M)
            starts = "systemctl enable --now spillway\n" in commands
            typed = re.sub(r"^(systemctl|mongosh) .*$", "", commands, flags=re.M)
            (folder / "step").write_text(f"set -euo pipefail\ncd /root\n{typed}")
            began = time.monotonic()
            empty_root.run("bash", "-c", "bash /root/step </root/password")
            if starts:
                process = start(empty_root, tmp_path)
            if uri:
                connect(uri[1], empty_root)
            clock.append((time.monotonic() - began, title))
        assert len(clock) == 6 and process and uri
        assert roots.end(process, roots.innermost(process.pid)) == 0
    finally:
        if process:
            process.kill()
            process.wait()
            process.stdout.close()
    for seconds, title in [*clock, (sum(seconds for seconds, _ in clock), "in all")]:
        print(f"{seconds:6.1f} s  {title}")


def start(root, folder):
    with open(folder / "log", "wb") as log:
        (command,) = unit_lines(root, "ExecStart")
        process = subprocess.Popen(as_service(root, command), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=log, preexec_fn=die_with_parent)
    read_ready_line(process, r"ready: mongodb://127\.0\.0\.1:(\d+)/", 60, "service", folder / "log")
    return process


def connect(uri, root):
    """As the section says, and as it says one cannot."""
    uri = uri.replace("/etc/spillway/", f"{root.folder}/etc/spillway/")

    def client(password=PASSWORD, address=uri):
        return pymongo.MongoClient(address.replace("ann@", f"ann:{password.replace(' ', '%20')}@"),
                                   serverSelectionTimeoutMS=5000)

    with client() as ann:
        ann.app.walk.drop()
        ann.app.walk.insert_many([{"_id": i} for i in range(100)])
        assert ann.app.walk.count_documents({}) == 100
        assert ann.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"] == [
            {"user": "ann", "db": "admin"}]
        with pytest.raises(pymongo.errors.OperationFailure) as refused:
            ann.other.walk.insert_one({})
        assert refused.value.code == 13
    with client("wrong") as nobody, pytest.raises(pymongo.errors.OperationFailure) as refused:
        nobody.app.walk.find_one()
    assert refused.value.code == 18
    host = re.search(r"@([^/]+)/", uri)[1]
    with pymongo.MongoClient(f"mongodb://{host}/", serverSelectionTimeoutMS=500) as plain:
        with pytest.raises(pymongo.errors.ServerSelectionTimeoutError):
            plain.app.walk.find_one()
    with pymongo.MongoClient(f"mongodb://{host}/?tls=true", serverSelectionTimeoutMS=500) as stranger:
        with pytest.raises(pymongo.errors.ServerSelectionTimeoutError) as refused:
            stranger.app.walk.find_one()
    assert "certificate verify failed" in str(refused.value)
