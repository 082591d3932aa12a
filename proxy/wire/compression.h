// OP_COMPRESSED.
//
// Declared sizes are compared with the limits before any memory is taken, and with the real size afterwards: a
// message that declares more than it holds is an error, never a buffer with an unwritten end (CVE-2025-14847). Every
// error here closes the connection.
#pragma once

#include <absl/container/inlined_vector.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cursor/bson_view.h"
#include "proxy/wire/message.h"

namespace spillway::wire {

enum class Compressor : std::uint8_t { noop = 0, snappy = 1, zlib = 2, zstd = 3 };
using CompressorList = absl::InlinedVector<Compressor, 4>;

std::string_view compressor_name(Compressor compressor) noexcept;
std::optional<Compressor> compressor_from_name(std::string_view name) noexcept;

// "snappy,zstd,zlib" as configurations write it. parse_list skips unknown names, and "disabled";
// check_list refuses unknown names and repeated ones (BadValue).
std::vector<Compressor> parse_list(std::string_view text);
Result<std::vector<Compressor>> check_list(std::string_view text);

// The flags of the OP_MSG inside an OP_COMPRESSED, from its beginning, when there is no room to decompress it.
// compressed_flags_bytes suffice for what senders produce. nullopt: it is no OP_MSG, or its flags cannot be told, as
// with zstd (whose frames need a window).
inline constexpr std::size_t compressed_flags_bytes = 512;
std::optional<std::uint32_t> peek_compressed_flags(Bytes start);

// The compressors that both sides have, in the client's order. `client` is hello's `compression` array.
CompressorList negotiate(std::span<const Compressor> enabled, DocView client);

// An OP_COMPRESSED message: header, original opcode, size, compressor id, payload.
inline constexpr std::size_t compressed_prefix_bytes = 25;

struct CompressedHeader {
  std::int32_t original_opcode = 0;
  std::uint32_t uncompressed_size = 0;  // without the 16-byte header
  Compressor compressor = Compressor::noop;
  Bytes payload;  // a view into the message
};

// The whole message, header included. Errors: BadValue for sizes, InternalError for an unknown
// compressor, IllegalOperation for an envelope in an envelope.
Result<CompressedHeader> parse_compressed(Bytes whole_message);

// Fills `out` completely, or fails (BadValue); after a failure the content of `out` is undefined. REQUIRES:
// out.size() == header.uncompressed_size.
Result<void> decompress(const CompressedHeader& header, MutableBytes out);

// The same with the message's header in front: the message as if it had come uncompressed.
// REQUIRES: out.size() == 16 + header.uncompressed_size. `outer` is the envelope's header.
Result<void> decompress_message(MessageHeader outer, const CompressedHeader& header,
                                MutableBytes out);

// REQUIRES: in.size() <= message_bytes_max. Returns the bytes written; an error when `out` is
// smaller than compressed_size_max(compressor, in.size()).
Result<std::size_t> compress(Compressor compressor, Bytes in, MutableBytes out);
std::size_t compressed_size_max(Compressor compressor, std::size_t in) noexcept;

// A whole message into its OP_COMPRESSED envelope; ids are kept. Returns the envelope's length.
// `out` has room for compressed_message_size_max(); when that exceeds message_bytes_max the message
// is to be sent uncompressed (an error here).
Result<std::size_t> compress_message(Compressor compressor, Bytes whole_message, MutableBytes out);
std::size_t compressed_message_size_max(Compressor compressor, std::size_t whole_size) noexcept;

// False for the commands that a sender never compresses: handshakes and credentials.
bool may_compress(std::string_view command_name) noexcept;

}  // namespace spillway::wire
