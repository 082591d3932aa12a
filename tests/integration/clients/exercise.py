"""The Python twin of exercise.js: the same calls, the same results."""

from pymongo import DeleteMany, DeleteOne, InsertOne, ReplaceOne, ReturnDocument, UpdateMany
from pymongo import UpdateOne
from pymongo.errors import BulkWriteError


def exercise(collection):
    out = {}
    collection.delete_many({})
    documents = [{"_id": i, "k": (i * 7919) % 2000, "g": i % 7, "s": f"v{i}"} for i in range(2000)]
    out["inserted"] = len(collection.insert_many(documents).inserted_ids)
    out["count"] = collection.count_documents({})
    out["one"] = collection.find_one({"_id": 1234})

    by_k = collection.find({}).sort("k", 1).batch_size(100)
    out["sorted"] = [d["_id"] for d in by_k][::97]
    page = collection.find({"g": 3}, {"_id": 1}).sort("k", -1).skip(10).limit(40).batch_size(7)
    out["page"] = [d["_id"] for d in page]

    out["updated"] = collection.update_many({"g": 1}, {"$set": {"t": True}}).modified_count
    upsert = collection.update_one({"_id": 5000}, {"$set": {"g": 9}}, upsert=True)
    out["upserted"] = upsert.upserted_id
    bulk = collection.bulk_write([
        InsertOne({"_id": 6000, "g": 10}),
        UpdateOne({"_id": 17}, {"$set": {"g": 11}}),
        UpdateMany({"g": 2}, {"$set": {"u": 1}}),
        ReplaceOne({"_id": 18}, {"g": 12}),
        DeleteOne({"_id": 19}),
        DeleteMany({"g": 5}),
    ], ordered=False)
    out["bulk"] = [bulk.inserted_count, bulk.matched_count, bulk.deleted_count]

    try:
        collection.insert_many([{"_id": 7000}, {"_id": 6000}, {"_id": 7001}], ordered=False)
    except BulkWriteError as error:
        out["duplicate"] = error.details["writeErrors"][0]["code"]
    out["after_duplicate"] = collection.count_documents({"_id": {"$in": [6000, 7000, 7001]}})

    groups = collection.aggregate([
        {"$match": {"g": {"$lt": 7}}}, {"$group": {"_id": "$g", "n": {"$sum": 1}}},
        {"$sort": {"_id": 1}}])
    out["groups"] = [[d["_id"], d["n"]] for d in groups]
    out["distinct"] = sorted(v for v in collection.distinct("g") if v is not None)
    out["found"] = collection.find_one_and_update(
        {"_id": 17}, {"$set": {"g": 13}}, return_document=ReturnDocument.AFTER)
    collection.create_index([("g", 1), ("k", -1)], name="by_group")
    out["indexes"] = sorted(index["name"] for index in collection.list_indexes())
    out["deleted"] = collection.delete_many({}).deleted_count
    collection.drop()
    return out
