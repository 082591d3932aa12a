"""The Debian package: what is in it, and a life in an empty Debian: in, up, on, out."""

import gzip
import hashlib
import json
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

import pymongo
import pytest
import roots
from conftest import ROOT, need
from proxy import free_port
from shards import die_with_parent, read_ready_line
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

pytestmark = pytest.mark.timeout(400)
UNIT = "usr/lib/systemd/system/spillway.service"
SBOM = "usr/share/doc/spillway/spillway.spdx.json"


def control(deb, field):
    return subprocess.run(["dpkg-deb", "-f", str(deb), field], check=True, capture_output=True,
                          text=True).stdout.strip()


def contents(deb):
    """(mode, owner, path) of every file."""
    text = subprocess.run(["dpkg-deb", "-c", str(deb)], check=True, capture_output=True,
                          text=True).stdout
    return [(row.split()[0], row.split()[1], row.split()[5]) for row in text.splitlines()]


def unit_lines(root, name):
    """The values of a setting of the installed unit."""
    return re.findall(rf"^{name}=(.*)$", (root / UNIT).read_text(), re.M)


def newer(deb, folder):
    """The same package with a higher version and another default configuration."""
    tree = Path(folder) / "tree"
    subprocess.run(["dpkg-deb", "-R", str(deb), str(tree)], check=True)
    for name, old, new in (("DEBIAN/control", "Version: ", "Version: 9"),
                           ("etc/spillway/spillway.yaml", "workers: 0", "workers: 1")):
        text = (tree / name).read_text()
        assert old in text
        (tree / name).write_text(text.replace(old, new))
    made = Path(folder) / "newer.deb"
    subprocess.run(["dpkg-deb", "-b", str(tree), str(made)], check=True, capture_output=True)
    return made


def test_what_is_in_it(deb):
    files = contents(deb)
    names = {path for _, _, path in files}
    for name in ("usr/bin/spillway", UNIT, "usr/lib/systemd/system/spillway.socket",
                 "usr/lib/systemd/system/spillway.service.d/user.conf",
                 "etc/spillway/spillway.yaml", "etc/logrotate.d/spillway",
                 "usr/share/man/man8/spillway.8.gz", "usr/share/man/man5/spillway.yaml.5.gz",
                 "usr/share/doc/spillway/copyright", "usr/share/doc/spillway/changelog.Debian.gz",
                 "usr/share/doc/spillway/README.md", "usr/share/doc/spillway/manual/operating.md",
                 SBOM, "usr/share/spillway/sidecar.yaml"):
        assert "./" + name in names, name
    assert {owner for _, owner, _ in files} == {"root/root"}
    assert not [path for mode, _, path in files if "w" in mode[5:] and not mode.startswith("l")]
    needed = control(deb, "Depends")
    for library in ("libc6", "libssl3", "libjemalloc2", "adduser"):
        assert library in needed, needed


def test_lintian_finds_nothing_to_mend(deb):
    need("lintian")
    done = subprocess.run(["lintian", "--allow-root", "--no-cfg", "--fail-on", "error,warning", str(deb)],
                          capture_output=True, text=True)
    assert done.returncode == 0 and not done.stdout.strip(), done.stdout + done.stderr


def test_its_times_are_those_of_its_changelog(deb):
    """So the same sources make the same package (test_builds.py makes two)."""
    text = subprocess.run(["dpkg-deb", "-c", str(deb)], check=True, capture_output=True, text=True,
                          env={**os.environ, "TZ": "UTC"}).stdout
    dated = re.search(r"> +\w+, (\d+ \w+ \d+ \d+:\d+)", (ROOT / "conf/debian/changelog").read_text())
    wanted = time.strftime("%Y-%m-%d %H:%M", time.strptime(dated[1], "%d %b %Y %H:%M"))
    assert {" ".join(row.split()[3:5]) for row in text.splitlines()} == {wanted}


def packages_of(depends):
    return {each.split()[0] for each in depends.split(",")}


