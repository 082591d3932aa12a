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
// Of several outputs a shard would choose one: not the one that was checked, perhaps. `may_be_sharded`: shards divide
// the command.
Result<void> check_map_reduce_output(DocView body, const InvolvedNamespace& output, bool may_be_sharded);
// The aggregation of a divided one. REQUIRES the output and the collection checked. Errors: of
// aggregation_of_map_reduce().
Result<BsonDoc> map_reduce_aggregation(const Context& context, DocView body, const InvolvedNamespace& output);

}  // namespace spillway::exec
