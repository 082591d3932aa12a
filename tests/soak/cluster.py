"""A sharded cluster that the caller brings, without users, and the proxy before it; chunks move, members step down
and freeze, the config servers are away, the proxy is replaced."""

import os
import signal
import time

from cluster_faults import move_chunk, open_on_primaries, step_down
from proxy import free_port
from pymongo.errors import PyMongoError
from replaced import NotReplaced, Replaced
from soak import Soak, reserved_bytes

FROZEN_S_MAX = 6  # shorter than an election timeout, so that no old primary answers when it goes on
CHUNKS = 16
BIG, BIG_BYTES = 200, 200_000
CURSOR_TIMEOUT_S = 60  # a process that was replaced keeps the cursors of lost clients as long


class ClusterSoak(Soak):
    FAULTS = (*Soak.FAULTS, "replaced", "chunk_moved", "chunk_moved", "shard_steps_down", "config_steps_down",
              "member_frozen", "config_away", "memory_full")

    def __init__(self, args, binary, folder):
        super().__init__(args.seed, folder)
        self.config_host = args.config_db
        self.before = None  # the process that was replaced last, and ends when its cursors have
        self.config_pids, self.shard_pids = args.config_pids, args.shard_pids
        self.proxy = Replaced(binary, {
            "net": {"port": free_port(), "bindIp": "127.0.0.1", "tls": self.tls},
            "memory": {"limit": f"{args.limit_mib}MiB"},
            "sharding": {"configDB": args.config_db},
            "setParameter": {"cursorTimeoutMillis": CURSOR_TIMEOUT_S * 1000},
        }).start()
        # An acknowledged write must outlive its primary, or a loss would not be the proxy's.
        self.uri = f"{self.proxy.uri}?w=majority"
        with self.client() as client:
            self.shard_sets = {one["_id"]: one["host"] for one in client.config.shards.find()}
        self.cursors_before, _ = open_on_primaries(self.shard_sets.values())

    def load(self):
        with self.client() as client:
            client.drop_database("soak")
            client.admin.command("enableSharding", "soak")
            for name in ("items", "fixed", "big"):
                client.admin.command("shardCollection", f"soak.{name}", key={"_id": "hashed"}, numInitialChunks=CHUNKS)
            client.soak.big.insert_many([{"_id": key, "p": bytes(BIG_BYTES)} for key in range(BIG)])
        super().load()

    # --- faults

    def replaced(self):
        if self.before and self.proxy.runs(self.before):
            return "the process before has cursors"
        try:
            self.before = self.proxy.replace(ended=False)
        except NotReplaced as refusal:  # the config servers have no primary
            said = [line for line in str(refusal).splitlines() if line.startswith("spillway: ")]
            return said[0] if said else "the new process ended without a word"

    @staticmethod
    def tried(fault, *arguments):
        try:
            fault(*arguments)
        except PyMongoError as error:
            return str(error)[:150]

    def chunk_moved(self):
        with self.client() as client:
            return self.tried(move_chunk, self.rng, client, f"soak.{self.rng.choice(['items', 'fixed'])}", self.shard_sets)

    def step_down(self, host):
        return self.tried(step_down, host, 8, 6)

    def shard_steps_down(self):
        return self.step_down(self.rng.choice(sorted(self.shard_sets.values())))

    def config_steps_down(self):
        return self.step_down(self.config_host)

    def freeze(self, pids):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(self.rng.random() * FROZEN_S_MAX)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        return None if pids else "no process was named"

    def member_frozen(self):
        return self.freeze(self.rng.sample(self.shard_pids, 1) if self.shard_pids else [])

    def config_away(self):
        return self.freeze(self.config_pids)

    def memory_full(self):
        return self.client_killed("hungry")

    # --- what is left

    def left_on_shards(self):
        end = time.monotonic() + 2 * CURSOR_TIMEOUT_S
        while True:
            cursors, transactions = open_on_primaries(self.shard_sets.values())
            left = []
            # A primary has a cursor for each secondary that follows it, and there may be another primary now.
            if cursors > self.cursors_before + 2:
                left.append(f"{cursors} cursors are left on the shards")
            if transactions:
                left.append(f"{transactions} transactions are left on the shards")
            if not left or time.monotonic() > end:
                break
            time.sleep(1)
        print(f"open on the shards: {self.cursors_before} cursors before, {cursors} after; {transactions} transactions")
        return left

    def stop(self):
        self.proxy.stop()
        return reserved_bytes(self.proxy.log())
