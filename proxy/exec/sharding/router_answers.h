// What this router tells of its cluster, and how it is told to read again.
#pragma once

#include <string>

#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"
#include "proxy/shard/gateway.h"

namespace spillway::exec {

// "<set>/<host:port>,…", as config.shards names shards.
std::string connection_string_of(const shard::ShardState& shard);

// The handlers of these commands in a cluster.
Task<Result<Response>> list_shards_of_cluster(Context& context, const Request& request);
Task<Result<Response>> shard_map_of_cluster(Context& context);
Task<Result<Response>> shard_version_in_cluster(Context& context, const Request& request);
Task<Result<Response>> flush_router_config_in_cluster(Context& context, const Request& request);

}  // namespace spillway::exec
