"""Seeded reads for tests/drivers/run_differential: what to ask a mongos and Spillway, and how to compare the answers.

Documents hold halves and small numbers only: sums are exact, whatever the order of addition.
"""

import copy
import dataclasses
import datetime

from bson import Decimal128, Int64, ObjectId, Regex, Timestamp
from bson.max_key import MaxKey
from bson.min_key import MinKey

DATABASE = "differ"
DOCUMENTS = 180
FAMILIES = ["match", "project", "group", "sort", "unwind", "bucket", "facet", "lookup", "sample", "out", "count",
            "collation", "views", "cursors", "explain", "wrong"]
WORDS = ["a", "A", "b", "B", "é", "e", "E", "ab", "Ab", "c", "d", "x y", "", "$a", "10", "9", "2020-02-03", "k"]
CHUNK_BORDERS = [(8, "b"), (15, ""), (22, "c"), (30, "a"), (35, "x")]
SHARDED = ["hashed", "ranged"]
EVERYWHERE = ["hashed", "ranged", "plain"]


def chunk_borders():
    return [{"a": a, "s": s} for a, s in CHUNK_BORDERS]


@dataclasses.dataclass
class Read:
    """order: "list", "bag", "count" (as many documents), "code" (the error code alone), "explain" (the shape)"""
    command: dict
    order: str = "bag"
    get_more: int = None
    target: str = None   # a collection that is compared instead of the answer
    fold: bool = False   # strings that differ in case or accent are one
    tailed: bool = False  # a cursor that may stay open is ended at its first empty batch


def scalar(rng):
    return rng.choice([
        lambda: rng.randrange(-9, 30), lambda: rng.randrange(-9, 30), lambda: rng.randrange(60) / 2,
        lambda: Int64(rng.randrange(-5, 30)), lambda: Decimal128(f"{rng.randrange(40)}.5"),
        lambda: rng.choice(WORDS), lambda: rng.choice(WORDS), lambda: None, lambda: rng.random() < 0.5,
        lambda: ObjectId(f"{rng.randrange(20):024d}"), lambda: a_date(rng), lambda: rng.randbytes(rng.randrange(3)),
        lambda: Timestamp(rng.randrange(9), 1), lambda: Regex("^a"), lambda: float("nan"), lambda: float("inf"),
        lambda: MinKey(), lambda: MaxKey()])()


def a_date(rng):
    return datetime.datetime(1969 + rng.randrange(60), 1 + rng.randrange(12), 1 + rng.randrange(28),
                             rng.randrange(24), rng.randrange(60), 1, rng.randrange(1000) * 1000)


def mixed(rng):
    """No empty arrays: a $sort that a mongos runs itself takes them for missing values (4.2), others do not."""
    pick = rng.random()
    if pick < 0.6:
        return scalar(rng)
    if pick < 0.8:
        return [scalar(rng) for _ in range(rng.randint(1, 3))]
    if pick < 0.93:
        return {name: scalar(rng) for name in rng.sample("xyz", rng.randrange(3))}
    return [{"x": scalar(rng)}, [rng.randrange(3)]]


def documents(rng):
    made = []
    for number in range(DOCUMENTS):
        each = {"_id": number if number % 4 else f"id{number}", "a": rng.randrange(40), "s": rng.choice(WORDS),
                "b": rng.random() < 0.5, "f": rng.randrange(-40, 80) / 2, "l": Int64(rng.randrange(100)),
                "w": a_date(rng), "d": {"x": rng.randrange(10), "y": rng.choice(WORDS)}}
        if rng.random() < 0.85:
            each["v"] = mixed(rng)
        if rng.random() < 0.8:
            each["t"] = [rng.randrange(8) for _ in range(rng.randint(1, 4))]
        if rng.random() < 0.8:
            each["u"] = [{"p": rng.randrange(6), "q": rng.choice(WORDS)} for _ in range(rng.randrange(4))]
        if rng.random() < 0.5:
            each["m"] = Decimal128(f"{rng.randrange(50)}.5")
        if rng.random() < 0.8:
            each["g"] = {"type": "Point", "coordinates": [rng.randrange(-1700, 1700) / 10, rng.randrange(-800, 800) / 10]}
        made.append(each)
    return made


def small_documents():
    return [{"_id": number, "k": number % 9, "word": WORDS[number % len(WORDS)], "next": (number + 1) % 12,
             "list": [number % 5, number % 7]} for number in range(24)]


PATHS = ["a", "s", "b", "f", "l", "w", "d", "d.x", "d.y", "v", "v.x", "t", "u", "u.p", "u.q", "m", "missing", "_id", "t.0"]
NUMBERS = ["a", "f", "l", "d.x", "m"]


