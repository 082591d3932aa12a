#include "proxy/wire/compression.h"

#include <snappy.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "allocator/limits.h"
#include "proxy/wire/codec.h"

namespace spillway::wire {

using codec::size_differs;
using codec::zstd_level;

namespace {

constexpr std::array<std::string_view, 4> compressor_names = {"noop", "snappy", "zlib", "zstd"};
constexpr std::size_t body_bytes_max = limits::message_bytes_max - limits::message_header_bytes;

constexpr std::array<std::string_view, 12> never_compressed = {
    "hello",        "isMaster",   "ismaster",   "saslStart", "saslContinue",    "getnonce",
    "authenticate", "createUser", "updateUser", "copydb",    "copydbSaslStart", "copydbgetnonce",
};

// Cuts the first item off a list separated by commas, without the blanks around it.
std::string_view take_item(std::string_view& list) noexcept {
  const std::size_t comma = std::min(list.find(','), list.size());
  std::string_view item = list.substr(0, comma);
  list.remove_prefix(std::min(comma + 1, list.size()));
  item.remove_prefix(std::min(item.find_first_not_of(' '), item.size()));
  return item.substr(0, item.find_last_not_of(' ') + 1);
}

Error bad_compression(std::string text) { return Error(ErrorCode::bad_value, std::move(text)); }

// Kept from message to message.
codec::Inflater* inflater_of_thread(Bytes in, MutableBytes out) noexcept {
  thread_local codec::Inflater inflater;
  if (!inflater.ready || inflateReset(&inflater.stream) != Z_OK) return nullptr;
  inflater.give(in, out);
  return &inflater;
}

// True when the stream that begins with `in` begins with out.size() bytes, which are in `out` then.
bool begin_zlib(Bytes in, MutableBytes out) noexcept {
  codec::Inflater* const inflater = inflater_of_thread(in, out);
  if (inflater == nullptr || in.empty()) return false;
  const int result = inflate(&inflater->stream, Z_SYNC_FLUSH);
  return (result == Z_OK || result == Z_STREAM_END) && inflater->stream.avail_out == 0;
}

// True when `in` is one whole stream of exactly out.size() bytes.
bool decompress_zlib(Bytes in, MutableBytes out) noexcept {
  codec::Inflater* const inflater = inflater_of_thread(in, out);
  return inflater != nullptr && inflate(&inflater->stream, Z_FINISH) == Z_STREAM_END &&
         inflater->stream.avail_in == 0 && inflater->stream.avail_out == 0;
}

// The bytes written; nullopt when they do not fit.
std::optional<std::size_t> compress_zlib(Bytes in, MutableBytes out) noexcept {
  thread_local codec::Deflater deflater;
  if (!deflater.ready || deflateReset(&deflater.stream) != Z_OK) return std::nullopt;
  deflater.give(in, out);
  if (deflate(&deflater.stream, Z_FINISH) != Z_STREAM_END) return std::nullopt;
  return out.size() - deflater.stream.avail_out;
}

// Cuts `count` bytes off, as a little-endian number; nullopt: there are fewer.
std::optional<std::uint32_t> take_number(Bytes& in, std::size_t count) noexcept {
  if (in.size() < count) return std::nullopt;
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < count; ++i) {
    number |= std::uint32_t{in[i]} << (8 * i);
  }
  in = in.subspan(count);
  return number;
}

bool begin_snappy(Bytes in, MutableBytes out) noexcept {
  if (!codec::take_snappy_length(in)) return false;
  for (std::size_t filled = 0; filled < out.size();) {
    if (!codec::take_snappy_element(in, out, filled)) return false;
  }
  return true;
}

// The window that a frame asks for (RFC 8878, section 3.1.1.1.2). A frame of a single segment has none beyond its
// content, and decompression into one piece of memory takes none either; a larger window marks a broken sender.
bool zstd_window_allowed(Bytes in) noexcept {
  constexpr std::uint32_t frame_magic = 0xfd2fb528;
  constexpr std::uint8_t single_segment = 0x20;
  if (in.size() < 6 || load_le<std::uint32_t>(in.data()) != frame_magic) {
    return true;  // no frame: decompression says so
  }
  if ((in[4] & single_segment) != 0) return true;
  const int log = 10 + (in[5] >> 3);
  const bool above_power = (in[5] & 7) != 0;
  return log + (above_power ? 1 : 0) <= limits::zstd_window_log_max;
}

Result<void> decompress_zstd(const CompressedHeader& header, MutableBytes out) {
  if (auto checked = codec::check_zstd_frame(header, out.size()); checked.has_error()) return checked;
  thread_local const std::unique_ptr<ZSTD_DCtx, codec::FreeZstd> context(ZSTD_createDCtx());
  if (!context) return Error(ErrorCode::exceeded_memory_limit, "no memory for a zstd context");
  const std::size_t written = ZSTD_decompressDCtx(context.get(), out.data(), out.size(),
                                                  header.payload.data(), header.payload.size());
  if (ZSTD_isError(written) != 0 || written != out.size()) return size_differs(out.size());
  return {};
}

Result<void> decompress_snappy(const CompressedHeader& header, MutableBytes out) {
  const auto* in = reinterpret_cast<const char*>(header.payload.data());
  std::size_t declared = 0;
  if (!snappy::GetUncompressedLength(in, header.payload.size(), &declared) ||
      declared != out.size()) {
    return size_differs(out.size());
  }
  char nothing = 0;
  char* to = out.empty() ? &nothing : reinterpret_cast<char*>(out.data());
  if (!snappy::RawUncompress(in, header.payload.size(), to)) return size_differs(out.size());
  return {};
}

void copy(Bytes from, std::uint8_t* to) noexcept {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

std::optional<std::size_t> compress_zstd(Bytes in, MutableBytes out) {
  thread_local const std::unique_ptr<ZSTD_CCtx, codec::FreeZstd> context(ZSTD_createCCtx());
  if (!context) return std::nullopt;
  const std::size_t written =
      ZSTD_compressCCtx(context.get(), out.data(), out.size(), in.data(), in.size(), zstd_level);
  return ZSTD_isError(written) != 0 ? std::nullopt : std::optional(written);
}

std::size_t compress_snappy(Bytes in, MutableBytes out) {
  std::size_t written = 0;
  snappy::RawCompress(reinterpret_cast<const char*>(in.data()), in.size(),
                      reinterpret_cast<char*>(out.data()), &written);
  return written;
}

}  // namespace

namespace codec {

// zlib insists on addresses.
void ZlibStream::give(Bytes in, MutableBytes out) noexcept {
  static std::uint8_t nothing = 0;
  stream.next_in = const_cast<Bytef*>(in.empty() ? &nothing : in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = out.empty() ? &nothing : out.data();
  stream.avail_out = static_cast<uInt>(out.size());
}

void write_envelope(MutableBytes out, std::size_t total, Compressor compressor, MessageHeader plain) {
  store_le(out.data() + 16, plain.op_code);
  store_le(out.data() + 20, plain.message_length - static_cast<std::int32_t>(limits::message_header_bytes));
  out[24] = static_cast<std::uint8_t>(compressor);
  plain.message_length = static_cast<std::int32_t>(total);
  plain.op_code = static_cast<std::int32_t>(OpCode::compressed);
  write_header(out.data(), plain);
}

void write_plain_header(MutableBytes out, MessageHeader outer, const CompressedHeader& header) {
  outer.message_length = static_cast<std::int32_t>(out.size());
  outer.op_code = header.original_opcode;
  write_header(out.data(), outer);
}

Error size_differs(std::size_t declared) {
  return bad_compression("decompressing the message did not yield the declared " + std::to_string(declared) +
             " bytes");
}

Result<void> check_zstd_frame(const CompressedHeader& header, std::size_t out_bytes) {
  if (!zstd_window_allowed(header.payload)) {
    return bad_compression("the zstd frame asks for a window that is too large");
  }
  const unsigned long long declared =
      ZSTD_getFrameContentSize(header.payload.data(), header.payload.size());
  if (declared == ZSTD_CONTENTSIZE_ERROR ||
      (declared != ZSTD_CONTENTSIZE_UNKNOWN && declared > out_bytes)) {
    return size_differs(out_bytes);
  }
  return {};
}

// Source: snappy's format_description.txt, sections 1 and 2.
std::optional<std::uint32_t> take_snappy_length(Bytes& in) noexcept {
  std::uint64_t length = 0;
  for (int i = 0; i < 5; ++i) {
    const auto byte = take_number(in, 1);
    if (!byte) return std::nullopt;
    length |= std::uint64_t{*byte & 0x7f} << (7 * i);
    if ((*byte & 0x80) == 0) {
      return length > UINT32_MAX ? std::nullopt : std::optional(static_cast<std::uint32_t>(length));
    }
  }
  return std::nullopt;
}

bool take_snappy_element(Bytes& in, MutableBytes out, std::size_t& filled) noexcept {
  const auto tag = take_number(in, 1);
  if (!tag) return false;
  const std::uint32_t kind = *tag & 3;
  const std::uint32_t upper = *tag >> 2;
  if (kind == 0) {
    std::size_t length = std::size_t{upper} + 1;
    if (upper >= 60) {
      const auto more = take_number(in, upper - 59);
      if (!more) return false;
      length = std::size_t{*more} + 1;
    }
    length = std::min(length, out.size() - filled);
    if (in.size() < length) return false;
    std::copy_n(in.begin(), length, out.begin() + static_cast<std::ptrdiff_t>(filled));
    in = in.subspan(length);
    filled += length;
    return true;
  }
  const auto number = take_number(in, kind == 1 ? 1 : kind == 2 ? 2 : 4);
  if (!number) return false;
  const std::size_t offset = kind == 1 ? (upper >> 3 << 8 | *number) : *number;
  if (offset == 0 || offset > filled) return false;
  const std::size_t length = kind == 1 ? (upper & 7) + 4 : upper + 1;
  const std::size_t end = filled + std::min(length, out.size() - filled);
  constexpr std::size_t word = sizeof(std::uint64_t);
  if (offset >= word && out.size() - filled >= length + word) {
    for (; filled < end; filled += word) std::memcpy(&out[filled], &out[filled - offset], word);
    filled = end;
  }
  for (; filled < end; ++filled) out[filled] = out[filled - offset];
  return true;
}

}  // namespace codec

std::string_view compressor_name(Compressor compressor) noexcept {
  return compressor_names[static_cast<std::size_t>(compressor)];
}

std::optional<Compressor> compressor_from_name(std::string_view name) noexcept {
  const auto found = std::find(compressor_names.begin(), compressor_names.end(), name);
  if (found == compressor_names.end()) return std::nullopt;
  return static_cast<Compressor>(found - compressor_names.begin());
}

std::vector<Compressor> parse_list(std::string_view text) {
  std::vector<Compressor> list;
  while (!text.empty()) {
    const auto known = compressor_from_name(take_item(text));
    if (known && std::find(list.begin(), list.end(), *known) == list.end()) list.push_back(*known);
  }
  return list;
}

Result<std::vector<Compressor>> check_list(std::string_view text) {
  std::vector<Compressor> list;
  if (text == "disabled") return list;
  while (!text.empty()) {
    const std::string_view item = take_item(text);
    const auto known = compressor_from_name(item);
    if (!known) {
      return bad_compression("unknown compressor '" + std::string(item) +
                 "': snappy, zstd, zlib or noop, separated by commas, or disabled");
    }
    if (std::find(list.begin(), list.end(), *known) != list.end()) {
      return bad_compression("compressor '" + std::string(item) + "' is named twice");
    }
    list.push_back(*known);
  }
  return list;
}

std::optional<std::uint32_t> peek_compressed_flags(Bytes start) {
  if (start.size() < compressed_prefix_bytes ||
      load_le<std::int32_t>(start.data() + 16) != static_cast<std::int32_t>(OpCode::msg)) {
    return std::nullopt;
  }
  const Bytes payload = start.subspan(compressed_prefix_bytes);
  std::array<std::uint8_t, 4> flags{};
  bool begun = false;
  switch (static_cast<Compressor>(start[24])) {
    case Compressor::noop:
      begun = payload.size() >= flags.size();
      if (begun) std::copy_n(payload.begin(), flags.size(), flags.begin());
      break;
    case Compressor::snappy:
      begun = begin_snappy(payload, flags);
      break;
    case Compressor::zlib:
      begun = begin_zlib(payload, flags);
      break;
    case Compressor::zstd:
      break;
  }
  return begun ? std::optional(load_le<std::uint32_t>(flags.data())) : std::nullopt;
}

CompressorList negotiate(std::span<const Compressor> enabled, DocView client) {
  CompressorList agreed;
  for (const Element& element : client) {
    const auto known =
        element.is_string() ? compressor_from_name(element.as_string()) : std::nullopt;
    if (known && std::find(enabled.begin(), enabled.end(), *known) != enabled.end() &&
        std::find(agreed.begin(), agreed.end(), *known) == agreed.end()) {
      agreed.push_back(*known);
    }
  }
  return agreed;
}

Result<CompressedHeader> parse_compressed(Bytes whole_message) {
  if (whole_message.size() < compressed_prefix_bytes ||
      load_le<std::uint32_t>(whole_message.data()) != whole_message.size()) {
    return bad_compression("OP_COMPRESSED with a wrong length of " + std::to_string(whole_message.size()) +
               " bytes");
  }
  CompressedHeader header;
  header.original_opcode = load_le<std::int32_t>(whole_message.data() + 16);
  const auto size = load_le<std::int32_t>(whole_message.data() + 20);
  const std::uint8_t id = whole_message[24];
  if (header.original_opcode == static_cast<std::int32_t>(OpCode::compressed)) {
    return Error(ErrorCode::illegal_operation, "a compressed message inside a compressed message");
  }
  if (size < 0 || static_cast<std::size_t>(size) > body_bytes_max) {
    return bad_compression("OP_COMPRESSED declares a size of " + std::to_string(size) + " bytes");
  }
  if (id >= compressor_names.size()) {
    return Error(ErrorCode::internal_error, "unknown compressor " + std::to_string(id));
  }
  header.uncompressed_size = static_cast<std::uint32_t>(size);
  header.compressor = static_cast<Compressor>(id);
  header.payload = whole_message.subspan(compressed_prefix_bytes);
  return header;
}

Result<void> decompress(const CompressedHeader& header, MutableBytes out) {
  switch (header.compressor) {
    case Compressor::noop:
      if (header.payload.size() != out.size()) return size_differs(out.size());
      copy(header.payload, out.data());
      return {};
    case Compressor::snappy:
      return decompress_snappy(header, out);
    case Compressor::zlib:
      if (!decompress_zlib(header.payload, out)) return size_differs(out.size());
      return {};
    case Compressor::zstd:
      return decompress_zstd(header, out);
  }
  return Error(ErrorCode::internal_error, "unknown compressor");
}

Result<void> decompress_message(MessageHeader outer, const CompressedHeader& header,
                                MutableBytes out) {
  codec::write_plain_header(out, outer, header);
  return decompress(header, out.subspan(limits::message_header_bytes));
}

std::size_t compressed_size_max(Compressor compressor, std::size_t in) noexcept {
  switch (compressor) {
    case Compressor::noop:
      return in;
    case Compressor::snappy:
      return snappy::MaxCompressedLength(in);
    case Compressor::zlib:
      return compressBound(static_cast<uLong>(in));
    case Compressor::zstd:
      return ZSTD_compressBound(in);
  }
  return in;
}

Result<std::size_t> compress(Compressor compressor, Bytes in, MutableBytes out) {
  if (out.size() < compressed_size_max(compressor, in.size())) {
    return bad_compression("no room for the compressed message");
  }
  std::optional<std::size_t> written;
  switch (compressor) {
    case Compressor::noop:
      copy(in, out.data());
      written = in.size();
      break;
    case Compressor::snappy:
      written = compress_snappy(in, out);
      break;
    case Compressor::zlib:
      written = compress_zlib(in, out);
      break;
    case Compressor::zstd:
      written = compress_zstd(in, out);
      break;
  }
  if (!written) return Error(ErrorCode::internal_error, "compressing the message failed");
  return *written;
}

std::size_t compressed_message_size_max(Compressor compressor, std::size_t whole_size) noexcept {
  return compressed_prefix_bytes +
         compressed_size_max(compressor, whole_size - limits::message_header_bytes);
}

Result<std::size_t> compress_message(Compressor compressor, Bytes whole_message, MutableBytes out) {
  if (compressed_message_size_max(compressor, whole_message.size()) > limits::message_bytes_max ||
      out.size() < compressed_prefix_bytes) {
    return bad_compression("no room for the compressed message");
  }
  const Bytes body = whole_message.subspan(limits::message_header_bytes);
  Result<std::size_t> written = compress(compressor, body, out.subspan(compressed_prefix_bytes));
  if (!written) return written;
  const std::size_t total = compressed_prefix_bytes + *written;
  codec::write_envelope(out, total, compressor, load_header(whole_message));
  return total;
}

bool may_compress(std::string_view command_name) noexcept {
  return std::find(never_compressed.begin(), never_compressed.end(), command_name) ==
         never_compressed.end();
}

}  // namespace spillway::wire
