#!/usr/bin/env python3
"""Runs the same seeded commands through the proxy over three shards and on one shard alone.

Results must be equal: as lists where the order is total, as multisets otherwise; results that
MongoDB leaves undefined (a limit without an order, ties) must be a valid choice of the full
result. Error codes must be equal. Prints the seed, the operations per command and the mismatches;
the last line is "N passed, N failed", counted in commands. Exit code 1 if anything failed.
"""

import argparse
import random
import sys
import time
from collections import Counter

import bson
import pymongo
from bson import Int64
from bson_order import compare_documents, value_key
from grammar import (BIG, BIG_DOCUMENTS, DATABASE, NORMAL, SHARD_KEYS, Grammar, canonical,
                     routing_collections, strip)
from proxy import Proxy, find_binary
from pymongo.errors import ConnectionFailure, OperationFailure
from shards import ShardSet

SYNC_EVERY = 40
PROGRESS_EVERY = 500
FAILURES_SHOWN = 40
BATCH_CAP_BYTES = 16 * 1024 * 1024
SIZE_CEILING = 700


class Mismatch(Exception):
    """One operation whose two outcomes differ; the message tells how."""


class ShardBroke(Exception):
    """The lone shard failed in a way that no client could rely on: nothing to compare."""


class Outcome:
    """What one side answered: a reply and its documents, or an error code."""

    def __init__(self, reply=None, documents=None, code=None, message=""):
        self.reply, self.documents, self.code, self.message = reply, documents, code, message


def encoded(document):
    return bson.encode(document)


class Side:
    def __init__(self, uri, is_proxy, kind):
        self.client = pymongo.MongoClient(uri, socketTimeoutMS=300000, retryReads=False,
                                          retryWrites=False, maxPoolSize=4)
        self.is_proxy, self.kind, self.followed = is_proxy, kind, Counter()

    def run(self, operation):
        database = self.client[operation.database]
        try:
            reply = database.command(operation.command)
            if operation.get_more is None and "cursor" not in reply:
                return Outcome(reply)
            return self.drain(database, operation, reply)
        except OperationFailure as error:
            return Outcome(code=error.code or -1, message=str(error.details)[:400])
        except ConnectionFailure as error:
            return Outcome(code="closed", message=str(error)[:400])

    def drain(self, database, operation, reply):
        cursor = reply["cursor"]
        documents, batch = list(cursor["firstBatch"]), cursor["firstBatch"]
        asked = operation.command.get("batchSize",
                                      operation.command.get("cursor", {}).get("batchSize"))
        aggregated = operation.name == "aggregate"
        self.check_batch(batch, asked if asked is not None else 101, cursor, aggregated)
        if operation.command.get("singleBatch") and self.is_proxy and cursor["id"] != 0:
            raise Mismatch("singleBatch left a cursor open")
        turns = 0
        while cursor["id"] != 0:
            if operation.kill_after is not None and turns >= operation.kill_after:
                self.followed["killCursors"] += 1
                killed = database.command("killCursors", next(iter(operation.command.values())),
                                          cursors=[cursor["id"]])
                if self.is_proxy and killed["cursorsKilled"] != [cursor["id"]]:
                    raise Mismatch(f"killCursors: {killed}")
                return Outcome(reply, None)
            self.followed["getMore"] += 1
            collection = cursor["ns"].split(".", 1)[1]
            more = database.command("getMore", Int64(cursor["id"]), collection=collection,
                                    batchSize=operation.get_more or 101)
            cursor, batch = more["cursor"], more["cursor"]["nextBatch"]
            self.check_batch(batch, operation.get_more or 101, cursor, aggregated)
            documents += batch
            turns += 1
        return Outcome(reply, documents)

    def check_batch(self, batch, asked, cursor, aggregated):
        if not self.is_proxy:
            return
        name = cursor["ns"].split(".", 1)[1]
        if self.kind == "javaserver" and (aggregated or not SHARD_KEYS.get(name)):
            asked = None  # it has no default and ignores aggregate's: one shard's batch stays
        if asked and len(batch) > asked:
            raise Mismatch(f"{len(batch)} documents in a batch of at most {asked}")
        if sum(len(encoded(d)) for d in batch) > BATCH_CAP_BYTES and len(batch) > 1:
            raise Mismatch("a batch of more than 16 MB")
        if asked and not batch and cursor["id"] != 0:
            raise Mismatch("an empty batch from an open cursor")


# -- comparing ----------------------------------------------------------------------------------