class ReadGrammar:
    def __init__(self, rng):
        self.rng = rng

    def next(self, family):
        read = self.valid(family)
        return self.broken(read) if self.rng.random() < 0.1 and not read.target else read

    def valid(self, family):
        return getattr(self, family)()

    def some(self, options, low=1, high=3):
        return [self.rng.choice(options) for _ in range(self.rng.randint(low, high))]

    # -- filters ----------------------------------------------------------------------------

    def filter(self, depth=0):
        rng = self.rng
        path = rng.choice(PATHS)
        value = scalar(rng)
        if isinstance(value, Regex):
            value = "a"
        options = [
            lambda: {}, lambda: {path: value}, lambda: {path: {rng.choice(["$gt", "$gte", "$lt", "$lte", "$ne", "$eq"]): value}},
            lambda: {path: {rng.choice(["$in", "$nin"]): [scalar(rng) for _ in range(rng.randrange(4))]}},
            lambda: {path: {"$exists": rng.random() < 0.5}},
            lambda: {path: {"$type": rng.choice(["int", "string", "array", "object", "number", 2, ["null", "bool"], "decimal"])}},
            lambda: {"a": rng.randrange(40)}, lambda: {"a": {"$gte": rng.randrange(40), "$lt": rng.randrange(45)}},
            lambda: {"a": rng.randrange(40), "s": rng.choice(WORDS)},
            lambda: {"a": {"$in": [rng.randrange(40) for _ in range(3)]}, "s": {"$gt": rng.choice(WORDS)}},
            lambda: {"_id": rng.randrange(DOCUMENTS)}, lambda: {"_id": {"$in": [rng.randrange(DOCUMENTS) for _ in range(4)]}},
            lambda: {"f": {"$mod": [rng.randrange(1, 5), rng.randrange(3)]}}, lambda: {"t": {"$size": rng.randrange(4)}},
            lambda: {"t": {"$all": [rng.randrange(8), rng.randrange(8)]}}, lambda: {"t": {"$elemMatch": {"$gt": 2, "$lt": 6}}},
            lambda: {"u": {"$elemMatch": {"p": {"$gt": rng.randrange(5)}, "q": rng.choice(WORDS)}}},
            lambda: {"s": {"$regex": rng.choice(["^a", "B", "^[a-c]", "y$", "(?i)E"]), "$options": rng.choice(["", "i"])}},
            lambda: {"a": {"$bitsAllSet": rng.randrange(8)}}, lambda: {"l": {"$bitsAnyClear": [0, 2]}},
            lambda: {"$expr": self.expression()}, lambda: {"$expr": {"$lt": ["$a", "$f"]}},
            # A server of 4.2 ends itself for {$not: {$gt: null}} of a field with an index.
            lambda: {path: {"$not": {"$gt": 3 if value is None or isinstance(value, (MinKey, MaxKey)) else value}}},
            lambda: {"$jsonSchema": {"required": [rng.choice(["v", "t", "m"])], "properties": {
                "v": {"bsonType": rng.choice(["int", "string", "array", "object"])}}}},
            lambda: {"g": {"$geoWithin": {"$centerSphere": [[rng.randrange(-90, 90), rng.randrange(-40, 40)], 0.7]}}},
        ]
        if depth < 2 and rng.random() < 0.25:
            return {rng.choice(["$and", "$or", "$nor"]): [self.filter(depth + 1) for _ in range(rng.randint(1, 3))]}
        return rng.choice(options)()

    # -- expressions ------------------------------------------------------------------------

    def literal(self):
        value = scalar(self.rng)
        return {"$literal": value} if isinstance(value, str) and value.startswith("$") else value

    def number(self, depth):
        rng = self.rng
        if depth <= 0:
            return rng.choice(["$" + rng.choice(NUMBERS), rng.randrange(-5, 20), rng.randrange(20) / 2])
        n = self.number
        return rng.choice([
            lambda: {rng.choice(["$add", "$multiply"]): [n(depth - 1) for _ in range(rng.randrange(4))]},
            lambda: {"$subtract": [n(depth - 1), n(depth - 1)]}, lambda: {"$divide": [n(depth - 1), rng.choice([2, 4, 0.5, "$a"])]},
            lambda: {"$mod": [n(depth - 1), rng.choice([3, 2.5, "$a"])]},
            lambda: {rng.choice(["$abs", "$ceil", "$floor", "$trunc", "$sqrt", "$exp", "$ln", "$log10"]): n(depth - 1)},
            lambda: {rng.choice(["$round", "$trunc"]): [n(depth - 1), rng.randrange(-1, 2)]},
            lambda: {"$pow": [n(depth - 1), 2]}, lambda: {"$log": [n(depth - 1), 2]},
            lambda: {rng.choice(["$sin", "$cos", "$tan", "$atan", "$degreesToRadians", "$sinh"]): n(depth - 1)},
            lambda: {"$size": {"$ifNull": ["$t", []]}}, lambda: {rng.choice(["$sum", "$avg", "$max", "$min", "$stdDevPop"]): "$t"},
            lambda: {rng.choice(["$strLenBytes", "$strLenCP"]): self.text(depth - 1)},
            lambda: {rng.choice(["$indexOfBytes", "$indexOfCP"]): [self.text(depth - 1), rng.choice(WORDS[:10])]},
            lambda: {rng.choice(["$year", "$month", "$dayOfMonth", "$hour", "$minute", "$second", "$millisecond", "$dayOfYear",
                                 "$dayOfWeek", "$week", "$isoWeek", "$isoWeekYear", "$isoDayOfWeek"]): "$w"},
            lambda: {"$cmp": [self.expression(depth - 1), self.expression(depth - 1)]},
            lambda: {"$indexOfArray": ["$t", rng.randrange(8)]}, lambda: {rng.choice(["$toInt", "$toLong", "$toDouble", "$toDecimal"]): n(depth - 1)},
        ])()

    def text(self, depth):
        rng = self.rng
        if depth <= 0:
            return rng.choice(["$s", "$d.y", {"$literal": rng.choice(WORDS)}])
        t = self.text
        return rng.choice([
            lambda: {"$concat": [t(depth - 1) for _ in range(rng.randrange(4))]},
            lambda: {rng.choice(["$toUpper", "$toLower"]): t(depth - 1)},
            lambda: {rng.choice(["$substrBytes", "$substrCP", "$substr"]): [t(depth - 1), rng.randrange(2), rng.randrange(3)]},
            lambda: {rng.choice(["$trim", "$ltrim", "$rtrim"]): {"input": t(depth - 1), "chars": rng.choice(["ab", "x "])}},
            lambda: {"$toString": rng.choice(["$a", "$f", "$l", "$b", "$w", "$m", "$_id"])},
            lambda: {"$dateToString": {"date": "$w", "format": rng.choice(["%Y-%m-%d", "%H:%M:%S.%L", "%G-W%V-%u %j"])}},
            lambda: {"$type": "$" + rng.choice(PATHS[:-1])}, lambda: {"$ifNull": ["$missing", t(depth - 1)]},
        ])()

    def array(self, depth):
        rng = self.rng
        if depth <= 0:
            return rng.choice(["$t", "$u.p", {"$ifNull": ["$t", []]}, [1, "$a", "$s"], "$u"])
        r = self.array
        return rng.choice([
            lambda: {"$slice": [r(depth - 1), rng.randrange(-2, 3)]} , lambda: {"$slice": [r(depth - 1), rng.randrange(-2, 2), 1 + rng.randrange(2)]},
            lambda: {"$reverseArray": r(depth - 1)}, lambda: {"$concatArrays": [r(depth - 1), r(depth - 1)]},
            lambda: {"$filter": {"input": r(depth - 1), "as": "i", "cond": {"$gt": ["$$i", 2]}}},
            lambda: {"$map": {"input": r(depth - 1), "as": "i", "in": rng.choice(["$$i", {"$eq": ["$$i", 3]}, {"k": "$$i", "o": "$a"}])}},
            lambda: {rng.choice(["$setUnion", "$setIntersection"]): [r(depth - 1), r(depth - 1)]},
            lambda: {"$setDifference": [r(depth - 1), r(depth - 1)]}, lambda: {"$range": [0, "$d.x", 1 + rng.randrange(3)]},
            lambda: {"$split": [self.text(depth - 1), rng.choice(["a", " ", "-"])]}, lambda: {"$objectToArray": "$d"},
            lambda: {"$zip": {"inputs": [r(depth - 1), r(depth - 1)], "useLongestLength": rng.random() < 0.5}},
            lambda: {"$regexFindAll": {"input": self.text(depth - 1), "regex": "[ab]"}},
        ])()

    def boolean(self, depth):
        rng, e = self.rng, self.expression
        if depth <= 0:
            return rng.choice(["$b", True, {"$gt": ["$a", 20]}])
        return rng.choice([
            lambda: {rng.choice(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]): [e(depth - 1), e(depth - 1)]},
            lambda: {rng.choice(["$and", "$or"]): [self.boolean(depth - 1) for _ in range(rng.randrange(3))]},
            lambda: {"$not": [e(depth - 1)]}, lambda: {"$in": [e(depth - 1), self.array(depth - 1)]},
            lambda: {"$isArray": [e(depth - 1)]}, lambda: {"$setEquals": [self.array(depth - 1), self.array(depth - 1)]},
            lambda: {"$setIsSubset": [self.array(depth - 1), self.array(depth - 1)]},
            lambda: {rng.choice(["$anyElementTrue", "$allElementsTrue"]): [self.array(depth - 1)]},
            lambda: {"$regexMatch": {"input": self.text(depth - 1), "regex": "^[a-c]", "options": "i"}},
            lambda: {"$toBool": e(depth - 1)}, lambda: {"$eq": [{"$strcasecmp": [self.text(depth - 1), "b"]}, 0]},
        ])()

    def expression(self, depth=None):
        rng = self.rng
        depth = rng.randrange(4) if depth is None else depth
        if depth <= 0:
            return rng.choice(["$" + rng.choice(PATHS[:-1]), "$" + rng.choice(PATHS[:-1]), self.literal(), "$$ROOT.d", "$$CURRENT.a"])
        return rng.choice([
            lambda: self.number(depth), lambda: self.number(depth), lambda: self.text(depth), lambda: self.array(depth),
            lambda: self.boolean(depth), lambda: {"$cond": [self.boolean(depth - 1), self.expression(depth - 1), self.expression(depth - 1)]},
            lambda: {"$cond": {"if": self.boolean(depth - 1), "then": self.expression(depth - 1), "else": self.expression(depth - 1)}},
            lambda: {"$switch": {"branches": [{"case": self.boolean(depth - 1), "then": self.expression(depth - 1)}], "default": self.expression(depth - 1)}},
            lambda: {"$ifNull": [self.expression(depth - 1), self.expression(depth - 1)]},
            lambda: {"$arrayElemAt": [self.array(depth - 1), rng.randrange(-2, 3)]},
            lambda: {"$let": {"vars": {"n": self.expression(depth - 1)}, "in": {"$ifNull": ["$$n", "$a"]}}},
            lambda: {"$reduce": {"input": "$t", "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}},
            lambda: {"$mergeObjects": ["$d", {"z": self.expression(depth - 1)}]},
            lambda: {"o": self.expression(depth - 1), "l": [self.expression(depth - 1)]},
            lambda: {"$convert": {"input": self.expression(depth - 1), "to": rng.choice(["int", "string", "double", "bool", "date", "long", "decimal", "objectId"]),
                                  "onError": "bad", "onNull": None}},
            lambda: {"$arrayToObject": {"$map": {"input": {"$ifNull": ["$u", []]}, "in": {"k": {"$concat": ["k", {"$toString": "$$this.p"}]}, "v": "$$this.q"}}}},
            lambda: {"$regexFind": {"input": self.text(depth - 1), "regex": "([ab])"}},
            lambda: {"$dateToParts": {"date": "$w", "iso8601": rng.random() < 0.5}},
            lambda: {"$dateFromParts": {"year": 2020, "month": "$d.x", "day": "$a"}},
            lambda: {"$dateFromString": {"dateString": self.text(depth - 1), "onError": "no date", "onNull": "null"}},
            lambda: {"$dateToString": {"date": "$w", "timezone": rng.choice(["+03:30", "Europe/Paris"])}},
            lambda: {"$add": ["$w", rng.randrange(100000)]}, lambda: {"$subtract": ["$w", rng.choice(["$w", 1000])]},
        ])()

    # -- stages -----------------------------------------------------------------------------

    def total_sort(self):
        rng = self.rng
        sort = {path: rng.choice([1, -1]) for path in rng.sample([p for p in PATHS if p not in ("_id", "u") and "." not in p] + ["d.x", "d.y"], rng.randrange(3))}
        # Two paths with arrays cannot be sorted by together.
        for path in [p for p in sort if p in ("t", "v")][1:]:
            del sort[path]
        sort["_id"] = rng.choice([1, -1])
        return sort

    def ordered(self):
        """What makes a router run, or have a shard run, what follows."""
        return [{"$sort": self.total_sort()}] + self.rng.choice([[{"$limit": self.rng.choice([5, 40, 100])}], [{"$skip": 3}], []])

    def projection(self):
        rng = self.rng
        fields = {}
        for path in rng.sample(["a", "s", "d.x", "d.y", "u.p", "t", "v", "f"], rng.randint(1, 3)):
            fields[path] = 1 if rng.random() < 0.5 else self.expression()
        if rng.random() < 0.5:
            fields["n"] = self.expression()
        if rng.random() < 0.2:
            fields = {path: 0 for path in rng.sample(["a", "s", "d.x", "u.p", "t", "v"], rng.randint(1, 3))}
        elif rng.random() < 0.2:
            fields["_id"] = 0
        if "d.x" in fields and "d" in fields:
            del fields["d"]
        return fields

    def reshape(self):
        rng = self.rng
        return rng.choice([
            lambda: {"$project": self.projection()}, lambda: {"$project": self.projection()},
            lambda: {rng.choice(["$addFields", "$set"]): {rng.choice(["n", "a", "d.z", "t", "u.r", "v.x"]): self.expression(),
                                                          "n2": self.expression()}},
            lambda: {"$unset": rng.choice(["a", ["s", "d.x"], "u.p", "t"])},
            lambda: {"$replaceRoot": {"newRoot": rng.choice(["$d", {"a": self.expression(), "_id": "$_id"}, {"$mergeObjects": ["$d", {"k": "$_id"}]}])}},
            lambda: {"$replaceWith": {"n": self.expression(), "i": "$_id"}},
            lambda: {"$redact": {"$cond": [self.boolean(1), rng.choice(["$$KEEP", "$$DESCEND"]), "$$PRUNE"]}},
        ])()

    def accumulator(self):
        rng = self.rng
        e = rng.choice(["$" + rng.choice(NUMBERS), "$" + rng.choice(PATHS[:-1]), self.expression(1), 1])
        return rng.choice([
            {"$sum": e}, {"$sum": 1}, {"$avg": rng.choice(["$a", "$f", "$l", "$m", "$v"])}, {"$min": e}, {"$max": e}, {"$first": e},
            {"$last": e}, {"$push": e}, {"$addToSet": e}, {"$mergeObjects": "$d"}, {"$stdDevPop": "$a"}, {"$stdDevSamp": "$f"},
            {"$sum": "$v"}, {"$push": {"a": "$a", "x": "$d.x"}}])

    def group_stage(self):
        rng = self.rng
        key = rng.choice([None, "$a", "$s", "$b", "$d.x", "$d", "$v", {"a": {"$mod": ["$a", 3]}, "s": "$s"}, "$missing", {"$year": "$w"}, "$t", 5,
                          self.expression(1)])
        return {"$group": {"_id": key, **{name: self.accumulator() for name in "pqrs"[:rng.randrange(4)]}}}

    def group_pipeline(self):
        group = self.group_stage()
        text = str(group)
        # These depend on the order, and sums of doubles' squares on the order of addition.
        head = [{"$sort": {"_id": 1}}] if any(n in text for n in ("$first", "$last", "$push", "$mergeObjects", "stdDev")) else []
        if self.rng.random() < 0.3:
            head = [{"$match": self.filter()}, *head]
        return [*head, group]

    def after(self):
        """Behind a $group: p, q, r, s are whatever was accumulated."""
        rng = self.rng
        return rng.choice([
            lambda: [], lambda: [], lambda: [{"$match": {rng.choice("pqrs"): {rng.choice(["$gt", "$lte", "$ne"]): scalar(rng) if rng.random() < 0.5 else 5}}}],
            lambda: [{"$project": {"p": 1, "z": {"$add": [{"$ifNull": ["$a", 1]}, 1]}}}], lambda: [{"$addFields": {"z": rng.choice([
                {"$type": "$p"}, {"$isArray": "$q"}, {"$cmp": ["$p", "$q"]}, "$_id.a", {"$eq": ["$p", "$q"]}, ["$p", "$q"]])}}],
            lambda: [{"$unwind": "$p"}], lambda: [{"$sort": {"_id": rng.choice([1, -1])}}, {"$limit": rng.randint(1, 9)}],
            lambda: [{"$count": "n"}], lambda: [{"$group": {"_id": None, "n": {"$sum": 1}, "low": {"$min": "$p"}, "high": {"$max": "$q"}}}],
            lambda: [{"$sort": {"_id": 1}}, {"$skip": 2}, self.reshape()], lambda: [{"$unset": "q"}],
        ])()

    def command(self, pipeline, name=None, order="bag", **options):
        rng = self.rng
        cursor, more = {}, None
        if rng.random() < 0.3:
            cursor["batchSize"] = rng.choice([0, 1, 5, 50, 101])
            more = rng.choice([3, 20, 101])
        text = str(pipeline)
        if order == "bag" and re_first_order(pipeline):
            order = "list"
        return Read({"aggregate": name or rng.choice(EVERYWHERE), "pipeline": pipeline, "cursor": cursor, **options},
                    order, more if "$unwind" not in text else None)

    # -- families ---------------------------------------------------------------------------

    def find(self, name=None):
        rng = self.rng
        command = {"find": name or rng.choice(EVERYWHERE), "filter": self.filter()}
        order = "bag"
        if rng.random() < 0.6:
            command["sort"], order = self.total_sort(), "list"
        if order == "list" or rng.random() < 0.1:
            if rng.random() < 0.4:
                command["limit"] = rng.choice([1, 3, 20, 500, 0])
            if rng.random() < 0.3:
                command["skip"] = rng.choice([0, 1, 10, 500])
            if order == "bag" and ("limit" in command or "skip" in command):
                order = "count"
        if rng.random() < 0.4:
            mode = rng.choice([0, 1])
            command["projection"] = {path: mode for path in rng.sample(["a", "s", "d.x", "u.p", "v", "t"], rng.randint(1, 3))}
            if mode and rng.random() < 0.3:
                command["projection"]["_id"] = 0
        if rng.random() < 0.1:
            command["projection"] = rng.choice([{"t": {"$slice": rng.choice([1, -2, [1, 2]])}}, {"u": {"$elemMatch": {"p": {"$gt": 2}}}}, {}])
        more = None
        if rng.random() < 0.4:
            command["batchSize"] = rng.choice([0, 1, 2, 7, 50, 101, 1000])
            more = rng.choice([2, 7, 50, 101])
        if rng.random() < 0.05:
            command["singleBatch"] = True
            if order == "bag":
                order = "count"
        for option, value in (("hint", {"_id": 1}), ("comment", "c"), ("maxTimeMS", 60000), ("returnKey", False), ("showRecordId", False),
                              ("allowPartialResults", True), ("noCursorTimeout", True), ("min", {"_id": 5}), ("readConcern", {"level": "majority"})):
            if rng.random() < 0.03:
                command[option] = value
                if option == "min":
                    command["hint"] = {"_id": 1}
        return Read(command, order, more)

    def match(self):
        if self.rng.random() < 0.45:
            return self.find()
        head = self.ordered() if self.rng.random() < 0.5 else []
        return self.command([*head, {"$match": self.filter()}])

    def project(self):
        head = self.ordered() if self.rng.random() < 0.6 else []
        return self.command(head + [self.reshape() for _ in range(self.rng.randint(1, 2))])

    def group(self):
        return self.command(self.group_pipeline() + self.after(), allowDiskUse=self.rng.random() < 0.1)

    def sort(self):
        rng = self.rng
        pipeline = [{"$sort": self.total_sort()}]
        for _ in range(rng.randrange(4)):
            pipeline.append(rng.choice([{"$limit": rng.choice([1, 7, 50, 400])}, {"$skip": rng.choice([0, 2, 30, 400])},
                                        {"$sort": self.total_sort()}, {"$match": self.filter()}, {"$project": {"a": 1, "s": 1, "t": 1, "v": 1}}]))
        if rng.random() < 0.1:
            pipeline = [{rng.choice(["$limit", "$skip"]): rng.choice([3, 50])}, {"$count": "n"}]
        return self.command(pipeline)

    def unwind(self):
        rng = self.rng
        path = rng.choice(["t", "u", "v", "d", "missing", "u.q", "a"])
        unwind = rng.choice(["$" + path, {"path": "$" + path, "includeArrayIndex": rng.choice(["i", "d.i"])},
                             {"path": "$" + path, "preserveNullAndEmptyArrays": rng.random() < 0.7},
                             {"path": "$" + path, "preserveNullAndEmptyArrays": True, "includeArrayIndex": "i"}])
        head = self.ordered() if rng.random() < 0.5 else []
        tail = rng.choice([[], [{"$group": {"_id": "$" + path, "n": {"$sum": 1}, "s": {"$addToSet": "$s"}}}], [{"$count": "n"}],
                           [{"$match": self.filter()}], [{"$sort": {"_id": 1, "i": 1}}] if "i" in str(unwind)[-20:] else [],
                           [{"$project": {path: 1, "a": 1}}]])
        order = "list" if head and (not tail or "$group" not in tail[0]) else "bag"
        if any("$sort" in each for each in tail):
            order = "bag"
        return self.command([*head, {"$unwind": unwind}, *tail], order=order)

    def bucket(self):
        rng = self.rng
        output = {} if rng.random() < 0.4 else {"output": {"n": {"$sum": 1}, "x": rng.choice([{"$max": "$f"}, {"$addToSet": "$s"}, {"$avg": "$l"}])}}
        head = self.ordered() if rng.random() < 0.3 else []
        by = rng.choice(["$a", "$f", "$l", "$d.x", "$s", "$v", "$w", {"$mod": ["$a", 7]}])
        stage = rng.choice([
            lambda: {"$bucket": {"groupBy": by, "boundaries": rng.choice([[0, 10, 20, 50], [-100, 0, 5.5], ["a", "c", "z"], [0, 1], [Int64(0), 7, 100]]),
                                 **({"default": rng.choice(["other", -1000, 1000])} if rng.random() < 0.8 else {}), **output}},
            lambda: {"$bucketAuto": {"groupBy": rng.choice(["$a", "$l", "$_id", "$f", "$s"]), "buckets": rng.randint(1, 9), **output}},
            lambda: {"$bucketAuto": {"groupBy": "$a", "buckets": rng.randint(1, 9), "granularity": rng.choice(["R5", "1-2-5", "POWERSOF2", "E12"]), **output}},
            lambda: {"$sortByCount": rng.choice([by, "$b", {"$toLower": "$s"}])}])()
        tail = rng.choice([[], [{"$match": {"count": {"$gt": 5}}}], [{"$sort": {"_id": 1}}], [{"$project": {"_id": 1, "count": 1}}]])
        return self.command([*head, stage, *tail], order="list" if "$sortByCount" not in stage else "bag")

    def facet(self):
        parts = {}
        for name in ("one", "two", "three")[:self.rng.randint(1, 3)]:
            kind = self.rng.choice(["sort", "group", "bucket", "count"])
            if kind == "sort":
                parts[name] = [{"$sort": self.total_sort()}, {"$limit": 5}, {"$project": {"a": 1}}]
            elif kind == "group":
                parts[name] = [*self.group_pipeline(), {"$sort": {"_id": 1}}]
            elif kind == "bucket":
                parts[name] = [{"$bucketAuto": {"groupBy": "$a", "buckets": 3}}]
            else:
                parts[name] = [{"$match": self.filter()}, {"$count": "n"}]
        head = self.ordered() if self.rng.random() < 0.3 else [{"$match": self.filter()}] if self.rng.random() < 0.4 else []
        tail = self.rng.choice([[], [{"$project": {"one": {"$size": "$one"}}}], [{"$unwind": "$one"}, {"$replaceRoot": {"newRoot": "$one"}}], [{"$addFields": {"n": 1}}]])
        return self.command([*head, {"$facet": parts}, *tail], order="list")

    def lookup(self):
        rng = self.rng
        head = self.ordered() if rng.random() < 0.5 else [{"$match": self.filter()}] if rng.random() < 0.5 else []
        source = rng.choice(["few"] * 7 + ["plain", "view_plain", "absent", "hashed", "view_ranged"])
        stage = rng.choice([
            lambda: {"$lookup": {"from": source, "localField": rng.choice(["a", "t", "d.x", "s", "missing", "u.p"]), "foreignField": rng.choice(["k", "word", "_id", "list"]), "as": rng.choice(["j", "d.j"])}},
            lambda: {"$lookup": {"from": source, "let": {"x": rng.choice(["$a", "$d.x"])}, "pipeline": [
                {"$match": {"$expr": {"$eq": ["$k", "$$x"]}}}, rng.choice([{"$project": {"word": 1}}, {"$sort": {"_id": -1}}, {"$limit": 1}])], "as": "j"}},
            lambda: {"$graphLookup": {"from": source, "startWith": rng.choice(["$a", "$d.x", "$t"]), "connectFromField": "next", "connectToField": rng.choice(["_id", "k"]), "as": "j",
                                      "maxDepth": rng.randrange(3), **({"depthField": "depth"} if rng.random() < 0.3 else {})}},
        ])()
        tail = rng.choice([[], [{"$unwind": "$j"}], [{"$addFields": {"n": {"$size": "$j"}}}, {"$unset": "j"}], [{"$match": {"j.k": {"$gt": 3}}}],
                           [{"$unwind": "$j"}, {"$group": {"_id": "$j.k", "n": {"$sum": 1}}}], [{"$project": {"a": 1, "k": {"$size": {"$ifNull": ["$j", []]}}}}]])
        if "$graphLookup" in stage or source != "few":
            tail = [{"$addFields": {"n": {"$size": {"$ifNull": ["$j", []]}}}}, {"$unset": "j"}]
        return self.command([*head, stage, *tail], order="bag")

    def sample(self):
        rng = self.rng
        near = {"near": {"type": "Point", "coordinates": [rng.randrange(-170, 170), rng.randrange(-80, 80)]}, "distanceField": rng.choice(["dist", "d.dist"]), "spherical": True}
        if rng.random() < 0.4:
            near["maxDistance"] = rng.choice([1e6, 5e6])
        if rng.random() < 0.3:
            near["query"] = {"a": {"$lt": 25}}
        if rng.random() < 0.2:
            near["includeLocs"] = "loc"
        if rng.random() < 0.2:
            near["distanceMultiplier"] = 0.5
        return rng.choice([
            lambda: self.command([{"$sample": {"size": rng.choice([1, 5, 100, 1000])}}, *rng.choice([[], [{"$project": {"a": 1}}], [{"$count": "n"}], [{"$limit": 4}]])], order="count"),
            lambda: self.command([{"$match": {"a": {"$lt": 30}}}, {"$sample": {"size": 500}}]),
            lambda: self.command([{"$geoNear": near}, *rng.choice([[], [{"$limit": 7}], [{"$project": {"dist": 1, "a": 1}}], [{"$group": {"_id": "$b", "n": {"$sum": 1}}}], [{"$match": {"a": 3}}]])],
                                 order="bag"),
            lambda: Read({"find": rng.choice(EVERYWHERE), "filter": {"g": {rng.choice(["$near", "$nearSphere"]): {"$geometry": near["near"], "$maxDistance": 4e6}}},
                          **rng.choice([{}, {"limit": 5}, {"skip": 2}, {"batchSize": 3}, {"projection": {"a": 1}}, {"sort": {"_id": 1}}])}, "list"),
            lambda: Read({"count": rng.choice(EVERYWHERE), "query": {"g": {"$near": {"$geometry": near["near"]}}}}),
        ])()

    def out(self):
        rng = self.rng
        head = rng.choice([[{"$match": self.filter()}], self.ordered(), [{"$group": {"_id": "$" + rng.choice(["a", "s", "d.x"]), "n": {"$sum": 1}}}],
                           [{"$project": {"a": 1, "s": 1}}], [*self.ordered(), {"$addFields": {"n": self.expression(1)}}], [{"$limit": 0 + 200}]])
        kind = rng.choice(["$out", "merge", "merge", "merge_sharded", "merge_sharded"])
        target = "TARGETsharded" if kind == "merge_sharded" else "TARGETplain"
        if kind == "$out":
            stage = {"$out": rng.choice([target, target, {"db": DATABASE, "coll": target}]) if rng.random() < 0.9 else "TARGETsharded"}
        else:
            merge = {"into": rng.choice([target, {"db": DATABASE, "coll": target}])}
            if rng.random() < 0.7:
                merge["whenMatched"] = rng.choice(["replace", "merge", "keepExisting", [{"$set": {"twice": {"$add": [{"$ifNull": ["$twice", 0]}, 1]}}}]])
            if rng.random() < 0.5:
                merge["whenNotMatched"] = rng.choice(["insert", "discard", "insert"])
            if rng.random() < 0.2:
                merge["on"] = rng.choice(["_id", ["_id"], "a"])
            stage = {"$merge": merge if rng.random() < 0.9 else target}
        return Read({"aggregate": rng.choice(EVERYWHERE), "pipeline": [*head, stage], "cursor": {}}, "list", None, target)

    def count(self):
        rng = self.rng
        name = rng.choice([*EVERYWHERE, *EVERYWHERE, "folded", "absent", "view_ranged"])
        if rng.random() < 0.5:
            command = {"count": name, "query": self.filter()}
            for option, values in (("limit", [0, 1, 20, -5]), ("skip", [0, 3, 500]), ("hint", [{"_id": 1}]), ("fields", [{}])):
                if rng.random() < 0.2:
                    command[option] = rng.choice(values)
            return Read(command)
        command = {"distinct": name, "key": rng.choice(PATHS), "query": self.filter()}
        if rng.random() < 0.3:
            command["collation"] = self.collation_of()
        return Read(command, fold="collation" in command or name == "folded")

    def collation_of(self):
        return self.rng.choice([{"locale": "en", "strength": 2}, {"locale": "en", "strength": 1}, {"locale": "fr"}, {"locale": "simple"},
                                {"locale": "en", "numericOrdering": True}, {"locale": "de", "caseFirst": "upper"}])

    def collation(self):
        rng = self.rng
        if rng.random() < 0.15:
            read = self.count()
            read.command["collation"] = self.collation_of()
            read.fold = True
            return read
        read = rng.choice([self.find, self.match, self.sort, self.group, self.bucket, self.unwind])()
        if rng.random() < 0.8:
            read.command["collation"] = self.collation_of()
        if rng.random() < 0.4:
            read.command[next(iter(read.command))] = "folded"
        read.fold = True
        text = str(read.command)
        if any(each in text for each in ("$group", "$bucket", "$sortBy", "$addToSet")):
            read.order = "bag" if not any(each in text for each in ("$limit", "$skip", "$first", "$last", "$push", "$min", "$max")) else "count"
        return read

    def views(self):
        name = self.rng.choice(["view_ranged", "view_hashed", "view_plain", "view_view"])
        read = self.rng.choice([self.find, self.sort, self.group, self.count, self.project, self.unwind, self.facet])()
        read.command[next(iter(read.command))] = name
        read.command.pop("hint", None)
        read.command.pop("min", None)
        return read

    def cursors(self):
        rng = self.rng
        if rng.random() < 0.5:
            read = self.find()
            read.command["batchSize"] = rng.choice([0, 1, 2, 5, 17, 60, 101])
        else:
            head = rng.choice([[], self.ordered(), [{"$match": {"a": {"$gte": rng.randrange(30)}}}], [{"$group": {"_id": "$_id", "n": {"$sum": 1}}}],
                               [{"$match": {}}, {"$project": {"a": 1}}]])
            read = self.command(head, name=rng.choice([*EVERYWHERE, "view_ranged", "absent", "folded"]))
            read.command["cursor"] = {"batchSize": rng.choice([0, 1, 2, 5, 17, 60, 101])}
        read.get_more = rng.choice([1, 2, 9, 33, 101]) if read.command.get("batchSize") != 1 else 40
        return read

    def explain(self):
        rng = self.rng
        read = rng.choice([self.find, self.count, self.sort, self.group, self.project, self.lookup])()
        read.command.pop("batchSize", None)
        if "aggregate" in read.command:
            read.command.pop("cursor")
            read.command["explain"] = True
            return Read(read.command, "explain")
        return Read({"explain": read.command, "verbosity": rng.choice(["queryPlanner", "executionStats", "allPlansExecution"])}, "explain")

    # -- wrong arguments --------------------------------------------------------------------

    def broken(self, read):
        """One value of the command becomes another one, or one field gets another name."""
        rng = self.rng
        command = copy.deepcopy(read.command)
        places = []

        def walk(value):
            if isinstance(value, dict):
                places.extend((value, key) for key in value)
                for each in value.values():
                    walk(each)
            elif isinstance(value, list):
                places.extend((value, key) for key in range(len(value)))
                for each in value:
                    walk(each)

        walk(command)
        first = next(iter(command))
        places = [place for place in places if place[0] is not command or place[1] != first or rng.random() < 0.2]
        if not places:
            return read
        holder, key = rng.choice(places)
        if isinstance(holder, dict) and rng.random() < 0.3 and not (holder is command and key == first):
            renamed = rng.choice(["$noSuch", "noSuch", "$" + str(key).lstrip("$"), "$sum", "", "a.b", "$cond", "$match", "a."])
            changed = {renamed if k == key else k: v for k, v in holder.items()}
            holder.clear()
            holder.update(changed)
        else:
            holder[key] = rng.choice([None, 0, -1, 1.5, 3, Int64(2**40), "", "$", "$a", "$$bad", "x", "$a.", "a.b", [], {}, [1], {"$noSuch": 1}, {"a": 1},
                                      {"$a": 1}, True, float("nan"), 2**31, [{}], {"$sum": "$a"}, "$a..b", Regex("("), MinKey(), Decimal128("1.5")])
        return Read(command, "code", 101)


def re_first_order(pipeline):
    """Does a total order reach the end?"""
    ordered = False
    for stage in pipeline:
        if not isinstance(stage, dict):
            return False
        name = next(iter(stage))
        if name == "$sort":
            ordered = "_id" in stage[name]
        elif name in ("$group", "$sortByCount", "$bucket", "$bucketAuto", "$sample"):
            ordered = False
    return ordered
