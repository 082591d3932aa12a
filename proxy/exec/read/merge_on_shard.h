// Aggregations over several shards of which one, the merger, runs the second half (pipeline/split_for_merger.h): it
// takes over the cursors that the router has opened on the others. In a cluster only.
#pragma once

#include <span>

#include "proxy/exec/read/aggregate.h"

namespace spillway::exec {

// The merger fetches from the others as __system, and they give a cursor's documents only to the user that has opened
// it: so the router must be __system, too.
bool shards_may_merge(const Context& context) noexcept;

// Options that routers tell shards: 51089, 51028 or 51143, as from a mongos.
Result<void> refuse_router_options(DocView aggregate);

// What the stages ask of the merger. 28769: a collection that must not be sharded. 115: two stages ask for two shards.
Result<MergerNeeds> merger_needs(const Context& context, const Request& request, DocView pipeline,
                                 std::span<const InvolvedNamespace> involved);

// Runs an aggregation that is not whole on one shard: the shards' union, or merged by one of them. `refusal`: the
// answer if a shard would have to merge, and none may.
Task<Result<Response>> aggregate_on_shards(Context& context, Client& client, const Request& request,
                                           const AggregateArguments& aggregate, const AggregatePlan& plan,
                                           Error refusal);

// The merger's second half as it is sent, behind $mergeCursors: the bytes of a BSON array.
BsonDoc stages_for_merger(const Request& request, DocView merge_part);

}  // namespace spillway::exec
