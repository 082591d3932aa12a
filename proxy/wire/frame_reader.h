// Framing without I/O: what the bytes in hand say about the next message.
#pragma once

#include <cstddef>

#include "proxy/wire/message.h"

namespace spillway::wire {

// Stateless: connections keep the bytes, and ask again when more have come. The length is checked as
// soon as the header is complete, so that no memory is taken for a message that will be refused.
//   more     fewer than 16 bytes are here: `bytes` more complete the header
//   message  the header is known and right: `bytes` is the message's whole length, header included;
//            the message is complete once that many bytes are in hand
//   bad      close the connection without a reply; why_bad() is for the log
class FrameReader {
 public:
  enum class Kind : std::uint8_t { more, message, bad };
  struct Need {
    Kind kind = Kind::more;
    std::size_t bytes = 0;
    MessageHeader header;  // of kind message
  };
  // `have` starts at a message's first byte and may reach beyond its end.
  static Need peek(Bytes have) noexcept;
  static Error why_bad(Bytes have);  // REQUIRES kind bad
};

}  // namespace spillway::wire
