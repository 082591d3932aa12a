#include "proxy/catalog/fingerprint.h"

#include "catalog_support.h"

namespace spillway::catalog {
namespace {

using test::doc;
using test::pattern;

// {a: 1} split at the given numbers, with the shards named by the letters of `owners`.
struct Table {
  Table(std::vector<int> splits, std::string_view owners, std::string_view shard_names = "ABC") {
    RoutingParts parts;
    for (const char name : shard_names) {
      const auto index = static_cast<ShardIndex>(parts.shards.size());
      parts.shards.push_back({std::string(1, name), std::string("mongodb://") + name, index});
    }
    const ShardKeyPattern key = pattern("{'a': 1}");
    std::vector<ChunkSpec> chunks;
    BsonDoc low = key.min_bound();
    for (std::size_t i = 0; i < owners.size(); ++i) {
      BsonDoc high =
          i < splits.size() ? doc("{'a': " + std::to_string(splits[i]) + "}") : key.max_bound();
      const auto shard = static_cast<ShardIndex>(shard_names.find(owners[i]));
      chunks.push_back({std::move(low), high, shard});
      low = std::move(high);
    }
    auto map = ChunkMap::build(key, std::move(chunks));
    REQUIRE(map.has_value());
    const auto fingerprint = fingerprint_of(key, *map, parts.shards);
    parts.collections.push_back({"db.c", key, false, std::move(*map), fingerprint});
    snapshot = std::make_shared<const RoutingSnapshot>(std::move(parts));
  }
  const CollectionRouting& collection() const { return *snapshot->collection("db.c"); }
  BsonDoc document(std::size_t ranges_bytes_max = 1 << 20) const {
    return fingerprint_document(collection(), *snapshot, ranges_bytes_max);
  }
  std::shared_ptr<const RoutingSnapshot> snapshot;
};

std::string compare(const BsonDoc& stored, const Table& now) {
  const auto result = compare_fingerprint(stored, now.collection(), *now.snapshot);
  return result ? "same" : result.error().message;
}

TEST_CASE("the stored document lists ranges by owner") {
  const BsonDoc stored = Table({1, 5, 9}, "AABA").document();
  CHECK(stored.view()["_id"].as_string() == "db.c");
  CHECK(to_json(stored.view()["ranges"]) ==
        to_json(doc("{'r': [{'max': {'a': 5}, 'shard': 0}, {'max': {'a': 9}, 'shard': 1}, "
                    "{'max': {'a': {'$maxKey': 1}}, 'shard': 0}]}")
                    .view()["r"]));
  CHECK(stored.view()["ranges"].is_array());
}

TEST_CASE("tables with the same owners agree, however they are split or ordered") {
  const Table before({1, 5}, "ABA");
  for (const std::size_t ranges_bytes_max : {std::size_t{1} << 20, std::size_t{0}}) {
    const BsonDoc stored = before.document(ranges_bytes_max);
    CHECK(compare(stored, Table({1, 5}, "ABA")) == "same");
    CHECK(compare(stored, Table({0, 1, 3, 5, 7}, "AABBAA")) == "same");
    CHECK(compare(stored, Table({1, 5}, "ABA", "CBA")) == "same");
  }
}

TEST_CASE("the first range with another owner is named") {
  const Table before({1, 5}, "ABA");
  const BsonDoc stored = before.document();
  const auto names = [](const std::string& message, const std::string& low, const std::string& high,
                        const std::string& was, const std::string& is) {
    INFO(message);
    CHECK_THAT(message, Catch::Contains("db.c"));
    CHECK_THAT(message, Catch::Contains("range [" + to_json(doc(low)) + ", " + to_json(doc(high))));
    CHECK_THAT(message, Catch::Contains("shard '" + was + "' and is now given to '" + is + "'"));
  };
  names(compare(stored, Table({1, 5}, "ACA")), "{'a': 1}", "{'a': 5}", "B", "C");
  names(compare(stored, Table({1, 5}, "ABB")), "{'a': 5}", "{'a': {'$maxKey': 1}}", "A", "B");
  names(compare(stored, Table({2, 5}, "ABA")), "{'a': 1}", "{'a': 2}", "B", "A");
  names(compare(stored, Table({0, 5}, "ABA")), "{'a': 0}", "{'a': 1}", "A", "B");
  names(compare(stored, Table({1, 4}, "ABA")), "{'a': 4}", "{'a': 5}", "B", "A");
  names(compare(stored, Table({}, "A")), "{'a': 1}", "{'a': 5}", "B", "A");
  names(compare(stored, Table({1, 5, 9, 12}, "ABACA")), "{'a': 9}", "{'a': 12}", "A", "C");
}

TEST_CASE("the compact form names the first difference too") {
  const BsonDoc stored = Table({1, 5}, "ABA").document(0);
  CHECK(stored.view()["ranges"].exists() == false);
  CHECK(stored.view()["owners"].as_binary().data.size() == 6);
  CHECK_THAT(compare(stored, Table({1, 5}, "ACA")),
             Catch::Contains("range [" + to_json(doc("{'a': 1}")) + ", " +
                             to_json(doc("{'a': 5}")) + ") belonged to shard 'B'"));
  CHECK_THAT(compare(stored, Table({1, 6}, "ABA")),
             Catch::Contains("range [" + to_json(doc("{'a': 1}")) + ", " +
                             to_json(doc("{'a': 6}")) + ") of shard 'B' ended elsewhere"));
  CHECK(compare(stored, Table({}, "A")) != "same");
  CHECK(compare(stored, Table({1, 5, 9}, "ABAC")) != "same");
}

TEST_CASE("a changed shard key is named") {
  RoutingParts parts;
  parts.shards = {{"A", "mongodb://a", 0}};
  const ShardKeyPattern key = pattern("{'b': 1}");
  parts.collections.push_back({"db.c", key, false, ChunkMap::single(key, 0), 0});
  const RoutingSnapshot now(std::move(parts));
  const auto result = compare_fingerprint(Table({}, "A").document(), *now.collection("db.c"), now);
  REQUIRE(result.has_error());
  CHECK(result.error().is(ErrorCode::illegal_operation));
  CHECK_THAT(result.error().message, Catch::Contains("its shard key was"));
}

TEST_CASE("documents that are none of ours are refused") {
  const Table now({1}, "AB");
  for (const std::string stored : {
           "{}",
           "{'key': {'a': 1}}",
           "{'key': {'a': 5}, 'shards': []}",
           "{'key': {'a': 1}, 'shards': [5]}",
           "{'key': {'a': 1}, 'shards': ['A', 'B'], 'ranges': []}",
           "{'key': {'a': 1}, 'shards': ['A', 'B'], 'ranges': [5]}",
           "{'key': {'a': 1}, 'shards': ['A', 'B'], 'ranges': [{'max': {'a': 1}, 'shard': 7}]}",
           "{'key': {'a': 1}, 'shards': ['A', 'B'], 'ranges': [{'max': {'b': 1}, 'shard': 0}]}",
           "{'key': {'a': 1}, 'shards': ['A', 'B'], 'ranges': [{'max': {'a': 1}, 'shard': 0}]}",
           "{'key': {'a': 1}, 'shards': ['A'], 'bounds': {'$binary': {'base64': '', 'subType': "
           "'00'}}, 'owners': {'$binary': {'base64': 'AAA=', 'subType': '00'}}}",
       }) {
    INFO(stored);
    const auto result = compare_fingerprint(doc(stored), now.collection(), *now.snapshot);
    REQUIRE(result.has_error());
    CHECK(result.error().is(ErrorCode::failed_to_parse));
  }
}

TEST_CASE("the hash is the same everywhere") {
  CHECK(stable_hash64("") == stable_hash64(""));
  CHECK(stable_hash64("a") != stable_hash64("b"));
  CHECK(stable_hash64("a", 1) != stable_hash64("a", 2));
  // FNV-1a of "a" is af63dc4c8601ec8c; mixed as in splitmix64.
  CHECK(stable_hash64("a") == [] {
    std::uint64_t h = 0xaf63dc4c8601ec8cu;
    h ^= h >> 30;
    h *= 0xbf58476d1ce4e5b9u;
    h ^= h >> 27;
    h *= 0x94d049bb133111ebu;
    return h ^ (h >> 31);
  }());
}

}  // namespace
}  // namespace spillway::catalog
