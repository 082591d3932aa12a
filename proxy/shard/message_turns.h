// Work on large messages in slices of the loop's time.
#pragma once

#include <optional>
#include <span>

#include "allocator/budget.h"
#include "allocator/buffer.h"
#include "cursor/bson_view.h"
#include "proxy/base/pump.h"
#include "proxy/base/task.h"
#include "proxy/base/transport.h"
#include "proxy/wire/compression.h"

namespace spillway::shard {

// `into` gets the message that an envelope holds. Where `budget` has no room for the slices' memory, it comes out at
// once. Errors: those of wire::decompress_message().
Task<Result<void>> unpack_in_turns(Pump& pump, MemoryBudget& budget, wire::MessageHeader outer,
                                   const wire::CompressedHeader& envelope, MutableBytes into);

// The message of these pieces, the first of which has the header, in its envelope. nullopt: there is no room for it, or
// it could grow beyond the largest message.
Task<std::optional<Buffer>> pack_in_turns(Pump& pump, MemoryBudget& budget, wire::Compressor compressor,
                                          std::span<const iovec> pieces, wire::MessageHeader header);

// Whether the document, and all in it, is well-formed. Its bytes outlive the task.
Task<bool> is_valid_in_turns(Pump& pump, DocView document);

}  // namespace spillway::shard
