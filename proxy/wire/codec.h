// What whole-message and stepwise compression share.
#pragma once

#include <zlib.h>
#include <zstd.h>

#include <cstddef>

#include "proxy/wire/compression.h"

namespace spillway::wire::codec {

inline constexpr int zstd_level = 3;

// A stream of zlib's, whose tables are what it costs.
struct ZlibStream {
  ZlibStream(const ZlibStream&) = delete;
  ZlibStream& operator=(const ZlibStream&) = delete;
  void give(Bytes in, MutableBytes out) noexcept;

  z_stream stream{};
  bool ready = false;

 protected:
  ZlibStream() = default;
  ~ZlibStream() = default;
};
struct Inflater : ZlibStream {
  Inflater() noexcept { ready = inflateInit(&stream) == Z_OK; }
  ~Inflater() {
    if (ready) inflateEnd(&stream);
  }
};
struct Deflater : ZlibStream {
  Deflater() noexcept { ready = deflateInit(&stream, Z_DEFAULT_COMPRESSION) == Z_OK; }
  ~Deflater() {
    if (ready) deflateEnd(&stream);
  }
};

struct FreeZstd {
  void operator()(ZSTD_DCtx* context) const noexcept { ZSTD_freeDCtx(context); }
  void operator()(ZSTD_CCtx* context) const noexcept { ZSTD_freeCCtx(context); }
};

// What stands before the payload, of an envelope of `total` bytes around this message.
void write_envelope(MutableBytes out, std::size_t total, Compressor compressor, MessageHeader plain);
// The header of the message that comes out of an envelope into `out`.
void write_plain_header(MutableBytes out, MessageHeader outer, const CompressedHeader& header);

Error size_differs(std::size_t declared);

// Is this a zstd frame whose content fits into `bytes`?
Result<void> check_zstd_frame(const CompressedHeader& header, std::size_t out_bytes);

// The length that a snappy stream begins with; nullopt: there is none.
std::optional<std::uint32_t> take_snappy_length(Bytes& in) noexcept;
// One element of a snappy stream, as far as it fits; false: damaged or incomplete.
bool take_snappy_element(Bytes& in, MutableBytes out, std::size_t& filled) noexcept;

}  // namespace spillway::wire::codec
