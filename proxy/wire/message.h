// The header that every wire message starts with.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/limits.h"
#include "cursor/bson_view.h"

namespace spillway::wire {

enum class OpCode : std::int32_t {
  reply = 1,  // the answer to OP_QUERY
  update = 2001,
  insert = 2002,
  query = 2004,  // only for hello
  get_more = 2005,
  delete_ = 2006,
  kill_cursors = 2007,  // of drivers that hello says less than 14 to
  compressed = 2012,  // an envelope
  msg = 2013,         // the protocol
};

struct MessageHeader {
  std::int32_t message_length = 0;  // header included
  std::int32_t request_id = 0;
  std::int32_t response_to = 0;
  std::int32_t op_code = 0;  // as sent: possibly none of OpCode

  bool is(OpCode code) const noexcept { return op_code == static_cast<std::int32_t>(code); }
};

// REQUIRES: first16.size() >= 16. Any length.
inline MessageHeader load_header(Bytes first16) noexcept {
  return {.message_length = load_le<std::int32_t>(first16.data()),
          .request_id = load_le<std::int32_t>(first16.data() + 4),
          .response_to = load_le<std::int32_t>(first16.data() + 8),
          .op_code = load_le<std::int32_t>(first16.data() + 12)};
}
inline bool is_length_allowed(const MessageHeader& header, std::size_t bytes_max) noexcept {
  return header.message_length >= static_cast<std::int32_t>(limits::message_header_bytes) &&
         header.message_length <= static_cast<std::int32_t>(bytes_max);
}

// REQUIRES: first16.size() >= 16. An error (ProtocolError) when the length is outside
// [16, message_bytes_max]: the caller closes the connection without a reply.
Result<MessageHeader> parse_header(Bytes first16);

// The same for a shard's reply, which may be as long as limits::shard_reply_bytes_max.
Result<MessageHeader> parse_reply_header(Bytes first16);

// REQUIRES: room for 16 bytes at `to`.
void write_header(std::uint8_t* to, MessageHeader header) noexcept;

}  // namespace spillway::wire
