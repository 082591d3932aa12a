"""pymongo's part of the load: load.py URI NAME, until standard input ends. run_replaced says what each program does."""

import json
import sys
import threading
import time

import pymongo

WORKERS = 4


def work(client, name, stopping, result):
    collection, written = client.app.load, 0
    while not stopping.is_set():
        key = f"{name}-{written}"
        try:
            collection.insert_one({"_id": key, "by": name})
            result["written"] += 1
            begun, timer = time.time(), time.perf_counter()
            found = collection.find_one({"_id": key})
            result["finds"].append([round(begun * 1000), round((time.perf_counter() - timer) * 1e6)])
            if found is None:
                result["wrong"].append(f"{key} is not found")
            if written % 20 == 0:
                ids = [found["_id"] for found in collection.find({"by": name}, batch_size=50).limit(300)]
                if len(ids) != len(set(ids)) or len(ids) != min(written + 1, 300):
                    result["wrong"].append(f"{name} has {written + 1}, {len(ids)} were read, {len(set(ids))} of them once")
        except pymongo.errors.PyMongoError as error:
            result["errors"].append(f"{type(error).__name__}: {error}"[:300])
        written += 1


def main():
    uri, name = sys.argv[1:3]
    results = [{"written": 0, "finds": [], "wrong": [], "errors": []} for _ in range(WORKERS)]
    stopping = threading.Event()
    with pymongo.MongoClient(uri, minPoolSize=10) as client:
        threads = [threading.Thread(target=work, args=(client, f"{name}{i}", stopping, results[i]))
                   for i in range(WORKERS)]
        for thread in threads:
            thread.start()
        print("begun", flush=True)
        sys.stdin.read()
        stopping.set()
        for thread in threads:
            thread.join()
    total = {key: sum((result[key] for result in results), 0 if key == "written" else []) for key in results[0]}
    print(json.dumps(total))


main()
