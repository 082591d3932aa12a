"""The second half of conf/quickstart: starts the shards and the proxy, and shows them at work."""

import argparse
import random
import signal
import socket
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))

import pymongo  # noqa: E402
from proxy import Proxy, even_ranges, find_binary  # noqa: E402
from pymongo.errors import OperationFailure, PyMongoError  # noqa: E402
from shards import ShardError, ShardSet  # noqa: E402

DATABASE = "quickstart"
USERS, ORDERS = 20_000, 10_000
BATCH = 500
FIRST_PORT, LAST_PORT = 27017, 27117
REGIONS = ["africa", "america", "asia", "europe", "oceania"]
NAMES = ["Ada", "Alan", "Barbara", "Edsger", "Grace", "Ken", "Leslie", "Niklaus", "Radia", "Tony"]


def free_port():
    """The first free port from MongoDB's own on."""
    for port in range(FIRST_PORT, LAST_PORT):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    sys.exit(f"quickstart: no free port from {FIRST_PORT} to {LAST_PORT}")


def configuration(uris, port):
    names = [f"shard{i}" for i in range(len(uris))]
    # Regions in alphabetical order, dealt out to the shards that there are.
    borders = ["america", "europe"][:max(0, len(names) - 1)]
    return {
        "net": {"port": port, "bindIp": "127.0.0.1"},
        "routing": {
            "shards": [{"name": n, "uri": u} for n, u in zip(names, uris)],
            "collections": [
                {"ns": f"{DATABASE}.users", "key": {"_id": "hashed"}},
                {"ns": f"{DATABASE}.orders", "key": {"region": 1},
                 "chunks": even_ranges("region", borders, names)},
            ],
        },
    }


def progress(done, total, started):
    width = 40
    filled = width * done // total
    rate = done / max(time.monotonic() - started, 1e-3)
    bar = "#" * filled + "." * (width - filled)
    end = "\n" if done == total else ""
    if sys.stdout.isatty() or end:
        print(f"\r  [{bar}] {done:6,} of {total:,} documents, {rate:,.0f} a second", end=end,
              flush=True)


def refuse_used(uris):
    """What is in the database already is another's."""
    for number, uri in enumerate(uris, 1):
        with pymongo.MongoClient(uri) as client:
            if client[DATABASE].list_collection_names():
                sys.exit(f"quickstart: the server of --shard {number} has a database {DATABASE} already")


def tidy_up(uris):
    """Removes what a run leaves on servers that were there before."""
    for uri in uris:
        with pymongo.MongoClient(uri) as client:
            client.drop_database(DATABASE)
            client.spillway.routing.delete_many({"_id": {"$in": [f"{DATABASE}.users", f"{DATABASE}.orders"]}})


def load(database):
    rng, total, done = random.Random(1), USERS + ORDERS, 0
    started = time.monotonic()
    for name, count, make in (
        ("users", USERS, lambda i: {"_id": i, "name": rng.choice(NAMES), "age": rng.randrange(18, 90),
                                    "score": rng.randrange(1_000_000)}),
        ("orders", ORDERS, lambda i: {"_id": i, "region": rng.choice(REGIONS),
                                      "user": rng.randrange(USERS), "total": rng.randrange(500)}),
    ):
        for first in range(0, count, BATCH):
            database[name].insert_many([make(i) for i in range(first, min(count, first + BATCH))])
            done += min(BATCH, count - first)
            progress(done, total, started)
    assert database.users.count_documents({}) == USERS
    assert database.orders.count_documents({}) == ORDERS


def shards_of(database, command):
    """The names of the shards in the plan of a command."""
    plan, found = database.command("explain", command), set()

    def walk(value):
        if isinstance(value, dict):
            if isinstance(value.get("shardName"), str):
                found.add(value["shardName"])
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(plan)
    return ", ".join(sorted(found)) or "?"