def compare_cursors(operation, alone, routed, ask_alone):
    if alone.documents is None or routed.documents is None:
        return  # killed half-way on one side at least
    a, b = alone.documents, routed.documents
    if operation.order == "list":
        if [encoded(d) for d in a] != [encoded(d) for d in b]:
            explain_lists(a, b)
    elif operation.order == "bag":
        compare_bags(a, b)
    else:
        if len(a) != len(b):
            raise Mismatch(f"{len(a)} documents expected, {len(b)} got")
        full = a if operation.full is None else ask_alone(operation.full)
        surplus = Counter(map(encoded, b)) - Counter(map(encoded, full))
        if surplus:
            raise Mismatch(f"{sum(surplus.values())} documents that are not in the full result, "
                           f"e.g. {strip(bson.decode(next(iter(surplus))))}")
        if operation.order == "sorted":
            compare_order(operation, a, b, ask_alone)


def compare_order(operation, a, b, ask_alone):
    """Position by position the same sort key, whichever of the tied documents stands there."""
    if operation.command.get("projection", {}).get("_id", True) is False or any(
            "_id" not in d for d in a + b):
        return
    command = {k: v for k, v in operation.full.items() if k != "projection"}
    whole = {encoded({"_id": d["_id"]}): d for d in ask_alone(command)}
    for place, (one, two) in enumerate(zip(a, b)):
        one, two = (whole[encoded({"_id": d["_id"]})] for d in (one, two))
        if compare_documents(one, two, operation.sort):
            raise Mismatch(f"place {place}: {strip(one)} expected, {strip(two)} got")


def explain_lists(a, b):
    if Counter(map(encoded, a)) != Counter(map(encoded, b)):
        compare_bags(a, b)
    for place, (one, two) in enumerate(zip(a, b)):
        if encoded(one) != encoded(two):
            raise Mismatch(f"same documents, other order: place {place}: {strip(one)} expected, "
                           f"{strip(two)} got")


def compare_bags(a, b):
    for document in a + b:
        # A set that a $group collected has no order of its own.
        for name, value in document.items():
            if isinstance(value, list) and "$addToSet" not in document and name in "abcd":
                document[name] = sorted(value, key=value_key)
    want, got = Counter(map(encoded, a)), Counter(map(encoded, b))
    if want == got:
        return
    lacking = [strip(bson.decode(d)) for d in (want - got)][:2]
    surplus = [strip(bson.decode(d)) for d in (got - want)][:2]
    raise Mismatch(f"{len(a)} documents expected, {len(b)} got; lacking {lacking}; "
                   f"surplus {surplus}")


def write_errors(outcome):
    return sorted((e["index"], e["code"]) for e in outcome.reply.get("writeErrors", []))


def compare_writes(operation, alone, routed, kind):
    if write_errors(alone) != write_errors(routed):
        raise Mismatch(f"writeErrors {write_errors(alone)} expected, {write_errors(routed)} got")
    failed = bool(write_errors(alone))
    for field in ("n", "nModified"):
        if field == "n" and failed and kind == "javaserver":
            continue  # it counts the failed ones too
        if alone.reply.get(field) != routed.reply.get(field):
            raise Mismatch(f"{field}: {alone.reply.get(field)} expected, "
                           f"{routed.reply.get(field)} got: {routed.reply}")
    def upserted(outcome):
        made = outcome.reply.get("upserted", [])
        if kind == "ferretdb" and len(operation.command.get("updates", [])) > 1:
            # FerretDB numbers upserts 0, 1, 2 instead of telling the statement's index.
            return sorted((canonical(u["_id"]) for u in made), key=repr)
        return sorted((u["index"], canonical(u["_id"])) for u in made)
    if upserted(alone) != upserted(routed):
        raise Mismatch(f"upserted {upserted(alone)} expected, {upserted(routed)} got")


def compare_values(alone, routed):
    """distinct: a set, in which numbers of different types may be one value."""
    a, b = ({canonical(v) for v in o.reply["values"]} for o in (alone, routed))
    if a != b or len(alone.reply["values"]) != len(routed.reply["values"]):
        raise Mismatch(f"lacking {list(a - b)[:3]}, surplus {list(b - a)[:3]}, "
                       f"{len(alone.reply['values'])} expected, {len(routed.reply['values'])} got")


def names(outcome, field):
    if field == "databases":
        found = [d["name"] for d in outcome.reply["databases"]]
        return sorted(n for n in found if n in (DATABASE, "scratch"))
    if field == "indexes":
        return sorted((i["name"], tuple(i["key"].items()), bool(i.get("unique")))
                      for i in outcome.documents)
    return sorted(d["name"] for d in outcome.documents if not d["name"].startswith("system."))


