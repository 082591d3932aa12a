#include "proxy/wire/message_packer.h"

#define ZSTD_STATIC_LINKING_ONLY  // ZSTD_d_stableOutBuffer
#include <snappy.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "allocator/limits.h"
#include "proxy/wire/codec.h"

namespace spillway::wire {

// --- into an envelope

struct MessagePacker::Codec {
  explicit Codec(MutableBytes room) : out(room) {}
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;
  virtual ~Codec() = default;
  virtual bool add(Bytes piece) = 0;
  virtual bool finish() = 0;

  MutableBytes out;  // behind the envelope's head
  std::size_t filled = 0;
};

namespace {

// Windows of the usual size for such a level would take three times as much.
constexpr int packing_window_log = 20;

struct NoopPacking final : MessagePacker::Codec {
  using Codec::Codec;
  bool add(Bytes piece) override {
    if (piece.size() > out.size() - filled) return false;
    std::copy(piece.begin(), piece.end(), out.begin() + static_cast<std::ptrdiff_t>(filled));
    filled += piece.size();
    return true;
  }
  bool finish() override { return true; }
};

// A snappy stream is its length, and then elements that its own encoder makes of blocks of 64 KiB by themselves. So the
// streams of such blocks, without their lengths, make up the stream of all.
struct SnappyPacking final : MessagePacker::Codec {
  static constexpr std::size_t block_bytes = 64 * limits::kib;

  SnappyPacking(MutableBytes room, std::size_t body_bytes)
      : Codec(room), block_(std::make_unique<std::uint8_t[]>(block_bytes)) {
    for (; body_bytes >= 0x80; body_bytes >>= 7) out[filled++] = static_cast<std::uint8_t>(body_bytes | 0x80);
    out[filled++] = static_cast<std::uint8_t>(body_bytes);
  }
  bool add(Bytes piece) override {
    while (!piece.empty()) {
      const std::size_t now = std::min(piece.size(), block_bytes - held_);
      std::memcpy(block_.get() + held_, piece.data(), now);
      held_ += now;
      piece = piece.subspan(now);
      if (held_ == block_bytes && !flush()) return false;
    }
    return true;
  }
  bool finish() override { return held_ == 0 || flush(); }

 private:
  bool flush() {
    // The last block's own length has no room of its own.
    const std::size_t most = snappy::MaxCompressedLength(held_);
    std::vector<std::uint8_t> aside(out.size() - filled < most ? most : 0);
    std::uint8_t* const to = aside.empty() ? out.data() + filled : aside.data();
    std::size_t written = 0;
    snappy::RawCompress(reinterpret_cast<const char*>(block_.get()), held_, reinterpret_cast<char*>(to), &written);
    Bytes stream(to, written);
    if (!codec::take_snappy_length(stream) || stream.size() > out.size() - filled) return false;
    std::memmove(out.data() + filled, stream.data(), stream.size());
    filled += stream.size();
    held_ = 0;
    return true;
  }

  std::unique_ptr<std::uint8_t[]> block_;
  std::size_t held_ = 0;
};

struct ZlibPacking final : MessagePacker::Codec {
  explicit ZlibPacking(MutableBytes room) : Codec(room) { deflater_.give({}, room); }
  bool add(Bytes piece) override {
    if (!deflater_.ready) return false;
    if (piece.empty()) return true;
    stream_.next_in = const_cast<Bytef*>(piece.data());
    stream_.avail_in = static_cast<uInt>(piece.size());
    return deflate(&stream_, Z_NO_FLUSH) == Z_OK && stream_.avail_in == 0;
  }
  bool finish() override {
    if (!deflater_.ready || deflate(&stream_, Z_FINISH) != Z_STREAM_END) return false;
    filled = out.size() - stream_.avail_out;
    return true;
  }

 private:
  codec::Deflater deflater_;
  z_stream& stream_ = deflater_.stream;
};

struct ZstdPacking final : MessagePacker::Codec {
  ZstdPacking(MutableBytes room, std::size_t body_bytes) : Codec(room), context_(ZSTD_createCCtx()) {
    ready_ = context_ && set(ZSTD_c_compressionLevel, codec::zstd_level) && set(ZSTD_c_windowLog, packing_window_log) &&
             ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(context_.get(), body_bytes)) == 0;
  }
  bool add(Bytes piece) override {
    ZSTD_inBuffer in{piece.data(), piece.size(), 0};
    while (ready_ && in.pos < in.size) {
      if (ZSTD_isError(step(in, ZSTD_e_continue)) != 0) ready_ = false;
    }
    return ready_;
  }
  bool finish() override {
    ZSTD_inBuffer nothing{nullptr, 0, 0};
    while (ready_) {
      const std::size_t left = step(nothing, ZSTD_e_end);
      if (left == 0) return true;
      ready_ = ZSTD_isError(left) == 0 && filled < out.size();
    }
    return false;
  }

