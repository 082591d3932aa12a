// mapReduce as the aggregation that servers from 4.4 on make of it, so that shards divide the work and one merges it.
#pragma once

#include <cstdint>

#include "cursor/bson_writer.h"

namespace spillway::exec {

// The fields of `out` that name a collection: replace, normal, merge and reduce.
bool names_map_reduce_output(std::string_view field) noexcept;

// {aggregate, pipeline, …} for the shards. Without an output its only document is {results: […]}.
// `output`: what the command writes, with an empty collection if it writes none.
// `now_ms`: the time of day since 1970; `cluster_time`: the cluster's. REQUIRES the output and the collection checked.
// Errors: 40414 without a map or a reduce; TypeMismatch(14) for what is no script; 40415 for an unknown field.
Result<BsonDoc> aggregation_of_map_reduce(DocView command, std::string_view output_db, std::string_view output,
                                          std::int64_t now_ms, std::uint64_t cluster_time);

}  // namespace spillway::exec