def compare(operation, alone, routed, kind, ask_alone):
    if operation.reply == "local":
        if routed.code is not None:
            raise Mismatch(f"must be answered, got {routed.code}: {routed.message}")
        if routed.documents == [] and not operation.name.endswith("config.settings"):
            raise Mismatch("the routing table has no such entries")
        return
    if operation.expect is not None:
        code = routed.code
        if code is None and routed.reply.get("writeErrors"):
            code = routed.reply["writeErrors"][0]["code"]
        if code != operation.expect:
            raise Mismatch(f"code {operation.expect} expected, {code} got: {routed.message}")
        return
    if alone.code == -1 and not (operation.reply == "ok" and routed.code == -1):
        # An error without a code is mongo-java-server's own breakdown, half-way through a batch.
        raise ShardBroke
    codes = []
    for outcome in (alone, routed):
        code = outcome.code
        if code is None and operation.reply == "write" and len(write_errors(outcome)) == 1 and (
                len(next(v for k, v in operation.command.items() if isinstance(v, list))) == 1):
            # One statement's failure: MongoDB reports a write error, FerretDB a failed command.
            code = write_errors(outcome)[0][1]
        codes.append(code)
    if codes[0] != codes[1]:
        raise Mismatch(f"code {codes[0]} expected, {codes[1]} got: "
                       f"{alone.message} / {routed.message} {routed.reply}")
    if codes[0] is not None:
        return
    if operation.reply == "cursor":
        compare_cursors(operation, alone, routed, ask_alone)
    elif operation.reply == "write":
        compare_writes(operation, alone, routed, kind)
    elif operation.reply == "n":
        if alone.reply["n"] != routed.reply["n"]:
            raise Mismatch(f"n {alone.reply['n']} expected, {routed.reply['n']} got")
    elif operation.reply == "values":
        compare_values(alone, routed)
    elif operation.reply == "value":
        if encoded({"v": alone.reply.get("value")}) != encoded({"v": routed.reply.get("value")}):
            raise Mismatch(f"value {alone.reply.get('value')} expected, "
                           f"{routed.reply.get('value')} got")
        if alone.reply.get("lastErrorObject") != routed.reply.get("lastErrorObject"):
            raise Mismatch(f"{alone.reply.get('lastErrorObject')} expected, "
                           f"{routed.reply.get('lastErrorObject')} got")
    elif operation.reply == "unknown_cursors":
        if alone.reply["cursorsNotFound"] != routed.reply["cursorsNotFound"]:
            raise Mismatch(f"{alone.reply} expected, {routed.reply} got")
    elif operation.reply == "collstats":
        if alone.reply["count"] != routed.reply["count"]:
            raise Mismatch(f"count {alone.reply['count']} expected, {routed.reply['count']} got")
    elif operation.reply in ("indexes", "collections", "databases"):
        want, got = names(alone, operation.reply), names(routed, operation.reply)
        if want != got:
            raise Mismatch(f"{want} expected, {got} got")


# -- the run --------------------------------------------------------------------------------------


