// Cut-through: a large batch of one shard passes to the client in pieces.
#pragma once

#include <cstdint>

#include "proxy/exec/core/context.h"
#include "proxy/exec/core/response.h"

namespace spillway::exec {

// Writes the whole reply message (header included) to the client, and puts the cursor back or ends it.
// False: the client's connection must be closed (it went away, or the shard died after the first byte, in
// which case the connection has been reset already). `first_tried`: is told when the first attempt to write returned.
Task<bool> relay_stream(Context& context, Transport& client, StreamReply& stream, std::int32_t request_id,
                        std::int32_t response_to, TimePoint& first_tried);

}  // namespace spillway::exec
