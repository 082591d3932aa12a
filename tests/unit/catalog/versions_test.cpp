#include "proxy/catalog/versions.h"

#include "catalog_support.h"
#include "tests/support/read_version.h"

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

TEST_CASE("a version is written whole in each form") {
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
        if (form == VersionForm::array && version != ChunkVersion::ignored()) expected.timestamp = 0;
        const auto read = read_chunk_version(written.view()["v"]);
        REQUIRE(read.has_value());
        CHECK(*read == expected);
      }
    }
  }
}

TEST_CASE("a version as text") {
  const ChunkVersion low{2, 9, epoch_r, 0};
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
