#include "proxy/exec/schema/reply_merge.h"

#include "tests/support/fake_gateway.h"

namespace spillway::exec {
namespace {

using test::doc;

// One shard's part of a case: a reply, or an error code (reply empty).
struct Part {
  const char* reply;
  std::int32_t error = 0;
};

// Answers and what they point to.
struct Answers {
  explicit Answers(const std::vector<Part>& parts) {
    bodies.reserve(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      ShardAnswer& answer = list.emplace_back();
      answer.shard = "s" + std::to_string(i);
      answer.address = "host" + std::to_string(i) + ":27018";
      if (parts[i].error != 0) {
        answer.error = Error(parts[i].error, "failed on " + answer.shard);
        continue;
      }
      bodies.push_back(doc(parts[i].reply));
      answer.body = bodies.back();
    }
  }
  std::vector<BsonDoc> bodies;
  std::vector<ShardAnswer> list;
};

bool equal(DocView a, DocView b) {
  return a.size() == b.size() && std::equal(a.data(), a.data() + a.size(), b.data());
}

constexpr const char* good = "{'n': 1, 'ok': 1.0}";

}  // namespace

TEST_CASE("raw_merge_decides_between_success_and_the_first_error") {
  struct Case {
    const char* what;
    std::vector<Part> parts;
    Tolerate tolerate;
    std::int32_t code;  // 0: success
    std::size_t shown;  // in `raw`
  };
  const std::vector<Case> cases = {
      {"all succeed", {{good}, {good}}, Tolerate::nothing, 0, 2},
      {"one lacks the namespace", {{good}, {"", 26}}, Tolerate::namespace_not_found, 0, 1},
      {"the first lacks it", {{"", 26}, {good}}, Tolerate::namespace_not_found, 0, 1},
      {"all lack it", {{"", 26}, {"", 26}}, Tolerate::namespace_not_found, 26, 2},
      {"a missing namespace counts", {{good}, {"", 26}}, Tolerate::nothing, 26, 2},
      {"a missing index counts", {{good}, {"", 27}}, Tolerate::namespace_not_found, 27, 2},
      {"a missing index is tolerated", {{"", 27}, {good}}, Tolerate::index_not_found, 0, 1},
      {"and so is its collection", {{"", 26}, {good}}, Tolerate::index_not_found, 0, 1},
      {"no shard has the index", {{"", 27}, {"", 26}}, Tolerate::index_not_found, 27, 2},
      {"a shard that lacks the collection does not make it", {{good}, {"", 227}}, Tolerate::not_made_implicitly, 0, 1},
      {"no shard has the collection", {{"", 227}, {"", 227}}, Tolerate::not_made_implicitly, 227, 2},
      {"the first error wins", {{good}, {"", 67}, {"", 86}}, Tolerate::nothing, 67, 3},
      {"a shard has left", {{good}, {"", 70}}, Tolerate::nothing, 0, 1},
      {"a failure outweighs a lack", {{"", 26}, {"", 6}, {good}}, Tolerate::namespace_not_found, 6, 2},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    const Answers answers(c.parts);
    const RawMerge merged = merge_raw(answers.list, c.tolerate);
    const DocView reply = merged.reply;
    CHECK(merged.ok == (c.code == 0));
    CHECK(reply["ok"].to_double() == (c.code == 0 ? 1.0 : 0.0));
    CHECK(reply["code"].to_int64().value_or(0) == c.code);
    CHECK(reply["raw"].is_document());
    CHECK(reply["raw"].as_document().count() == c.shown);
    CHECK(reply["n"].exists() == (c.code == 0));
  }
}

TEST_CASE("what is tolerated of some shards is left out of statistics, and fails them if it is all that came") {
  Answers some({{"", 26}, {good}, {"", 70}});
  CHECK_FALSE(take_failure(some.list, Tolerate::namespace_not_found));
  REQUIRE(some.list.size() == 1);
  CHECK(some.list[0].shard == "s1");
  Answers lacking({{"", 26}, {"", 70}});
  CHECK(take_failure(lacking.list, Tolerate::namespace_not_found)->code == 26);
  Answers failed({{"", 26}, {good}, {"", 6}});
  CHECK(take_failure(failed.list, Tolerate::namespace_not_found)->code == 6);
  CHECK(take_failure(failed.list, Tolerate::nothing)->code == 26);
}

TEST_CASE("a_merged_reply_reads_as_one_servers") {
  const Answers answers({
      {"{'numIndexesBefore': 1, 'numIndexesAfter': 2, 'createdCollectionAutomatically': true,"
       " 'ok': 1.0, 'operationTime': {'$timestamp': {'t': 5, 'i': 1}},"
       " '$clusterTime': {'clusterTime': 1}}"},
      {"{'numIndexesBefore': 1, 'numIndexesAfter': 2, 'ok': 1.0,"
       " 'writeConcernError': {'code': 64, 'errmsg': 'late'}}"},
      {"{'numIndexesBefore': 2, 'ok': 1.0, 'writeConcernError': {'code': 100, 'errmsg': 'none'}}"},
  });
  const RawMerge merged = merge_raw(answers.list, Tolerate::nothing);
  const BsonDoc expected =
      doc("{'numIndexesBefore': 1, 'numIndexesAfter': 2, 'createdCollectionAutomatically': true,"
          " 'raw': {"
          "   'host0:27018': {'numIndexesBefore': 1, 'numIndexesAfter': 2,"
          "                   'createdCollectionAutomatically': true, 'ok': 1.0},"
          "   'host1:27018': {'numIndexesBefore': 1, 'numIndexesAfter': 2, 'ok': 1.0,"
          "                   'writeConcernError': {'code': 64, 'errmsg': 'late'}},"
          "   'host2:27018': {'numIndexesBefore': 2, 'ok': 1.0,"
          "                   'writeConcernError': {'code': 100, 'errmsg': 'none'}}},"
          " 'writeConcernError': {'code': 64, 'errmsg': 'late'}, 'ok': 1.0}");
  CHECK(to_json(merged.reply) == to_json(expected));
  CHECK(equal(merged.reply, expected));
}

TEST_CASE("collection_statistics_are_added_up") {
  const Answers answers({
      {"{'count': 10, 'size': 1000, 'storageSize': 2000000000, 'totalIndexSize': 10,"
       " 'totalSize': 2000000010, 'avgObjSize': 100, 'nindexes': 2,"
       " 'indexSizes': {'_id_': 6, 'a_1': 4}, 'ok': 1.0}"},
      {"{'count': 30, 'size': 6000, 'storageSize': 2000000000, 'totalIndexSize': 5,"
       " 'totalSize': 2000000005, 'avgObjSize': 200, 'nindexes': 1, 'indexSizes': {'_id_': 5},"
       " 'ok': 1.0}"},
  });
  const BsonDoc merged = merge_coll_stats(answers.list, "d.c", 4);
  const DocView reply = merged;
  CHECK(reply["sharded"].truthy());
  CHECK(reply["ns"].as_string() == "d.c");
  CHECK(reply["count"].as_int32() == 40);
  CHECK(reply["size"].as_int32() == 7000);
  REQUIRE(reply["storageSize"].type == BsonType::int64);  // over 2^31
  CHECK(reply["storageSize"].as_int64() == 4'000'000'000);
  CHECK(reply["totalIndexSize"].as_int32() == 15);
  CHECK(reply["avgObjSize"].as_double() == 175.0);
  CHECK(reply["nindexes"].as_int32() == 2);
  CHECK(reply["nchunks"].as_int32() == 4);
  CHECK(equal(reply["indexSizes"].as_document(), doc("{'_id_': 11, 'a_1': 4}")));
  CHECK(reply["shards"].as_document()["s1"].as_document()["count"].as_int32() == 30);
  CHECK(reply["ok"].as_double() == 1.0);
}

TEST_CASE("bytes_are_divided_after_they_were_added_up") {
  const Answers answers({
      {"{'count': 10, 'size': 1500, 'storageSize': 4096, 'totalIndexSize': 700, 'totalSize': 4796, 'avgObjSize': 150,"
       " 'maxSize': 3000, 'nindexes': 1, 'indexSizes': {'_id_': 700}, 'scaleFactor': 1, 'ok': 1.0}"},
      {"{'count': 1, 'size': 600, 'storageSize': 4096, 'totalIndexSize': 700, 'totalSize': 4796, 'avgObjSize': 600,"
       " 'nindexes': 1, 'indexSizes': {'_id_': 700}, 'scaleFactor': 1, 'ok': 1.0}"},
  });
  const BsonDoc merged = merge_coll_stats(answers.list, "d.c", 2, 1024);
  const std::pair<const char*, std::int64_t> numbers[] = {
      {"count", 11}, {"size", 2}, {"storageSize", 8}, {"totalIndexSize", 1}, {"totalSize", 9}, {"maxSize", 2},
      {"indexSizes._id_", 1}, {"scaleFactor", 1024}, {"shards.s0.size", 1}, {"shards.s1.size", 0},
      {"shards.s0.count", 10}, {"shards.s0.avgObjSize", 150}, {"shards.s0.totalSize", 4}, {"shards.s0.maxSize", 2},
      {"shards.s0.indexSizes._id_", 0}, {"shards.s0.scaleFactor", 1024}};
  for (const auto& [path, value] : numbers) {
    INFO(path);
    CHECK(merged.view().find_path(path).to_int64() == value);
  }
  CHECK(merged.view()["avgObjSize"].as_double() == 2100.0 / 11);
}

TEST_CASE("statistics_of_a_time_series_are_those_of_its_buckets") {
  const Answers answers({
      {"{'size': 1000, 'timeseries': {'bucketsNs': 'd.system.buckets.c', 'bucketCount': 3, 'avgBucketSize': 100,"
       " 'numBucketInserts': 3}, 'ok': 1.0}"},
      {"{'size': 500, 'timeseries': {'bucketsNs': 'd.system.buckets.c', 'bucketCount': 1, 'avgBucketSize': 201,"
       " 'numBucketInserts': 2}, 'ok': 1.0}"},
  });
  const BsonDoc merged = merge_coll_stats(answers.list, "d.c", 2);
  CHECK(equal(merged.view()["timeseries"].as_document(),
              doc("{'bucketsNs': 'd.system.buckets.c', 'bucketCount': 4, 'numBucketInserts': 5,"
                  " 'avgBucketSize': 125}")));
  for (const char* const no : {"count", "avgObjSize"}) CHECK_FALSE(merged.view()[no].exists());
}

TEST_CASE("an_empty_collection_has_no_average") {
  const Answers answers({{"{'count': 0, 'size': 0, 'ok': 1.0}"}, {"{'count': 0, 'ok': 1.0}"}});
  const BsonDoc merged = merge_coll_stats(answers.list, "d.c", 2);
  CHECK(merged.view()["avgObjSize"].as_double() == 0.0);
  CHECK(merged.view()["count"].as_int32() == 0);
}

TEST_CASE("database_statistics_are_added_up") {
  const Answers answers({
      {"{'db': 'd', 'collections': 2, 'views': 1, 'objects': 10, 'avgObjSize': 10, 'dataSize': 100,"
       " 'storageSize': 300, 'indexes': 3, 'indexSize': 7, 'scaleFactor': 1024, 'ok': 1.0}"},
      {"{'db': 'd', 'collections': 1, 'views': 0, 'objects': 30, 'avgObjSize': 30, 'dataSize': 900,"
       " 'storageSize': 400, 'indexes': 2, 'indexSize': 5, 'scaleFactor': 1024, 'ok': 1.0}"},
  });
  const BsonDoc merged = merge_db_stats(answers.list, "d", false);
  const DocView reply = merged;
  CHECK(reply["db"].as_string() == "d");
  CHECK(reply["collections"].as_int32() == 2);  // the shards hold parts of the same ones
  CHECK(reply["objects"].as_int32() == 40);
  CHECK(reply["avgObjSize"].as_double() == 25.0);
  CHECK(reply["dataSize"].as_double() == 1000.0);
  CHECK(reply["storageSize"].as_double() == 700.0);
  CHECK(reply["indexes"].as_int32() == 3);
  CHECK(reply["indexSize"].as_double() == 12.0);
  CHECK(reply["scaleFactor"].as_int32() == 1024);
  CHECK(reply["raw"].as_document().count() == 2);
}

TEST_CASE("free_storage_is_added_up_where_it_was_asked_for") {
  const Answers without({{"{'storageSize': 3, 'ok': 1.0}"}, {"{'storageSize': 4, 'ok': 1.0}"}});
  const Answers with({{"{'freeStorageSize': 1, 'indexFreeStorageSize': 2, 'totalFreeStorageSize': 3, 'ok': 1.0}"},
                      {"{'freeStorageSize': 4, 'indexFreeStorageSize': 5, 'totalFreeStorageSize': 9, 'ok': 1.0}"}});
  const BsonDoc none = merge_db_stats(without.list, "d", true), all = merge_db_stats(with.list, "d", true);
  for (const auto& [name, sum] :
       {std::pair("freeStorageSize", 5.0), {"indexFreeStorageSize", 7.0}, {"totalFreeStorageSize", 12.0}}) {
    CHECK_FALSE(none.view()[name].exists());
    CHECK(all.view()[name].as_double() == sum);
  }
}

TEST_CASE("a_collection_is_valid_where_every_part_is") {
  struct Case {
    const char* first;
    const char* second;
    bool valid;
  };
  const Case cases[] = {{"true", "true", true}, {"true", "false", false}, {"false", "true", false}};
  for (const Case& c : cases) {
    const std::string first =
        std::string("{'nrecords': 3, 'nIndexes': 1, 'errors': ['x'], 'valid': ") + c.first + "}";
    const std::string second =
        std::string("{'nrecords': 4, 'nIndexes': 2, 'errors': ['y', 'z'], 'valid': ") + c.second +
        "}";
    const Answers answers({{first.c_str()}, {second.c_str()}});
    const BsonDoc merged = merge_validate(answers.list, "d.c");
    const DocView reply = merged;
    CHECK(reply["valid"].as_bool() == c.valid);
    CHECK(reply["nrecords"].as_int32() == 7);
    CHECK(reply["nIndexes"].as_int32() == 2);
    CHECK(to_json(reply["errors"]) == to_json(doc("{'e': ['x', 'y', 'z']}").view()["e"]));
    CHECK(reply["warnings"].as_document().empty());
  }
}

TEST_CASE("databases_of_all_shards_are_listed_once") {
  const Answers answers({
      {"{'databases': [{'name': 'both', 'sizeOnDisk': 100, 'empty': false},"
       " {'name': 'local', 'sizeOnDisk': 5}, {'name': 'spillway', 'sizeOnDisk': 7},"
      " {'name': 'empty', 'sizeOnDisk': 1}], 'ok': 1.0}"},
      {"{'databases': [{'name': 'admin', 'sizeOnDisk': 1}, {'name': 'config', 'sizeOnDisk': 9},"
       " {'name': 'both', 'sizeOnDisk': {'$numberLong': '5000000000'}},"
       " {'name': 'empty', 'sizeOnDisk': 1}], 'ok': 1.0}"},
      {"{'databases': [{'name': 'both', 'sizeOnDisk': 1}], 'ok': 1.0}"},
  });
  const BsonDoc merged = merge_list_databases(answers.list, false);
  struct Expected {
    const char* name;
    std::int64_t size;
    bool empty;
    std::size_t shards;
  };
  const Expected expected[] = {
      {"admin", 1, true, 1}, {"both", 5'000'000'100, false, 3}, {"empty", 1, true, 2}};
  std::size_t row = 0;
  for (const Element& database : merged.view()["databases"].as_document()) {
    REQUIRE(row < std::size(expected));
    const DocView found = database.as_document();
    INFO(to_json(found));
    CHECK(found["name"].as_string() == expected[row].name);
    CHECK(found["sizeOnDisk"].as_int64() == expected[row].size);
    CHECK(found["empty"].as_bool() == expected[row].empty);
    CHECK(found["shards"].as_document().count() == expected[row].shards);
    ++row;
  }
  CHECK(row == std::size(expected));
  CHECK(merged.view()["totalSize"].as_int64() == 5'000'000'102);

  const BsonDoc names = merge_list_databases(answers.list, true);
  CHECK(equal(names, doc("{'databases': [{'name': 'admin'}, {'name': 'both'}, {'name': 'empty'}],"
                         " 'ok': 1.0}")));
}

TEST_CASE("config servers count for admin and config alone, unless they are a shard, too") {
  const Answers answers({
      {"{'databases': [{'name': 'admin', 'sizeOnDisk': 10}, {'name': 'config', 'sizeOnDisk': 20},"
       " {'name': 'local', 'sizeOnDisk': 5}, {'name': 'app', 'sizeOnDisk': 100}], 'ok': 1.0}"},
      {"{'databases': [{'name': 'admin', 'sizeOnDisk': 1}, {'name': 'config', 'sizeOnDisk': 2}], 'ok': 1.0}"},
  });
  const auto names = [&](bool hold_data) {
    std::string all;
    const BsonDoc merged = merge_list_databases(answers.list, false, {}, {"s0", hold_data});
    for (const Element& each : merged.view()["databases"].as_document()) {
      const DocView database = each.as_document();
      all += std::string(database["name"].as_string()) + " " + std::to_string(*database["sizeOnDisk"].to_int64()) + ",";
    }
    return all;
  };
  CHECK(names(false) == "admin 10,config 22,");
  CHECK(names(true) == "admin 10,app 100,config 22,");
}

}  // namespace spillway::exec
