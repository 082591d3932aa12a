"""Seeded writes into collections of several shard keys: documents with and without the key, and changes of it."""

from dataclasses import dataclass

COLLECTIONS = {"plain": None, "hashed": {"_id": "hashed"}, "hashed_a": {"a": "hashed"}, "ranged": {"a": 1},
               "ranged_as": {"a": 1, "s": 1}, "ranged_d": {"d.x": 1}}
BORDERS = (10, 25)  # of the first field of the ranged keys, of values from 0 to 39
KEYS = 40
IDS = 300
WORDS = ["a", "b", "c", "A", "é", "", "x y"]
STRENGTH_2 = {"locale": "en", "strength": 2}
KINDS = ["insert"] * 2 + ["update"] * 5 + ["delete", "findAndModify", "findAndModify"]


@dataclass
class Write:
    command: dict
    mode: str  # "plain", "retryable", or "transaction"

    @property
    def collection(self):
        return next(iter(self.command.values()))


class WriteGrammar:
    def __init__(self, rng):
        self.rng = rng

    def next(self):
        rng = self.rng
        kind = rng.choice(KINDS)
        made = {kind: rng.choice(list(COLLECTIONS)), **getattr(self, kind)()}
        if kind != "findAndModify" and rng.random() < 0.4:
            made["ordered"] = False
        mode = rng.choice(["plain", "plain", "transaction", "retryable"])
        many = any(each.get("multi") or each.get("limit") == 0 for each in made.get("updates", made.get("deletes", [])))
        return Write(made, "plain" if mode == "retryable" and many else mode)

    def insert(self):
        return {"documents": [self.document() for _ in range(self.rng.choice([1, 1, 3, 20]))]}

    def update(self):
        return {"updates": [self.an_update() for _ in range(self.rng.choice([1, 1, 1, 3, 8]))]}

    def delete(self):
        return {"deletes": [self.options({"q": self.query(), "limit": self.rng.choice([0, 1, 1])})
                            for _ in range(self.rng.choice([1, 1, 3]))]}

    def findAndModify(self):
        rng, made = self.rng, {"query": self.query()}
        if rng.random() < 0.3:
            made["remove"] = True
        else:
            made = self.with_change(made, "update")
            if rng.random() < 0.3:
                made["upsert"] = True
            if rng.random() < 0.5:
                made["new"] = True
        if rng.random() < 0.5:
            made["sort"] = {"n": 1, "_id": 1}
        if rng.random() < 0.3:
            made["fields"] = {"n": 1, "a": 1}
        return self.options(made)

    def an_update(self):
        made = self.with_change({"q": self.query()}, "u")
        for flag, share in (("multi", 0.35), ("upsert", 0.3)):
            if self.rng.random() < share:
                made[flag] = True
        made = self.options(made)
        if self.rng.random() < 0.02:
            made[self.rng.choice(["noSuch", "upsert", "multi"])] = self.rng.choice([1, None, "x", {}])
        return made

    def with_change(self, made, name):
        made[name] = self.change()
        if "$[e]" in str(made[name]):
            made["arrayFilters"] = [{"e": {"$gte": 2}}]
        return made

    def options(self, made):
        if self.rng.random() < 0.08:
            made["collation"] = STRENGTH_2
        return made

    def document(self):
        rng = self.rng
        made = {"_id": rng.randrange(IDS), "a": rng.randrange(KEYS), "s": rng.choice(WORDS), "n": rng.randrange(10),
                "t": [rng.randrange(5) for _ in range(rng.randrange(4))],
                "d": {"x": rng.randrange(KEYS), "y": rng.choice(WORDS)}}
        for name in ("a", "s", "d", "t"):
            if rng.random() < 0.06:
                del made[name]
        for name in ("a", "d"):
            if rng.random() < 0.04:
                made[name] = self.value()
        return made

    def value(self):
        return self.rng.choice([self.rng.randrange(KEYS), None, "s", 2.5, [1, 2], {"x": 1}, True])

    def query(self):
        rng = self.rng
        key, one, word = rng.randrange(KEYS), rng.randrange(IDS), rng.choice(WORDS)
        return rng.choice([
            {}, {"_id": one}, {"_id": {"$in": [1, 2, one]}}, {"a": key}, {"a": key, "s": word}, {"a": key, "_id": one},
            {"a": {"$eq": key}, "n": {"$lt": 5}}, {"a": {"$gt": key}}, {"a": {"$in": [key, rng.randrange(KEYS)]}},
            {"a": None}, {"a": {"$exists": False}}, {"a": self.value()}, {"$and": [{"a": key}, {"d.x": rng.randrange(KEYS)}]},
            {"$or": [{"a": 3}, {"_id": 5}]}, {"$expr": {"$eq": ["$a", key]}}, {"d.x": key}, {"d.x": key, "_id": one},
            {"d": {"x": key, "y": "a"}}, {"n": rng.randrange(10)}, {"t": rng.randrange(5)}])

    def change(self):
        rng = self.rng
        key, word, number = rng.randrange(KEYS), rng.choice(WORDS), rng.randrange(10)
        return rng.choice([
            {"$set": {"n": number}}, {"$inc": {"n": 1}}, {"$push": {"t": number}}, {"$pull": {"t": number}},
            {"$set": {"t.$[e]": 9}}, {"$set": {"t.$": 7}}, {"$rename": {"n": "q"}}, {"$inc": {"s": 1}}, {"$bad": {"a": 1}},
            {"$set": {"a": key}}, {"$inc": {"a": 1}}, {"$unset": {"a": 1}}, {"$set": {"s": word}}, {"$set": {"d.x": key}},
            {"$set": {"d": {"x": key}}}, {"$mul": {"d.x": 2}}, {"$set": {"_id": rng.randrange(IDS)}},
            {"$setOnInsert": {"a": key, "s": word, "d": {"x": 3}}, "$inc": {"n": 1}},
            {}, {"s": "only"}, {"a": key, "s": word, "d": {"x": rng.randrange(KEYS)}, "r": 1},
            [{"$set": {"n": {"$add": ["$n", 1]}}}], [{"$set": {"a": key}}], [{"$unset": "a"}],
            [{"$replaceWith": {"_id": "$_id", "a": "$a", "s": "$s", "d": "$d", "n": 1}}]])
