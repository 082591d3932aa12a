// Running a command whose table other routers change: when a shard knows a newer one, the names are read again, and
// the command runs again.
#pragma once

#include <optional>

#include "proxy/exec/core/command.h"

namespace spillway::exec {

// Does this answer make the command run again: for a newer table, for the view that the shard has found, for keys?
bool begins_again(const Request& request, const Result<Response>& answer);

// Resolves the request's names, runs its handler, and repeats both as long as shards refuse the command for the table
// that it came with (they refuse before they execute anything), at most ten times. `answer`: of the first try, which
// the caller has made with routes that were known.
Task<Result<Response>> run_in_cluster(Context& context, Client& client, const CommandSpec& spec, Request& request,
                                      std::optional<Result<Response>> answer);

}  // namespace spillway::exec
