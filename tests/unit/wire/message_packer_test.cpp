#include "proxy/wire/message_packer.h"

#include <zstd.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "allocator/limits.h"
#include "tests/unit/wire/wire_support.h"

namespace spillway::wire {
namespace {

constexpr Compressor all[] = {Compressor::noop, Compressor::snappy, Compressor::zlib, Compressor::zstd};
constexpr std::size_t sizes[] = {0, 1, 100, 4096, 65'535, 65'536, 65'537, 200'000, 3'000'000};

// A message whose body can be compressed a little, well, or not at all.
ByteVector message_of(std::size_t body_bytes, unsigned values) {
  std::mt19937 random(values);
  ByteVector message(limits::message_header_bytes + body_bytes);
  for (std::size_t i = limits::message_header_bytes; i < message.size(); ++i) {
    message[i] = static_cast<std::uint8_t>(random() % values);
  }
  write_header(message.data(),
               {static_cast<std::int32_t>(message.size()), 7, 5, static_cast<std::int32_t>(OpCode::msg)});
  return message;
}

ByteVector packed(Compressor compressor, const ByteVector& message, std::size_t step) {
  ByteVector out(compressed_message_size_max(compressor, message.size()));
  MessagePacker packer(compressor, *parse_header(message), out);
  for (Bytes rest = Bytes(message).subspan(limits::message_header_bytes); !rest.empty();) {
    const std::size_t now = std::min(rest.size(), step);
    REQUIRE(packer.add(rest.first(now)));
    rest = rest.subspan(now);
  }
  out.resize(packer.finish().value());
  return out;
}

Result<ByteVector> unpacked(const ByteVector& envelope) {
  const auto header = parse_compressed(envelope);
  if (header.has_error()) return header.error();
  ByteVector out(limits::message_header_bytes + header->uncompressed_size);
  MessageUnpacker unpacker(*parse_header(envelope), *header, out);
  for (std::size_t steps = 0;; ++steps) {
    const auto stepped = unpacker.step();
    if (stepped.has_error()) return stepped.error();
    if (*stepped) return out;
    REQUIRE(steps < 100'000);
  }
}

ByteVector packed_at_once(Compressor compressor, const ByteVector& message) {
  ByteVector out(compressed_message_size_max(compressor, message.size()));
  out.resize(compress_message(compressor, message, out).value());
  return out;
}

}  // namespace

TEST_CASE("what_is_packed_in_steps_is_unpacked_at_once") {
  for (const Compressor compressor : all) {
    for (const std::size_t size : sizes) {
      for (const unsigned values : {3U, 40U, 256U}) {
        CAPTURE(compressor_name(compressor), size, values);
        const ByteVector message = message_of(size, values);
        const ByteVector envelope = packed(compressor, message, size > 100'000 ? MessagePacker::step_bytes : 1000);
        const auto header = parse_compressed(envelope);
        REQUIRE(header.has_value());
        REQUIRE(header->uncompressed_size == size);
        ByteVector out(message.size());
        REQUIRE(decompress_message(*parse_header(envelope), *header, out).has_value());
        CHECK(out == message);
        // No worse than at once.
        CHECK(envelope.size() <= packed_at_once(compressor, message).size() * 102 / 100 + 100);
      }
    }
  }
}

TEST_CASE("what_is_packed_at_once_is_unpacked_in_steps") {
  for (const Compressor compressor : all) {
    for (const std::size_t size : sizes) {
      for (const unsigned values : {3U, 256U}) {
        CAPTURE(compressor_name(compressor), size, values);
        const ByteVector message = message_of(size, values);
        const auto out = unpacked(packed_at_once(compressor, message));
        REQUIRE(out.has_value());
        CHECK(*out == message);
      }
    }
  }
}

// Each takes the decompressor as long as one with content.
TEST_CASE("a zlib stream of blocks without content is read in steps, too") {
  constexpr std::size_t blocks = 100'000;
  const ByteVector message = message_of(0, 3);
  ByteVector envelope = packed_at_once(Compressor::zlib, message);
  constexpr std::size_t zlib_header_bytes = 2;
  const auto payload = parse_compressed(envelope)->payload;
  const auto at = envelope.begin() + (payload.data() - envelope.data()) + zlib_header_bytes;
  ByteVector empty;
  for (std::size_t i = 0; i < blocks; ++i) empty.insert(empty.end(), {0, 0, 0, 0xff, 0xff});
  envelope.insert(at, empty.begin(), empty.end());
  store_le(envelope.data(), static_cast<std::int32_t>(envelope.size()));
  const auto header = parse_compressed(envelope);
  REQUIRE(header.has_value());
  ByteVector out(limits::message_header_bytes + header->uncompressed_size);
  MessageUnpacker unpacker(*parse_header(envelope), *header, out);
  std::size_t steps = 0;
  for (;; ++steps) {
    const auto stepped = unpacker.step();
    REQUIRE(stepped.has_value());
    if (*stepped) break;
  }
  CHECK(out == message);
  CHECK(steps >= empty.size() / MessageUnpacker::step_bytes);
}

TEST_CASE("damage_that_is_found_at_once_is_found_in_steps") {
  const ByteVector message = message_of(100'000, 40);
  for (const Compressor compressor : all) {
    const ByteVector right = packed_at_once(compressor, message);
    const auto same = [&](ByteVector envelope) {
      store_le(envelope.data(), static_cast<std::int32_t>(envelope.size()));
      const auto header = parse_compressed(envelope);
      REQUIRE(header.has_value());
      ByteVector out(limits::message_header_bytes + header->uncompressed_size);
      const bool at_once = decompress_message(*parse_header(envelope), *header, out).has_value();
      const auto in_steps = unpacked(envelope);
      CHECK(in_steps.has_value() == at_once);
      if (at_once && in_steps.has_value()) CHECK(*in_steps == out);
    };
    std::mt19937 random(1);
    for (int i = 0; i < 300; ++i) {
      CAPTURE(compressor_name(compressor), i);
      ByteVector damaged = right;
      damaged[compressed_prefix_bytes + random() % (right.size() - compressed_prefix_bytes)] ^=
          static_cast<std::uint8_t>(1U << random() % 8);
      same(damaged);
      same(ByteVector(right.begin(), right.begin() + static_cast<std::ptrdiff_t>(
                                                         compressed_prefix_bytes +
                                                         random() % (right.size() - compressed_prefix_bytes))));
    }
    ByteVector longer = right, more = right, less = right;
    longer.push_back(0);
    same(longer);
    store_le(more.data() + 20, load_le<std::int32_t>(right.data() + 20) + 1);
    same(more);
    store_le(less.data() + 20, load_le<std::int32_t>(right.data() + 20) - 1);
    same(less);
  }
}

TEST_CASE("packing_with_zstd_takes_no_more_than_is_charged") {
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(), ZSTD_freeCCtx);
  // As MessagePacker does it.
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, 3);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_windowLog, 20);
  ZSTD_CCtx_setPledgedSrcSize(context.get(), 16 * limits::mib);
  std::vector<std::uint8_t> in(limits::mib), out(2 * limits::mib);
  ZSTD_inBuffer from{in.data(), in.size(), 0};
  ZSTD_outBuffer to{out.data(), out.size(), 0};
  REQUIRE(ZSTD_isError(ZSTD_compressStream2(context.get(), &to, &from, ZSTD_e_continue)) == 0);
  CHECK(ZSTD_sizeof_CCtx(context.get()) <= MessagePacker::scratch_bytes(Compressor::zstd));
}

}  // namespace spillway::wire
