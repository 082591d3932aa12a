"""Three FerretDB behind relays that spoil what they pass; the proxy with users before them."""

import signal
import time

from faulty_relay import FaultyRelay
from proxy import Proxy
from shards import ShardSet
from soak import Soak, reserved_bytes
from users import user_entry
from waiting import wait_for

PASSWORD = "soak"


class StaticSoak(Soak):
    FAULTS = (*Soak.FAULTS, "shard_killed", "shard_frozen", "connections_reset", "connections_closed", "garbage",
              "half_an_answer", "log_reopened")

    def __init__(self, args, binary, folder):
        super().__init__(args.seed, folder)
        self.shards = ShardSet("ferretdb", 3).start()
        self.relays = [FaultyRelay(shard.port, args.seed + i) for i, shard in enumerate(self.shards)]
        self.proxy = Proxy(binary, self.config(binary)).start()
        self.uri = f"mongodb://soak:{PASSWORD}@127.0.0.1:{self.proxy.port}/"

    def config(self, binary):
        names = [f"shard{i}" for i in range(3)]
        hashed = [{"ns": f"soak.{name}", "key": {"_id": "hashed"}} for name in ("items", "fixed")]
        return {
            "net": {"port": 0, "bindIp": "127.0.0.1", "tls": self.tls},
            "memory": {"limit": "256MiB"},
            "security": {"authorization": "enabled",
                         "users": [user_entry(binary, "soak", PASSWORD, ("root", "admin"))]},
            "systemLog": {"destination": "file", "path": str(self.folder / "soak.log"), "logRotate": "reopen"},
            "routing": {"shards": [{"name": name, "uri": f"mongodb://127.0.0.1:{relay.port}/?connectTimeoutMS=2000"}
                                   for name, relay in zip(names, self.relays)],
                        "collections": hashed},
        }

    def shard_killed(self):
        shard = self.rng.choice(self.shards.shards)
        shard.kill()
        time.sleep(self.rng.random() * 3)  # the fault's length
        shard.start()

    def shard_frozen(self):
        shard = self.rng.choice(self.shards.shards)
        shard.freeze()
        time.sleep(self.rng.random() * 6)
        shard.thaw()

    def connections_reset(self):
        self.rng.choice(self.relays).reset_all()

    def connections_closed(self):
        self.rng.choice(self.relays).close_all()

    def garbage(self):
        self.rng.choice(self.relays).spoil("garbage")

    def half_an_answer(self):
        self.rng.choice(self.relays).spoil("half")

    def log_reopened(self):
        log = self.folder / "soak.log"
        log.rename(self.folder / f"soak.log.{self.faults['log_reopened']}")
        self.proxy.process.send_signal(signal.SIGUSR1)
        wait_for(log.exists, "the new log")

    def stop(self):
        self.proxy.stop()
        for relay in self.relays:
            relay.close()
        self.shards.stop()
        return reserved_bytes("".join(p.read_text(errors="replace") for p in sorted(self.folder.glob("soak.log*"))))
