// $shardedDataDistribution: how many documents of each sharded collection lie on each shard, and how many of them
// belong to another one. Of a cluster, from 6.0 on.
#pragma once

#include <string_view>

#include "proxy/exec/core/request.h"
#include "proxy/exec/read/query_run.h"

namespace spillway::exec {

inline constexpr std::string_view distribution_stage = "$shardedDataDistribution";

// Errors: 6789100 the stage's value is not {}, 6789102 another database than admin.
Result<void> check_distribution(const Request& request, ValueView stage);
// Of each collection {ns, shards: [{shardName, numOrphanedDocs, numOwnedDocuments, ownedSizeBytes,
// orphanedSizeBytes}]}.
Task<Result<void>> list_data_distribution(Context& context, const Request& request, QueryRun& into);

}  // namespace spillway::exec
