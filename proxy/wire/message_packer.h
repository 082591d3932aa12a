// OP_COMPRESSED in steps: large messages are compressed and unpacked in pieces of a fraction of a millisecond, so
// that the caller's loop can serve other connections in between. Not thread-safe.
#pragma once

#include <cstddef>
#include <memory>

#include "cursor/bson_view.h"
#include "proxy/wire/compression.h"
#include "proxy/wire/message.h"

namespace spillway::wire {

// A message into its envelope.
class MessagePacker {
 public:
  // A shorter body takes about a millisecond at most, so that compress_message() will do.
  static std::size_t at_once_bytes_max(Compressor compressor) noexcept;
  // Memory that one takes while it lives, beside `out`.
  static std::size_t scratch_bytes(Compressor compressor) noexcept;
  // The largest piece of a body to give at once.
  static constexpr std::size_t step_bytes = 4 * limits::kib;

  // `out` outlives it, and has compressed_message_size_max() bytes.
  MessagePacker(Compressor compressor, MessageHeader plain, MutableBytes out);
  MessagePacker(const MessagePacker&) = delete;
  MessagePacker& operator=(const MessagePacker&) = delete;
  ~MessagePacker();

  // The next bytes of the body (the message without its header). False: it has failed for good.
  bool add(Bytes piece);
  // REQUIRES that the whole body was given. The envelope's length.
  Result<std::size_t> finish();

  struct Codec;

 private:
  Compressor compressor_;
  MessageHeader plain_;
  MutableBytes out_;
  std::unique_ptr<Codec> codec_;
};

// A message out of its envelope: errors and rules are those of decompress_message().
class MessageUnpacker {
 public:
  static std::size_t at_once_bytes_max(Compressor compressor) noexcept;
  static std::size_t scratch_bytes(Compressor compressor) noexcept;
  // About this much of a body comes out in one step.
  static constexpr std::size_t step_bytes = 32 * limits::kib;

  // `header` and `out` outlive it. REQUIRES: out.size() == 16 + header.uncompressed_size.
  MessageUnpacker(MessageHeader outer, const CompressedHeader& header, MutableBytes out);
  MessageUnpacker(const MessageUnpacker&) = delete;
  MessageUnpacker& operator=(const MessageUnpacker&) = delete;
  ~MessageUnpacker();

  // True: this was the last step.
  Result<bool> step();

  struct Codec;

 private:
  std::unique_ptr<Codec> codec_;
};

}  // namespace spillway::wire
