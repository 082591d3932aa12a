#include "proxy/wire/frame_reader.h"

#include <utility>

#include "allocator/limits.h"

namespace spillway::wire {

FrameReader::Need FrameReader::peek(Bytes have) {
  Need need;
  if (have.size() < limits::message_header_bytes) {
    need.bytes = limits::message_header_bytes - have.size();
    return need;
  }
  Result<MessageHeader> header = parse_header(have);
  if (!header) {
    need.kind = Kind::bad;
    need.error = std::move(header).error();
    return need;
  }
  need.kind = Kind::message;
  need.header = *header;
  need.bytes = static_cast<std::size_t>(header->message_length);
  return need;
}

}  // namespace spillway::wire
