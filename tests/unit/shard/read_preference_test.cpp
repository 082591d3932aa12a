#include "proxy/shard/read_preference.h"

#include <catch2/catch.hpp>

#include "cursor/bson_writer.h"

using namespace spillway;
using namespace spillway::shard;

namespace {
Result<ReadPreference> parse(std::string_view text) {
  const BsonDoc document = BsonDoc::from_json(text).value();
  return ReadPreference::parse(document);
}
std::int32_t code(std::string_view text) {
  const auto parsed = parse(text);
  return parsed.has_error() ? parsed.error().code : 0;
}
}  // namespace

TEST_CASE("read preferences are parsed") {
  const auto parsed = parse(
      R"({"mode": "secondaryPreferred", "tags": [{"dc": "ny", "use": "x"}, {}], "maxStalenessSeconds": 90})");
  REQUIRE(parsed.has_value());
  CHECK(parsed->mode == ReadMode::secondary_preferred);
  REQUIRE(parsed->tag_sets.size() == 2);
  CHECK(parsed->tag_sets[0][1] == std::pair<std::string, std::string>("use", "x"));
  CHECK(parsed->max_staleness_seconds == 90);
  CHECK(parse(R"({"mode": "primary", "tags": [{}]})").has_value());
  CHECK(parse(R"({"mode": "nearest", "hedge": {"enabled": true}})")->mode == ReadMode::nearest);
}

TEST_CASE("read preferences that make no sense are refused with the server's codes") {
  CHECK(code(R"({"mode": "fastest"})") == 9);
  CHECK(code(R"({})") == 9);
  CHECK(code(R"({"mode": 1})") == 14);
  CHECK(code(R"({"mode": "primary", "tags": [{"dc": "ny"}]})") == 2);
  CHECK(code(R"({"mode": "primary", "maxStalenessSeconds": 100})") == 2);
  CHECK(code(R"({"mode": "primary", "hedge": {}})") == 72);
  CHECK(code(R"({"mode": "nearest", "tags": {"dc": "ny"}})") == 14);
  CHECK(code(R"({"mode": "nearest", "tags": [{"dc": 1}]})") == 14);
  CHECK(code(R"({"mode": "nearest", "maxStalenessSeconds": 89})") == 160);
  CHECK(code(R"({"mode": "nearest", "maxStalenessSeconds": -1})") == 160);
  CHECK(code(R"({"mode": "nearest", "maxStalenessSeconds": {"$numberDouble": "NaN"}})") == 160);
  CHECK(code(R"({"mode": "nearest", "maxStalenessSeconds": "1"})") == 14);
}
