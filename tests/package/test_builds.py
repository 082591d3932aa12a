"""The package built from the sources alone: twice, and alike; and on Debian 13, where it is installed and serves.

Each build takes minutes of CPU: only with --long.
"""

import filecmp
import os
import re
import shutil
import subprocess
from pathlib import Path

import pymongo
import pytest
import roots
from conftest import ROOT, need
from proxy import free_port
from shards import die_with_parent, read_ready_line
from test_debian import as_service, control, packages_of, unit_lines

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]
BUILD_TIMEOUT_S = 3600
# What the package needs and nothing else: neither tests nor benches.
BUILD = """set -e
cd "$0"
umask "$1"
cmake --preset release -DSPILLWAY_TESTS=OFF
ninja -C build/release spillway spillway_man
cd build/release
cpack --config CPackConfig.cmake
"""


def copy_sources(folder):
    shutil.copytree(ROOT, folder, symlinks=True, ignore=lambda path, names: [
        name for name in names if name in ("build", ".git", "__pycache__", "node_modules")])
    return folder


def the_package(folder):
    (made,) = (folder / "build/release/package").glob("spillway_*.deb")
    return made


def differences(one, other, folder):
    """The files of two packages that differ."""
    for name, package in (("one", one), ("other", other)):
        subprocess.run(["dpkg-deb", "-R", str(package), str(folder / name)], check=True)
    names = {str(path.relative_to(folder / each)) for each in ("one", "other")
             for path in (folder / each).rglob("*") if path.is_file()}
    return sorted(name for name in names if not all((folder / each / name).exists() for each in ("one", "other"))
                  or not filecmp.cmp(folder / "one" / name, folder / "other" / name, shallow=False))


def test_two_builds_make_the_same_package(tmp_path):
    """In other folders, at another time, in another zone, language and umask."""
    need("cpack", "dpkg-deb", "dpkg-shlibdeps", "dpkg-parsechangelog")
    made = []
    for place, environment, umask in (("a", {"TZ": "UTC", "LC_ALL": "C.UTF-8"}, "022"),
                                      ("another/folder/below", {"TZ": "Asia/Tokyo", "LC_ALL": "C"}, "027")):
        folder = tmp_path / place
        folder.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["bash", "-c", BUILD, str(copy_sources(folder)), umask], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=BUILD_TIMEOUT_S,
                              env={**os.environ, "CCACHE_DISABLE": "1", **environment})
        assert done.returncode == 0, done.stdout[-4000:]
        made.append(the_package(folder))
    one, other = made
    differ = one.read_bytes() != other.read_bytes()
    assert not differ, differences(one, other, tmp_path) or "the archives themselves"
    subprocess.run(["dpkg-deb", "-x", str(one), str(tmp_path / "unpacked")], check=True)
    assert str(tmp_path).encode() not in (tmp_path / "unpacked/usr/bin/spillway").read_bytes()


@pytest.fixture(scope="module")
def trixie_deb(tmp_path_factory):
    """The package, built on Debian 13."""
    need("mmdebstrap", "unshare", "chroot")
    with roots.fresh_root("trixie") as root:
        copy_sources(root / "src")
        root.run("apt-get", "-qq", "update")
        root.run("bash", "/src/conf/quickstart.d/packages.sh", "build", timeout=1200)
        code, said = root.try_run("bash", "-c", BUILD, "/src", "022", timeout=BUILD_TIMEOUT_S)
        assert code == 0, said[-4000:]
        assert not re.findall(r"^.*\bwarning: .*$", said, re.M)
        made = the_package(root / "src")
        return Path(shutil.copy(made, tmp_path_factory.mktemp("trixie")))


@pytest.fixture(scope="module")
def trixie(trixie_deb):
    with roots.fresh_root("trixie") as root:
        shutil.copy(trixie_deb, root / "spillway.deb")
        root.run("apt-get", "-qq", "update")
        root.run("apt-get", "-qq", "-y", "--no-install-recommends", "install", "/spillway.deb")
        yield root


def test_debian_13_has_what_it_needs(trixie_deb, trixie):
    needed = packages_of(control(trixie_deb, "Depends"))
    assert {"libssl3t64", "libmongoc-1.0-0t64", "libspdlog1.15-fmt10", "adduser"} <= needed, needed
    version = control(trixie_deb, "Version").split("-")[0]
    assert trixie.run("spillway", "--version") == f"spillway {version}\n"
    listed = (trixie / "usr/share/doc/spillway/spillway.spdx.json").read_bytes()
    assert b"distro=debian-13" in listed and b"libssl3t64@3.5" in listed
    need("lintian")
    found = subprocess.run(["lintian", "--allow-root", "--no-cfg", str(trixie_deb)], capture_output=True, text=True)
    assert found.returncode == 0 and not found.stdout.strip(), found.stdout


def test_it_serves_on_debian_13(trixie, shard, tmp_path):
    port = free_port()
    (trixie / "etc/spillway/spillway.yaml").write_text(
        f'net: {{port: {port}}}\nworkers: 1\nmemory: {{limit: 128MiB}}\n'
        f'routing: {{shards: [{{name: a, uri: "{shard.uri}"}}]}}\n')
    (start,) = unit_lines(trixie, "ExecStart")
    assert subprocess.run(as_service(trixie, f"{start} --check-config"), capture_output=True).returncode == 0
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(as_service(trixie, start), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=log, preexec_fn=die_with_parent)
    try:
        read_ready_line(process, r"ready: mongodb://127\.0\.0\.1:(\d+)/", 60, "service", tmp_path / "log")
        with pymongo.MongoClient("127.0.0.1", port, compressors="zstd") as client:
            client.app.thirteen.drop()
            client.app.thirteen.insert_many([{"_id": i, "pad": "x" * 1000} for i in range(2000)])
            assert [each["_id"] for each in client.app.thirteen.find().sort("_id", -1)] == list(range(1999, -1, -1))
            assert client.app.thirteen.update_one({"_id": 7}, {"$set": {"n": 1}}).modified_count == 1
        trixie.run("spillway", "--config", "/etc/spillway/spillway.yaml", "--healthcheck")
        assert roots.end(process, roots.innermost(process.pid)) == 0
        assert "0 bytes are still reserved" in (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
