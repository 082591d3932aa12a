"""One process of clients of the soak, checking all that they are answered.

    clients.py KIND SEED URI [PEM]     until SIGTERM, then one line of JSON on standard output

What a client was told to be done must be done, once; what failed may be done or not, at most once.
A document is its own proof: its payload follows from its _id.
"""

import collections
import hashlib
import json
import os
import random
import signal
import sys
import threading
import time

import pymongo
from pymongo.errors import BulkWriteError, DuplicateKeyError, PyMongoError

FIXED = 6000  # documents of soak.fixed, loaded before the first fault
PAUSE_S = 0.004
stopping = threading.Event()


def payload(key, size=None):
    digest = hashlib.sha256(str(key).encode()).digest()
    return digest * (size or 1 + digest[0] % 64)


def document(key):
    return {"_id": key, "n": key % 97, "p": payload(key)}


class Tally:
    """Counts of this process. Thread-safe."""

    def __init__(self):
        self._lock = threading.Lock()
        self.operations, self.errors = collections.Counter(), collections.Counter()
        self.wrong = []

    def did(self, what, count=1):
        with self._lock:
            self.operations[what] += count

    def failed(self, error):
        name = (getattr(error, "details", None) or {}).get("codeName") or type(error).__name__
        with self._lock:
            self.errors[name] += 1

    def is_wrong(self, what):
        with self._lock:
            self.wrong.append(what)


def expect(tally, good, what):
    if not good:
        tally.is_wrong(what)


class Ledger:
    """Writes documents of its own and remembers what was acknowledged."""

    def __init__(self, client, number, tally, rng):
        self.items, self.sums = client.soak.items, client.soak.sums
        self.first = self.next = number * 10_000_000 + 1_000_000
        self.tally, self.rng, self.there, self.unknown = tally, rng, set(), set()
        self.counter, self.least, self.most = f"counter{number}", 0, 0

    def step(self):
        self.rng.choice([self.insert, self.insert, self.insert_many, self.read, self.read, self.read,
                         self.add, self.remove])()

    def take(self, count):
        keys = list(range(self.next, self.next + count))
        self.next += count
        self.unknown.update(keys)  # until it is known
        return keys

    def settle(self, keys, there):
        for key in keys:
            self.unknown.discard(key)
            (self.there.add if there else self.there.discard)(key)

    def insert(self):
        keys = self.take(1)
        try:
            self.items.insert_one(document(keys[0]))
        except DuplicateKeyError:
            self.tally.is_wrong(f"{keys[0]} was inserted twice")
            return
        self.settle(keys, True)
        self.tally.did("insert")

    def insert_many(self):
        keys = self.take(self.rng.randrange(2, 60))
        try:
            self.items.insert_many([document(key) for key in keys], ordered=False)
        except BulkWriteError as error:
            failed = {e["index"] for e in error.details["writeErrors"]}
            for e in error.details["writeErrors"]:
                expect(self.tally, e["code"] != 11000, f"{keys[e['index']]} was inserted twice")
            if not error.details.get("writeConcernErrors"):
                self.settle([k for i, k in enumerate(keys) if i not in failed], True)
            raise
        self.settle(keys, True)
        self.tally.did("insert many")

    def read(self):
        if not self.there:
            return
        key = self.rng.choice(tuple(self.there)) if len(self.there) < 500 else \
            self.rng.randrange(self.first, self.next)
        found = self.items.find_one({"_id": key})
        if key in self.there:
            expect(self.tally, found == document(key), f"{key} is {found}")
        elif key not in self.unknown:
            expect(self.tally, found is None, f"{key} was removed and is there")
        elif found is not None:
            expect(self.tally, found == document(key), f"{key} is {found}")
        self.tally.did("find one")

    def remove(self):
        if not self.there:
            return
        key = next(iter(self.there))
        self.there.discard(key)
        self.unknown.add(key)
        deleted = self.items.delete_one({"_id": key}).deleted_count
        expect(self.tally, deleted == 1, f"{key} was there, and {deleted} were deleted")
        self.settle([key], False)
        self.tally.did("delete")

    def add(self):
        self.most += 1
        self.sums.update_one({"_id": self.counter}, {"$inc": {"v": 1}}, upsert=True)
        self.least += 1
        self.tally.did("update")
        if self.rng.random() < 0.3:
            self.check_sum()

    def check_sum(self):
        found = self.sums.find_one({"_id": self.counter})
        value = found["v"] if found else 0
        expect(self.tally, self.least <= value <= self.most,
               f"{self.counter} is {value}, not {self.least} to {self.most}")

    def check_all(self):
        """After the last fault: every document that was acknowledged, and no other."""
        found = {}
        for one in self.items.find({"_id": {"$gte": self.first, "$lt": self.next}}):
            expect(self.tally, one["_id"] not in found, f"{one['_id']} comes twice")
            expect(self.tally, one == document(one["_id"]), f"{one['_id']} is spoilt")
            found[one["_id"]] = True
        for key in self.there - found.keys():
            self.tally.is_wrong(f"{key} was acknowledged and is lost")
        for key in found.keys() - self.there - self.unknown:
            self.tally.is_wrong(f"{key} was removed and is there")
        self.check_sum()
        self.tally.did("final check")


