#include "proxy/wire/message.h"

#include <string>

namespace spillway::wire {

namespace {

Result<MessageHeader> parse_bounded(Bytes first16, std::size_t bytes_max) {
  const MessageHeader header = load_header(first16);
  if (!is_length_allowed(header, bytes_max)) {
    return Error(ErrorCode::protocol_error,
                 "message length " + std::to_string(header.message_length) + " is not between " +
                     std::to_string(limits::message_header_bytes) + " and " + std::to_string(bytes_max));
  }
  return header;
}

}  // namespace

Result<MessageHeader> parse_header(Bytes first16) {
  return parse_bounded(first16, limits::message_bytes_max);
}

Result<MessageHeader> parse_reply_header(Bytes first16) {
  return parse_bounded(first16, limits::shard_reply_bytes_max);
}

void write_header(std::uint8_t* to, MessageHeader header) noexcept {
  store_le(to, header.message_length);
  store_le(to + 4, header.request_id);
  store_le(to + 8, header.response_to);
  store_le(to + 12, header.op_code);
}

}  // namespace spillway::wire
