"""More seeded reads for tests/drivers/run_differential: forms that users send, beside the stages of read_grammar.py."""

from read_grammar import (DATABASE, DOCUMENTS, EVERYWHERE, FAMILIES, WORDS, Read, ReadGrammar, a_date, re_first_order,
                          scalar)

FORM_FAMILIES = ["merges", "options", "arrays", "searches", "nested", "computed", "accumulated", "overviews", "joins", "stored",
                 "tailed"]
ALL_FAMILIES = FAMILIES + FORM_FAMILIES
KEYED = [*EVERYWHERE, "hashed_a", "ranged_d", "one_chunk"]
VIEWS = {
    "view_sorted": ("ranged", [{"$sort": {"f": -1, "_id": 1}}, {"$project": {"w": 0}}]),
    "view_top": ("hashed", [{"$sort": {"a": 1, "_id": 1}}, {"$limit": 50}]),
    "view_group": ("ranged", [{"$group": {"_id": "$a", "n": {"$sum": 1}, "low": {"$min": "$f"}}}]),
    "view_unwind": ("hashed", [{"$unwind": "$t"}, {"$project": {"a": 1, "t": 1, "d": 1, "s": 1}}]),
    "view_joined": ("hashed_a", [{"$lookup": {"from": "few", "localField": "a", "foreignField": "k", "as": "j"}},
                                 {"$project": {"a": 1, "s": 1, "n": {"$size": "$j"}}}]),
    "view_over": ("view_sorted", [{"$match": {"a": {"$gt": 3}}}, {"$addFields": {"z": {"$multiply": ["$a", 2]}}}]),
    "view_third": ("view_over", [{"$match": {"z": {"$lt": 70}}}]),
    "view_count": ("view_unwind", [{"$group": {"_id": "$t", "n": {"$sum": 1}}}]),
    "view_absent": ("absent", [{"$match": {"a": 1}}]),
    "view_few": ("few", [{"$match": {"k": {"$lt": 6}}}]),
}
COLLATED_VIEWS = {
    "view_folded": ("folded", [{"$match": {"a": {"$gt": 2}}}]),
    "view_strong": ("ranged", [{"$match": {"s": {"$gte": "a"}}}]),
    "view_strong_view": ("view_strong", [{"$match": {"a": {"$lt": 35}}}]),
}
VIEW_COLLATION = {"locale": "en", "strength": 2}
FRUIT = ["apple", "pear", "plum", "fig", "apples", "date"]


def more_fields(rng, document):
    """Adds what the forms read: text, an array that may be empty, arrays in arrays, a null."""
    if rng.random() < 0.8:
        document["x"] = " ".join(rng.choice(FRUIT) for _ in range(rng.randint(1, 4)))
    if rng.random() < 0.8:
        document["e"] = [rng.randrange(5) for _ in range(rng.randrange(3))]
    if rng.random() < 0.4:
        document["h"] = [[rng.randrange(3), {"p": rng.randrange(3)}], {"p": [rng.randrange(3)]}]
    if rng.random() < 0.5:
        document["o"] = rng.choice([None, 0, 1, {"p": None}, {"p": 1}, [], [None]])
    return document