class Scanner:
    """Reads what never changes."""

    def __init__(self, client, _number, tally, rng):
        self.fixed, self.tally, self.rng = client.soak.fixed, tally, rng

    def step(self):
        self.rng.choice([self.scan, self.sorted_scan, self.aggregate, self.abandon, self.count])()

    def scan(self):
        seen = collections.Counter()
        for one in self.fixed.find(batch_size=self.rng.choice([0, 7, 101, 1000])):
            seen[one["_id"]] += 1
            expect(self.tally, one == document(one["_id"]), f"fixed {one['_id']} is spoilt")
        expect(self.tally, len(seen) == FIXED and max(seen.values()) == 1,
               f"a scan has {len(seen)} documents, {max(seen.values(), default=0)} at most of one")
        self.tally.did("scan")

    def sorted_scan(self):
        limit = self.rng.choice([50, 700, FIXED])
        keys = [one["_id"] for one in
                self.fixed.find(projection={"p": 0}).sort([("n", 1), ("_id", -1)]).limit(limit)]
        wanted = sorted(range(FIXED), key=lambda key: (key % 97, -key))[:limit]
        expect(self.tally, keys == wanted, f"a sorted scan of {limit} is wrong")
        self.tally.did("sorted scan")

    def aggregate(self):
        groups = {one["_id"]: one["c"] for one in self.fixed.aggregate(
            [{"$match": {"_id": {"$gte": 0}}}, {"$group": {"_id": "$n", "c": {"$sum": 1}}}])}
        wanted = dict(collections.Counter(key % 97 for key in range(FIXED)))
        expect(self.tally, groups == wanted, "an aggregation is wrong")
        self.tally.did("aggregate")

    def count(self):
        expect(self.tally, self.fixed.count_documents({"n": 5}) == len(range(5, FIXED, 97)), "a count is wrong")
        self.tally.did("count")

    def abandon(self):
        cursor = self.fixed.find(batch_size=50)
        for _ in range(self.rng.randrange(1, 120)):
            next(cursor)
        if self.rng.random() < 0.5:
            cursor.close()
        self.tally.did("abandoned cursor")


class Vanishing(Scanner):
    """Opens cursors and does not end them: for a process that is killed."""

    def step(self):
        self.held = [*getattr(self, "held", [])[-20:], self.fixed.find(batch_size=20)]
        next(self.held[-1])
        self.tally.did("held cursor")


class Hungry(Scanner):
    """Sorts large documents over all shards, so that the router holds batches of each: for a process that is killed."""

    def step(self):
        for _ in self.big.find().sort("_id", self.rng.choice([1, -1])):
            self.tally.did("large document")

    def __init__(self, client, number, tally, rng):
        super().__init__(client, number, tally, rng)
        self.big = client.soak.big


KINDS = {"ledger": Ledger, "scanner": Scanner, "vanishing": Vanishing, "hungry": Hungry}
THREADS = {"hungry": 12}
THREADS_ELSE = 3


def drive(actor, tally, rng):
    while not stopping.is_set():
        try:
            actor.step()
        except PyMongoError as error:
            tally.failed(error)
            time.sleep(rng.random() * 0.05)
        time.sleep(rng.random() * 2 * PAUSE_S)


def check_at_the_end(actor, tally):
    """Whatever the last fault was, the answer must come in the end."""
    end = time.monotonic() + 90
    while True:
        try:
            return actor.check_all()
        except PyMongoError as error:
            if time.monotonic() > end:
                return tally.is_wrong(f"the final check fails: {error}")
            tally.failed(error)
            time.sleep(0.5)


def main():
    kind, seed, uri = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    options = {"tls": True, "tlsCAFile": sys.argv[4], "compressors": "zlib"} if len(sys.argv) > 4 else {}
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    tally = Tally()
    client = pymongo.MongoClient(uri, retryWrites=False, retryReads=False, appname=f"soak-{kind}",
                                 serverSelectionTimeoutMS=20_000, socketTimeoutMS=60_000, **options)
    actors, threads = [], []
    count = THREADS.get(kind, THREADS_ELSE)
    for index in range(count):
        rng = random.Random(seed * 1000 + index)
        actor = KINDS[kind](client, seed * count + index, tally, rng)
        actors.append(actor)
        threads.append(threading.Thread(target=drive, args=(actor, tally, rng)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for actor in actors:
        if isinstance(actor, Ledger):
            check_at_the_end(actor, tally)
    client.close()
    print(json.dumps({"operations": tally.operations, "errors": tally.errors, "wrong": tally.wrong[:50],
                      "wrong_count": len(tally.wrong)}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
