// A $group in two halves: partial results on the shards, combined here.
#pragma once

#include "cursor/bson_writer.h"
#include "proxy/pipeline/stages/group.h"

namespace spillway::pipeline {

struct SplitGroup {
  BsonDoc shard;  // {$group: {…}}, of ordinary accumulators
  GroupSpec merge;
  BsonDoc merge_text;  // {$group: {…}}, for explain
};

// Do the accumulators depend on the order of the documents ($first, $push…)?
bool group_needs_order(const std::vector<AccumulatorElement>& elements) noexcept;

// 115 for an accumulator that cannot be combined exactly, 15952 for one that does not exist.
Result<SplitGroup> split_group(ValueView id, const std::vector<AccumulatorElement>& elements);

}  // namespace spillway::pipeline