 private:
  bool set(ZSTD_cParameter parameter, int value) {
    return ZSTD_isError(ZSTD_CCtx_setParameter(context_.get(), parameter, value)) == 0;
  }
  std::size_t step(ZSTD_inBuffer& in, ZSTD_EndDirective what) {
    ZSTD_outBuffer to{out.data(), out.size(), filled};
    const std::size_t result = ZSTD_compressStream2(context_.get(), &to, &in, what);
    filled = to.pos;
    return result;
  }

  std::unique_ptr<ZSTD_CCtx, codec::FreeZstd> context_;
  bool ready_ = false;
};

std::unique_ptr<MessagePacker::Codec> packing_of(Compressor compressor, std::size_t body_bytes, MutableBytes out) {
  switch (compressor) {
    case Compressor::noop:
      break;
    case Compressor::snappy:
      return std::make_unique<SnappyPacking>(out, body_bytes);
    case Compressor::zlib:
      return std::make_unique<ZlibPacking>(out);
    case Compressor::zstd:
      return std::make_unique<ZstdPacking>(out, body_bytes);
  }
  return std::make_unique<NoopPacking>(out);
}

}  // namespace

// By compressor.
std::size_t MessagePacker::at_once_bytes_max(Compressor compressor) noexcept {
  constexpr std::array<std::size_t, 4> bytes = {limits::mib, 512 * limits::kib, 32 * limits::kib, 128 * limits::kib};
  return bytes[static_cast<std::size_t>(compressor)];
}

// Of snappy: a block, and the library's own memory for one.
std::size_t MessagePacker::scratch_bytes(Compressor compressor) noexcept {
  constexpr std::array<std::size_t, 4> bytes = {0, 256 * limits::kib, 272 * limits::kib, 3 * limits::mib};
  return bytes[static_cast<std::size_t>(compressor)];
}

MessagePacker::MessagePacker(Compressor compressor, MessageHeader plain, MutableBytes out)
    : compressor_(compressor), plain_(plain), out_(out) {
  const std::size_t body_bytes = static_cast<std::size_t>(plain.message_length) - limits::message_header_bytes;
  codec_ = packing_of(compressor, body_bytes, out.subspan(compressed_prefix_bytes));
}

MessagePacker::~MessagePacker() = default;

bool MessagePacker::add(Bytes piece) { return codec_->add(piece); }

Result<std::size_t> MessagePacker::finish() {
  if (!codec_->finish()) return Error(ErrorCode::internal_error, "compressing the message failed");
  const std::size_t total = compressed_prefix_bytes + codec_->filled;
  codec::write_envelope(out_, total, compressor_, plain_);
  return total;
}

// --- out of an envelope

struct MessageUnpacker::Codec {
  Codec(Bytes payload, MutableBytes room) : in(payload), out(room) {}
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;
  virtual ~Codec() = default;
  virtual Result<bool> step() = 0;

  // Where one step ends.
  std::size_t step_end() const noexcept { return std::min(out.size(), filled + MessageUnpacker::step_bytes); }
  Error damaged() const { return codec::size_differs(out.size()); }

  Bytes in;
  MutableBytes out;
  std::size_t filled = 0;
};

namespace {

// For messages that gain nothing from steps: they are only copied, or invalid.
struct UnpackingAtOnce final : MessageUnpacker::Codec {
  UnpackingAtOnce(const CompressedHeader& header, MutableBytes room) : Codec(header.payload, room), header_(header) {}
  Result<bool> step() override {
    if (auto done = decompress(header_, out); done.has_error()) return done.error();
    return true;
  }

 private:
  const CompressedHeader& header_;
};

struct SnappyUnpacking final : MessageUnpacker::Codec {
  using Codec::Codec;
  Result<bool> step() override {
    if (!begun_) {
      const auto length = codec::take_snappy_length(in);
      if (!length || *length != out.size()) return damaged();
      begun_ = true;
    }
    for (const std::size_t end = step_end(); filled < end;) {
      if (!take_element()) return damaged();
    }
    if (filled < out.size()) return false;
    if (!in.empty()) return damaged();
    return true;
  }

