// The documents of updates in change streams, as they are now (fullDocument: "updateLookup"). Shards cannot look up
// what has moved to another shard, so the router does it.
#pragma once

#include <optional>

#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/shard/gateway.h"

namespace spillway::exec {

// A call for an event, by a getMore that has the stream's read preference; not bound by the time for which the client
// waits for events.
shard::CallOptions options_for_event(Context& context, const Request& request);

struct LookedUp {
  shard::Reply reply;
  DocView document{};  // in the reply
};

// The document of this event, as a majority of its shard's members has it at the event's time or later. nullopt: it, or
// its collection, is gone. `preference`: the stream's $readPreference, for the members; `request` has it, too.
// Errors: 40578 for an event that does not say which document, those of shards.
Task<Result<std::optional<LookedUp>>> look_up_changed(Context& context, const Request& request, DocView event,
                                                      ValueView preference);

}  // namespace spillway::exec