def test_what_it_is_made_of_is_listed(deb, tmp_path):
    subprocess.run(["dpkg-deb", "-x", str(deb), str(tmp_path)], check=True)
    path = tmp_path / SBOM
    assert not validate_full_spdx_document(parse_file(str(path)))
    listed = json.loads(path.read_text())
    program, *parts = listed["packages"]
    names = {each["name"]: each["versionInfo"] for each in parts}
    # What the loader needs, and what only headers bring; what Debian's own reckoning names is a part of it.
    provided = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Provides} ", *names], check=True,
                              capture_output=True, text=True).stdout.replace(",", " ").split()
    assert packages_of(control(deb, "Depends")) - {"adduser"} <= set(provided)
    assert any(name.startswith("libboost") for name in names) and "libcli11-dev" in names
    for name in ("libssl3", "libcli11-dev"):
        assert subprocess.run(["dpkg-query", "-W", "-f", "${Version}", name], check=True, capture_output=True,
                              text=True).stdout == names[name]
    packed = (tmp_path / "usr/bin/spillway").read_bytes()
    assert program["checksums"][0]["checksumValue"] == hashlib.sha256(packed).hexdigest()
    assert program["versionInfo"] == control(deb, "Version")
    ways = {each["relatedSpdxElement"]: each["relationshipType"] for each in listed["relationships"]}
    assert ways["SPDXRef-libssl3"] == "DYNAMIC_LINK" and ways["SPDXRef-libcli11-dev"] == "STATIC_LINK"
    # The same tool finds what is wrong.
    parts[0]["SPDXID"] = "SPDXRef-nobody"
    path.write_text(json.dumps(listed))
    assert validate_full_spdx_document(parse_file(str(path)))


def test_the_unit_names_what_is_installed(deb, empty_root):
    """Before anything else: the empty root, with the package and what it depends on."""
    subprocess.run(["cp", str(deb), str(empty_root / "spillway.deb")], check=True)
    empty_root.run("apt-get", "-qq", "update")
    empty_root.run("apt-get", "-qq", "-y", "--no-install-recommends", "install", "/spillway.deb",
                   "logrotate")
    for line in unit_lines(empty_root, "ExecStart"):
        assert (empty_root / line.split()[0]).exists(), line
    entry = empty_root.run("getent", "passwd", "spillway").split(":")
    assert 0 < int(entry[2]) < 1000 and entry[6].strip().endswith("nologin")
    status = os.stat(empty_root / "etc/spillway/spillway.yaml")
    assert status.st_mode & 0o777 == 0o640 and status.st_uid == 0
    assert status.st_gid == int(entry[3])
    empty_root.run("spillway", "--config", "/etc/spillway/spillway.yaml", "--check-config")
    empty_root.run("logrotate", "--debug", "/etc/logrotate.d/spillway")


def as_service(root, command):
    """A line of the unit, run as the unit's user (there is no systemd here to run it)."""
    return root.command("setpriv", "--reuid=spillway", "--regid=spillway", "--clear-groups",
                        "--no-new-privs", "--bounding-set=-all", *command.split())


def test_the_service_runs_as_its_user(empty_root, shard, tmp_path):
    port = free_port()
    config = empty_root / "etc/spillway/spillway.yaml"
    text = f"net: {{port: {port}}}\nworkers: 1\nmemory: {{limit: 128MiB}}\n"
    config.write_text(f'{text}routing: {{shards: [{{name: a, uri: "{shard.uri}"}}]}}\n')
    (start,) = unit_lines(empty_root, "ExecStart")
    check = f"{start} --check-config"
    assert subprocess.run(as_service(empty_root, check), capture_output=True).returncode == 0
    # Another user may not read it.
    other = empty_root.command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                               *check.split())
    done = subprocess.run(other, capture_output=True, text=True)
    assert done.returncode == 78 and "Permission denied" in done.stderr
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(as_service(empty_root, start), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=log, preexec_fn=die_with_parent)
    try:
        read_ready_line(process, r"ready: mongodb://127\.0\.0\.1:(\d+)/", 60, "service",
                        tmp_path / "log")
        with pymongo.MongoClient("127.0.0.1", port) as client:
            client.app.packaged.replace_one({"_id": 1}, {"_id": 1, "here": True}, upsert=True)
            assert client.app.packaged.find_one()["here"]
        empty_root.run("spillway", "--config", "/etc/spillway/spillway.yaml", "--healthcheck")
        assert roots.end(process, roots.innermost(process.pid)) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    code, said = empty_root.try_run("spillway", "--config", "/etc/spillway/spillway.yaml",
                                    "--healthcheck")
    assert code == 1 and "not serving" in said, said


