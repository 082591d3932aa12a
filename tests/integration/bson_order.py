"""MongoDB's order of BSON values, and the keys by which a sort orders documents.

An oracle for tests: short and slow. Covers the types that both kinds of shards can store.
"""

import datetime
import functools
import itertools

import bson

MISSING = object()    # sorts as null
EMPTY_ARRAY = object()  # sorts as undefined, below null


def type_rank(value):
    if value is EMPTY_ARRAY:
        return 5
    if value is None or value is MISSING:
        return 10
    ranks = [
        (bson.MinKey, 0), (bool, 40), ((int, float), 15), (str, 20), (dict, 25), (list, 30),
        (bytes, 35), (bson.ObjectId, 38), (datetime.datetime, 45), (bson.Timestamp, 47),
        (bson.Regex, 50), (bson.MaxKey, 127),
    ]
    for kind, rank in ranks:
        if isinstance(value, kind):
            return rank
    raise TypeError(f"no order for {type(value)}")


def compare(a, b):
    ranks = type_rank(a), type_rank(b)
    if ranks[0] != ranks[1]:
        return -1 if ranks[0] < ranks[1] else 1
    if isinstance(a, dict):
        for (name_a, value_a), (name_b, value_b) in zip(a.items(), b.items()):
            in_type = (type_rank(value_a) > type_rank(value_b)) - (
                type_rank(value_a) < type_rank(value_b))
            order = in_type or (name_a > name_b) - (name_a < name_b) or compare(value_a, value_b)
            if order:
                return order
        return (len(a) > len(b)) - (len(a) < len(b))
    if isinstance(a, list):
        for value_a, value_b in zip(a, b):
            order = compare(value_a, value_b)
            if order:
                return order
        return (len(a) > len(b)) - (len(a) < len(b))
    if isinstance(a, bytes):
        a, b = (len(a), a), (len(b), b)
    elif isinstance(a, str):
        a, b = a.encode(), b.encode()
    elif ranks[0] in (0, 5, 10, 127):
        return 0
    return (a > b) - (a < b)


value_key = functools.cmp_to_key(compare)


def values_at(value, path):
    """Every value that a dotted path reaches, arrays expanded on the way and at its end."""
    if not path:
        if isinstance(value, list):
            return value or [EMPTY_ARRAY]
        return [value]
    head, rest = path[0], path[1:]
    if isinstance(value, dict):
        return values_at(value[head], rest) if head in value else [MISSING]
    if isinstance(value, list):
        found = list(itertools.chain.from_iterable(
            values_at(one, path) for one in value if isinstance(one, dict)))
        if head.isdigit() and int(head) < len(value):
            found += values_at(value[int(head)], rest)
        return found or [MISSING]
    return [MISSING]


def sort_key(document, sort):
    """What a document sorts by: for each path its least value, or its greatest if descending."""
    key = []
    for path, direction in sort.items():
        values = values_at(document, path.split("."))
        key.append((min if direction > 0 else max)(values, key=value_key))
    return key


def compare_documents(a, b, sort):
    for one, two, direction in zip(sort_key(a, sort), sort_key(b, sort), sort.values()):
        order = compare(one, two)
        if order:
            return order * direction
    return 0
