#include "proxy/catalog/chunk_map.h"

#include <cstdint>
#include <random>

#include "catalog_support.h"

namespace spillway::catalog {
namespace {

using test::compound_key;
using test::doc;
using test::list;
using test::pattern;
using test::split_at;

ChunkSpec chunk(std::string_view min, std::string_view max, ShardIndex shard) {
  return {doc(min), doc(max), shard};
}

constexpr std::string_view lowest = "{'a': {'$minKey': 1}}";
constexpr std::string_view highest = "{'a': {'$maxKey': 1}}";

TEST_CASE("a key belongs to the first chunk whose upper bound is above it") {
  const auto routing = split_at("{'a': 1}", {"{'a': -100}", "{'a': 0}", "{'a': 100}"});
  const ChunkMap& chunks = routing.chunks;
  const auto shard_of = [&](const std::string& value) {
    return chunks.shard_for(compound_key({value}));
  };
  CHECK(shard_of("{'$minKey': 1}") == 0);
  CHECK(shard_of("null") == 0);
  CHECK(shard_of("-100.5") == 0);
  CHECK(shard_of("-100") == 1);
  CHECK(shard_of("-1") == 1);
  CHECK(shard_of("0") == 2);
  CHECK(shard_of("99.99") == 2);
  CHECK(shard_of("100") == 3);
  CHECK(shard_of("'a'") == 3);
  CHECK(shard_of("{'$maxKey': 1}") == 3);
}

TEST_CASE("ranges include both ends") {
  const auto routing = split_at("{'a': 1}", {"{'a': -100}", "{'a': 0}", "{'a': 100}"});
  const auto shards_of = [&](const std::string& min, const std::string& max) {
    ShardSet shards;
    routing.chunks.shards_for_range(compound_key({min}), compound_key({max}), shards);
    return list(shards);
  };
  CHECK(shards_of("-100", "0") == std::vector<int>{1, 2});
  CHECK(shards_of("-100", "-100") == std::vector<int>{1});
  CHECK(shards_of("100", "100") == std::vector<int>{3});
  CHECK(shards_of("{'$minKey': 1}", "{'$maxKey': 1}") == std::vector<int>{0, 1, 2, 3});
  CHECK(shards_of("5", "4").empty());
}

TEST_CASE("chunks may be declared in any order and bounds come back as they were given") {
  auto built =
      ChunkMap::build(pattern("{'a': 1}"), {chunk("{'a': 7}", highest, 0), chunk(lowest, "{'a': 7}", 4)});
  REQUIRE(built.has_value());
  CHECK(built->size() == 2);
  CHECK(built->owner(0) == 4);
  CHECK(to_json(built->min_bound(0)) == to_json(doc(lowest)));
  CHECK(to_json(built->max_bound(0)) == to_json(doc("{'a': 7}")));
  CHECK(to_json(built->min_bound(1)) == to_json(doc("{'a': 7}")));
  CHECK(to_json(built->max_bound(1)) == to_json(doc(highest)));
  CHECK(built->first_shard() == 4);
  CHECK(list(built->owners()) == std::vector<int>{0, 4});
  CHECK(built->next_owner_change(0) == 1);
  CHECK(built->next_owner_change(1) == 2);
}

struct FaultCase {
  std::string name;
  std::vector<ChunkSpec> chunks;
  std::size_t at;
  std::vector<std::string> texts;
};

TEST_CASE("gaps, overlaps and odd bounds are named") {
  const std::vector<FaultCase> cases = {
      {"none", {}, 0, {"no chunks"}},
      {"gap",
       {chunk(lowest, "{'a': 1}", 0), chunk("{'a': 2}", highest, 0)},
       1,
       {"gap", to_json(doc("{'a': 1}")), to_json(doc("{'a': 2}"))}},
      {"gap at the start",
       {chunk("{'a': 3}", highest, 0)},
       0,
       {"gap", to_json(doc(lowest)), to_json(doc("{'a': 3}"))}},
      {"gap at the end",
       {chunk(lowest, "{'a': 3}", 0)},
       0,
       {"gap", to_json(doc("{'a': 3}")), to_json(doc(highest))}},
      {"overlap",
       {chunk(lowest, "{'a': 5}", 0), chunk("{'a': 4}", highest, 0)},
       1,
       {"overlap", to_json(doc("{'a': 5}")), to_json(doc("{'a': 4}"))}},
      {"twice", {chunk(lowest, highest, 0), chunk(lowest, highest, 1)}, 1, {"overlap"}},
      {"turned round",
       {chunk(lowest, "{'a': 5}", 0), chunk("{'a': 9}", "{'a': 5}", 0)},
       1,
       {"min is not below max", to_json(doc("{'a': 9}"))}},
      {"other field", {chunk(lowest, "{'b': 5}", 0), chunk("{'b': 5}", highest, 0)}, 0, {"'a'", "'b'"}},
  };
  for (const auto& c : cases) {
    INFO(c.name);
    const auto built = ChunkMap::build(pattern("{'a': 1}"), c.chunks);
    REQUIRE(built.has_error());
    CHECK(built.error().chunk == c.at);
    for (const auto& text : c.texts) CHECK_THAT(built.error().message, Catch::Contains(text));
  }
}

TEST_CASE("a hashed key is split evenly over int64, two chunks a shard") {
  const ChunkMap three = ChunkMap::even_hashed(pattern("{'_id': 'hashed'}"), 3);
  REQUIRE(three.size() == 6);
  const std::int64_t step = INT64_MAX / 6 * 2;
  const std::int64_t points[] = {-2 * step, -step, 0, step, 2 * step};
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(three.max_bound(i)["_id"].as_int64() == points[i]);
  }
  for (std::size_t i = 0; i < 6; ++i) CHECK(three.owner(i) == i / 2);

