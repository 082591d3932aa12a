// Running a command whose table other routers change: when a shard knows a newer one, the names are read again, and
// the command runs again.
#pragma once

#include "proxy/exec/core/command.h"

namespace spillway::exec {

// Resolves the request's names, runs its handler, and repeats both as long as shards refuse the command for the table
// that it came with (they refuse before they execute anything), at most ten times.
Task<Result<Response>> run_in_cluster(Context& context, Client& client, const CommandSpec& spec, Request& request);

}  // namespace spillway::exec
