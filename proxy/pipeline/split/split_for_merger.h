// Divides an aggregation pipeline of a cluster's collection so that one of the shards, the merger, runs the second half
// on what the others send it.
#pragma once

#include <string_view>

#include "cursor/bson_writer.h"

namespace spillway::pipeline {

struct SplitForMerger {
  // The pipeline of each shard: the bytes of a BSON array.
  BsonDoc shard_part;
  // What the merger runs on the shards' streams. Empty: nothing merges them, their union is the result.
  BsonDoc merge_part;
  // The streams are ordered by the $sortKey of their documents, with these directions. Empty: they have no order.
  BsonDoc merge_sort;
  // Shards must send what only the merger understands: sort keys, other metadata, partial groups.
  bool needs_merge = false;
};

// As a mongos divides: every stage that sees one document at a time stays on the shards. The first one that does not
// is divided ($sort $group $count $sortByCount $limit $sample $geoNear) or begins the second half. A stage's argument
// is not checked: if it is malformed, a shard refuses it. TypeMismatch(14) and 40323 for what is no stage, 115 for
// change streams and searches. `pipeline` is valid BSON.
Result<SplitForMerger> split_for_merger(DocView pipeline);

// A first stage about the collection that every shard answers for itself: $collStats $indexStats $planCacheStats.
bool is_statistics_stage(std::string_view name) noexcept;

}  // namespace spillway::pipeline