def test_an_upgrade_keeps_the_configuration(deb, empty_root):
    config = empty_root / "etc/spillway/spillway.yaml"
    before, owner = config.read_text(), os.stat(config)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["cp", str(newer(deb, folder)), str(empty_root / "newer.deb")], check=True)
    empty_root.run("dpkg", "-i", "--force-confold", "/newer.deb")
    assert empty_root.run("dpkg-query", "-W", "-f", "${Version}", "spillway").startswith("9")
    after = os.stat(config)
    assert config.read_text() == before
    assert (after.st_mode, after.st_uid, after.st_gid) == (owner.st_mode, owner.st_uid, owner.st_gid)
    offered = empty_root / "etc/spillway/spillway.yaml.dpkg-dist"
    assert "workers: 1" in offered.read_text()


def test_an_untouched_configuration_is_replaced(deb, empty_root):
    empty_root.run("dpkg", "-P", "spillway")
    empty_root.run("dpkg", "-i", "/spillway.deb")
    assert "workers: 0" in (empty_root / "etc/spillway/spillway.yaml").read_text()
    empty_root.run("dpkg", "-i", "/newer.deb")
    assert "workers: 1" in (empty_root / "etc/spillway/spillway.yaml").read_text()


def test_removing_leaves_the_configuration_and_purging_does_not(empty_root):
    places = ("var/log/spillway", "var/lib/spillway", "var/log/private/spillway")
    for name in places:
        (empty_root / name).mkdir(parents=True)
        (empty_root / name / "file").write_text("")
    empty_root.run("dpkg", "-r", "spillway")
    assert not (empty_root / "usr/bin/spillway").exists() and not (empty_root / UNIT).exists()
    assert (empty_root / "etc/spillway/spillway.yaml").exists()
    assert (empty_root / "var/log/spillway/file").exists()
    empty_root.run("dpkg", "-P", "spillway")
    for name in ("etc/spillway", "etc/logrotate.d/spillway", *places):
        assert not (empty_root / name).exists(), name
    code, _ = empty_root.try_run("dpkg-query", "-W", "spillway")
    assert code != 0


def test_a_file_of_the_administrator_survives_a_purge(empty_root):
    empty_root.run("dpkg", "-i", "/spillway.deb")
    (empty_root / "etc/spillway/server.pem").write_text("his")
    empty_root.run("dpkg", "-P", "spillway")
    assert (empty_root / "etc/spillway/server.pem").read_text() == "his"


@pytest.mark.parametrize("page", ["spillway.8", "spillway.yaml.5"])
def test_man_pages_are_well_formed(deb, page, tmp_path):
    need("mandoc", "man")
    subprocess.run(["dpkg-deb", "-x", str(deb), str(tmp_path)], check=True)
    packed = tmp_path / f"usr/share/man/man{page[-1]}/{page}.gz"
    path = tmp_path / page
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    lint = subprocess.run(["mandoc", "-Tlint", "-Wwarning", str(path)], capture_output=True, text=True)
    assert lint.returncode == 0 and not lint.stdout, lint.stdout[-3000:]
    shown = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(path)],
                           capture_output=True, text=True, errors="replace",
                           env={**os.environ, "LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80"})
    assert shown.returncode == 0 and not shown.stderr.strip(), shown.stderr[-3000:]


def test_the_program_page_names_every_option_and_variable(binary):
    page = (ROOT / "conf/man/spillway.8").read_text().replace(r"\-", "-")
    shown = subprocess.run([str(binary), "--help"], check=True, capture_output=True, text=True).stdout
    names = set(re.findall(r"--[a-z-]+", shown)) | set(re.findall(r"SPILLWAY_\w+", shown))
    assert len(names) > 15
    assert not [name for name in names if name not in page]
    commands = [subprocess.run([str(binary), command, "--help"], check=True, capture_output=True, text=True).stdout
                for command in ("doctor", "top")]
    known = names | set(re.findall(r"--[a-z-]+", "".join(commands)))
    assert not set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page)) - known - {"--now"}  # systemctl's