  const ChunkMap odd = ChunkMap::even_hashed(pattern("{'_id': 'hashed', 'x': 1}"), 3, 1);
  REQUIRE(odd.size() == 3);
  CHECK(odd.max_bound(0)["_id"].as_int64() == -(INT64_MAX / 3));
  CHECK(odd.max_bound(1)["_id"].as_int64() == INT64_MAX / 3);
  CHECK(odd.max_bound(0)["x"].type == BsonType::min_key);
  CHECK(ChunkMap::even_hashed(pattern("{'_id': 'hashed'}"), 1).size() == 2);
}

TEST_CASE("a hash finds the shard that its encoded key finds") {
  const ShardKeyPattern key = pattern("{'_id': 'hashed'}");
  std::mt19937_64 random(7);
  for (const std::size_t chunks : {1, 2, 3, 6, 1024, 1025, 5000}) {
    INFO(chunks);
    const ChunkMap map = chunks == 1 ? ChunkMap::single(key, 0) : ChunkMap::even_hashed(key, chunks, 1);
    REQUIRE(map.size() == chunks);
    REQUIRE(map.has_hash_bounds());
    std::vector<std::int64_t> hashes = {INT64_MIN, -1, 0, 1, INT64_MAX};
    for (std::size_t i = 0; i + 1 < chunks; ++i) {
      const std::int64_t bound = map.max_bound(i)["_id"].as_int64();
      hashes.insert(hashes.end(), {bound - 1, bound, bound + 1});
    }
    for (int i = 0; i < 1000; ++i) hashes.push_back(static_cast<std::int64_t>(random()));
    std::size_t differences = 0;
    for (const std::int64_t hash : hashes) {
      BsonWriter bound;
      bound.append("_id", hash);
      const std::string encoded = *key.key_of_bound(std::move(bound).finish());
      if (map.shard_for_hash(hash) != map.shard_for(encoded)) ++differences;
    }
    CHECK(differences == 0);
  }
}

TEST_CASE("only bounds of one hash each are searched by hash") {
  CHECK_FALSE(ChunkMap::even_hashed(pattern("{'_id': 'hashed', 'x': 1}"), 3).has_hash_bounds());
  CHECK_FALSE(ChunkMap::single(pattern("{'_id': 1}"), 0).has_hash_bounds());
  const ShardKeyPattern key = pattern("{'_id': 'hashed'}");
  const char* const lowest = "{'_id': {'$minKey': 1}}";
  const char* const highest = "{'_id': {'$maxKey': 1}}";
  const auto of_32_bits = ChunkMap::build(key, {chunk(lowest, "{'_id': 5}", 0), chunk("{'_id': 5}", highest, 1)});
  REQUIRE(of_32_bits.has_value());
  CHECK_FALSE(of_32_bits->has_hash_bounds());
}

TEST_CASE("a chunk takes at most 200 bytes") {
  const ShardKeyPattern key = pattern("{'region': 1, 'customer': 1, 'n': 1}");
  std::vector<ChunkSpec> chunks;
  BsonDoc min = key.min_bound();
  constexpr int count = 50'000;
  for (int i = 0; i < count; ++i) {
    BsonWriter bound;
    bound.append("region", "europe-west");
    bound.append("customer", i / 10);
    bound.append("n", std::int64_t{i} * 1'000'000);
    BsonDoc max = std::move(bound).finish();
    chunks.push_back({std::move(min), max, static_cast<ShardIndex>(i % 7)});
    min = std::move(max);
  }
  chunks.push_back({std::move(min), key.max_bound(), 0});
  const auto built = ChunkMap::build(key, std::move(chunks));
  REQUIRE(built.has_value());
  CHECK(built->memory_bytes() / built->size() <= 200);
  CHECK(built->owners().size() == 7);
}

TEST_CASE("a wide range over long runs of one owner stops when every owner is in") {
  const ShardKeyPattern key = pattern("{'a': 1}");
  std::vector<ChunkSpec> chunks;
  BsonDoc min = key.min_bound();
  for (int i = 0; i < 1000; ++i) {
    BsonWriter bound;
    bound.append("a", i);
    BsonDoc max = std::move(bound).finish();
    chunks.push_back({std::move(min), max, static_cast<ShardIndex>(i < 500 ? 0 : 1)});
    min = std::move(max);
  }
  chunks.push_back({std::move(min), key.max_bound(), 2});
  const auto built = ChunkMap::build(key, std::move(chunks));
  REQUIRE(built.has_value());
  CHECK(built->next_owner_change(0) == 500);
  CHECK(built->next_owner_change(500) == 1000);
  ShardSet shards;
  built->shards_for_range(compound_key({"10"}), compound_key({"600"}), shards);
  CHECK(list(shards) == std::vector<int>{0, 1});
}

TEST_CASE("a shard set is sorted and has no doubles") {
  ShardSet shards{5, 1, 3, 1};
  CHECK(list(shards) == std::vector<int>{1, 3, 5});
  CHECK_FALSE(shards.insert(3));
  CHECK(shards.insert(2));
  CHECK(shards.contains(2));
  CHECK_FALSE(shards.contains(4));
  CHECK(shards.size() == 4);
}

}  // namespace
}  // namespace spillway::catalog
