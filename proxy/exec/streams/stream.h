// Streaming: a large batch of one shard passes to the client in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "allocator/small_blocks.h"
#include "proxy/auth/logical_clock.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/response.h"
#include "proxy/exec/cursors/active_cursor.h"
#include "proxy/shard/gateway.h"

namespace spillway::exec {

// A reply that streams from a shard's connection to the client: the batch array is the shard's, all around it is the
// router's.
struct StreamReply {
  static void* operator new(std::size_t bytes) {
    return RecyclingAllocator<std::byte>().allocate(bytes);
  }
  static void operator delete(void* block, std::size_t bytes) noexcept {
    small_blocks::give_back(block, bytes);
  }

  shard::Reply reply;            // its first bytes, and the connection for the rest
  std::size_t batch_offset = 0;  // of the array's first byte (its length) in reply.bytes
  std::size_t batch_bytes = 0;   // the whole array, length and terminator included
  std::string_view batch_name;   // "firstBatch" or "nextBatch": a literal
  ActiveCursor cursor;           // registered; its remote gets its id when the end of the reply was read
  std::size_t remote = 0;        // that sent the batch
  bool shard_id_known = false;   // the shard's cursor id stands before the batch
  BsonDoc recovery_token{};      // {recoveryToken: …} inside a transaction
  std::optional<auth::TimeTrust> times_for;  // of one clock: the reply ends with the times, for a client trusted so far
};

// Writes the whole reply message (header included) to the client, and puts the cursor back or ends it.
// False: close the client's connection. It is gone, or the shard died after the first byte; then the connection was
// reset. `first_tried`: set to the time when the first attempt to write returned.
Task<bool> relay_stream(Context& context, Transport& client, StreamReply& stream, std::int32_t request_id,
                        std::int32_t response_to, TimePoint& first_tried);

// Of a reply as the client gets it or, where it streams, of the shard's message.
std::size_t reply_bytes(const Response& response) noexcept;

}  // namespace spillway::exec
