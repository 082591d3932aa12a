// May a running router take this routing table instead of its own?
#pragma once

#include <memory>

#include "proxy/exec/context.h"

namespace spillway::server {

using Table = std::shared_ptr<const catalog::RoutingSnapshot>;

// Compares both tables, asks shards whether collections are empty that move without being moved, and compares with
// the fingerprints that the shards keep (guards.h); only if all of it is right are new fingerprints kept. Runs on a
// worker's loop. Errors name the collection and the range, or the shard that could not be asked:
// IllegalOperation(20), FailedToParse(9), HostUnreachable(6).
// REQUIRES the same shards, default primary and default shard key.
Task<Result<void>> check_new_table(exec::Context& context, Table before, Table after);

}  // namespace spillway::server
