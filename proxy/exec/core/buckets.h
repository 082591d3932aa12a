// Commands on a sharded time series go to the collection that holds its buckets: shards know no other as sharded.
#pragma once

#include "proxy/exec/core/command.h"

namespace spillway::exec {

// Is the command's collection a time series whose buckets are sharded? REQUIRES RouteNeed::written.
bool has_sharded_buckets(const Request& request);

// Is it run_on_buckets()' command?
bool is_on_buckets(const Request& request);

// The command on the buckets, as a router sends it.
Task<Result<Response>> run_on_buckets(Context& context, Client& client, const Request& request, Handler handler);
// Its body. `says_so`: with the field isTimeseriesNamespace.
BsonDoc command_on_buckets(const Request& request, bool says_so);

}  // namespace spillway::exec
