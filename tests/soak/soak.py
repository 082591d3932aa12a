"""What both soaks share: processes of clients, faults of the client's side, what is left at the end."""

import collections
import json
import os
import random
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pymongo
from certificates import Certificates
from clients import FIXED, document
from shards import die_with_parent

LOAD = [("ledger", False), ("ledger", True), ("scanner", False), ("scanner", True)]
SETTLED_WITHIN_S = 90
OWN_CONNECTIONS_MAX = 6  # of the client that asks, and of the one that asked before


class Soak:
    """`FAULTS`: the names of the methods that are faults. A fault that did not take place returns why."""

    FAULTS = ("client_killed", "noise_from_a_client", "reload")

    def __init__(self, seed, folder):
        self.rng, self.folder = random.Random(seed), folder
        self.certificates = Certificates(folder)
        self.clients, self.next_seed = [], 1
        self.faults, self.refused, self.renewed = collections.Counter(), collections.Counter(), 0
        self.totals = {"operations": collections.Counter(), "errors": collections.Counter()}
        self.wrong, self.wrong_count = [], 0

    @property
    def tls(self):
        return {"mode": "allowTLS", "certificateKeyFile": self.certificates.server}

    def client(self):
        return pymongo.MongoClient(self.uri, serverSelectionTimeoutMS=30_000, socketTimeoutMS=60_000)

    def load(self):
        with self.client() as client:
            client.soak.fixed.insert_many([document(key) for key in range(FIXED)])
            assert client.soak.fixed.count_documents({}) == FIXED

    def spawn(self, kind, tls):
        arguments = [sys.executable, str(Path(__file__).parent / "clients.py"), kind, str(self.next_seed), self.uri]
        self.next_seed += 1
        return subprocess.Popen(arguments + [self.certificates.ca] * tls, stdout=subprocess.PIPE,
                                preexec_fn=die_with_parent, text=True)

    def begin(self):
        self.clients = [self.spawn(kind, tls) for kind, tls in LOAD]

    # --- faults

    def fault(self):
        name = self.rng.choice(sorted(self.FAULTS))
        why = getattr(self, name)()
        self.faults[name] += 1
        if why:
            self.refused[name] += 1
        return f"{name}: {why}" if why else name

    def client_killed(self, kind="vanishing"):
        vanishing = self.spawn(kind, False)
        time.sleep(2.5)
        vanishing.kill()
        vanishing.communicate()

    def noise_from_a_client(self):
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", self.proxy.port), 10) as raw:
                raw.sendall(self.rng.choice([secrets.token_bytes(400), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"]))

    def reload(self):
        self.renewed += 1
        config = json.loads(self.proxy.config_path.read_text())
        config["operationProfiling"] = {"slowOpThresholdMs": 100 + self.renewed}
        config["net"]["tls"]["certificateKeyFile"] = self.certificates.issue(f"renewed{self.renewed}")
        self.proxy.config_path.write_text(json.dumps(config))
        os.kill(self.proxy.pid, signal.SIGHUP)

    # --- what is left

    def dead_clients(self):
        return [one.args[2] for one in self.clients if one.poll() is not None]

    def end_clients(self):
        for one in self.clients:
            one.send_signal(signal.SIGTERM)
        for one in self.clients:
            out, _ = one.communicate(timeout=240)
            told = json.loads(out)
            for what, total in self.totals.items():
                total.update(told[what])
            self.wrong += told["wrong"]
            self.wrong_count += told["wrong_count"]

    def state(self):
        """Of the proxy, with no client but this one."""
        with self.client() as client:
            status = client.admin.command("serverStatus")
        return {"rss": self.proxy.rss_bytes(), "descriptors": len(os.listdir(f"/proc/{self.proxy.pid}/fd")),
                "cursors": status["metrics"]["cursor"]["open"]["total"],
                "connections": status["connections"]["current"]}

    def settled(self):
        """The state once the clients' cursors and connections have ended; after SETTLED_WITHIN_S as it is."""
        end = time.monotonic() + SETTLED_WITHIN_S
        while True:
            state = self.state()
            if (state["cursors"] == 0 and state["connections"] <= OWN_CONNECTIONS_MAX) or time.monotonic() > end:
                return state
            time.sleep(0.5)

    def left_on_shards(self):
        """The leaks on the shards (cursors, transactions), in words."""
        return []


def reserved_bytes(log):
    """What the proxy's log says was reserved when it ended; -1: it does not say."""
    reserved = [int(told) for told in re.findall(r"stopped; (\d+) bytes are still reserved", log)]
    return max(reserved, default=-1)