 private:
  // An element longer than the rest of the message is invalid.
  bool take_element() noexcept {
    const Bytes before = in;
    const std::size_t filled_before = filled;
    if (!codec::take_snappy_element(in, out, filled)) return false;
    return filled < out.size() || element_bytes(before) == filled - filled_before;
  }
  static std::size_t element_bytes(Bytes element) noexcept {
    const std::uint32_t kind = element[0] & 3U;
    const std::uint32_t upper = element[0] >> 2U;
    if (kind == 1) return (upper & 7U) + 4;
    if (kind != 0 || upper < 60) return std::size_t{upper} + 1;
    std::size_t length = 0;
    for (std::uint32_t i = 0; i < upper - 59; ++i) length |= std::size_t{element[i + 1]} << (8 * i);
    return length + 1;
  }

  bool begun_ = false;
};

struct ZlibUnpacking final : MessageUnpacker::Codec {
  using Codec::Codec;
  Result<bool> step() override {
    if (!inflater_.ready) return damaged();
    // Blocks may be empty: a step has an end in what it reads, too.
    const Bytes some = in.first(std::min(in.size(), in_step_bytes));
    const MutableBytes room = out.subspan(filled, step_end() - filled);
    inflater_.give(some, room);
    const int result = inflate(&inflater_.stream, Z_NO_FLUSH);
    const std::size_t read = some.size() - inflater_.stream.avail_in;
    const std::size_t written = room.size() - inflater_.stream.avail_out;
    in = in.subspan(read);
    filled += written;
    if (result == Z_STREAM_END) {
      if (filled != out.size() || !in.empty()) return damaged();
      return true;
    }
    const bool goes_on = (result == Z_OK || result == Z_BUF_ERROR) && read + written > 0;
    if (!goes_on) return damaged();
    return false;
  }

 private:
  static constexpr std::size_t in_step_bytes = 4 * limits::kib;

  codec::Inflater inflater_;
};

struct ZstdUnpacking final : MessageUnpacker::Codec {
  ZstdUnpacking(const CompressedHeader& header, MutableBytes room)
      : Codec(header.payload, room), header_(header), context_(ZSTD_createDCtx()) {}
  Result<bool> step() override {
    if (!std::exchange(begun_, true)) {
      if (auto checked = codec::check_zstd_frame(header_, out.size()); checked.has_error()) return checked.error();
      // So that zstd takes no window: its output is one.
      if (!context_ || ZSTD_isError(ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_stableOutBuffer, 1)) != 0) {
        return damaged();
      }
    }
    // A block of 128 KiB comes out at once: of what it asks for, since more may hold many blocks.
    ZSTD_outBuffer to{out.data(), out.size(), filled};
    ZSTD_inBuffer from{in.data(), std::min({in.size(), in_step_bytes, wanted_}), 0};
    const std::size_t left = ZSTD_decompressStream(context_.get(), &to, &from);
    wanted_ = std::max<std::size_t>(left, 1);
    const bool stuck = from.pos == 0 && to.pos == filled;
    filled = to.pos;
    in = in.subspan(from.pos);
    if (ZSTD_isError(left) != 0) return damaged();
    if (left == 0 && in.empty()) {
      if (filled != out.size()) return damaged();
      return true;
    }
    if (stuck) return damaged();
    return false;
  }

 private:
  static constexpr std::size_t in_step_bytes = 4 * limits::kib;

  const CompressedHeader& header_;
  std::unique_ptr<ZSTD_DCtx, codec::FreeZstd> context_;
  bool begun_ = false;
  std::size_t wanted_ = 5;  // a frame's beginning
};

}  // namespace

std::size_t MessageUnpacker::at_once_bytes_max(Compressor compressor) noexcept {
  return compressor == Compressor::zlib ? 128 * limits::kib : 512 * limits::kib;
}

std::size_t MessageUnpacker::scratch_bytes(Compressor compressor) noexcept {
  constexpr std::array<std::size_t, 4> bytes = {0, 0, 48 * limits::kib, 320 * limits::kib};
  return bytes[static_cast<std::size_t>(compressor)];
}

MessageUnpacker::MessageUnpacker(MessageHeader outer, const CompressedHeader& header, MutableBytes out) {
  codec::write_plain_header(out, outer, header);
  const MutableBytes body = out.subspan(limits::message_header_bytes);
  switch (header.compressor) {
    case Compressor::noop:
      codec_ = std::make_unique<UnpackingAtOnce>(header, body);
      break;
    case Compressor::snappy:
      codec_ = std::make_unique<SnappyUnpacking>(header.payload, body);
      break;
    case Compressor::zlib:
      codec_ = std::make_unique<ZlibUnpacking>(header.payload, body);
      break;
    case Compressor::zstd:
      codec_ = std::make_unique<ZstdUnpacking>(header, body);
      break;
  }
}

MessageUnpacker::~MessageUnpacker() = default;

Result<bool> MessageUnpacker::step() { return codec_->step(); }

}  // namespace spillway::wire
