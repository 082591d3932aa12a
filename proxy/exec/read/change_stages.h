// Stages behind $changeStream that the router does not evaluate: a shard does it, one event at a time.
#pragma once

#include <optional>

#include "cursor/bson_writer.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/read/aggregate.h"

namespace spillway::exec {

// What a shard must know of them: {pipeline, collation, let, $readPreference}. `stages`: the array of the client's
// stages.
BsonDoc stages_for_shard(const AggregateArguments& aggregate, DocView stages, ValueView read_preference);

// The event as the stages make it; nullopt: they drop it. Without an event the stages are only parsed. Any shard will
// do. Errors: the shard's, and BSONObjectTooLarge(10334).
Task<Result<std::optional<BsonDoc>>> run_stages_on_shard(Context& context, const Request& request,
                                                         catalog::ShardIndex shard, DocView stages,
                                                         std::optional<DocView> event);

}  // namespace spillway::exec
