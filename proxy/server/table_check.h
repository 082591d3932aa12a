// May a running router take this routing table instead of its own?
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "proxy/exec/core/context.h"

namespace spillway::server {

using Table = std::shared_ptr<const catalog::RoutingSnapshot>;

// Compares both tables, asks shards whether collections are empty that move without being moved, and compares with
// the fingerprints that the shards keep (ownership_check.h); only if all of it is right are new fingerprints kept. That
// takes a while, so that the collections are asked for once more at its end. Runs on a worker's loop. Errors name the
// collection and the range, or the shard that could not be asked: IllegalOperation(20), FailedToParse(9),
// HostUnreachable(6). REQUIRES the same shards, default primary and default shard key.
Task<Result<void>> check_new_table(exec::Context& context, Table before, Table after);

// Are there collections of which commands that still use the table before may write documents where the one after does
// not look for them?
bool may_leave_strays(const catalog::RoutingSnapshot& before, const catalog::RoutingSnapshot& after);
// Looks for such documents when no command uses the table before any more, among the first of each collection: it was
// empty. Writes to the log what it finds, what is to be done, and where it could not look. Returns the collections'
// names. Runs on a worker's loop.
Task<std::vector<std::string>> find_strays(exec::Context& context, Table before, Table after);

}  // namespace spillway::server
