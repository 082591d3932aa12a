// May a running router replace its routing table by this one?
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "proxy/exec/core/context.h"

namespace spillway::server {

using Table = std::shared_ptr<const catalog::RoutingSnapshot>;

// Compares both tables. Asks shards whether collections are empty whose ranges change shards without a migration.
// Compares with the fingerprints that the shards keep (ownership_check.h). Stores new fingerprints only if all of it
// is right. Asks for the collections once more at the end, since the check takes a while. Runs on a worker's loop.
// Errors name the collection and the range, or the shard that did not answer: IllegalOperation(20), FailedToParse(9),
// HostUnreachable(6). REQUIRES the same shards.
Task<Result<void>> check_new_table(exec::Context& context, Table before, Table after);

// Are there collections whose documents, written by commands with the old table, the new table may not find?
bool may_leave_strays(const catalog::RoutingSnapshot& before, const catalog::RoutingSnapshot& after);
// Looks for such documents when no command uses the old table any more, among the first of each collection: it was
// empty. Logs its findings, the remedy, and the places where it could not look. Returns the collections' names. Runs
// on a worker's loop.
Task<std::vector<std::string>> find_strays(exec::Context& context, Table before, Table after);

}  // namespace spillway::server