class FormGrammar(ReadGrammar):
    def next(self, family):
        if family == "wrong":
            return self.broken(self.valid(self.rng.choice([f for f in ALL_FAMILIES if f not in ("wrong", "out", "stored", "tailed")])))
        return super().next(family)

    # -- finds ------------------------------------------------------------------------------

    def any_sort(self):
        """Paths into arrays, of which one at most may be an array; then _id."""
        rng = self.rng
        arrays, others = ["u.p", "t", "v", "v.x", "t.0", "e", "h.p", "o", "o.p", "u.q"], ["a", "s", "b", "f", "l", "w", "m", "missing", "d.x", "d"]
        sort = {path: rng.choice([1, -1]) for path in rng.sample(others, rng.randrange(3))}
        if rng.random() < 0.7:
            sort[rng.choice(arrays)] = rng.choice([1, -1])
        items = list(sort.items())
        rng.shuffle(items)
        return {**dict(items), "_id": rng.choice([1, -1])}

    def window(self, command):
        rng = self.rng
        if rng.random() < 0.5:
            command["limit"] = rng.choice([1, 2, 7, 40, 179, 180, 181, 1000, 2**31])
        if rng.random() < 0.4:
            command["skip"] = rng.choice([0, 1, 3, 90, 179, 180, 500])
        if rng.random() < 0.6:
            command["batchSize"] = rng.choice([0, 1, 2, 3, 10, 45, 101])
        if rng.random() < 0.1:
            command["singleBatch"] = True

    def merges(self):
        rng = self.rng
        if rng.random() < 0.7:
            command = {"find": rng.choice([*KEYED, "folded"]), "filter": self.filter() if rng.random() < 0.4 else {}, "sort": self.any_sort()}
            self.window(command)
            if rng.random() < 0.3:
                command["collation"] = self.collation_of()
            if rng.random() < 0.4:
                command["projection"] = rng.choice([{"a": 1}, {"_id": 1}, {"s": 1, "_id": 0}, {"t": 0, "v": 0}, {"u.p": 1}, {"d.x": 1, "t": {"$slice": 1}}, {"h.p": 1}, {"_id": 0}])
            return Read(command, "list", rng.choice([1, 2, 3, 8, 31]))
        pipeline = [{"$match": self.filter()}] if rng.random() < 0.3 else []
        pipeline.append({"$sort": self.any_sort()})
        for _ in range(rng.randrange(3)):
            pipeline.append(rng.choice([{"$limit": rng.choice([1, 10, 100, 300])}, {"$skip": rng.choice([1, 10, 200])}, {"$project": {"a": 1, "e": 1, "u.p": 1}},
                                        {"$addFields": {"k": "$d.x"}}, {"$match": {"a": {"$gt": 5}}}]))
        command = {"aggregate": rng.choice([*KEYED, "folded"]), "pipeline": pipeline, "cursor": {"batchSize": rng.choice([0, 1, 3, 20, 101])}}
        if rng.random() < 0.3:
            command["collation"] = self.collation_of()
        return Read(command, "list", rng.choice([1, 2, 7, 40]))

    def options(self):
        rng = self.rng
        name = rng.choice(KEYED)
        command = {"find": name, "filter": rng.choice([{}, self.filter(), {"t": {"$gt": 3}}, {"u.p": 2}, {"u": {"$elemMatch": {"p": {"$gt": 1}}}}])}
        order = "bag"
        if rng.random() < 0.5:
            command["sort"], order = self.total_sort(), "list"
        projections = [{"t.$": 1}, {"u.$": 1}, {"u.$": 1, "a": 1}, {"u": {"$elemMatch": {"p": 1}}}, {"t": {"$elemMatch": {"$gt": 3}}}, {"t": {"$slice": [1, 2]}},
                       {"u": {"$slice": -1}, "a": 1}, {"u": {"$slice": 1}, "_id": 0}, {"a": 1, "b": True, "s": 1.0}, {"d": {"x": 1}}, {"u.q": 0, "d.y": 0}, {"h": 1},
                       {"d.x": 1, "d.y": 1}, {"$a": 1}, {"": 1}, {"a": "$s"}, {"a": {"$add": [1, 2]}}, {"a": 1, "s": 0}, {"t.0": 1}, {"d": 1, "d.x": 1}]
        if rng.random() < 0.5:
            command["projection"] = rng.choice(projections)
        if rng.random() < 0.25:
            command["hint"] = rng.choice([{"$natural": 1}, {"$natural": -1}, "_id_", {"_id": 1}, "no_such", {"a": 1, "s": 1}, {"f": 1}, "f_1", {"_id": "hashed"}])
        if rng.random() < 0.1:
            command["sort"], order = {"$natural": rng.choice([1, -1])}, "list" if name in ("plain", "one_chunk") else "bag"
        if rng.random() < 0.15:
            low, high = sorted([rng.randrange(-20, 40), rng.randrange(-20, 40)])
            command.update(rng.choice([{"min": {"f": low}, "hint": {"f": 1}}, {"max": {"f": high}, "hint": {"f": 1}}, {"min": {"f": low}, "max": {"f": high}, "hint": {"f": 1}},
                                       {"min": {"f": low}}, {"min": {"_id": 5}, "max": {"_id": 90}, "hint": "_id_"}, {"min": {"f": 3}, "hint": {"_id": 1}}]))
        if rng.random() < 0.15:
            command["returnKey"] = True
        if rng.random() < 0.1:
            command["showRecordId"] = True
        if rng.random() < 0.1:
            command["readConcern"] = {"level": rng.choice(["local", "available", "majority", "linearizable", "snapshot", "none"])}
        if rng.random() < 0.1:
            command["$readPreference"] = {"mode": rng.choice(["primary", "nearest", "secondaryPreferred", "primaryPreferred", "none"])}
        if rng.random() < 0.1:
            command.update(rng.choice([{"tailable": True}, {"awaitData": True}, {"tailable": True, "awaitData": True}, {"oplogReplay": True}, {"limit": -3}, {"batchSize": -1}, {"skip": -1},
                                       {"ntoreturn": 3}, {"ntoreturn": 3, "limit": 2}, {"maxTimeMS": 0}, {"maxTimeMS": -1}, {"let": {"q": 1}}, {"term": 1}, {"partial": True}]))
        else:
            self.window(command)
            if order == "bag" and ("limit" in command or "skip" in command or "singleBatch" in command):
                order = "count"
        return Read(command, order, rng.choice([2, 9, 50]) if "batchSize" in command else None)

    def searches(self):
        rng = self.rng
        search = {"$text": {"$search": rng.choice(["apple", "pear plum", "apple -plum", "\"fig\"", "nothing", "date fig apple"])}}
        filter = {**search, "a": {"$lt": rng.randrange(50)}} if rng.random() < 0.3 else search
        score = {"$meta": "textScore"}
        name = rng.choice(["hashed", "ranged", "plain"])
        if rng.random() < 0.5:
            command = {"find": name, "filter": filter}
            order = "bag"
            if rng.random() < 0.7:
                command["projection"] = rng.choice([{"score": score}, {"x": 1, "score": score}, {"a": 1}, {"score": score, "_id": 0, "x": 1}])
                if "score" in command["projection"] and rng.random() < 0.7:
                    command["sort"], order = rng.choice([{"score": score, "_id": 1}, {"a": 1, "score": score, "_id": -1}]), "list"
            self.window(command)
            if order == "bag" and ("limit" in command or "skip" in command or "singleBatch" in command):
                order = "count"
            return Read(command, order, rng.choice([2, 9, 50]))
        pipeline = [{"$match": filter}]
        order = "bag"
        if rng.random() < 0.6:
            pipeline.append({"$sort": {"score": score, "_id": 1}})
            order = "list"
        pipeline += rng.choice([[], [{"$project": {"x": 1, "score": score}}], [{"$addFields": {"score": score}}], [{"$limit": 5}], [{"$limit": 8}, {"$project": {"score": score}}],
                                [{"$group": {"_id": score, "n": {"$sum": 1}}}], [{"$project": {"a": 1}}], [{"$match": {"a": {"$gt": 3}}}]])
        if "$group" in pipeline[-1]:
            order = "bag"
        elif "$limit" in str(pipeline) and order == "bag":
            order = "count"
        return Read({"aggregate": name, "pipeline": pipeline, "cursor": {}}, order)

    # -- distinct and count -----------------------------------------------------------------

    def arrays(self):
        rng = self.rng
        name = rng.choice([*KEYED, "view_sorted", "view_over", "view_third", "view_unwind", "view_group", "few", "absent"])
        if rng.random() < 0.6:
            key = rng.choice(["t", "e", "u", "u.p", "u.q", "u.0.p", "u.1", "t.0", "h", "h.p", "h.0", "h.1.p", "h.0.1.p", "o", "o.p", "v", "v.x", "d", "d.x", "", "a.", ".a", "$a", "_id", "n", "x"])
            command = {"distinct": name, "key": key}
            if rng.random() < 0.7:
                command["query"] = self.filter()
        else:
            command = {"count": name}
            if rng.random() < 0.8:
                command["query"] = self.filter()
            for option, values in (("limit", [0, 1, 20, -5, -1, 1.5, 2**40]), ("skip", [0, 3, 500, 2**40, -1]), ("hint", [{"_id": 1}, "_id_", {"f": 1}, {"$natural": 1}, "no_such", {"no": 1}]),
                                   ("maxTimeMS", [5000])):
                if rng.random() < 0.3:
                    command[option] = rng.choice(values)
        if rng.random() < 0.15:
            command["readConcern"] = {"level": rng.choice(["local", "available", "majority", "linearizable"])}
        if rng.random() < 0.15:
            command["collation"] = self.collation_of()
        return Read(command, fold="collation" in command)

    # -- aggregations -----------------------------------------------------------------------

    def nested(self):
        """Projections and additions below paths, and of arrays."""
        rng = self.rng
        e = self.expression
        stages = [
            lambda: {"$project": {"d": {"x": 1, "z": e(1)}}}, lambda: {"$project": {"d": {"x": 0}}}, lambda: {"$project": {"u.p": 1, "u.r": e(1)}},
            lambda: {"$project": {"u": {"p": e(1)}, "a": 1}}, lambda: {"$project": {"h.p": 1}}, lambda: {"$project": {"h": {"p": 0}, "_id": 0}},
            lambda: {"$project": {"_id": {"k": "$_id", "a": e(0)}}}, lambda: {"$project": {"n": ["$a", {"k": e(0)}, [e(0)]], "_id": 0}},
            lambda: {"$project": {"a": rng.choice([True, 1.0, 5, "$$REMOVE", "$$ROOT.a"]), "s": 1}}, lambda: {"$project": {"n": {"$literal": {"$a": 1}}}},
            lambda: {"$addFields": {"u.r": e(1)}}, lambda: {"$addFields": {"h.q": 1}}, lambda: {"$addFields": {"o.p": e(1), "o.q": 2}},
            lambda: {"$addFields": {"t": {"r": e(1)}}}, lambda: {"$addFields": {"a": "$$REMOVE", "_id": e(0)}}, lambda: {"$set": {"d": {"y": "$$REMOVE", "w": "$d.x"}}},
            lambda: {"$unset": ["u.q", "d.y"]}, lambda: {"$unset": "h.p"}, lambda: {"$replaceRoot": {"newRoot": {"$mergeObjects": [{"dflt": 1}, "$d", {"i": "$_id"}]}}},
            lambda: {"$replaceRoot": {"newRoot": {"$ifNull": ["$o", {"none": "$_id"}]}}}, lambda: {"$replaceWith": {"$arrayElemAt": ["$u", 0]}},
            lambda: {"$unwind": "$u"}, lambda: {"$unwind": {"path": "$h", "includeArrayIndex": "i"}}, lambda: {"$unwind": {"path": "$e", "preserveNullAndEmptyArrays": True}},
            lambda: {"$match": {"$expr": {rng.choice(["$eq", "$gt", "$lte"]): [e(1), e(1)]}}}, lambda: {"$match": {"h.p": rng.randrange(3)}}, lambda: {"$match": {"e": []}},
            lambda: {"$match": {"o": None}}, lambda: {"$match": {"o.p": None}}, lambda: {"$match": {"h.0.1.p": {"$gte": 1}}}, lambda: {"$match": {"e": {"$in": [[], 3, None]}}},
            lambda: {"$match": {"e": {"$ne": 3}, "o": {"$nin": [None, 1]}}}, lambda: {"$match": {"u.0": {"$exists": True}, "t": {"$not": {"$elemMatch": {"$lt": 2}}}}},
            lambda: {"$redact": {"$cond": [{"$gt": [{"$ifNull": ["$p", 5]}, 1]}, "$$DESCEND", "$$PRUNE"]}},
        ]
        head = self.ordered() if rng.random() < 0.75 else []
        return self.command(head + [rng.choice(stages)() for _ in range(rng.randint(1, 3))], name=rng.choice(KEYED))

    def computed(self):
        """Expressions, behind a limit for a router to evaluate them."""
        rng = self.rng
        e = self.expression
        zone = rng.choice(["UTC", "+02", "-0530", "America/New_York", "Asia/Kolkata", "Europe/London", "nowhere"])
        more = [
            lambda: {rng.choice(["$sum", "$avg", "$min", "$max", "$stdDevPop", "$stdDevSamp"]): ["$a", "$f", e(0)]}, lambda: {rng.choice(["$sum", "$max", "$min"]): rng.choice(["$u.p", "$t", "$v", "$missing"])},
            lambda: {"$switch": {"branches": [{"case": {"$gt": ["$a", 20]}, "then": e(1)}, {"case": "$b", "then": "b"}], "default": "none"}},
            lambda: {rng.choice(["$year", "$hour", "$week", "$isoWeek", "$dayOfYear"]): {"date": "$w", "timezone": zone}},
            lambda: {"$dateToParts": {"date": "$w", "timezone": zone}}, lambda: {"$dateToString": {"date": "$w", "format": "%d/%m/%Y %H:%M %z %Z %% %U", "timezone": zone}},
            lambda: {"$dateToString": {"date": rng.choice(["$w", "$v", "$missing"]), "onNull": "none"}},
            lambda: {"$dateFromString": {"dateString": rng.choice(["2020-02-03", "2019-12-31T23:59:59.999Z", "12/31/2018", "2018-W10", {"$concat": ["20", {"$toString": "$d.x"}, "1-01-02"]}]),
                                         **rng.choice([{}, {"format": "%Y-%m-%d"}, {"timezone": "Europe/Paris"}]), "onError": "bad"}},
            lambda: {"$dateFromParts": {"year": 2000, "month": "$a", "day": "$a", "hour": "$d.x", "timezone": rng.choice(["UTC", "+01"])}},
            lambda: {"$dateFromParts": {"isoWeekYear": 2017, "isoWeek": "$a", "isoDayOfWeek": 3}},
            lambda: {rng.choice(["$toDate", "$toObjectId", "$toDecimal", "$toBool", "$toString", "$toInt"]): rng.choice(["$l", "$w", "$_id", "$a", "$missing", {"$literal": "5"}, {"$literal": "000000000000000000000012"}])},
            lambda: {"$convert": {"input": rng.choice(["$v", "$m", "$f", "$s", "$w", "$l"]), "to": rng.choice(["int", "long", "double", "decimal", "string", "bool", "date", "objectId", 16, 1, 18]), "onError": "bad", "onNull": "null"}},
            lambda: {"$zip": {"inputs": ["$t", "$e", "$u.p"], "useLongestLength": True, "defaults": [0, "e", None]}}, lambda: {"$indexOfArray": ["$t", "$d.x", rng.randrange(3), rng.randrange(1, 5)]},
            lambda: {"$indexOfCP": [rng.choice(["$s", "é e"]), rng.choice(["a", "é", ""]), rng.randrange(2), 3]}, lambda: {"$substrCP": ["$x", rng.randrange(3), rng.choice([0, 3, -1, 50])]},
            lambda: {"$split": ["$x", rng.choice([" ", "p", "apple"])]}, lambda: {"$trim": {"input": rng.choice(["$x", " a\t"])}}, lambda: {rng.choice(["$regexFind", "$regexFindAll", "$regexMatch"]): {
                "input": "$x", "regex": rng.choice(["p+", "(a)(p)?", "^(?<one>f)", "P", "[", "e\\b"]), "options": rng.choice(["", "i", "x"])}},
            lambda: {"$slice": ["$t", rng.choice([0, 1, -9, 9])]}, lambda: {"$slice": ["$t", rng.choice([-9, -1, 0, 2, 9]), 2]}, lambda: {"$arrayElemAt": [rng.choice(["$t", "$e", "$u", "$missing"]), rng.choice([0, -1, 7, -7, 0.0])]},
            lambda: {"$range": ["$d.x", rng.choice([0, 10, -3]), rng.choice([1, -1, 2])]}, lambda: {"$reduce": {"input": "$u", "initialValue": "", "in": {"$concat": ["$$value", "$$this.q"]}}},
            lambda: {"$map": {"input": "$u", "in": {"$mergeObjects": ["$$this", {"a": "$a"}]}}}, lambda: {"$filter": {"input": "$u", "cond": {"$eq": ["$$this.q", "$s"]}}},
            lambda: {"$let": {"vars": {"p": "$d.x", "q": {"$add": ["$a", 1]}}, "in": {"$let": {"vars": {"p": "$$q"}, "in": ["$$p", "$$q", "$$ROOT.b"]}}}},
            lambda: {"$arrayToObject": rng.choice([[[["k", "$a"]]], {"$literal": [["a", 1], ["b", 2]]}, {"$objectToArray": "$d"}])}, lambda: {"$objectToArray": rng.choice(["$d", "$o", "$$ROOT.d", "$missing"])},
            lambda: {"$mergeObjects": rng.choice([["$d", "$o"], "$d", ["$missing", None], []])}, lambda: {"$in": ["$d.x", rng.choice(["$t", "$u.p", [1, 2, "$a"]])]},
            lambda: {rng.choice(["$setIsSubset", "$setEquals"]): [rng.choice(["$t", "$e"]), {"$ifNull": ["$e", []]}]}, lambda: {"$allElementsTrue": [{"$ifNull": ["$e", []]}]},
            lambda: {rng.choice(["$add", "$multiply"]): ["$a", "$m", "$f", "$l"]}, lambda: {"$divide": [rng.choice(["$a", "$m", "$l"]), rng.choice([3, 0, "$d.x", {"$literal": 0.1}])]},
            lambda: {"$mod": [rng.choice(["$l", "$m", -7]), rng.choice([0, 3, "$d.x", -2, 1.5])]}, lambda: {"$pow": [rng.choice(["$a", 2, -2, 0]), rng.choice([-1, 0, 0.5, 3, 40, 70])]},
            lambda: {rng.choice(["$sqrt", "$ln", "$log10", "$exp", "$floor", "$ceil", "$trunc", "$round", "$abs"]): rng.choice(["$a", "$f", "$m", "$l", "$missing", 0, "$s"])},
            lambda: {rng.choice(["$acos", "$asin", "$atanh", "$acosh", "$asinh", "$radiansToDegrees"]): rng.choice([0.5, "$b", "$f"])}, lambda: {"$atan2": ["$f", 2]},
            lambda: {rng.choice(["$round", "$trunc"]): [rng.choice(["$f", "$l", "$m", 1234.5678, -2.5, 2.5]), rng.choice([-2, 0, 1, 3, 101])]}, lambda: {"$log": ["$a", rng.choice([2, 10, 1, 0])]},
            lambda: {"$cmp": [rng.choice(["$v", "$o", "$e", "$_id"]), rng.choice(["$o", "$a", None, "$missing"])]}, lambda: {"$type": rng.choice(["$v", "$o.p", "$u.p", "$missing"])},
            lambda: {"$cond": {"if": rng.choice(["$v", "$o", "$e", 0, ""]), "then": 1, "else": e(0)}}, lambda: {"$ifNull": [rng.choice(["$o", "$o.p", "$missing"]), rng.choice(["dflt", "$e", None])]},
            lambda: {"$strcasecmp": ["$s", "$d.y"]}, lambda: {"$toUpper": rng.choice(["$s", "$a", "$w", "$missing", "$f"])}, lambda: {"$concat": ["$s", rng.choice(["$d.y", None, "$missing", "-"])]},
            lambda: {"$gt": ["$$NOW", rng.choice(["$w", 5])]}, lambda: {"$and": []}, lambda: {"$or": [0, "$e"]}, lambda: {"$not": rng.choice(["$b", ["$e"], [0]])},
            lambda: {"$subtract": ["$w", rng.choice(["$w", "$l", 1.5])]}, lambda: {"$add": ["$w", rng.choice(["$f", "$l", 0.5])]}, lambda: {"$strLenCP": rng.choice(["$x", "$s"])},
            lambda: {"$reverseArray": rng.choice(["$t", "$e", None])}, lambda: {"$concatArrays": ["$t", rng.choice(["$e", [1], None])]}, lambda: {"$size": {"$ifNull": ["$e", []]}},
        ]
        fields = {name: rng.choice(more)() for name in "nop"[:rng.randint(1, 3)]}
        if rng.random() < 0.3:
            fields["q"] = {"$ifNull": [rng.choice(more)(), e(1)]}
        stage = rng.choice([{"$project": fields}, {"$addFields": fields}, {"$match": {"$expr": fields["n"]}}, {"$group": {"_id": fields["n"], "k": {"$sum": 1}}}])
        head = [{"$sort": {"_id": 1}}, {"$limit": rng.choice([30, 200])}] if rng.random() < 0.85 else []
        return self.command([*head, stage], name=rng.choice(KEYED))

    def accumulated(self):
        """$group after $group, and accumulators of all kinds of values."""
        rng = self.rng
        paths = ["$v", "$o", "$o.p", "$t", "$u.p", "$e", "$m", "$l", "$f", "$w", "$s", "$missing", "$d", "$$ROOT.d", {"k": "$a", "n": None}, ["$a", "$b"], {"$size": {"$ifNull": ["$t", []]}}]
        key = rng.choice(["$v", "$o", "$o.p", "$u.p", "$t", "$e", "$m", {"$mod": ["$a", 5]}, {"d": "$d.x", "b": "$b"}, ["$b"], "$d", {"$dateToString": {"date": "$w", "format": "%Y"}}, {"a": "$missing"}, {}, [],
                          "$b", None])
        fields = {name: {rng.choice(["$sum", "$min", "$max", "$addToSet", "$avg"]): rng.choice(paths)} for name in "pqrs"[:rng.randrange(1, 5)]}
        ordered = rng.random() < 0.3
        if ordered:
            fields["k"] = {rng.choice(["$first", "$last", "$push"]): rng.choice([*paths, "$$ROOT"])}
        head = [{"$sort": self.any_sort()}] if ordered else [{"$match": self.filter()}] if rng.random() < 0.3 else []
        if rng.random() < 0.2:
            head.append({"$unwind": rng.choice(["$t", "$e", "$u"])})
        tail = rng.choice([[], [], [{"$sort": {"_id": 1}}], [{"$sort": {"p": 1, "_id": 1}}, {"$limit": 4}], [{"$match": {"p": {"$ne": None}}}], [{"$group": {"_id": "$p", "n": {"$sum": 1}}}],
                           [{"$group": {"_id": None, "all": {"$sum": "$p"}, "most": {"$max": "$p"}}}], [{"$project": {"_id": 0, "p": 1}}], [{"$addFields": {"q": {"$type": "$p"}}}],
                           [{"$unwind": "$p"}], [{"$replaceRoot": {"newRoot": {"i": "$_id", "p": "$p"}}}], [{"$count": "n"}], [{"$sortByCount": "$p"}],
                           [{"$facet": {"n": [{"$count": "n"}], "top": [{"$sort": {"_id": 1}}, {"$limit": 2}]}}]])
        options = {"allowDiskUse": True} if rng.random() < 0.1 else {}
        read = self.command([*head, {"$group": {"_id": key, **fields}}, *tail], name=rng.choice(KEYED), **options)
        if key in ("$v", "$o", "$o.p", "$u.p", "$t", "$e") and "$sort'" in str(tail):
            # Of an array as a key, one element sorts it: several are equal.
            read.order = "count" if "$limit" in str(tail) else "bag"
        return read

    def overviews(self):
        """All commands on views over views, with collations of their own."""
        rng = self.rng
        name = rng.choice([*VIEWS, *COLLATED_VIEWS])
        choice = rng.random()
        if choice < 0.4:
            command = {"find": name, "filter": rng.choice([{}, self.filter(), {"n": {"$gt": 2}}, {"s": "A"}])}
            order = "bag"
            if rng.random() < 0.6:
                command["sort"], order = rng.choice([{"_id": 1}, {"a": -1, "_id": 1}, {"n": 1, "_id": -1}, {"t": 1, "_id": 1, "a": 1}, {"s": 1, "_id": 1}]), "list"
                if name == "view_unwind" and "t" not in command["sort"]:
                    order = "count"
            if rng.random() < 0.4:
                command["projection"] = rng.choice([{"a": 1}, {"_id": 0, "s": 1}, {"n": 1}, {"d": 0}, {"t": {"$slice": 1}}, {"u": {"$elemMatch": {"p": 1}}}, {"a": 1, "d.x": 1}, {}])
            self.window(command)
            if order == "bag" and any(each in command for each in ("limit", "skip", "singleBatch")):
                order = "count"
            for option, value in (("hint", {"_id": 1}), ("returnKey", True), ("showRecordId", True), ("min", {"_id": 1}), ("allowPartialResults", True), ("noCursorTimeout", True), ("tailable", True),
                                  ("sort", {"$natural": 1}), ("readConcern", {"level": "majority"}), ("maxTimeMS", 60000), ("comment", "c"), ("collation", {"locale": "fr"}), ("collation", VIEW_COLLATION)):
                if rng.random() < 0.03:
                    command[option] = value
                    order = "bag" if "$natural" in str(value) and "limit" not in command and "skip" not in command else order
            return Read(command, order, rng.choice([1, 4, 50]) if "batchSize" in command else None, fold=name in COLLATED_VIEWS)
        if choice < 0.6:
            command = rng.choice([{"count": name, "query": self.filter()}, {"count": name}, {"distinct": name, "key": rng.choice(["a", "s", "n", "t", "_id", "d.x"]), "query": self.filter()}])
            if "count" in command and rng.random() < 0.3:
                command.update(rng.choice([{"limit": 4}, {"skip": 3}, {"limit": 0}, {"limit": -3, "skip": 1}, {"hint": {"_id": 1}}]))
            return Read(command, fold=True)
        if choice < 0.65:
            return Read({"aggregate": name, "pipeline": [{"$sort": {"_id": 1}}], "explain": True}, "explain")
        pipeline = rng.choice([
            [{"$match": self.filter()}], [{"$group": {"_id": "$a", "n": {"$sum": 1}}}], [{"$sort": {"_id": 1, "a": 1, "t": 1}}, {"$limit": 7}], [{"$count": "n"}], [{"$unwind": "$t"}, {"$count": "n"}],
            [{"$lookup": {"from": rng.choice(["few", "view_few"]), "localField": "a", "foreignField": "k", "as": "j2"}}, {"$project": {"k": {"$size": "$j2"}}}], [{"$sortByCount": "$b"}],
            [{"$facet": {"n": [{"$count": "n"}], "one": [{"$sort": {"_id": 1, "a": 1, "t": 1}}, {"$limit": 1}, {"$project": {"a": 1}}]}}], [{"$project": {"a": 1, "n": self.expression(1)}}],
            [{"$bucketAuto": {"groupBy": "$a", "buckets": 3}}], [{"$geoNear": {"near": [1, 1], "distanceField": "d"}}], [{"$collStats": {"count": {}}}], [{"$indexStats": {}}], [{"$sample": {"size": 3}}],
            [{"$out": "TARGETplain"}], [{"$match": {"$text": {"$search": "apple"}}}]])
        target = "TARGETplain" if "$out" in pipeline[0] else None
        order = "list" if target else "count" if "$sample" in pipeline[0] or "$limit" in str(pipeline) and name == "view_unwind" else "bag"
        options = {}
        if rng.random() < 0.1:
            options["collation"] = rng.choice([VIEW_COLLATION, {"locale": "fr"}])
        if target:
            return Read({"aggregate": name, "pipeline": pipeline, "cursor": {}, **options}, order, None, target)
        read = self.command(pipeline, name=name, order=order, **options)
        read.fold = name in COLLATED_VIEWS or bool(options)
        return read

    def joins(self):
        """$lookup, $graphLookup and $facet, in one another, behind and before others."""
        rng = self.rng
        source = rng.choice(["few", "few", "view_few", "plain", "absent", "hashed", "view_sorted"])
        sub = rng.choice([
            [{"$match": {"$expr": {"$eq": ["$k", "$$x"]}}}], [{"$match": {"k": {"$lt": 3}}}, {"$sort": {"_id": -1}}, {"$limit": 2}], [{"$group": {"_id": "$k", "n": {"$sum": "$next"}}}, {"$sort": {"_id": 1}}],
            [{"$project": {"_id": 0, "same": {"$eq": ["$k", "$$x"]}}}], [{"$facet": {"f": [{"$match": {"k": 2}}, {"$count": "n"}]}}], [{"$unwind": "$list"}, {"$count": "n"}],
            [{"$lookup": {"from": "few", "localField": "next", "foreignField": "_id", "as": "in"}}, {"$match": {"$expr": {"$gt": ["$k", "$$x"]}}}, {"$project": {"in.word": 1}}],
            [{"$lookup": {"from": "few", "let": {"y": "$k"}, "pipeline": [{"$match": {"$expr": {"$and": [{"$eq": ["$_id", "$$x"]}, {"$lte": ["$k", "$$y"]}]}}}, {"$project": {"k": 1}}], "as": "in"}},
             {"$match": {"in": {"$ne": []}}}, {"$limit": 3}], []])
        look = {"$lookup": {"from": source, "let": {"x": rng.choice(["$a", "$d.x", {"$add": ["$d.x", 1]}, 2, "$missing"])}, "pipeline": sub, "as": "j"}}
        plain = {"$lookup": {"from": source, "localField": rng.choice(["a", "t", "u.p", "o", "o.p", "missing", "e", "d.x"]), "foreignField": rng.choice(["k", "list", "_id", "next", "missing", "list.0"]), "as": rng.choice(["j", "d.j", "a", "u.j"])}}
        graph = {"$graphLookup": {"from": rng.choice(["few", "view_few", "hashed"]), "startWith": rng.choice(["$a", "$t", {"$mod": ["$a", 5]}, ["$a", "$d.x"], None]), "connectFromField": rng.choice(["next", "list"]),
                                  "connectToField": rng.choice(["_id", "k", "list"]), "as": "j", **rng.choice([{}, {"maxDepth": 1}, {"maxDepth": 0, "depthField": "far"}, {"restrictSearchWithMatch": {"k": {"$gt": 2}}}])}}
        head = rng.choice([[], [], [{"$match": self.filter()}], self.ordered(), [{"$group": {"_id": "$d.x", "a": {"$min": "$a"}}}], [{"$unwind": "$t"}], [{"$sort": {"_id": 1}}, {"$limit": 10}]])
        stage = rng.choice([look, look, plain, graph])
        size = {"$addFields": {"j": {"$cond": [{"$isArray": ["$j"]}, {"$size": {"$ifNull": ["$j", []]}}, "none"]}}}
        tail = rng.choice([[], [{"$unwind": "$j"}], [{"$unwind": {"path": "$j", "preserveNullAndEmptyArrays": True}}, {"$match": {"j.k": {"$ne": 3}}}], [{"$match": {"j": []}}], [{"$match": {"j.k": rng.randrange(6)}}],
                           [{"$unwind": "$j"}, {"$group": {"_id": "$j.k", "n": {"$sum": 1}}}], [{"$sort": {"_id": -1, "t": 1}}, {"$limit": 5}], [{"$project": {"j.k": 1, "a": 1}}],
                           [{"$facet": {"n": [{"$count": "n"}], "s": [{"$sortByCount": "$a"}, {"$sort": {"count": -1, "_id": 1}}]}}]])
        if "$graphLookup" in stage or source not in ("few", "view_few"):
            tail = [size]
        order = "bag"
        if "$limit" in str(tail) and "$unwind" in str(head):
            order = "count"
        return self.command([*head, stage, *tail], name=rng.choice([*KEYED, "view_sorted", "few"]), order=order)

    def stored(self):
        """$out and $merge of what a router would merge itself, of views, with every mode."""
        rng = self.rng
        name = rng.choice([*KEYED, "view_sorted", "view_group", "view_third", "few"])
        head = rng.choice([[], [{"$match": self.filter()}], [{"$group": {"_id": "$a", "n": {"$sum": 1}, "f": {"$avg": "$f"}}}], [{"$sort": {"_id": 1}}, {"$limit": 20}], [{"$sortByCount": "$b"}],
                           [{"$project": {"a": 1, "s": 1, "d": 1}}], [{"$lookup": {"from": "few", "localField": "a", "foreignField": "k", "as": "j"}}, {"$project": {"n": {"$size": "$j"}, "a": 1}}],
                           [{"$facet": {"n": [{"$count": "n"}]}}, {"$project": {"_id": "one", "n": 1}}], [{"$bucket": {"groupBy": "$a", "boundaries": [0, 20, 50], "default": -1}}],
                           [{"$sample": {"size": 500}}], [{"$replaceRoot": {"newRoot": {"_id": {"$toString": "$_id"}, "v": "$a"}}}]])
        target = rng.choice(["TARGETplain", "TARGETsharded", "TARGETsharded"])
        if rng.random() < 0.25:
            stage, target = {"$out": "TARGETplain"}, "TARGETplain"
        else:
            stage = {"$merge": {"into": target, "whenMatched": rng.choice(["replace", "merge", "keepExisting", "fail", [{"$set": {"n": {"$add": [{"$ifNull": ["$n", 0]}, 1]}}}], [{"$replaceWith": "$$new"}],
                                                                          [{"$set": {"old": "$$new.a"}}], [{"$project": {"a": 1}}]]),
                                "whenNotMatched": rng.choice(["insert", "insert", "discard", "fail"]), **rng.choice([{}, {}, {"let": {"new": "$$ROOT"}}, {"let": {"new": {"a": 5}}}, {"on": "_id"}])}}
        return Read({"aggregate": name, "pipeline": [*head, stage], "cursor": {}, **({"allowDiskUse": True} if rng.random() < 0.2 else {})}, "list", None, target)

    def tailed(self):
        """Of a capped collection: reads in the order of insertion, and cursors that stay open at its end."""
        rng = self.rng
        command = {"find": "capped", "filter": rng.choice([{}, {"k": {"$lt": 5}}, {"k": 99}, {"_id": {"$gt": rng.randrange(24)}}])}
        if rng.random() < 0.7:
            command["tailable"] = True
            if rng.random() < 0.3:
                command["awaitData"] = True
        if rng.random() < 0.3:
            command["sort"] = {"$natural": rng.choice([1, -1])}
        if rng.random() < 0.5:
            command["batchSize"] = rng.choice([0, 1, 2, 5, 50])
        if rng.random() < 0.3:
            command["projection"] = {"word": 1}
        if rng.random() < 0.2:
            command["limit"] = rng.choice([1, 3, 10, 50])
        if rng.random() < 0.1:
            command["singleBatch"] = True
        if rng.random() < 0.1:
            command["find"] = rng.choice(["plain", "hashed", "absent", "view_few"])
        return Read(command, "list" if command["find"] == "capped" else "count", rng.choice([1, 3, 30]), tailed=True)
