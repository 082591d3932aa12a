"""Debian's programs that watch servers: taken from the system, or unpacked from their packages into build/tools.

Unpacked rather than installed: an installed prometheus begins to serve at once.
"""

import fcntl
import shutil
import subprocess
import tempfile

from shards import BUILD

PACKAGES = {"promtool": "prometheus", "prometheus-mongodb-exporter": "prometheus-mongodb-exporter"}
DOWNLOAD_TIMEOUT_S = 120


def find_tool(name):
    """The program's path. Raises RuntimeError with apt's words where it cannot be had."""
    installed = shutil.which(name)
    if installed:
        return installed
    tools = BUILD / "tools"
    tools.mkdir(parents=True, exist_ok=True)
    with open(tools / f"{name}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (tools / name).exists():
            _unpack(name, tools)
    return str(tools / name)


def _unpack(name, tools):
    with tempfile.TemporaryDirectory(dir=tools) as folder:
        for command in (["apt-get", "download", "-qq", PACKAGES[name]],
                        ["sh", "-c", "dpkg-deb -x ./*.deb ."]):
            done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=DOWNLOAD_TIMEOUT_S)
            if done.returncode != 0:
                raise RuntimeError(f"{name}: {' '.join(command)}: {done.stdout[-1000:]}")
        (tools / f"{name}.part").unlink(missing_ok=True)
        shutil.move(f"{folder}/usr/bin/{name}", tools / f"{name}.part")
        (tools / f"{name}.part").rename(tools / name)