class Run:
    def __init__(self, kind, seed, alone_uri, proxy_uri, itself):
        self.kind, self.rng = kind, random.Random(seed)
        self.grammar = Grammar(self.rng, kind)
        self.alone, self.routed = Side(alone_uri, False, kind), Side(
            proxy_uri, not itself, kind)
        self.done, self.failed, self.reports = Counter(), Counter(), []
        self.router_only, self.broke = Counter(), Counter()

    def load(self):
        for side in (self.alone, self.routed):
            side.client.drop_database(DATABASE)
            side.client.drop_database("scratch")
        for name in NORMAL:
            self.insert_both(name, self.distinct_ids(
                self.grammar.document() for _ in range(350)))
        for name in BIG:
            documents = [self.grammar.big_document(i) for i in range(BIG_DOCUMENTS)]
            for first in range(0, len(documents), 30):
                self.insert_both(name, documents[first:first + 30])

    @staticmethod
    def distinct_ids(documents):
        """1, 1.0 and Int64(1) are one _id."""
        seen, out = set(), []
        for document in documents:
            key = canonical(document["_id"])
            if key not in seen:
                seen.add(key)
                out.append(document)
        return out

    def insert_both(self, name, documents):
        for side in (self.alone, self.routed):
            side.client[DATABASE][name].insert_many(documents)

    def ask_alone(self, command):
        database, out = self.alone.client[DATABASE], []
        name = next(iter(command.values()))
        reply = database.command(command)
        while True:
            cursor = reply["cursor"]
            out += cursor.get("firstBatch", cursor.get("nextBatch"))
            if cursor["id"] == 0:
                return out
            reply = database.command("getMore", Int64(cursor["id"]), collection=name,
                                     batchSize=1000)

    def step(self, number):
        operation = self.grammar.next()
        if not self.routed.is_proxy and operation.router_only:
            return
        self.done[operation.name] += 1
        if operation.router_only:
            self.router_only[operation.name] += 1
        try:
            # What only the router refuses the other side must not run.
            alone = None if operation.router_only else self.alone.run(operation)
            routed = self.routed.run(operation)
            compare(operation, alone, routed, self.kind, self.ask_alone)
        except Mismatch as mismatch:
            self.report(number, operation, mismatch)
        except ShardBroke:
            self.broke[operation.name] += 1
            name = next(iter(operation.command.values()))
            if name in NORMAL:
                self.reload(name, list(self.alone.client[DATABASE][name].find()))

    def report(self, number, operation, mismatch):
        self.failed[operation.name] += 1
        text = f"#{number} {operation.database}: {strip(operation.command)}\n    {mismatch}"
        self.reports.append(text)
        if len(self.reports) <= FAILURES_SHOWN:
            print("MISMATCH " + text, flush=True)

    def synchronise(self, number):
        """Both sides must hold the same documents; after a difference, equal again."""
        for name in (*NORMAL, *self.grammar.extra):
            sides = [{encoded(d) for d in side.client[DATABASE][name].find()}
                     for side in (self.alone, self.routed)]
            if sides[0] != sides[1]:
                self.done["(content)"] += 1
                self.failed["(content)"] += 1
                lacking = [strip(bson.decode(d)) for d in list(sides[0] - sides[1])[:2]]
                surplus = [strip(bson.decode(d)) for d in list(sides[1] - sides[0])[:2]]
                self.reports.append(f"#{number} content of {name}: lacking {lacking}, "
                                    f"surplus {surplus}")
                if len(self.reports) <= FAILURES_SHOWN:
                    print("MISMATCH " + self.reports[-1], flush=True)
                self.reload(name, [bson.decode(d) for d in sides[0]])
            elif name in NORMAL and not 50 < len(sides[0]) < SIZE_CEILING:
                documents = [self.grammar.document() for _ in range(250)]
                self.reload(name, self.distinct_ids(documents))
            else:
                self.done["(content)"] += 1

    def reload(self, name, documents):
        for side in (self.alone, self.routed):
            side.client[DATABASE][name].delete_many({})
            if documents:
                side.client[DATABASE][name].insert_many(documents)

    def summary(self, seed, elapsed_s):
        self.done.update(self.routed.followed)
        differed, router, broke = (sum(c.values()) for c in (
            self.failed, self.router_only, self.broke))
        total = sum(self.done.values())
        print(f"\nseed {seed}, {self.kind}: {total} operations in {elapsed_s:.0f} s: "
              f"{total - differed - router - broke} agreed, {differed} differed, {router} that only "
              f"a router answers, {broke} not compared because the lone shard broke down")
        for name, count in sorted(self.done.items()):
            parts = [f"{counts[name]} {what}" for counts, what in (
                (self.failed, "wrong"), (self.router_only, "router only"),
                (self.broke, "not compared")) if counts[name]]
            print(f"  {name:28} {count:6}" + "".join(f", {part}" for part in parts))
        bad = len(self.failed)
        print(f"{len(self.done) - bad} passed, {bad} failed")
        return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=["ferretdb", "javaserver"], default="ferretdb")
    parser.add_argument("--ops", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--binary")
    parser.add_argument("--itself", action="store_true",
                        help="no proxy: compare two lone shards, to test the test")
    args = parser.parse_args()
    binary = find_binary(args.binary)
    if binary is None and not args.itself:
        sys.exit("differential: no proxy: build it first, or name it with --binary")
    print(f"seed {args.seed}, {args.target}", flush=True)
    count = 1 if args.itself else 3
    with ShardSet(args.target, 1) as alone, ShardSet(args.target, count) as shards:
        if args.itself:
            return run(args, alone[0].uri, shards[0].uri)
        table = {"shards": [{"name": s.name, "uri": s.uri} for s in shards],
                 "databases": [{"name": DATABASE, "primary": "shard1"}],
                 "collections": routing_collections([s.name for s in shards])}
        with Proxy(binary, {"routing": table}) as proxy:
            return run(args, alone[0].uri, proxy.uri)


def run(args, alone_uri, proxy_uri):
    session = Run(args.target, args.seed, alone_uri, proxy_uri, args.itself)
    start = time.monotonic()
    session.load()
    for number in range(args.ops):
        session.step(number)
        if number % SYNC_EVERY == SYNC_EVERY - 1:
            session.synchronise(number)
        if number % PROGRESS_EVERY == PROGRESS_EVERY - 1:
            print(f"{number + 1} operations, {sum(session.failed.values())} differences", flush=True)
    return session.summary(args.seed, time.monotonic() - start)


if __name__ == "__main__":
    sys.exit(main())
