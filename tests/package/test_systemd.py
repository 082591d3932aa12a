"""The package under a real systemd: a Debian booted by systemd-nspawn, without a network.

A unit inside enables, upgrades, removes and purges the service and says what it saw. Skipped, with the
reason, where systemd-nspawn cannot boot anything.
"""

import os
import re
import shutil
import subprocess

import pytest
from conftest import need
from test_debian import newer

pytestmark = pytest.mark.timeout(400)
BOOT_TIMEOUT_S = 180
CONFIG = """
net: {port: 27017}
systemLog: {destination: file, path: /var/log/spillway/spillway.log, logRotate: reopen}
auditLog: {destination: file, format: JSON, path: /var/log/spillway/audit.json}
memory: {limit: 128MiB}
routing: {shards: [{name: shard0, uri: "mongodb://127.0.0.1:27018/"}]}
"""
CHECK_UNIT = """
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/bash /opt/check
ExecStopPost=/bin/systemctl --no-block poweroff
[Install]
WantedBy=default.target
"""
SHARD_UNIT = "[Service]\nExecStart=/opt/null_shard --port 27018\n"
CHECK = r"""
exec > /opt/result 2>&1
check() { if eval "$2"; then echo "PASSED $1"; else echo "FAILED $1"; fi; }
property() { systemctl show spillway.service -P "$1"; }
answers() { (exec 3<>/dev/tcp/127.0.0.1/27017) 2>/dev/null; }
healthy() { spillway --config /etc/spillway/spillway.yaml --healthcheck; }
runs_as() { [ "$(ps -o user= -p "$(property MainPID)")" = "$1" ]; }
export DEBIAN_FRONTEND=noninteractive

check "the package has started nothing" '! answers && [ "$(systemctl is-enabled spillway)" = disabled ]'
systemctl start shard.service
check "systemctl enable --now serves" 'systemctl enable --now spillway 2>/dev/null && answers && healthy'
check "it runs as the package's user" 'runs_as spillway'
check "its configuration is for nobody else" '[ "$(stat -c "%a %U %G" /etc/spillway/spillway.yaml)" = "640 root spillway" ]'
old=$(property MainPID)
dpkg -i --force-confold /newer.deb >/dev/null
check "an upgrade replaces it" 'answers && healthy && [ "$(property MainPID)" != "$old" ] && runs_as spillway'
check "… not by a restart" 'grep -q "has replaced this one" /var/log/spillway/spillway.log'
tail --pid="$old" -f /dev/null
check "it ended as it should before" 'grep -q "0 bytes are still reserved" /var/log/spillway/spillway.log'
check "its logs are its user's" '[ "$(stat -L -c "%a %U" /var/log/spillway /var/log/spillway/spillway.log | tr "\n" " ")" = "755 spillway 600 spillway " ]'
check "they rotate" 'logrotate -f /etc/logrotate.d/spillway && [ -s /var/log/spillway/spillway.log.1 ]'
old=$(property MainPID)
check "it goes on in the new one" 'systemctl restart spillway && grep -q " stopped" /var/log/spillway/spillway.log && [ "$(property MainPID)" != "$old" ]'
check "it is still enabled" '[ "$(systemctl is-enabled spillway)" = enabled ]'
dpkg -r spillway >/dev/null
check "removing it stops it" '! answers && [ "$(property ActiveState)" != active ]'
dpkg -i /newer.deb >/dev/null
check "reinstalled, it is as it was" '[ "$(systemctl is-enabled spillway)" = enabled ] && systemctl start spillway && answers'
dpkg -P spillway >/dev/null
check "purging leaves nothing of it" '! answers && ! find /etc/systemd /var/log /var/lib/private -name "spillway*" | grep .'
echo done
"""


def nspawn(root, *arguments, timeout):
    with open(root / "opt/console", "wb") as console:
        try:
            return subprocess.run(
                ["systemd-nspawn", "--quiet", "--directory", str(root.folder), "--private-network",
                 "--register=no", "--keep-unit", f"--machine=spillway-{os.getpid()}", *arguments],
                stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT,
                timeout=timeout).returncode
        except subprocess.TimeoutExpired:
            return None


def test_a_life_under_systemd(deb, binary, empty_root, tmp_path):
    root = empty_root
    if not shutil.which("systemd-nspawn"):
        pytest.skip("systemd-nspawn is not installed (systemd-container)")
    if nspawn(root, "true", timeout=30) != 0:
        pytest.skip(f"systemd-nspawn runs nothing here: {(root / 'opt/console').read_text()[-300:]}")
    need("dpkg-deb")
    shutil.copy(deb, root / "spillway.deb")
    shutil.copy(newer(deb, tmp_path), root / "newer.deb")
    root.run("apt-get", "-qq", "update")
    root.run("apt-get", "-qq", "-y", "--no-install-recommends", "install", "/spillway.deb", "systemd",
             "systemd-sysv", "procps", "logrotate")
    (root / "etc/spillway/spillway.yaml").write_text(CONFIG)
    shutil.copy(binary.parent / "null_shard", root / "opt")
    (root / "opt/check").write_text(CHECK)
    units = root / "etc/systemd/system"
    (units / "check.service").write_text(CHECK_UNIT)
    (units / "shard.service").write_text(SHARD_UNIT)
    (units / "default.target.wants").mkdir(exist_ok=True)
    (units / "default.target.wants/check.service").symlink_to("../check.service")
    ended = nspawn(root, "--boot", "--kill-signal=SIGRTMIN+3", "--console=pipe", timeout=BOOT_TIMEOUT_S)
    result = root / "opt/result"
    text = result.read_text() if result.exists() else ""
    print(text)
    assert text.rstrip().endswith("done"), (
        f"nspawn ended with {ended}\n" + (root / "opt/console").read_text(errors="replace")[-3000:])
    passed, asked = (len(re.findall(begin, of, re.M)) for begin, of in (("^PASSED", text), ('^check "', CHECK)))
    assert passed == asked and "FAILED" not in text, text
