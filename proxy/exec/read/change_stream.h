// Change streams over all shards of a cluster.
#pragma once

#include <cstdint>
#include <optional>

#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"
#include "proxy/exec/cursors/active_cursor.h"
#include "proxy/exec/read/aggregate.h"

namespace spillway::exec {

// An aggregate whose first stage is $changeStream: opens it on every shard, from one time on. Answers without events.
Task<Result<Response>> open_change_stream(Context& context, Client& client, const Request& request,
                                          const AggregateArguments& aggregate);

// The next events that no shard can precede any more; waits for the first one, up to `await_ms` (without one, a
// second).
Task<Result<Response>> get_more_changes(Context& context, const Request& request, ActiveCursor cursor,
                                        std::int64_t batch_size, std::optional<std::int64_t> await_ms);

// An error of a stream as its client gets it: with the label by which drivers open the stream again.
Error error_of_stream(Error error);

}  // namespace spillway::exec
