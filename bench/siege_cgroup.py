"""A memory cgroup of one's own for one process, and what the kernel charges to it."""

import os
import pathlib

ROOTS = (pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup"))
UNLIMITED_TCP = 1 << 40  # any limit makes version 1 count socket memory


class NoCgroup(Exception):
    """None can be made here; the text says why."""


def own_group(version):
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if version == 2 and not controllers or version == 1 and "memory" in controllers.split(","):
            return path.lstrip("/")
    return ""


class MemoryCgroup:
    """Version 1 counts socket memory apart from the rest, version 2 within it."""

    def __init__(self, limit_bytes, name="spillway-siege"):
        self.folder, self.name = None, name
        problems = []
        for version, root in ((1, ROOTS[0]), (2, ROOTS[1])):
            for parent in (root / own_group(version), root):
                try:
                    self.make(version, parent, limit_bytes)
                    return
                except OSError as error:
                    problems.append(f"version {version} below {parent}: {error.strerror}")
                    self.remove()
        raise NoCgroup("; ".join(problems))

    def make(self, version, parent, limit_bytes):
        folder = parent / f"{self.name}-{os.getpid()}"
        folder.mkdir()
        self.folder, self.version = folder, version
        if version == 1:
            (folder / "memory.limit_in_bytes").write_text(str(limit_bytes))
            try:
                (folder / "memory.memsw.limit_in_bytes").write_text(str(limit_bytes))
            except OSError:
                pass  # swap is not counted here
            (folder / "memory.kmem.tcp.limit_in_bytes").write_text(str(UNLIMITED_TCP))
        else:
            (folder / "memory.max").write_text(str(limit_bytes))
            if (folder / "memory.swap.max").exists():
                (folder / "memory.swap.max").write_text("0")

    def enter(self):
        """For the child, before it becomes the program."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def number(self, name):
        return int((self.folder / name).read_text())

    def word(self, name, key):
        for line in (self.folder / name).read_text().splitlines():
            if line.startswith(key + " "):
                return int(line.split()[1])
        return 0

    def socket_bytes(self):
        if self.version == 1:
            return self.number("memory.kmem.tcp.usage_in_bytes")
        return self.word("memory.stat", "sock")

    def charged_bytes(self):
        """Everything, sockets included."""
        if self.version == 1:
            return self.number("memory.usage_in_bytes") + self.socket_bytes()
        return self.number("memory.current")

    def peak_bytes(self):
        """As the kernel saw it; without sockets in version 1."""
        name = "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"
        return self.number(name) if (self.folder / name).exists() else 0

    def limit_hits(self):
        if self.version == 1:
            return self.number("memory.failcnt")
        return self.word("memory.events", "max")

    def oom_kills(self):
        return self.word("memory.oom_control" if self.version == 1 else "memory.events", "oom_kill")

    def remove(self):
        if self.folder is not None:
            self.folder.rmdir()
            self.folder = None


def all_socket_bytes():
    """TCP memory of the whole network namespace: more than the proxy's own."""
    for line in pathlib.Path("/proc/net/sockstat").read_text().splitlines():
        if line.startswith("TCP:"):
            words = line.split()
            return int(words[words.index("mem") + 1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
