// mapReduce, which MongoDB has deprecated: a shard that has all that it reads and writes runs it. Otherwise shards run
// it as an aggregation, from 4.4 on.
#pragma once

#include <string_view>

#include "proxy/exec/read/aggregate.h"

namespace spillway::exec {

// The collection that the command writes; without a name: none. Views into `body`.
InvolvedNamespace map_reduce_output(DocView body, std::string_view db);
// Shards from 4.4 on run it as an aggregation, which one of them merges.
bool shards_divide_map_reduce(const Context& context, const Targets& targets);
// That aggregation. REQUIRES the collection checked. Errors: of `out`, and of aggregation_of_map_reduce().
Result<BsonDoc> map_reduce_aggregation(const Context& context, DocView body, const InvolvedNamespace& output);

}  // namespace spillway::exec
