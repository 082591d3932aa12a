// Shard keys, filter bounds and targeting on arbitrary BSON: nothing crashes, results keep their
// promises. Input: one byte that picks a shard key, then two documents, the first as a document and
// the second as a filter (each as far as it is there).
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "cursor/bson_view.h"
#include "proxy/catalog/fingerprint.h"
#include "proxy/catalog/routing.h"

namespace {

using namespace spillway;
using namespace spillway::catalog;

void require(bool holds) {
  if (!holds) std::abort();
}

CollectionRouting make(const char* json) {
  auto key = ShardKeyPattern::parse(BsonDoc::from_json(json).value()).value();
  const ShardKeyPattern& k = key;
  std::vector<ChunkSpec> chunks;
  BsonDoc low = k.min_bound();
  for (int i = 0; i < 4; ++i) {
    BsonWriter bound;
    for (const auto& field : k.fields()) {
      if (field.hashed) {
        bound.append(field.path, (i - 2) * (std::int64_t{1} << 61));
      } else if (i < 2) {
        bound.append(field.path, i * 10);
      } else {
        bound.append(field.path, i == 2 ? "g" : "q");
      }
    }
    BsonDoc high = std::move(bound).finish();
    chunks.push_back({std::move(low), high, static_cast<ShardIndex>(i % 3)});
    low = std::move(high);
  }
  chunks.push_back({std::move(low), k.max_bound(), 1});
  auto map = ChunkMap::build(k, std::move(chunks));
  require(map.has_value());
  return {"db.c", std::move(key), false, std::move(*map), 0};
}

const std::vector<CollectionRouting>& routings() {
  static const std::vector<CollectionRouting> all = [] {
    std::vector<CollectionRouting> out;
    for (const char* json : {R"({"a":1})", R"({"a":"hashed"})", R"({"a":1,"b":1})", R"({"a.b":1})",
                             R"({"a":1,"b.c":"hashed","d":1})"}) {
      out.push_back(make(json));
    }
    return out;
  }();
  return all;
}

const RoutingSnapshot& snapshot() {
  static const RoutingSnapshot table = [] {
    RoutingParts parts;
    for (ShardIndex i = 0; i < 3; ++i) {
      parts.shards.push_back({"s" + std::to_string(i), "mongodb://h" + std::to_string(i), i});
    }
    return RoutingSnapshot(std::move(parts));
  }();
  return table;
}

void check_document(const CollectionRouting& routing, DocView document) {
  const auto owner = routing.target_document(document);
  const auto values = routing.key.key_values_of_document(document);
  require(owner.has_value() == values.has_value());
  if (owner) require(routing.all_shards().contains(*owner));
  (void)ShardKeyPattern::parse(document);
  (void)routing.key.has_prefix_index(document);
  (void)routing.key.key_of_bound(document);
  (void)compare_fingerprint(document, routing, snapshot());
}

void check_filter(const CollectionRouting& routing, DocView filter) {
  (void)exact_id_equality(filter);
  for (const bool simple : {true, false}) {
    const auto exact = routing.target_exact(filter, simple);
    const auto shards = routing.target_filter(filter, simple);
    require(shards.has_value() && !shards->empty());
    if (exact) require(shards->size() == 1 && shards->front() == *exact);
    const FilterBounds bounds = bounds_of_filter(routing.key, filter, simple);
    require(bounds.fields.size() == routing.key.fields().size());
    const auto visited = flatten(bounds, [](std::string_view min, std::string_view max) {
      require(min <= max);
      return true;
    });
    require(visited.has_value());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const CollectionRouting& routing = routings()[data[0] % routings().size()];
  Bytes rest(data + 1, size - 1);
  const auto document = DocView::parse(rest);
  if (!document) return 0;
  check_document(routing, *document);
  check_filter(routing, *document);
  const auto filter = DocView::parse(rest.subspan(document->size()));
  if (!filter) return 0;
  check_filter(routing, *filter);
  return 0;
}
