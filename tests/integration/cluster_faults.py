"""Faults of a sharded cluster that the caller brings, and what is open on its shards."""

import pymongo


def replica_set_client(host, **settings):
    """`host`: SET/HOST:PORT,... as config.shards has it."""
    name, _, members = host.partition("/")
    return pymongo.MongoClient(members.split(","), replicaSet=name, **{"serverSelectionTimeoutMS": 30_000, **settings})


def step_down(host, for_s, catch_up_s):
    with replica_set_client(host, socketTimeoutMS=60_000) as client:
        client.admin.command("replSetStepDown", for_s, secondaryCatchUpPeriodSecs=catch_up_s)


def move_chunk(rng, client, ns, shards, mover=None, **options):
    """Moves one chunk of the collection to another one of these shards, through `mover` or through the client that
    reads the chunks."""
    known = client.config.collections.find_one({"_id": ns})
    of_it = {"uuid": known["uuid"]} if "timestamp" in known else {"ns": ns}  # from 5.0 on, and before
    chunk = rng.choice(list(client.config.chunks.find(of_it).sort("min", 1)))
    to = rng.choice([shard for shard in sorted(shards) if shard != chunk["shard"]])
    (mover or client).admin.command("moveChunk", ns, bounds=[chunk["min"], chunk["max"]], to=to, **options)


def open_on_primaries(hosts, within_ms=30_000):
    """(cursors, transactions) that the primaries of these sets have, once each set has one."""
    cursors = transactions = 0
    for host in hosts:
        with replica_set_client(host, serverSelectionTimeoutMS=within_ms) as client:
            status = client.admin.command("serverStatus")
        cursors += status["metrics"]["cursor"]["open"]["total"]
        transactions += status["transactions"]["currentOpen"] + status["transactions"].get("currentPrepared", 0)
    return cursors, transactions
