#include "proxy/wire/frame_reader.h"

#include "allocator/limits.h"

namespace spillway::wire {

FrameReader::Need FrameReader::peek(Bytes have) noexcept {
  Need need;
  if (have.size() < limits::message_header_bytes) {
    need.bytes = limits::message_header_bytes - have.size();
    return need;
  }
  const MessageHeader header = load_header(have);
  if (!is_length_allowed(header, limits::message_bytes_max)) {
    need.kind = Kind::bad;
    return need;
  }
  need.kind = Kind::message;
  need.header = header;
  need.bytes = static_cast<std::size_t>(header.message_length);
  return need;
}

Error FrameReader::why_bad(Bytes have) { return parse_header(have).error(); }

}  // namespace spillway::wire
