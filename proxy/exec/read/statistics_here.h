// What each shard of a static table tells of itself: statistics of a collection, sessions. In a cluster, shards answer
// these with their names, and as one.
#pragma once

#include "proxy/exec/core/response.h"
#include "proxy/exec/read/aggregate.h"

namespace spillway::exec {

// The first stage runs on each of the shards, the others here; CommandNotSupported(115) for what is not evaluated here.
Task<Result<Response>> statistics_here(Context& context, Client& client, const Request& request,
                                       const AggregateArguments& aggregate, const Targets& targets);

}  // namespace spillway::exec
