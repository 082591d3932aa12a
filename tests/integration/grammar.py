"""Seeded commands for the differential test: what to run, and how its results may be compared.

Every operation is valid on one server and on a router, and its outcome is defined up to what its
Operation says (`order`, `expect`). What a kind of shard answers unlike MongoDB stays out, with the
reason beside it.
"""

import dataclasses
import datetime
import zlib

import bson
import bson.json_util
from bson import Int64, ObjectId, Timestamp

DATABASE = "diff"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
MIN, MAX = {"$minKey": 1}, {"$maxKey": 1}
# Collection -> the fields of its shard key. "plain" and "heap_big" are not sharded.
SHARD_KEYS = {
    "hashed": ("_id",), "ranged": ("_id",), "compound": ("r", "n"), "by_k": ("k",),
    "big": ("_id",), "plain": (), "heap_big": (),
}
BIG = ("big", "heap_big")
NORMAL = tuple(name for name in SHARD_KEYS if name not in BIG)
# $in lists, ranges and equalities touch these borders of "ranged" on purpose.
BORDERS = [0, 100, 200, 300, "d", "m", ObjectId("800000000000000000000000")]
BIG_BYTES, BIG_DOCUMENTS = 168 * 1024, 110


def routing_collections(shards):
    """The sharded collections in the form of the configuration file."""
    def ranges(keys, bounds):
        edges = [[MIN] * len(keys), *bounds, [MAX] * len(keys)]
        return [{"min": dict(zip(keys, low)), "max": dict(zip(keys, high)),
                 "shard": shards[i % len(shards)]}
                for i, (low, high) in enumerate(zip(edges, edges[1:]))]

    borders = [[{"$oid": str(b)} if isinstance(b, ObjectId) else b] for b in BORDERS]
    return [
        {"ns": f"{DATABASE}.hashed", "key": {"_id": "hashed"}},
        {"ns": f"{DATABASE}.big", "key": {"_id": "hashed"}},
        {"ns": f"{DATABASE}.by_k", "key": {"k": "hashed"}},
        {"ns": f"{DATABASE}.ranged", "key": {"_id": 1}, "chunks": ranges(("_id",), borders)},
        {"ns": f"{DATABASE}.compound", "key": {"r": 1, "n": 1}, "chunks": ranges(
            ("r", "n"), [[5, MIN], ["f", MIN], ["m", 20], ["m", 60], ["t", MAX]])},
    ]


