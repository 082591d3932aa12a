// Shorthands of the catalog tests: documents from JSON with single quotes.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/catalog/chunk_map.h"
#include "proxy/catalog/intervals.h"
#include "proxy/catalog/routing.h"
#include "proxy/catalog/shard_key.h"

namespace spillway::catalog::test {

inline BsonDoc doc(std::string_view json) {
  std::string text(json);
  std::replace(text.begin(), text.end(), '\'', '"');
  INFO("document " << text);
  auto parsed = BsonDoc::from_json(text);
  REQUIRE(parsed.has_value());
  return std::move(*parsed);
}

inline ShardKeyPattern pattern(std::string_view json) {
  auto parsed = ShardKeyPattern::parse(doc(json));
  REQUIRE(parsed.has_value());
  return std::move(*parsed);
}

// `filter` inside `times` single-branch arrays of `op`: deeper than parsers of JSON go.
inline BsonDoc nested(BsonDoc filter, const char* op, int times) {
  for (int i = 0; i < times; ++i) {
    BsonWriter outer;
    outer.begin_array(op);
    outer.append_item(filter);
    outer.end();
    filter = std::move(outer).finish();
  }
  return filter;
}

// The encoding of one value.
inline std::string value_key(std::string_view json) {
  const BsonDoc holder = doc("{'v': " + std::string(json) + "}");
  return order_key(holder.view()["v"]);
}

// The concatenated encodings of several values, as a key or a range's end.
inline std::string compound_key(const std::vector<std::string>& values) {
  std::string key;
  for (const std::string& value : values) key += value_key(value);
  return key;
}

// A collection over one chunk per gap between the given splits; chunk i on shard i.
inline CollectionRouting split_at(std::string_view key, const std::vector<std::string>& splits) {
  ShardKeyPattern parsed = pattern(key);
  std::vector<ChunkSpec> chunks;
  BsonDoc low = parsed.min_bound();
  for (const std::string& split : splits) {
    BsonDoc high = doc(split);
    chunks.push_back({low, high, static_cast<ShardIndex>(chunks.size())});
    low = std::move(high);
  }
  const auto last = static_cast<ShardIndex>(chunks.size());
  chunks.push_back({std::move(low), parsed.max_bound(), last});
  auto map = ChunkMap::build(parsed, std::move(chunks));
  REQUIRE(map.has_value());
  return {"db.c", std::move(parsed), false, std::move(*map), 0};
}

inline std::vector<int> list(const ShardSet& shards) { return {shards.begin(), shards.end()}; }

}  // namespace spillway::catalog::test
