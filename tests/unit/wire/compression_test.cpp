#include "proxy/wire/compression.h"

#include <snappy.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <random>
#include <string>

#include "allocator/limits.h"
#include "tests/unit/wire/wire_support.h"

namespace spillway::wire {
namespace {

constexpr Compressor all[] = {Compressor::noop, Compressor::snappy, Compressor::zlib,
                              Compressor::zstd};

ByteVector sample(std::size_t size, bool compressible) {
  std::mt19937 random(static_cast<unsigned>(size));
  ByteVector bytes(size);
  for (std::uint8_t& byte : bytes) {
    byte = static_cast<std::uint8_t>(compressible ? random() % 3 : random());
  }
  return bytes;
}

ByteVector compressed(Compressor compressor, Bytes in) {
  ByteVector out(compressed_size_max(compressor, in.size()));
  out.resize(compress(compressor, in, out).value());
  return out;
}

CompressedHeader header_of(Compressor compressor, std::size_t size, Bytes payload) {
  return {2013, static_cast<std::uint32_t>(size), compressor, payload};
}

ByteVector envelope(std::int32_t opcode, std::int32_t size, std::uint8_t id, Bytes payload) {
  ByteVector out(compressed_prefix_bytes);
  write_header(out.data(), {static_cast<std::int32_t>(out.size() + payload.size()), 9, 0,
                            static_cast<std::int32_t>(OpCode::compressed)});
  store_le(out.data() + 16, opcode);
  store_le(out.data() + 20, size);
  out[24] = id;
  out.insert(out.end(), payload.begin(), payload.end());
  return out;
}

}  // namespace

TEST_CASE("flags_are_told_from_a_compressed_message_without_decompressing_it") {
  for (const Compressor compressor : all) {
    for (const std::uint32_t flags : {0u, 1u, 2u, 3u, 0x10000u, 0x01010101u, 0x00ff00ffu, 0xffffffffu}) {
      for (const std::size_t size : {0u, 1u, 5u, 1000u, 300'000u}) {
        for (const bool compressible : {true, false}) {
          ByteVector inner = sample(size + 4, compressible);
          store_le(inner.data(), flags);
          const ByteVector message = envelope(2013, static_cast<std::int32_t>(inner.size()),
                                              static_cast<std::uint8_t>(compressor), compressed(compressor, inner));
          const std::size_t most = std::min(message.size(), compressed_flags_bytes);
          const auto told = peek_compressed_flags(Bytes(message).first(most));
          if (compressor == Compressor::zstd) {
            CHECK_FALSE(told);
            continue;
          }
          CHECK(told == flags);
          // A piece tells the same or nothing.
          for (std::size_t length = 0; length < most; length += 1 + length / 40) {
            const ByteVector piece(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(length));
            const auto early = peek_compressed_flags(piece);
            CHECK((!early || *early == flags));
          }
        }
      }
    }
  }
}

TEST_CASE("flags_of_what_is_damaged_or_no_op_msg_are_not_told") {
  const ByteVector inner(100, 0);
  for (const int id : {0, 1, 2, 3, 4, 255}) {
    CHECK_FALSE(peek_compressed_flags(envelope(2004, 100, static_cast<std::uint8_t>(id), inner)));
  }
  CHECK_FALSE(peek_compressed_flags(envelope(2013, 100, 4, inner)));
  // snappy: a copy from before the beginning, one from nowhere, a length that does not end, a literal cut off.
  for (const ByteVector& bad : {ByteVector{100, 0x05, 4}, ByteVector{100, 0x00, 7, 0x05, 0}, ByteVector(20, 0xff),
                                ByteVector{100, 0x0c, 1, 2, 3}, ByteVector{100}, ByteVector{}}) {
    CHECK_FALSE(peek_compressed_flags(envelope(2013, 100, 1, bad)));
  }
  CHECK(peek_compressed_flags(envelope(2013, 100, 1, ByteVector{100, 0x00, 7, 0x01, 1})) == 0x07070707u);
  CHECK_FALSE(peek_compressed_flags(envelope(2013, 100, 2, ByteVector(50, 0x55))));
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    ByteVector noise(random() % 40);
    for (std::uint8_t& byte : noise) byte = static_cast<std::uint8_t>(random());
    (void)peek_compressed_flags(envelope(2013, 100, static_cast<std::uint8_t>(random() % 4), noise));
  }
}

TEST_CASE("every_compressor_gives_back_what_it_was_given") {
  for (Compressor compressor : all) {
    for (std::size_t size : {0u, 1u, 5u, 1000u, 65'536u, 300'000u}) {
      for (bool compressible : {true, false}) {
        const ByteVector in = sample(size, compressible);
        const ByteVector packed = compressed(compressor, in);
        ByteVector out(size, 0xee);
        REQUIRE(decompress(header_of(compressor, size, packed), out));
        REQUIRE(out == in);
        if (compressor != Compressor::noop && compressible && size > 100) {
          REQUIRE(packed.size() < size);
        }
      }
    }
  }
}

TEST_CASE("a_declared_size_that_lies_is_an_error") {
  const ByteVector in = sample(10'000, true);
  for (Compressor compressor : all) {
    const ByteVector packed = compressed(compressor, in);
    for (std::size_t declared : {0u, 1u, 9'999u, 10'001u, 100'000u}) {
      ByteVector out(declared, 0xee);
      REQUIRE(code_of(decompress(header_of(compressor, declared, packed), out)) == 2);
    }
    ByteVector out(in.size());
    REQUIRE(decompress(header_of(compressor, in.size(), packed), out));
  }
}

TEST_CASE("every_truncation_of_a_payload_is_an_error_and_so_are_bytes_after_it") {
  const ByteVector in = sample(500, true);
  ByteVector out(in.size());
  for (Compressor compressor : all) {
    const ByteVector packed = compressed(compressor, in);
    for (std::size_t size = 0; size < packed.size(); ++size) {
      const ByteVector cut = exact(Bytes(packed).first(size));
      REQUIRE_FALSE(decompress(header_of(compressor, in.size(), cut), out).has_value());
    }
    ByteVector longer = packed;
    longer.push_back(0);
    REQUIRE_FALSE(decompress(header_of(compressor, in.size(), longer), out).has_value());
  }
}

TEST_CASE("corrupted_payloads_never_reach_beyond_the_output") {
  const ByteVector in = sample(2'000, true);
  std::mt19937 random(1);
  for (Compressor compressor : all) {
    const ByteVector packed = compressed(compressor, in);
    for (int round = 0; round < 500; ++round) {
      ByteVector corrupt = packed;
      for (int change = 0; change < 3; ++change) {
        corrupt[random() % corrupt.size()] = static_cast<std::uint8_t>(random());
      }
      ByteVector out(in.size());  // exact: AddressSanitizer watches its end
      const Result<void> done = decompress(header_of(compressor, in.size(), corrupt), out);
      REQUIRE((done.has_value() || done.error().is(ErrorCode::bad_value)));
    }
  }
}

TEST_CASE("a_bomb_fills_no_more_than_it_declared") {
  const ByteVector zeros(20'000'000, 0);
  for (Compressor compressor : {Compressor::snappy, Compressor::zlib, Compressor::zstd}) {
    const ByteVector bomb = compressed(compressor, zeros);
    ByteVector out(1'000);
    REQUIRE(code_of(decompress(header_of(compressor, out.size(), bomb), out)) == 2);
  }
}

TEST_CASE("a_zstd_frame_with_a_huge_window_is_refused") {
  const ByteVector in = sample(3'000, true);
  for (int log : {20, 23, 24, 27}) {
    ZSTD_CCtx* context = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, log);
    ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
    ByteVector packed(ZSTD_compressBound(in.size()));
    // Streaming in two steps: the size is not known to the frame, which keeps its window.
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{packed.data(), packed.size(), 0};
    REQUIRE(ZSTD_isError(ZSTD_compressStream2(context, &to, &from, ZSTD_e_continue)) == 0);
    REQUIRE(ZSTD_compressStream2(context, &to, &from, ZSTD_e_end) == 0);
    ZSTD_freeCCtx(context);
    packed.resize(to.pos);
    ByteVector out(in.size());
    const Result<void> done = decompress(header_of(Compressor::zstd, in.size(), packed), out);
    CHECK(done.has_value() == (log <= limits::zstd_window_log_max));
    CHECK((!done.has_value() || out == in));
  }
}

TEST_CASE("compressing_needs_the_worst_case_room") {
  const ByteVector in = sample(1'000, true);
  for (Compressor compressor : all) {
    ByteVector out(compressed_size_max(compressor, in.size()) - 1);
    CHECK(code_of(compress(compressor, in, out)) == 2);
  }
}

TEST_CASE("an_envelope_is_checked_before_memory_is_taken") {
  const ByteVector payload = {1, 2, 3};
  constexpr std::int32_t max = 48'000'000 - 16;
  CHECK(parse_compressed(envelope(2013, max, 3, payload)).has_value());
  CHECK(code_of(parse_compressed(envelope(2013, max + 1, 3, payload))) == 2);
  CHECK(code_of(parse_compressed(envelope(2013, INT32_MAX, 3, payload))) == 2);
  CHECK(code_of(parse_compressed(envelope(2013, -1, 3, payload))) == 2);
  CHECK(code_of(parse_compressed(envelope(2013, 3, 4, payload))) == 1);
  CHECK(code_of(parse_compressed(envelope(2013, 3, 255, payload))) == 1);
  CHECK(code_of(parse_compressed(envelope(2012, 3, 0, payload))) == 20);
  const ByteVector right = envelope(2013, 3, 0, {});
  for (std::size_t size = 0; size < right.size(); ++size) {
    ByteVector cut = exact(Bytes(right).first(size));
    if (size >= 4) {
      store_le(cut.data(), static_cast<std::int32_t>(size));
    }
    REQUIRE(code_of(parse_compressed(cut)) == 2);
  }
}

TEST_CASE("a_message_goes_into_its_envelope_and_comes_back") {
  const ByteVector in =
      message(R"({"find": "c", "filter": {"a": "aaaaaaaaaaaaaaaaaaaaaaaa"}})", 0, true);
  for (Compressor compressor : all) {
    ByteVector packed(compressed_message_size_max(compressor, in.size()));
    packed.resize(compress_message(compressor, in, packed).value());
    const Result<MessageHeader> outer = parse_header(packed);
    REQUIRE(outer);
    CHECK(outer->is(OpCode::compressed));
    CHECK(outer->request_id == 7);
    CHECK(outer->response_to == 3);
    const Result<CompressedHeader> header = parse_compressed(packed);
    REQUIRE(header);
    CHECK(header->compressor == compressor);
    ByteVector out(16 + header->uncompressed_size);
    REQUIRE(decompress_message(*outer, *header, out));
    CHECK(out == in);
    CHECK(parse_op_msg(out).has_value());
  }
}

TEST_CASE("a_message_whose_worst_case_is_too_large_stays_uncompressed") {
  ByteVector in(48'000'000);
  ByteVector out(48'000'000);
  write_header(in.data(), {48'000'000, 1, 0, 2013});
  CHECK(code_of(compress_message(Compressor::snappy, in, out)) == 2);
}

TEST_CASE("lists_of_compressors_are_read") {
  using List = std::vector<Compressor>;
  const List three = {Compressor::snappy, Compressor::zstd, Compressor::zlib};
  CHECK(parse_list("snappy,zstd,zlib") == three);
  CHECK(parse_list(" snappy , zstd,zlib ") == three);
  CHECK(parse_list("snappy,lz4,zstd,snappy,zlib") == three);
  CHECK(parse_list("disabled").empty());
  CHECK(parse_list("").empty());
  CHECK(check_list("snappy,zstd,zlib").value() == three);
  CHECK(check_list("disabled").value().empty());
  CHECK(check_list("").value().empty());
  CHECK(code_of(check_list("snappy,lz4")) == 2);
  CHECK(code_of(check_list("snappy,,zlib")) == 2);
  CHECK(code_of(check_list("snappy,snappy")) == 2);
  for (Compressor compressor : all) {
    CHECK(compressor_from_name(compressor_name(compressor)) == compressor);
  }
  CHECK_FALSE(compressor_from_name("Snappy").has_value());
}

TEST_CASE("negotiation_keeps_the_clients_order") {
  const std::vector<Compressor> enabled = parse_list("snappy,zstd,zlib");
  const BsonDoc client = doc(R"({"c": ["zlib", "lz4", 3, "snappy", "zlib", "noop"]})");
  const CompressorList agreed = negotiate(enabled, client.view()["c"].as_document());
  REQUIRE(agreed.size() == 2);
  CHECK(agreed[0] == Compressor::zlib);
  CHECK(agreed[1] == Compressor::snappy);
  CHECK(negotiate({}, client.view()["c"].as_document()).empty());
}

TEST_CASE("handshakes_and_credentials_are_never_compressed") {
  for (const char* name :
       {"hello", "isMaster", "ismaster", "saslStart", "saslContinue", "getnonce", "authenticate",
        "createUser", "updateUser", "copydbSaslStart", "copydbgetnonce", "copydb"}) {
    CHECK_FALSE(may_compress(name));
  }
  CHECK(may_compress("find"));
  CHECK(may_compress("insert"));
  CHECK(may_compress("ping"));
}

}  // namespace spillway::wire