def canonical(value):
    """Equal numbers of different types become equal; hashable."""
    if isinstance(value, dict):
        return ("d",) + tuple((k, canonical(v)) for k, v in value.items())
    if isinstance(value, list):
        return ("l",) + tuple(canonical(v) for v in value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return ("n", float(value))
    return (type(value).__name__, value)


@dataclasses.dataclass
class Operation:
    """One command and how to compare what it answers.

    order    "list": equal lists; "bag": equal multisets; "sorted": a valid order by `sort`, ties
             in any order; "sample": as many documents, all of them from the full result
    full     for "sample" and limited "sorted": the command without skip and limit
    expect   error code that only the router gives, for what it must refuse
    """

    command: dict
    order: str = "list"
    sort: dict = None
    full: dict = None
    expect: int = None
    database: str = DATABASE
    get_more: int = None     # batchSize of each getMore; None: the command opens no cursor
    kill_after: int = None   # killCursors after this number of getMores
    reply: str = "cursor"    # cursor, write, value, names, ok ...

    @property
    def name(self):
        """What it is counted as."""
        name, argument = next(iter(self.command.items()))
        return f"{name} config.{argument}" if self.database == "config" else name

    @property
    def router_only(self):
        """Nothing to compare it with: one server answers this otherwise, or not at all."""
        return self.expect is not None or self.reply == "local"


class Grammar:
    def __init__(self, rng, kind):
        self.rng, self.kind, self.next_id, self.next_name = rng, kind, 0, 0
        self.java = kind == "javaserver"
        self.extra = ["u0", "u1"]
        self.makers = [
            (self.find, 30), (self.aggregate, 14), (self.count, 6), (self.distinct, 5),
            (self.insert, 12), (self.update, 12), (self.delete, 6), (self.find_and_modify, 7),
            (self.indexes, 5), (self.listing, 4), (self.ddl, 4), (self.stats, 3), (self.local, 4),
            (self.find_big, 1), (self.wrong, 3), (self.explain, 1)]

    def next(self):
        makers, weights = zip(*self.makers)
        return self.rng.choices(makers, weights)[0]()

    # -- values -----------------------------------------------------------------------------

    def scalar(self):
        rng = self.rng
        return rng.choice([
            lambda: rng.randrange(-20, 60), lambda: rng.randrange(-20, 60),
            lambda: rng.random() * 50,
            lambda: Int64(rng.randrange(-5, 50)), lambda: float(rng.randrange(0, 30)),
            lambda: rng.choice(LETTERS), lambda: rng.choice(["", "é", "aé", "A", "ab", "Zz"]),
            lambda: None, lambda: rng.random() < 0.5, lambda: ObjectId(rng.randbytes(12)),
            lambda: datetime.datetime(1960 + rng.randrange(80), 1, 1),
            lambda: rng.randbytes(rng.randrange(4)), lambda: Timestamp(rng.randrange(2**32), 1),
        ])()

    def mixed(self):
        """Arrays are sort keys too; nested arrays cannot be stored in FerretDB."""
        pick = self.rng.random()
        if pick < 0.6:
            return self.scalar()
        if pick < 0.8:
            # mongo-java-server's order of several empty arrays contradicts itself.
            return [self.scalar() for _ in range(self.rng.randrange(int(self.java), 4))]
        if pick < 0.95:
            return {name: self.scalar() for name in self.rng.sample("abc", self.rng.randrange(3))}
        return [{"a": self.scalar()}]

    def an_id(self):
        rng = self.rng
        return rng.choice([
            lambda: rng.randrange(-50, 400), lambda: rng.randrange(-50, 400),
            lambda: rng.choice(BORDERS), lambda: rng.randrange(0, 400) + 0.5,
            lambda: float(rng.randrange(0, 400)), lambda: Int64(rng.randrange(0, 400)),
            lambda: rng.choice(LETTERS) + rng.choice(LETTERS), lambda: ObjectId(
                bytes([rng.randrange(256)]) + bytes(11)),
            lambda: datetime.datetime(2000 + rng.randrange(30), 1, 1),
        ])()

    def document(self, an_id=None):
        rng = self.rng
        made = {"_id": self.an_id() if an_id is None else an_id}
        # The shard keys follow from the _id: shards keep an _id unique only each for itself.
        number = zlib.crc32(repr(canonical(made["_id"])).encode())
        made |= {"k": number % 40, "r": (LETTERS[number % 26] if number % 10 else
                                         [None, 3, 7.5, "m"][number // 10 % 4]),
                 "n": number // 100 % 80, "c": rng.randrange(1000), "s": rng.choice(LETTERS)}
        if rng.random() < 0.9:
            made["v"] = self.mixed()
        if rng.random() < 0.8:
            made["d"] = {"x": rng.randrange(30), "y": rng.choice(LETTERS)}
        if rng.random() < 0.7:
            made["t"] = [rng.randrange(10) for _ in range(rng.randrange(4))]
        return made

    def big_document(self, an_id):
        return {"_id": an_id, "c": an_id % 17, "p": self.rng.randbytes(BIG_BYTES)}

    def any_collection(self):
        return self.rng.choice(NORMAL)

    # -- filters ----------------------------------------------------------------------------

    def filter(self, depth=0):
        rng = self.rng
        options = [
            lambda: {}, lambda: {"_id": self.an_id()},
            lambda: {"_id": {"$in": [self.an_id() for _ in range(rng.randrange(6))]}},
            lambda: {"_id": {"$gte": rng.randrange(-60, 300), "$lt": rng.randrange(50, 420)}},
            lambda: {"_id": {"$gt": rng.choice(BORDERS)}},
            lambda: {"_id": {"$lte": rng.choice(BORDERS)}},
            lambda: {"k": rng.randrange(40)}, lambda: {"k": float(rng.randrange(40))},
            lambda: {"k": {"$in": [rng.randrange(45) for _ in range(3)]}},
            lambda: {"k": {"$gt": rng.randrange(40)}}, lambda: {"k": {"$eq": rng.randrange(40)}},
            lambda: {"r": rng.choice(LETTERS)}, lambda: {"r": None},
            lambda: {"r": {"$gte": rng.choice(LETTERS)}},
            lambda: {"r": {"$gt": rng.choice(LETTERS), "$lte": rng.choice(LETTERS)}},
            lambda: {"r": rng.choice("flmnt"), "n": {"$gte": rng.choice([0, 19, 20, 21, 60, 61])}},
            lambda: {"r": {"$in": [rng.choice(LETTERS) for _ in range(3)]}, "n": rng.randrange(80)},
            lambda: {"n": rng.randrange(80)}, lambda: {"c": {"$lt": rng.randrange(1000)}},
            lambda: {"c": {"$mod": [7, rng.randrange(7)]}}, lambda: {"v": rng.randrange(-20, 60)},
            lambda: {"v": {"$gt": rng.randrange(-20, 60)}}, lambda: {"v": {"$lt": "m"}},
            lambda: {"v": {"$exists": rng.random() < 0.5}}, lambda: {"v": None},
            lambda: {"v": {"$ne": rng.randrange(20)}}, lambda: {"s": {"$nin": ["a", "b", "c"]}},
            lambda: {"t": rng.randrange(10)}, lambda: {"t": {"$size": rng.randrange(4)}},
            lambda: {"t": {"$all": [rng.randrange(10)]}},
            lambda: {"d.x": {"$lte": rng.randrange(30)}},
            lambda: {"d.y": rng.choice(LETTERS)}, lambda: {"s": {"$regex": "^[a-f]"}},
            lambda: {"c": {"$not": {"$gt": rng.randrange(1000)}}},
            lambda: {"t": {"$elemMatch": {"$gt": rng.randrange(9)}}},
        ]
        if depth < 2 and rng.random() < 0.2:
            parts = [self.filter(depth + 1) for _ in range(rng.randrange(1, 4))]
            return {rng.choice(["$and", "$or", "$or", "$nor"]): parts}
        return rng.choice(options)()

    def total_sort(self):
        rng = self.rng
        pick = rng.random()
        if pick < 0.3:
            return {"_id": rng.choice([1, -1])}
        path = rng.choice(["v", "k", "r", "n", "c", "s", "d.x", "d.y", "d", "missing"])
        sort = {path: rng.choice([1, -1])}
        if rng.random() < 0.3:
            other = rng.choice(["k", "s", "n"])
            sort.setdefault(other, rng.choice([1, -1]))
        sort["_id"] = rng.choice([1, -1])
        return sort

    def projection(self, sort):
        rng = self.rng
        if rng.random() < 0.5:
            return None
        fields = rng.sample(["k", "r", "n", "v", "s", "d.x", "t", "c"], rng.randrange(1, 4))
        if sort and "d" in sort and "d.x" in fields:
            # A sort on what the projection cuts needs $sortKey, which no shard here has (115).
            fields.remove("d.x")
            fields.append("d")
        mode = rng.choice([0, 1, True, False])
        made = {field: mode for field in fields}
        if rng.random() < 0.2:
            made["_id"] = False if mode else mode
        return made

    # -- reads ------------------------------------------------------------------------------

    def find(self, name=None, where=None):
        rng = self.rng
        name = name or self.any_collection()
        command = {"find": name, "filter": self.filter() if where is None else where}
        full = dict(command)
        order, sort = "bag", None
        if rng.random() < 0.65:
            sort = self.total_sort()
            order = "list"
            if rng.random() < 0.3 and len(sort) > 1:
                del sort["_id"]
                order = "sorted"
            command["sort"] = full["sort"] = sort
        projection = self.projection(sort)
        if projection:
            command["projection"] = full["projection"] = projection
        limited = False
        if rng.random() < 0.35:
            command["skip"] = rng.choice([0, 1, 5, 40, 1000])
            limited = True
        if rng.random() < 0.45:
            command["limit"] = rng.choice([1, 2, 10, 101, 150, 5000])
            limited = True
        if limited and order == "bag":
            order = "sample"
        batch = rng.choice([None, None, 0, 1, 2, 7, 101, 1000])
        if batch is not None:
            command["batchSize"] = batch
        kill = None
        if rng.random() < 0.1:
            kill = rng.randrange(3)
        elif rng.random() < 0.07 and batch and not self.java:  # javaserver ignores singleBatch
            command["singleBatch"] = True
            order = {"bag": "sample"}.get(order, order)
        more = rng.choice([2, 7, 50, 101, 1000]) if batch != 1 else rng.choice([1, 2, 50])
        return Operation(command, order, sort, full, get_more=more, kill_after=kill)

    def find_big(self):
        """More than 16 MB in one batch, if one asks for it: FerretDB would send it."""
        rng = self.rng
        command = {"find": rng.choice(BIG), "filter": rng.choice(
            [{}, {"_id": {"$lt": rng.randrange(BIG_DOCUMENTS)}}, {"c": rng.randrange(17)}])}
        full, order, sort = dict(command), "bag", None
        if rng.random() < 0.6:
            sort = rng.choice([{"_id": -1}, {"c": 1, "_id": 1}])
            command["sort"] = full["sort"] = sort
            order = "list"
        batch = rng.choice([None, 2, 50, 101])
        if batch:
            command["batchSize"] = batch
        return Operation(command, order, sort, full, get_more=rng.choice([2, 20, 101]))

    def count(self):
        rng = self.rng
        command = {"count": self.any_collection(), "query": self.filter()}
        if rng.random() < 0.3:
            command["skip"] = rng.randrange(60)
        if rng.random() < 0.3:
            command["limit"] = rng.randrange(1, 100)
        return Operation(command, reply="n")

    def distinct(self):
        # Paths into arrays of documents: the two kinds of shard differ from MongoDB, so not "v.a".
        key = self.rng.choice(["k", "r", "n", "s", "t", "d.x", "d.y", "v", "missing", "_id"])
        return Operation({"distinct": self.any_collection(), "key": key, "query": self.filter()},
                         reply="values")

    def explain(self):
        command = self.rng.choice([self.find, self.count])().command
        command.pop("batchSize", None)
        return Operation({"explain": command, "verbosity": "queryPlanner"}, reply="ok")

    # -- aggregation ------------------------------------------------------------------------

    def accumulators(self):
        rng = self.rng
        choices = [{"$sum": 1}, {"$sum": "$c"}, {"$sum": "$n"}]
        if not self.java:
            # FerretDB has $sum and $count, and computes only the first one of a $group rightly.
            return {"a": rng.choice([*choices, {"$count": {}}])}
        choices += [{"$avg": "$c"}, {"$min": "$c"}, {"$max": "$n"}, {"$avg": "$n"},
                    {"$addToSet": "$k"}, {"$max": "$k"}]
        return {name: rng.choice(choices) for name in "abcd"[:rng.randrange(1, 5)]}

    def after_group(self):
        """Stages that run in the proxy; those that FerretDB does not have it must refuse, too."""
        rng = self.rng
        return rng.choice([
            [{"$match": {"a": {"$gt": rng.choice([3, 900])}}}], [{"$project": {"a": 1}}],
            [{"$addFields": {"z": {"y": "lit"}}}], [{"$unset": "a"}], [{"$count": "groups"}],
            [{"$set": {"z": 5}}, {"$match": {"z": 5}}], [{"$unwind": "$a"}],
            [{"$sort": {"a": 1, "_id": -1}}, {"$skip": 2}, {"$limit": 5}],
            [{"$group": {"_id": None, "b": {"$sum": "$a"}}}],
            [{"$replaceRoot": {"newRoot": {"q": "$a"}}}], [{"$sortByCount": "$a"}],
            # Not in $set: of an expression there FerretDB only complains when it meets a document.
            [{"$project": {"x": {"$add": ["$a", 1]}}}],
        ])

    def aggregate(self):
        rng = self.rng
        pipeline, order, total = [], "bag", False
        if rng.random() < 0.7:
            pipeline.append({"$match": self.filter()})
        if rng.random() < 0.25:
            pipeline.append({"$unwind": "$t"})
        if rng.random() < 0.25:
            pipeline.append(rng.choice([
                {"$set": {"z": 5}}, {"$addFields": {"z": {"y": "lit"}}}, {"$unset": "s"},
                {"$project": {"k": 1, "c": 1, "n": 1, "t": 1, "r": 1}},
                {"$project": {"v": 0, "d": 0}}]))
        if rng.random() < 0.4:
            unwound = any("$unwind" in stage for stage in pipeline)
            sort = {"c": rng.choice([1, -1]), "_id": 1}
            if not unwound and not any("$project" in stage for stage in pipeline):
                sort = rng.choice([sort, {rng.choice(["v", "k", "d"]): rng.choice([1, -1]),
                                          "_id": 1}])
            if unwound:
                sort["t"] = 1
            pipeline.append({"$sort": sort})
            # Of one document's unwound elements, equal ones are equal documents.
            order, total = "list", True
            if rng.random() < 0.4:
                pipeline.append({"$skip": rng.choice([1, 10, 500])})
            if rng.random() < 0.5:
                pipeline.append({"$limit": rng.choice([1, 10, 150])})
        if rng.random() < 0.5:
            by = rng.choice([None, "$k", "$s", "$r", "$d.x"])
            pipeline.append({"$group": {"_id": by, **self.accumulators()}})
            order, total = "bag", False
            if rng.random() < 0.35:
                pipeline[-1]["$group"]["a"] = rng.choice([{"$sum": 1}, {"$sum": "$c"}])
                pipeline += self.after_group()
            elif rng.random() < 0.5:
                pipeline.append({"$sort": {"_id": rng.choice([1, -1])}})
                order = "list"
                if rng.random() < 0.4:
                    pipeline.append({"$limit": rng.randrange(1, 12)})
        elif rng.random() < 0.2:
            pipeline.append({"$count": "n"})
        elif not total and rng.random() < 0.2:
            full = {"aggregate": "", "pipeline": list(pipeline), "cursor": {}}
            pipeline.append({"$limit": rng.choice([1, 10, 150])})
            name = self.any_collection()
            full["aggregate"] = name
            return Operation({"aggregate": name, "pipeline": pipeline, "cursor": {}}, "sample",
                             full=full, get_more=101)
        batch = rng.choice([None, None, 0, 1, 2, 101])
        cursor = {} if batch is None else {"batchSize": batch}
        return Operation({"aggregate": self.any_collection(), "pipeline": pipeline,
                          "cursor": cursor}, order, get_more=rng.choice([2, 50, 101]))

    # -- writes -----------------------------------------------------------------------------

    def key_filter(self, name, document):
        """One document's _id and its whole shard key."""
        where = {"_id": document["_id"]}
        for field in SHARD_KEYS[name]:
            where[field] = document.get(field)
        return where

    def insert(self):
        rng = self.rng
        documents = [self.document() for _ in range(rng.choice([1, 1, 3, 10, 60]))]
        if rng.random() < 0.2:
            documents = [self.document(ObjectId(rng.randbytes(12))) for _ in documents]
        return Operation({"insert": self.any_collection(), "documents": documents,
                          "ordered": rng.random() < 0.5}, reply="write")

    def modifier(self):
        rng = self.rng
        return rng.choice([
            lambda: {"$set": {"v": self.mixed()}}, lambda: {"$inc": {"c": rng.randrange(-5, 9)}},
            lambda: {"$unset": {"v": ""}}, lambda: {"$set": {"d.x": rng.randrange(30)}},
            lambda: {"$push": {"w": rng.randrange(5)}}, lambda: {"$mul": {"c": 2}},
            lambda: {"$min": {"c": rng.randrange(900)}},
            lambda: {"$max": {"c": rng.randrange(900)}},
            lambda: {"$set": {"s": rng.choice(LETTERS), "c": 5}, "$unset": {"t": ""}},
        ])()

    def statement(self, name):
        """One update: by _id and shard key, by _id alone, or of many."""
        rng, document = self.rng, self.document()
        pick = rng.random()
        if pick < 0.35:
            return {"q": self.key_filter(name, document), "u": self.modifier()}
        if pick < 0.5:
            return {"q": {"_id": document["_id"]}, "u": self.modifier()}
        if pick < 0.65:
            where = self.key_filter(name, document)
            kept = {**document, **where}
            return {"q": where, "u": kept, "upsert": rng.random() < 0.5}
        if pick < 0.8:
            return {"q": self.key_filter(name, document), "u": self.modifier(), "upsert": True}
        return {"q": self.filter(), "u": self.modifier(), "multi": True}

    def update(self):
        name = self.any_collection()
        count = self.rng.choice([1, 1, 2, 8])
        updates = [self.statement(name) for _ in range(count)]
        # Unordered statements may run in any order: then no two may touch one document.
        ids = {canonical(u["q"].get("_id", {})) for u in updates}
        alone = count == 1 or (len(ids) == count and not any(u.get("multi") for u in updates))
        ordered = not alone or self.rng.random() < 0.5
        return Operation({"update": name, "updates": updates, "ordered": ordered}, reply="write")

    def delete(self):
        rng, name = self.rng, self.any_collection()
        deletes = []
        for _ in range(rng.choice([1, 1, 4])):
            pick = rng.random()
            if pick < 0.5:
                deletes.append({"q": self.key_filter(name, self.document()), "limit": 1})
            elif pick < 0.7:
                deletes.append({"q": {"_id": self.an_id()}, "limit": 1})
            else:
                low = rng.randrange(1000)
                narrow = {"c": {"$gte": low, "$lt": low + 40}}
                deletes.append({"q": {"$and": [self.filter(), narrow]}, "limit": 0})
        return Operation({"delete": name, "deletes": deletes, "ordered": rng.random() < 0.5},
                         reply="write")

    def find_and_modify(self):
        rng, name = self.rng, self.any_collection()
        document = self.document()
        where = self.key_filter(name, document)
        by_id = {"_id": document["_id"]}
        command = {"findAndModify": name, "query": where if rng.random() < 0.8 else by_id}
        pick = rng.random()
        if pick < 0.25:
            command["remove"] = True
        else:
            replaces = pick > 0.8 and command["query"] is where
            command["update"] = {**document, **where} if replaces else self.modifier()
            command["new"] = rng.random() < 0.5
            command["upsert"] = command["query"] is where and rng.random() < 0.4
        if self.java and rng.random() < 0.3:  # FerretDB has no "fields"
            command["fields"] = {"v": 1, "c": 1}
        if rng.random() < 0.2:
            command["sort"] = {"_id": 1}
        return Operation(command, reply="value")

    # -- catalogue --------------------------------------------------------------------------

    def indexes(self):
        rng, name = self.rng, self.any_collection()
        pick = rng.random()
        index = rng.choice(["v_up", "k_down", "dx", "two"])
        keys = {"v_up": {"v": 1}, "k_down": {"k": -1}, "dx": {"d.x": 1}, "two": {"s": 1, "c": -1}}
        if self.java:
            keys["v_up"] = {"c": 1}
            # It drops the indexes of that name on every collection of the database.
            keys = {f"{key}_{name}": value for key, value in keys.items()}
            index = f"{index}_{name}"
        if pick < 0.5:
            return Operation({"createIndexes": name, "indexes": [
                {"key": keys[index], "name": index}]}, reply="ok")
        if pick < 0.8:
            return Operation({"listIndexes": name, "cursor": {}}, reply="indexes")
        # mongo-java-server would drop the index on _id, too.
        target = index if pick < 0.97 or self.java else "*"
        return Operation({"dropIndexes": name, "index": target}, reply="ok")

    def listing(self):
        return self.rng.choice([
            lambda: Operation({"listCollections": 1, "nameOnly": True, "cursor": {}},
                              reply="collections"),
            lambda: Operation({"listCollections": 1, "cursor": {}}, reply="collections"),
            lambda: Operation({"listCollections": 1, "filter": {"name": self.any_collection()},
                               "cursor": {}}, reply="collections"),
            lambda: Operation({"listDatabases": 1}, reply="databases", database="admin"),
            lambda: Operation({"listDatabases": 1, "nameOnly": True}, reply="databases",
                              database="admin"),
            lambda: Operation({"listIndexes": "absent"}, reply="indexes"),
        ])()

    def ddl(self):
        """On unsharded collections: create, drop, rename; now and then a whole database."""
        rng = self.rng
        return rng.choice([
            lambda: Operation({"create": rng.choice(self.extra)}, reply="ok"),
            lambda: Operation({"create": rng.choice(NORMAL)}, reply="ok"),
            lambda: Operation({"drop": rng.choice(self.extra)}, reply="ok"),
            lambda: Operation({"drop": "absent"}, reply="ok"),
            lambda: Operation({"insert": rng.choice(self.extra), "documents": [self.document()]},
                              reply="write"),
            lambda: Operation({"renameCollection": f"{DATABASE}.u0", "to": f"{DATABASE}.u1"},
                              reply="ok", database="admin"),
            lambda: Operation({"renameCollection": f"{DATABASE}.u1", "to": f"{DATABASE}.u0",
                               "dropTarget": True}, reply="ok", database="admin"),
            lambda: Operation({"insert": "c", "documents": [{"_id": rng.randrange(5)}]},
                              reply="write", database="scratch"),
            lambda: Operation({"dropDatabase": 1}, reply="ok", database="scratch"),
            # mongo-java-server breaks down half-way in dropping a collection that has indexes.
            lambda: Operation({"drop": "u1" if self.java else rng.choice(NORMAL)}, reply="ok"),
        ])()

    def stats(self):
        name = self.any_collection()
        options = [
            Operation({"collStats": name}, reply="collstats"),
            Operation({"dbStats": 1}, reply="ok"),
            Operation({"validate": name}, reply="ok"),
        ]
        if not self.java:
            options.append(Operation({"collMod": name}, reply="ok"))
        return self.rng.choice(options)

    def config_read(self):
        """The routing table, as the shell and Compass read it."""
        name = self.rng.choice(["shards", "databases", "collections", "chunks", "version",
                                "settings", "mongos"])
        return Operation(self.rng.choice([
            {"find": name}, {"aggregate": name, "pipeline": [{"$match": {}}], "cursor": {}}]),
            reply="local", database="config")

    def local(self):
        """Answered by a router itself: it must answer; one server need not know them all."""
        if self.rng.random() < 0.2:
            return self.config_read()
        command = self.rng.choice([
            {"hello": 1}, {"isMaster": 1}, {"ping": 1}, {"buildInfo": 1}, {"hostInfo": 1},
            {"getParameter": "*"}, {"getParameter": 1, "enableTestCommands": 1},
            {"getCmdLineOpts": 1}, {"getLog": "global"}, {"whatsmyuri": 1}, {"connectionStatus": 1},
            {"listCommands": 1}, {"isdbgrid": 1}, {"listShards": 1}, {"connPoolStats": 1},
            {"currentOp": 1}, {"killOp": 1, "op": 123456789}, {"endSessions": []},
            {"refreshSessions": []}, {"killSessions": []}, {"killAllSessions": []},
            {"serverStatus": 1}, {"setParameter": 1, "cursorTimeoutMillis": 600000},
        ])
        return Operation(command, reply="local", database="admin")

    # -- refusals ---------------------------------------------------------------------------

    def wrong(self):
        """What fails: the same code on both sides, or the router's own where only it refuses."""
        rng, name = self.rng, self.any_collection()
        sharded = bool(SHARD_KEYS[name])
        document = self.document()
        same = [
            Operation({"getMore": Int64(4711), "collection": name}, reply="ok"),
            Operation({"find": name, "filter": {"a": {"$noSuch": 1}}}, get_more=2),
            Operation({"noSuchCommand": 1}, reply="ok"),
            Operation({"dropIndexes": name, "index": "absent"}, reply="ok"),
            Operation({"killCursors": name, "cursors": [Int64(4711)]}, reply="unknown_cursors"),
            Operation({"aggregate": name, "pipeline": 5, "cursor": {}}, get_more=2),
            Operation({"aggregate": name, "pipeline": []}, get_more=2),
            Operation({"findAndModify": name, "query": {"_id": 1}}, reply="value"),
            Operation({"validate": "absent"}, reply="ok"),
            Operation({"update": name, "updates": [
                {"q": {"_id": 1}, "u": {"$noSuch": {"c": 1}}}]}, reply="write"),
        ]
        if not self.java:
            same += [
                Operation({"find": name, "filter": {}, "limit": -3}, get_more=2),
                Operation({"find": name, "filter": 5}, get_more=2),
                Operation({"find": name, "filter": {}, "sort": {"a": 2}}, get_more=2),
                Operation({"aggregate": name, "pipeline": [{"$match": 1}], "cursor": {}},
                          get_more=2),
                Operation({"count": name, "query": 5}, reply="n"),
                Operation({"distinct": name}, reply="values"),
                Operation({"distinct": name, "key": 5}, reply="values"),
                Operation({"delete": name, "deletes": [{"q": {}}]}, reply="write"),
                Operation({"createIndexes": name, "indexes": []}, reply="ok"),
                Operation({"createIndexes": name, "indexes": [{"key": {}, "name": "none"}]},
                          reply="ok"),
                Operation({"renameCollection": f"{DATABASE}.absent", "to": f"{DATABASE}.u0"},
                          reply="ok", database="admin"),
                Operation({"getMore": 5, "collection": name}, reply="ok"),
            ]
        # No shard here has transactions: one alone does not know these commands.
        only_router = [Operation({command: 1}, expect=125, reply="ok", database="admin")
                       for command in ("commitTransaction", "abortTransaction")]
        if sharded:
            only_router += [
                # FerretDB's own code for this is 40234.
                Operation({"aggregate": name, "pipeline": [{"$noSuch": {}}], "cursor": {}},
                          expect=40324, get_more=2),
                Operation({"aggregate": name, "pipeline": [{"$lookup": {
                    "from": "plain", "localField": "k", "foreignField": "k", "as": "j"}}],
                    "cursor": {}}, expect=115, get_more=2),
                Operation({"renameCollection": f"{DATABASE}.{name}", "to": f"{DATABASE}.other"},
                          expect=20, reply="ok", database="admin"),
                Operation({"createIndexes": name, "indexes": [
                    {"key": {"s": 1}, "name": "once", "unique": True}]}, expect=67, reply="ok"),
            ]
        if name == "compound":
            only_router += [
                Operation({"insert": name, "documents": [{**document, "r": ["a", "b"]}]},
                          expect=61, reply="write"),
            ]
        return rng.choice(same + only_router)


def strip(document):
    """A command as one line for a report, long payloads cut."""
    text = bson.json_util.dumps(document)
    return text if len(text) < 700 else text[:700] + " ..."
