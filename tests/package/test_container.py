"""The image of conf/container: built without a daemon, and run as a runtime would run it.

buildah builds it (isolation chroot, storage vfs) from a local Debian root. What a runtime does with
its configuration is done by hand, with what the image itself says: environment, user, entry point,
a read-only root, no capabilities, and a memory cgroup of 256 MiB where one can be made.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pymongo
import pytest
import roots
from conftest import ROOT, need
from proxy import free_port
from shards import die_with_parent, read_ready_line
from siege_cgroup import MemoryCgroup, NoCgroup
from waiting import wait_for
from wire import WireClient

pytestmark = pytest.mark.timeout(400)
LIMIT_BYTES = 256 << 20
IMAGE_BYTES_MAX = 110 << 20
STORE_BYTES = 2 << 30
# The program is process 1 of a namespace inside of another one, whose own ends with the test: a change
# of user would make the program forget to.
OUTER = r'unshare --mount --pid --fork sh -e -c "$0" "$@"; exit $?'
# $0 is the image's folder, $1 the user. As a runtime would: /proc of its own, the root read-only.
RUN = r"""
root=$0 user=$1; shift
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -o remount,ro,bind "$root"
exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,+sys_chroot,+setuid,+setgid \
  chroot --userspec="$user" --groups= "$root" "$@"
"""


class Buildah:
    """Images in a store of their own, removed at the end."""

    def __init__(self, folder):
        self.store = ["--root", str(folder / "storage"), "--runroot", str(folder / "run"),
                      "--storage-driver", "vfs"]
        self.environment = {**os.environ, "BUILDAH_ISOLATION": "chroot", "TMPDIR": str(folder)}

    def __call__(self, *arguments):
        done = subprocess.run(["buildah", *self.store, *map(str, arguments)], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=self.environment)
        assert done.returncode == 0, f"buildah {arguments[0]}:\n{(done.stdout + done.stderr)[-4000:]}"
        return done.stdout.strip()


class Image:
    def __init__(self, buildah, name):
        inspected = json.loads(buildah("inspect", "--type", "image", name))
        self.config = inspected["Docker"]["config"]
        self.environment = dict(item.split("=", 1) for item in self.config["Env"])
        self.folder = Path(buildah("mount", buildah("from", name)))

    def command(self, *arguments):
        return ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", OUTER,
                RUN, str(self.folder), self.config["User"], *arguments]

    def files(self):
        return [path for path in self.folder.rglob("*") if path.is_file() and not path.is_symlink()]


class Container:
    """One process of the image."""

    def __init__(self, image, environment, folder, cgroup=None):
        self.image, self.environment = image, {**image.environment, **environment}
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                image.command(*image.config["Entrypoint"], *(image.config.get("Cmd") or [])),
                env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                preexec_fn=lambda: (die_with_parent(), cgroup and cgroup.enter()))
        ready = read_ready_line(self.process, r"ready: mongodb://127\.0\.0\.1:(\d+)/", 60,
                                "container", self.log)
        self.port = int(ready[1])
        self.pid = roots.innermost(self.process.pid)

    def health(self):
        """What the image's HEALTHCHECK says: exit code and text."""
        test = self.image.config["Healthcheck"]["Test"]
        assert test[0] == "CMD"  # a shell would be needed otherwise
        done = subprocess.run(self.image.command(*test[1:]), env=self.environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=30)
        return done.returncode, done.stdout

    def status(self, name):
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return line.split(":", 1)[1].split()
        return None


@pytest.fixture(scope="module")
def image(deb):
    need("buildah", "mmdebstrap", "unshare", "setpriv")
    try:
        base = roots.base_root()
    except roots.RootError as error:
        pytest.fail(str(error), pytrace=False)
    # vfs copies every layer whole: in memory, where there is room.
    shared = Path("/dev/shm")
    in_memory = shared.is_dir() and shutil.disk_usage(shared).free > STORE_BYTES
    folder = Path(tempfile.mkdtemp(prefix="spillway-buildah-", dir=shared if in_memory else roots.ROOTS))
    buildah = Buildah(folder)
    try:
        made = buildah("from", "scratch")
        buildah("add", "--quiet", made, base, "/")
        buildah("commit", "--quiet", "--rm", made, "spillway-test-base")
        buildah("build", "--quiet", "--format", "docker", "--pull-never",
                "--build-arg", "BASE=localhost/spillway-test-base",
                "--volume", f"{roots.ARCHIVES}:/var/cache/apt/archives",
                "--file", ROOT / "conf/container/Containerfile", "--tag", "spillway-test", deb.parent)
        yield Image(buildah, "spillway-test")
        buildah("umount", "--all")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cgroup():
    try:
        group = MemoryCgroup(LIMIT_BYTES, "spillway-container")
    except NoCgroup as error:
        print(f"no memory cgroup here, the limit is a variable instead: {error}")
        yield None
        return
    yield group
    wait_for(lambda: not (group.folder / "cgroup.procs").read_text(), "the end of the container")
    group.remove()


