#include "allocator/block_codec.h"

#include <catch2/catch.hpp>

#include "tests/unit/allocator/spill_support.h"

namespace spillway {
namespace {

using test::ByteVector;
using test::random_bytes;
using test::text_bytes;

ByteVector copy(std::span<const std::uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

TEST_CASE("blocks_of_every_size_come_back", "[spill]") {
  BlockCodec codec;
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{16}, std::size_t{100},
        std::size_t{4096}, std::size_t{65'537}, BlockCodec::block_bytes_max}) {
    for (const ByteVector& raw :
         {random_bytes(size, 1), text_bytes(size, 2), ByteVector(size, 0)}) {
      const auto encoded = codec.encode(raw, size);
      CHECK(encoded.bytes.size() <= raw.size());
      CHECK(encoded.info.raw_bytes == raw.size());
      const ByteVector stored = copy(encoded.bytes);
      ByteVector back(size);
      CHECK(codec.decode(encoded.info, stored, size, back));
      CHECK(back == raw);
    }
  }
}

TEST_CASE("what_does_not_shrink_is_kept_as_it_is", "[spill]") {
  BlockCodec codec;
  const ByteVector random = random_bytes(100'000, 3);
  const auto as_it_is = codec.encode(random, 0);
  CHECK_FALSE(as_it_is.info.compressed);
  CHECK(as_it_is.bytes.data() == random.data());
  const ByteVector text = text_bytes(100'000, 3);
  const auto smaller = codec.encode(text, 0);
  CHECK(smaller.info.compressed);
  CHECK(smaller.bytes.size() < 40'000);
}

TEST_CASE("every_damaged_bit_is_found", "[spill]") {
  BlockCodec codec;
  for (const ByteVector& raw : {random_bytes(3'001, 4), text_bytes(9'001, 5)}) {
    const auto encoded = codec.encode(raw, 17);
    ByteVector stored = copy(encoded.bytes);
    ByteVector back(raw.size());
    for (std::size_t bit = 0; bit < stored.size() * 8; bit += 13) {
      stored[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
      CHECK_FALSE(codec.decode(encoded.info, stored, 17, back));
      stored[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    }
    CHECK(codec.decode(encoded.info, stored, 17, back));
    CHECK_FALSE(codec.decode(encoded.info, stored, 18, back));  // another block's bytes
  }
}

TEST_CASE("damage_that_the_checksum_passes_is_no_crash", "[spill]") {
  BlockCodec codec;
  const ByteVector raw = text_bytes(50'000, 6);
  const auto encoded = codec.encode(raw, 1);
  ByteVector stored = copy(encoded.bytes);
  ByteVector back(raw.size());
  std::mt19937 dice(7);
  for (int round = 0; round < 500; ++round) {
    ByteVector damaged = stored;
    for (int hits = 0; hits < 4; ++hits)
      damaged[dice() % damaged.size()] = static_cast<std::uint8_t>(dice());
    BlockInfo info = encoded.info;
    info.checksum = checksum64(damaged, 1);
    codec.decode(info, damaged, 1, back);
  }
  BlockInfo longer = encoded.info;
  ByteVector too_long(raw.size() + 1);
  longer.raw_bytes = static_cast<std::uint32_t>(too_long.size());
  CHECK_FALSE(codec.decode(longer, stored, 1, too_long));
}

TEST_CASE("checksums_differ_by_length_seed_and_order", "[spill]") {
  const ByteVector zeros(64, 0);
  const std::span<const std::uint8_t> all(zeros);
  CHECK(checksum64(all.first(8), 1) != checksum64(all.first(9), 1));
  CHECK(checksum64(all.first(0), 1) != checksum64(all.first(0), 2));
  ByteVector ab(32, 0);
  ab[0] = 1;
  ByteVector ba(32, 0);
  ba[8] = 1;
  CHECK(checksum64(ab, 0) != checksum64(ba, 0));
}

}  // namespace spillway
