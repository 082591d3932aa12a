#include "proxy/catalog/config_entries.h"

#include "catalog_support.h"

namespace spillway::catalog {
namespace {

using test::doc;

// A refused document, its error's code, and what the error names.
struct BadEntry {
  std::string json;
  ErrorCode code;
  std::vector<std::string> texts;
};

template <class Read>
void check_refused(const Read& read, const std::vector<BadEntry>& entries) {
  for (const BadEntry& entry : entries) {
    INFO(entry.json);
    const auto result = read(doc(entry.json));
    REQUIRE(result.has_error());
    CHECK(result.error().code == static_cast<std::int32_t>(entry.code));
    for (const std::string& text : entry.texts) CHECK_THAT(result.error().message, Catch::Contains(text));
  }
}

TEST_CASE("a shard of config.shards is read") {
  const auto shard = read_shard_entry(doc("{'_id': 'sh1', 'host': 'sh1/127.0.0.1:27111', 'state': 1}"));
  REQUIRE(shard.has_value());
  CHECK(shard->id == "sh1");
  CHECK(shard->host == "sh1/127.0.0.1:27111");
  CHECK_FALSE(shard->draining);
  CHECK(read_shard_entry(doc("{'host': 'h:1', 'draining': true, 'tags': ['x'], '_id': 'a'}"))->draining);
  check_refused(read_shard_entry,
                {{"{'host': 'h:1'}", ErrorCode::failed_to_parse, {"config.shards", "'_id' is missing"}},
                 {"{'_id': 'a'}", ErrorCode::failed_to_parse, {"\"a\"", "'host' is missing"}},
                 {"{'_id': 7, 'host': 'h:1'}", ErrorCode::type_mismatch, {"'_id'", "int", "expected string"}},
                 {"{'_id': 'a', 'host': ''}", ErrorCode::bad_value, {"'host' is empty"}},
                 {"{'_id': 'a', 'host': 'h:1', 'draining': 1}", ErrorCode::type_mismatch, {"'draining'", "bool"}}});
}

TEST_CASE("a database of config.databases is read") {
  const auto database = read_database_entry(
      doc("{'_id': 'rec', 'primary': 'sh2', 'partitioned': true, 'version': {'uuid': {'$binary': {'base64': "
          "'g4xBP0OkS3aWfIzItC4yNw==', 'subType': '04'}}, 'lastMod': 1}}"));
  REQUIRE(database.has_value());
  CHECK(database->name == "rec");
  CHECK(database->primary == "sh2");
  REQUIRE(database->version.has_value());
  CHECK(database->version->last_mod == 1);
  CHECK(database->version->uuid[0] == 0x83);
  CHECK(read_database_entry(doc("{'_id': 'old', 'primary': 'sh2'}"))->version == std::nullopt);
  check_refused(read_database_entry,
                {{"{'_id': 'd'}", ErrorCode::failed_to_parse, {"config.databases", "'primary' is missing"}},
                 {"{'_id': 'd', 'primary': null}", ErrorCode::type_mismatch, {"'primary'", "null"}},
                 {"{'_id': 'd', 'primary': 'a', 'version': 1}", ErrorCode::type_mismatch, {"'version'"}},
                 {"{'_id': 'd', 'primary': 'a', 'version': {'lastMod': 1}}", ErrorCode::type_mismatch, {"'uuid'"}}});
}

TEST_CASE("a collection of config.collections is read") {
  // A real 4.2.0 config server's.
  const auto old = read_collection_entry(
      doc("{'_id': 'rec.h', 'lastmodEpoch': {'$oid': '6b00fd5563155124ad7bdb60'}, 'lastmod': {'$date': "
          "'1970-02-19T17:02:47.301Z'}, 'dropped': false, 'key': {'_id': 'hashed'}, 'unique': false, 'uuid': "
          "{'$binary': {'base64': 'Tt7zAJUaRx6ccF/peuw0QA==', 'subType': '04'}}}"));
  REQUIRE(old.has_value());
  CHECK(old->ns == "rec.h");
  CHECK(old->key->has_hashed_field());
  CHECK(old->epoch[11] == 0x60);
  CHECK(old->timestamp == 0);
  CHECK_FALSE(old->chunks_by_uuid());
  CHECK((*old->uuid)[0] == 0x4e);
  CHECK_FALSE(old->dropped);

  const auto newer = read_collection_entry(
      doc("{'_id': 'a.system.buckets.t', 'lastmodEpoch': {'$oid': '6b00fd5563155124ad7bdb60'}, 'timestamp': "
          "{'$timestamp': {'t': 5, 'i': 1}}, 'uuid': {'$binary': {'base64': 'Tt7zAJUaRx6ccF/peuw0QA==', 'subType': "
          "'04'}}, 'key': {'a': 1}, 'unique': true, 'unsplittable': true, 'defaultCollation': {'locale': 'fr'}, "
          "'timeseriesFields': {'timeField': 't', 'metaField': 'm', 'granularity': 'minutes'}, "
          "'reshardingFields': {'state': 'x'}}"));
  REQUIRE(newer.has_value());
  CHECK(newer->timestamp == (std::uint64_t{5} << 32 | 1));
  CHECK(newer->chunks_by_uuid());
  CHECK(newer->unique);
  CHECK(newer->unsplittable);
  REQUIRE(newer->time_series.has_value());
  CHECK(newer->time_series->time_field == "t");
  CHECK(newer->time_series->meta_field == "m");
  CHECK(newer->time_series->rounding_s == 3600);
  // The fields of the meta value are sorted, at every depth; arrays keep their order.
  const auto bucket = newer->time_series->bucket_of(
      doc("{'t': {'$date': {'$numberLong': '3600001'}}, 'm': {'b': [{'z': 1, 'a': 2}, 3], 'a': {'y': 1, 'x': 2}}}"));
  REQUIRE(bucket.has_value());
  CHECK(to_json(*bucket) == R"({ "meta" : { "a" : { "x" : 2, "y" : 1 }, "b" : [ { "a" : 2, "z" : 1 }, 3 ] }, )"
                            R"("control" : { "min" : { "t" : { "$date" : "1970-01-01T01:00:00Z" } } } })");
  CHECK(to_json(newer->default_collation) == to_json(doc("{'locale': 'fr'}")));

  const auto dropped = read_collection_entry(
      doc("{'_id': 'a.c', 'lastmodEpoch': {'$oid': '000000000000000000000000'}, 'dropped': true}"));
  REQUIRE(dropped.has_value());
  CHECK(dropped->dropped);
  CHECK_FALSE(dropped->key.has_value());
}

TEST_CASE("a collection with wrong fields is refused") {
  const std::string head = "{'_id': 'a.c', ";
  const std::string epoch = "'lastmodEpoch': {'$oid': '6b00fd5563155124ad7bdb60'}, ";
  const std::string key = "'key': {'a': 1}";
  const ErrorCode wrong_type = ErrorCode::type_mismatch;
  check_refused(read_collection_entry,
                {{"{'_id': 'a.c', " + key + "}", ErrorCode::failed_to_parse, {"'lastmodEpoch' is missing", "\"a.c\""}},
                 {head + "'lastmodEpoch': 1, " + key + "}", wrong_type, {"'lastmodEpoch'", "objectId"}},
                 {head + "'lastmodEpoch': {'$oid': '000000000000000000000000'}, " + key + "}",
                  ErrorCode::bad_value,
                  {"'lastmodEpoch' is zero"}},
                 {head + epoch + "'unique': true}", ErrorCode::failed_to_parse, {"'key' is missing"}},
                 {head + epoch + "'key': 'a'}", wrong_type, {"'key'", "object"}},
                 {head + epoch + "'key': {'a': -1}}", ErrorCode::bad_value, {"'key' is no shard key"}},
                 {head + epoch + key + ", 'unique': 1}", wrong_type, {"'unique'"}},
                 {head + epoch + key + ", 'dropped': 'no'}", wrong_type, {"'dropped'"}},
                 {head + epoch + key + ", 'unsplittable': 1}", wrong_type, {"'unsplittable'"}},
                 {head + epoch + key + ", 'uuid': 'x'}", wrong_type, {"'uuid'"}},
                 {head + epoch + key + ", 'timestamp': 5}", wrong_type, {"'timestamp'"}},
                 {head + epoch + key + ", 'timestamp': {'$timestamp': {'t': 5, 'i': 1}}}",
                  ErrorCode::failed_to_parse,
                  {"'uuid' is missing"}},
                 {head + epoch + key + ", 'defaultCollation': 'fr'}", wrong_type, {"'defaultCollation'"}},
                 {head + epoch + key + ", 'timeseriesFields': {}}", wrong_type, {"'timeseriesFields' has no time"}},
                 {head + epoch + key + ", 'timeseriesFields': {'timeField': 't', 'bucketRoundingSeconds': 0}}",
                  ErrorCode::bad_value,
                  {"'timeseriesFields'"}},
                 {"{'_id': 5, " + epoch + key + "}", wrong_type, {"'_id'"}}});
}

}  // namespace
}  // namespace spillway::catalog
