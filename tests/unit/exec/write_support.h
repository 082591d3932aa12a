// Helpers of the write tests: documents from JSON with single quotes, collections over shards.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/catalog/routing.h"

namespace spillway::exec::test {

inline BsonDoc doc(std::string_view json) {
  std::string text(json);
  std::replace(text.begin(), text.end(), '\'', '"');
  auto parsed = BsonDoc::from_json(text);
  if (parsed.has_error()) FAIL("not JSON: " << text << ": " << parsed.error().message);
  return *std::move(parsed);
}

inline std::string text_of(DocView document) {
  std::string text = to_json(document, 100'000);
  std::replace(text.begin(), text.end(), '"', '\'');
  return text;
}

// A collection over one chunk per gap between the given bounds; chunk i lies on shard i.
inline catalog::CollectionRouting split_at(std::string_view key,
                                           const std::vector<std::string>& bounds,
                                           std::string ns = "db.c") {
  auto pattern = catalog::ShardKeyPattern::parse(doc(key));
  REQUIRE(pattern.has_value());
  std::vector<catalog::ChunkSpec> chunks;
  BsonDoc low = pattern->min_bound();
  for (const std::string& bound : bounds) {
    BsonDoc high = doc(bound);
    chunks.push_back({low, high, static_cast<catalog::ShardIndex>(chunks.size())});
    low = std::move(high);
  }
  const auto last = static_cast<catalog::ShardIndex>(chunks.size());
  chunks.push_back({std::move(low), pattern->max_bound(), last});
  auto map = catalog::ChunkMap::build(*pattern, std::move(chunks));
  REQUIRE(map.has_value());
  return {std::move(ns), *std::move(pattern), false, *std::move(map), 0};
}

}  // namespace spillway::exec::test
