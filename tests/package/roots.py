"""Debian root folders to install into: made once below build/roots, copied for each use."""

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

BUILD = Path(__file__).resolve().parents[2] / "build"
ROOTS = BUILD / "roots"
ARCHIVES = ROOTS / "archives"  # packages that were downloaded, for all roots
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SUITE = "bookworm"
# Mounted in a namespace of its own, gone with it. $0 is the root, $1 the packages' folder. The shell
# stays, as process 1 of its namespace: what it starts ends with it, and it with its parent.
ENTER = r"""
root=$0 archives=$1; shift
mount --make-rprivate /
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$archives" "$root/var/cache/apt/archives"
set +e
chroot "$root" "$@"
exit $?
"""


class RootError(RuntimeError):
    """A root cannot be made or used here; the text says why."""


def missing_tools(*programs):
    missing = [name for name in programs if not shutil.which(name)]
    if os.geteuid() != 0:
        missing.append("root rights")
    elif subprocess.run(["unshare", "--mount", "--pid", "--fork", "mount", "--make-rprivate", "/"],
                        capture_output=True).returncode != 0:
        missing.append("the right to mount")
    return missing


def sources(suite):
    """The lines of sources.list for a release of Debian, from where this machine gets its packages."""
    line = f"deb [signed-by={KEYRING}] $(REPO_URI) $(CODENAME) $(COMPONENT)"
    text = subprocess.run(["apt-get", "indextargets", "--format", line, "Created-By: Packages",
                           "Component: main"], check=True, capture_output=True, text=True).stdout
    suites = (SUITE, f"{SUITE}-updates", f"{SUITE}-security")
    found = sorted({row for row in text.splitlines() if row.split()[3] in suites})
    if not any(row.split()[3] == SUITE for row in found):
        raise RootError("apt has no source of Debian 12 (bookworm), or apt-get update has not run")
    return "\n".join(found).replace(f" {SUITE}", f" {suite}") + "\n"  # the archive is the same


def base_root(suite=SUITE):
    """An empty Debian, 12 unless another one is named: what is essential, and apt. Made once."""
    made = ROOTS / ("base" if suite == SUITE else suite)
    wanted = sources(suite)
    stamp = made.with_suffix(".sources")
    if made.is_dir() and stamp.exists() and stamp.read_text() == wanted:
        return made
    missing = missing_tools("mmdebstrap", "unshare", "chroot")
    if missing:
        raise RootError(f"missing: {', '.join(missing)}")
    shutil.rmtree(made, ignore_errors=True)
    ARCHIVES.joinpath("partial").mkdir(parents=True, exist_ok=True)
    given = ROOTS / "given.list"
    given.write_text(wanted)
    done = subprocess.run(
        ["mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory",
         "--dpkgopt=force-unsafe-io", suite, str(made), str(given)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        shutil.rmtree(made, ignore_errors=True)
        raise RootError(f"mmdebstrap ended with {done.returncode}:\n{done.stdout[-3000:]}")
    # Packages are kept for the next root; dpkg does not wait for the disk.
    (made / "etc/apt/apt.conf.d/99keep").write_text(
        'APT::Keep-Downloaded-Packages "true";\nBinary::apt::APT::Keep-Downloaded-Packages "true";\n')
    (made / "etc/dpkg/dpkg.cfg.d/unsafe").write_text("force-unsafe-io\n")
    (made / "etc/resolv.conf").unlink(missing_ok=True)
    shutil.copy("/etc/resolv.conf", made / "etc/resolv.conf")
    for name in ("doc", "locale", "man"):  # half of its files
        shutil.rmtree(made / "usr/share" / name)
        (made / "usr/share" / name).mkdir()
    stamp.write_text(wanted)
    return made


class Root:
    """A root folder. Commands in it see it as /, in a process and mount namespace of their own."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def __truediv__(self, path):
        return self.folder / str(path).lstrip("/")

    def command(self, *arguments):
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-e", "-c", ENTER,
                str(self.folder), str(ARCHIVES), *map(str, arguments)]

    def run(self, *arguments, check=True, **environment):
        """What a command printed, on both streams together. AssertionError unless it ended with 0."""
        code, text = self.try_run(*arguments, **environment)
        assert not check or code == 0, f"{' '.join(map(str, arguments))} ended with {code}:\n{text[-4000:]}"
        return text

    def try_run(self, *arguments, timeout=300, **environment):
        done = subprocess.run(
            self.command(*arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", timeout=timeout,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8",
                 "DEBIAN_FRONTEND": "noninteractive", **environment})
        return done.returncode, done.stdout


@contextmanager
def fresh_root(suite=SUITE):
    """A copy of an empty root, removed at the end."""
    base = base_root(suite)
    with tempfile.TemporaryDirectory(prefix="root-", dir=ROOTS) as folder:
        copy = Path(folder) / "root"
        subprocess.run(["cp", "-a", "--reflink=auto", str(base), str(copy)], check=True)
        yield Root(copy)


def innermost(pid):
    """The end of a chain of processes that wait for their only child."""
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[0])
    return pid


def end(process, child, sig=signal.SIGTERM, seconds=40):
    """Signals the child and returns the exit code that the parent passes on."""
    os.kill(child, sig)
    return process.wait(seconds)