@pytest.fixture
def container(image, shard, cgroup, tmp_path):
    environment = {"SPILLWAY_NET_PORT": str(free_port()), "SPILLWAY_NET_LOAD_BALANCER_PORT": "0",
                   "SPILLWAY_SHARDS": f"rs0={shard.uri}"}
    if cgroup is None:
        environment["SPILLWAY_MEMORY_LIMIT"] = "128MiB"
    made = Container(image, environment, tmp_path, cgroup)
    yield made
    if made.process.poll() is None:
        os.kill(made.pid, signal.SIGKILL)
        made.process.wait()
    made.process.stdout.close()


def test_the_image_holds_no_more_than_it_needs(image):
    names = {str(path.relative_to(image.folder)) for path in image.files()}
    assert "usr/bin/spillway" in names and "etc/spillway/spillway.yaml" in names
    assert not [name for name in names if name.endswith(("/sh", "/bash", "/apt", "/dpkg"))]
    # What scanners look for: what the program was made of, and which packages are here now.
    made_of = json.loads((image.folder / "usr/share/doc/spillway/spillway.spdx.json").read_text())
    here = {name.rsplit("/", 1)[1] for name in names if name.startswith("var/lib/dpkg/status.d/")}
    called = {each["SPDXID"]: each["name"] for each in made_of["packages"]}
    linked = {called[each["relatedSpdxElement"]] for each in made_of["relationships"]
              if each["relationshipType"] in ("DYNAMIC_LINK", "DEPENDS_ON")}
    assert len(here) > 15 and here == linked, here ^ linked
    status = (image.folder / "var/lib/dpkg/status.d/libssl3").read_text()
    assert re.search(r"^Version: \d", status, re.M)
    programs = [path for path in image.files() if path.stat().st_mode & 0o111
                and ".so" not in path.name and path.read_bytes()[:4] == b"\x7fELF"]
    assert [path.name for path in programs] == ["spillway"]
    assert not [path for path in image.files() if path.stat().st_mode & 0o6000]
    size = sum(path.stat().st_size for path in image.files())
    print(f"{len(names)} files, {size / 2**20:.1f} MiB")
    assert size < IMAGE_BYTES_MAX


def test_what_the_image_says_of_itself(image):
    config = image.config
    user, group = config["User"].split(":")
    assert user.isdigit() and int(user) > 0 and int(group) > 0
    assert "27017/tcp" in config["ExposedPorts"]
    assert config["Healthcheck"]["Test"] == ["CMD", "/usr/bin/spillway", "--healthcheck"]
    assert config["Entrypoint"] == ["/usr/bin/spillway"]


def test_it_serves_within_its_limits(container, cgroup):
    assert container.status("Uid") == ["65532"] * 4 and container.status("Groups") == []
    assert int(container.status("CapEff")[0], 16) == int(container.status("CapPrm")[0], 16) == 0
    assert container.status("NoNewPrivs") == ["1"]
    mounts = Path(f"/proc/{container.pid}/mountinfo").read_text()
    root_options = [line.split()[5] for line in mounts.splitlines() if line.split()[4] == "/"]
    assert root_options and root_options[-1].split(",")[0] == "ro"
    with pymongo.MongoClient("127.0.0.1", container.port) as client:
        client.app.things.drop()
        client.app.things.insert_many([{"_id": i, "pad": "x" * 5000} for i in range(4000)])
        assert sum(1 for _ in client.app.things.find()) == 4000
        assert client.app.things.find_one({"_id": 17})["_id"] == 17
    log = container.log.read_text()
    assert "mongoc" not in log, log  # libmongoc would like a /dev/shm
    if cgroup:
        assert "50 % of the cgroup's 256 MiB" in log, log
        assert cgroup.peak_bytes() <= LIMIT_BYTES
        print(f"peak {cgroup.peak_bytes() / 2**20:.0f} MiB of {LIMIT_BYTES >> 20}")


def test_health_follows_the_process(container):
    assert container.health() == (0, "serving\n")
    os.kill(container.pid, signal.SIGSTOP)
    try:
        code, text = container.health()
        assert code == 1 and "not serving" in text, text
    finally:
        os.kill(container.pid, signal.SIGCONT)
    wait_for(lambda: container.health()[0] == 0, "health")


def test_stop_drains(container):
    with pymongo.MongoClient("127.0.0.1", container.port) as client:
        client.app.drained.drop()
        client.app.drained.insert_many([{"_id": i} for i in range(500)])
    with WireClient(container.port) as wire:
        found = wire.command({"find": "drained", "$db": "app", "batchSize": 10,
                              "sort": {"_id": 1}}).document
        os.kill(container.pid, signal.SIGTERM)
        wait_for(lambda: container.health()[0] == 1, "the news")
        assert "quiesce" in container.health()[1] or "shut" in container.health()[1].lower()
        seen = len(found["cursor"]["firstBatch"])
        while found["cursor"]["id"]:  # what was begun is finished
            found = wire.command({"getMore": found["cursor"]["id"], "collection": "drained",
                                  "$db": "app", "batchSize": 100}).document
            seen += len(found["cursor"]["nextBatch"])
        assert seen == 500 and container.process.poll() is None
    assert container.process.wait(30) == 0