def show(database):
    print("\nA find by shard key goes to one shard:")
    one = {"find": "users", "filter": {"_id": 4711}}
    document = database.users.find_one({"_id": 4711})
    assert document["_id"] == 4711
    print(f"  db.users.findOne({{_id: 4711}})  ->  {shards_of(database, one)}")
    print(f"  {document}")

    print("\nA sorted find asks all shards and merges their answers:")
    every = {"find": "users", "sort": {"score": -1}}
    best = list(database.users.find().sort("score", -1).limit(5))
    assert len(best) == 5 and best == sorted(best, key=lambda d: -d["score"])
    print(f"  db.users.find().sort({{score: -1}}).limit(5)  ->  {shards_of(database, every)}")
    for document in best:
        print(f"  {document}")

    print("\nAn aggregation is divided, and merged in the proxy:")
    print("  db.orders.aggregate([{$group: {_id: '$region', revenue: {$sum: '$total'}}}, "
          "{$sort: {_id: 1}}])")
    groups = list(database.orders.aggregate([
        {"$group": {"_id": "$region", "revenue": {"$sum": "$total"}}}, {"$sort": {"_id": 1}}]))
    assert [d["_id"] for d in groups] == REGIONS
    for document in groups:
        print(f"  {document}")


def show_placement(uris):
    print("\nWhich shard holds what, asked of each shard itself:")
    print(f"  {'':10} {'users':>8} {'orders':>8}  regions")
    users = orders = 0
    for index, uri in enumerate(uris):
        with pymongo.MongoClient(uri) as client:
            direct = client[DATABASE]
            here = direct.users.count_documents({}), direct.orders.count_documents({})
            regions = ", ".join(sorted(direct.orders.distinct("region")))
        users, orders = users + here[0], orders + here[1]
        print(f"  {f'shard{index}':10} {here[0]:8,} {here[1]:8,}  {regions}")
    assert (users, orders) == (USERS, ORDERS), "every document is on one shard, once"


def wait_for_interrupt(proxy):
    """Returns on Ctrl-C or SIGTERM; a proxy that ends before is an error."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    while not ended.wait(0.5):
        if not proxy.alive():
            sys.exit(f"quickstart: the proxy has ended, see {proxy.log_path}")


def run(uris, check):
    binary = find_binary(ROOT / "build/release/spillway")
    proxy = Proxy(binary, configuration(uris, free_port()), name="quickstart")
    with proxy:
        print(f"proxy   {proxy.uri}  (configuration: {proxy.config_path.relative_to(ROOT)})\n")
        print(f"Loading {USERS + ORDERS:,} documents through the proxy:")
        with pymongo.MongoClient(proxy.uri) as client:
            load(client[DATABASE])
            show(client[DATABASE])
        show_placement(uris)
        print(f"\nConnect with  mongosh {proxy.uri}{DATABASE}")
        if check:
            print("\ncheck passed")
            return
        print("\nPress Ctrl-C to stop.", flush=True)
        wait_for_interrupt(proxy)
        print("\nstopping ...")


def main():
    parser = argparse.ArgumentParser(prog="conf/quickstart")
    parser.add_argument("--shard", action="append", metavar="URI",
                        help=f"a server of your own; may be repeated. It must not have a database {DATABASE}, which is "
                             "removed at the end, with what the proxy notes of it in spillway.routing")
    parser.add_argument("--check", action="store_true", help="do all of it once and exit")
    args = parser.parse_args()
    try:
        if args.shard:
            refuse_used(args.shard)
            try:
                run(args.shard, args.check)
            finally:
                tidy_up(args.shard)
        else:
            print("starting three FerretDB shards ...", flush=True)
            with ShardSet("ferretdb", 3) as shards:
                for shard in shards:
                    print(f"{shard.name}  {shard.uri}")
                run([shard.uri for shard in shards], args.check)
    except (ShardError, PyMongoError, OperationFailure) as error:
        sys.exit(f"quickstart: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
