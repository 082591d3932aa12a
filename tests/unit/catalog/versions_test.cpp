#include "proxy/catalog/versions.h"

#include "catalog_support.h"

namespace spillway::catalog {
namespace {

using test::doc;

constexpr ObjectId epoch_r{0x6b, 0x00, 0xfd, 0x55, 0x63, 0x15, 0x51, 0x24, 0xad, 0x7b, 0xdb, 0x82};

std::string shard_version(const ChunkVersion& version, VersionForm form, bool marker = false) {
  BsonWriter out;
  append_shard_version(out, version, form, marker);
  return to_json(std::move(out).finish());
}

std::string same(std::string_view json) { return to_json(doc(json)); }

TEST_CASE("a shard's wire version decides the form of a version") {
  CHECK(version_form(8) == VersionForm::array);                  // 4.2
  CHECK(version_form(9) == VersionForm::array);                  // 4.4
  CHECK(version_form(13) == VersionForm::array_with_timestamp);  // 5.0
  CHECK(version_form(16) == VersionForm::array_with_timestamp);  // 5.3
  CHECK(version_form(17) == VersionForm::object);                // 6.0
  CHECK(version_form(25) == VersionForm::object);                // 8.0
}

TEST_CASE("versions are written as a router of each release writes them") {
  const ChunkVersion old{3, 1, epoch_r, 0};
  const ChunkVersion timed{3, 1, epoch_r, std::uint64_t{17} << 32 | 4};
  // A real 4.2.0 router's.
  CHECK(shard_version(old, VersionForm::array) ==
        same("{'shardVersion': [{'$timestamp': {'t': 3, 'i': 1}}, {'$oid': '6b00fd5563155124ad7bdb82'}]}"));
  CHECK(shard_version(ChunkVersion::unsharded(), VersionForm::array) ==
        same("{'shardVersion': [{'$timestamp': {'t': 0, 'i': 0}}, {'$oid': '000000000000000000000000'}]}"));
  CHECK(shard_version(ChunkVersion::ignored(), VersionForm::array) ==
        same("{'shardVersion': [{'$timestamp': {'t': 0, 'i': 0}}, {'$oid': '00000000ffffffffffffffff'}]}"));
  CHECK(shard_version(ChunkVersion::ignored(), VersionForm::array, true) ==
        same("{'shardVersion': [{'$timestamp': {'t': 0, 'i': 0}}, {'$oid': '00000000ffffffffffffffff'}, true]}"));
  CHECK(shard_version(timed, VersionForm::array) == shard_version(old, VersionForm::array));
  CHECK(shard_version(timed, VersionForm::array_with_timestamp) ==
        same("{'shardVersion': [{'$timestamp': {'t': 3, 'i': 1}}, {'$oid': '6b00fd5563155124ad7bdb82'}, "
             "{'$timestamp': {'t': 17, 'i': 4}}]}"));
  CHECK(shard_version(old, VersionForm::array_with_timestamp) == shard_version(old, VersionForm::array));
  for (const ChunkVersion& special : {ChunkVersion::unsharded(), ChunkVersion::ignored()}) {
    CHECK(shard_version(special, VersionForm::array_with_timestamp) == shard_version(special, VersionForm::array));
  }
  CHECK(shard_version(timed, VersionForm::object) ==
        same("{'shardVersion': {'e': {'$oid': '6b00fd5563155124ad7bdb82'}, 't': {'$timestamp': {'t': 17, 'i': 4}}, "
             "'v': {'$timestamp': {'t': 3, 'i': 1}}}}"));
  CHECK(shard_version(ChunkVersion::ignored(), VersionForm::object, true) ==
        same("{'shardVersion': {'e': {'$oid': '00000000ffffffffffffffff'}, "
             "'t': {'$timestamp': {'t': 4294967295, 'i': 4294967295}}, 'v': {'$timestamp': {'t': 0, 'i': 0}}}}"));
}

TEST_CASE("a version is read back from any form") {
  const ChunkVersion versions[] = {{3, 1, epoch_r, 0},
                                   {0, 0, epoch_r, 0},
                                   {0xffffffff, 0xfffffffe, epoch_r, 0},
                                   {3, 1, epoch_r, std::uint64_t{17} << 32 | 4},
                                   ChunkVersion::unsharded(),
                                   ChunkVersion::ignored()};
  for (const ChunkVersion& version : versions) {
    for (const VersionForm form : {VersionForm::array, VersionForm::array_with_timestamp, VersionForm::object}) {
      for (const bool marker : {false, true}) {
        BsonWriter out;
        append_chunk_version(out, "v", version, form, marker);
        const BsonDoc written = std::move(out).finish();
        INFO(to_json(written));
        ChunkVersion expected = version;
        if (form == VersionForm::array && !version.is_ignored()) expected.timestamp = 0;
        const auto read = read_chunk_version(written.view()["v"]);
        REQUIRE(read.has_value());
        CHECK(*read == expected);
        CHECK(read->is_ignored() == version.is_ignored());
        CHECK(read->is_unsharded() == version.is_unsharded());
        const auto field = read_chunk_version_field(written, "v");
        REQUIRE(field.has_value());
        CHECK(*field == expected);
      }
    }
  }
  // Some releases wrote the array as an object; newer ones add fields.
  const auto numbered = read_chunk_version(
      doc("{'v': {'0': {'$timestamp': {'t': 3, 'i': 1}}, '1': {'$oid': '6b00fd5563155124ad7bdb82'}}}").view()["v"]);
  CHECK(*numbered == versions[0]);
  const auto newer = read_chunk_version(
      doc("{'v': {'v': {'$timestamp': {'t': 3, 'i': 1}}, 'placementConflictTime': {'$timestamp': {'t': 1, 'i': 1}}, "
          "'t': {'$timestamp': {'t': 17, 'i': 4}}, 'e': {'$oid': '6b00fd5563155124ad7bdb82'}}}")
          .view()["v"]);
  CHECK(*newer == versions[3]);
}

TEST_CASE("a stale error's versions stand in several fields, to 5.3") {
  // errInfo of a real 4.2.0 shard.
  const BsonDoc info = doc(
      "{'ns': 'rec.r', 'vReceived': {'$timestamp': {'t': 2, 'i': 0}}, "
      "'vReceivedEpoch': {'$oid': '6b00fd5563155124ad7bdb82'}, 'vWanted': {'$timestamp': {'t': 0, 'i': 0}}, "
      "'vWantedEpoch': {'$oid': '6b00fd5563155124ad7bdb82'}, 'vWantedTimestamp': {'$timestamp': {'t': 9, 'i': 1}}}");
  CHECK(**read_chunk_version_field(info, "vReceived") == ChunkVersion{2, 0, epoch_r, 0});
  CHECK(**read_chunk_version_field(info, "vWanted") == ChunkVersion{0, 0, epoch_r, std::uint64_t{9} << 32 | 1});
  CHECK(*read_chunk_version_field(info, "vOther") == std::nullopt);
  const auto no_epoch = read_chunk_version_field(doc("{'vWanted': {'$timestamp': {'t': 1, 'i': 0}}}"), "vWanted");
  REQUIRE(no_epoch.has_error());
  CHECK_THAT(no_epoch.error().message, Catch::Contains("vWantedEpoch"));
}

TEST_CASE("what is no version is refused") {
  for (const char* json :
       {"5", "'x'", "[]", "{}", "{'$timestamp': {'t': 1, 'i': 0}}", "[{'$timestamp': {'t': 1, 'i': 0}}]",
        "[{'$timestamp': {'t': 1, 'i': 0}}, 5]", "[5, {'$oid': '6b00fd5563155124ad7bdb82'}]",
        "[{'$timestamp': {'t': 1, 'i': 0}}, {'$oid': '6b00fd5563155124ad7bdb82'}, 'x']",
        "[{'$timestamp': {'t': 1, 'i': 0}}, {'$oid': '6b00fd5563155124ad7bdb82'}, {'$timestamp': {'t': 1, 'i': 0}}, 1]",
        "{'e': {'$oid': '6b00fd5563155124ad7bdb82'}, 'v': {'$timestamp': {'t': 1, 'i': 0}}}",
        "{'e': 1, 't': {'$timestamp': {'t': 1, 'i': 0}}, 'v': {'$timestamp': {'t': 1, 'i': 0}}}",
        "{'e': {'$oid': '6b00fd5563155124ad7bdb82'}, 't': {'$timestamp': {'t': 1, 'i': 0}}, 'v': 3}"}) {
    INFO(json);
    const BsonDoc holder = doc("{'v': " + std::string(json) + "}");
    const auto read = read_chunk_version(holder.view()["v"]);
    REQUIRE(read.has_error());
    const bool expected = read.error().is(ErrorCode::type_mismatch) || read.error().is(ErrorCode::failed_to_parse);
    CHECK(expected);
  }
}

TEST_CASE("versions are in order within an epoch, and by timestamp between two") {
  const ObjectId other{1};
  const ChunkVersion low{2, 9, epoch_r, 0};
  const ChunkVersion high{3, 0, epoch_r, 0};
  CHECK(compare_versions(low, high) == std::partial_ordering::less);
  CHECK(compare_versions(high, low) == std::partial_ordering::greater);
  CHECK(compare_versions(low, low) == std::partial_ordering::equivalent);
  CHECK(compare_versions(low, {9, 0, other, 0}) == std::partial_ordering::unordered);
  CHECK(compare_versions({9, 0, epoch_r, 5}, {1, 0, other, 6}) == std::partial_ordering::less);
  CHECK(low.same_epoch(high));
  CHECK_FALSE(low.same_epoch({2, 9, other, 0}));
  CHECK_FALSE(low == high);
  CHECK(to_text(low) == "2|9||6b00fd5563155124ad7bdb82");
  CHECK(to_text({2, 9, epoch_r, std::uint64_t{7} << 32 | 2}) == "2|9||6b00fd5563155124ad7bdb82||Timestamp(7, 2)");
}

TEST_CASE("a database's version is written as it was read") {
  for (const char* json :
       {// A real 4.2.0 router's.
        "{'uuid': {'$binary': {'base64': 'g4xBP0OkS3aWfIzItC4yNw==', 'subType': '04'}}, 'lastMod': 1}",
        "{'uuid': {'$binary': {'base64': 'g4xBP0OkS3aWfIzItC4yNw==', 'subType': '04'}}, "
        "'timestamp': {'$timestamp': {'t': 5, 'i': 6}}, 'lastMod': 3}",
        "{'timestamp': {'$timestamp': {'t': 5, 'i': 6}}, 'lastMod': 3}"}) {
    const BsonDoc holder = doc("{'databaseVersion': " + std::string(json) + "}");
    const auto version = read_database_version(holder.view()["databaseVersion"]);
    REQUIRE(version.has_value());
    BsonWriter out;
    append_database_version(out, *version);
    CHECK(to_json(std::move(out).finish()) == to_json(holder));
  }
  for (const char* json :
       {"5", "{}", "{'lastMod': 1}", "{'uuid': 'x', 'lastMod': 1}",
        "{'uuid': {'$binary': {'base64': 'AAAA', 'subType': '04'}}, 'lastMod': 1}",
        "{'uuid': {'$binary': {'base64': 'g4xBP0OkS3aWfIzItC4yNw==', 'subType': '04'}}}",
        "{'uuid': {'$binary': {'base64': 'g4xBP0OkS3aWfIzItC4yNw==', 'subType': '04'}}, 'lastMod': 5000000000}",
        "{'uuid': {'$binary': {'base64': 'g4xBP0OkS3aWfIzItC4yNw==', 'subType': '04'}}, 'timestamp': 4, 'lastMod': "
        "1}"}) {
    INFO(json);
    const BsonDoc holder = doc("{'v': " + std::string(json) + "}");
    const auto version = read_database_version(holder.view()["v"]);
    REQUIRE(version.has_error());
    CHECK(version.error().is(ErrorCode::type_mismatch));
  }
}

}  // namespace
}  // namespace spillway::catalog
