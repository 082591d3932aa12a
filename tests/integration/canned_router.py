"""A proxy over canned shards, which need no servers, with an admin port."""

import re
import subprocess

from shards import die_with_parent


class Router:
    """`options`: instead of the switched-off security.authorization."""

    def __init__(self, binary, folder, *options):
        with open(folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [str(binary), "--canned", "2", "--set", "net.port=0", "--set", "net.admin.port=0",
                 "--set", "memory.limit=160MiB", *(options or ("--set", "security.authorization=disabled"))],
                stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, text=True, preexec_fn=die_with_parent)
        said = [self.process.stdout.readline() for _ in range(2)]
        self.port, self.admin = (int(re.search(pattern + r"://[^:]+:(\d+)/", "".join(said))[1])
                                 for pattern in ("ready: mongodb", "administration: http"))

    def end(self):
        self.process.terminate()
        assert self.process.wait(30) == 0
