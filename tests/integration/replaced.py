"""A proxy that is replaced while it serves."""

import os
import re
import select
import signal
import sys

from proxy import Proxy
from waiting import wait_for

REPLACED = re.compile(r"the process (\d+) has replaced this one")
REFUSED = "the process is not replaced"


class NotReplaced(AssertionError):
    """The process that serves has stayed; the text is its log since then."""


def wait_for_end(process, watched, seconds):
    """`watched`: its pidfd, which is closed."""
    ending = select.poll()
    ending.register(watched, select.POLLIN)
    assert ending.poll(seconds * 1000), f"{process} has not ended"
    os.close(watched)


class Replaced(Proxy):
    """Runs the program through a link, as an upgrade replaces it; follows the process that serves."""

    def __init__(self, binary, config, **keywords):
        super().__init__(binary, config, **keywords)
        self.program = self.directory / "spillway"
        self.install(binary)
        self.binary, self.latest = self.program, None

    def install(self, program):
        fresh = self.program.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(program)
        fresh.rename(self.program)

    def install_script(self, text):
        script = self.directory / "script"
        script.write_text(f"#!{sys.executable}\n{text}")
        script.chmod(0o700)
        self.install(script)

    @property
    def pid(self):
        return self.latest or self.process.pid

    def runs(self, pid):
        """Whether this one of its processes has not ended."""
        self.process.poll()  # else the first one, a child of ours, stays as a zombie
        return os.path.exists(f"/proc/{pid}")

    def alive(self):
        """Whether the process that serves is."""
        return self.process is not None and self.runs(self.pid)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def replace(self, by=signal.SIGUSR2, ended=True):
        """By a process that serves; `ended`: until the one before has gone. Returns that one's id."""
        old, before = self.pid, self.log()
        seen, refused = len(REPLACED.findall(before)), before.count(REFUSED)
        watched = os.pidfd_open(old)
        os.kill(old, by)
        wait_for(lambda: len(REPLACED.findall(self.log())) > seen or self.log().count(REFUSED) > refused,
                 "a new process", 90)
        if len(REPLACED.findall(self.log())) == seen:
            os.close(watched)
            raise NotReplaced(self.log()[len(before):])
        self.follow(seen + 1)
        if ended:
            wait_for_end(old, watched, 60)
        else:
            os.close(watched)
        return old

    def follow(self, replacements):
        """Waits until it has been replaced this often in all; the last process is the one that serves."""
        wait_for(lambda: len(REPLACED.findall(self.log())) >= replacements, f"process {replacements + 1}")
        self.latest = int(REPLACED.findall(self.log())[-1])

    def fail_to_replace(self, why):
        seen = self.log().count(REFUSED)
        os.kill(self.pid, signal.SIGUSR2)
        wait_for(lambda: self.log().count(REFUSED) > seen, "a refusal", 90)
        assert why in self.log().rsplit(REFUSED, 1)[1]

    def stop(self):
        if self.process is None:
            return
        if self.latest and self.alive():
            watched = os.pidfd_open(self.latest)
            os.kill(self.latest, signal.SIGTERM)
            wait_for_end(self.latest, watched, 40)
            self.process.wait(40)  # the first one ends by itself
        super().stop()
        kept = re.findall(r"stopped; (\d+) bytes are still reserved", self.log())
        assert kept and set(kept) == {"0"}, kept

    def kill(self):
        if self.latest and self.alive():
            os.kill(self.latest, signal.SIGKILL)
        super().kill()
