#include "proxy/wire/crc32c.h"

#include <random>

#include "tests/unit/wire/wire_support.h"

namespace spillway::wire {

TEST_CASE("crc32c_of_known_vectors") {
  // RFC 3720, section B.4.
  const ByteVector zeros(32, 0);
  const ByteVector ones(32, 0xff);
  ByteVector rising(32);
  for (std::size_t i = 0; i < rising.size(); ++i) {
    rising[i] = static_cast<std::uint8_t>(i);
  }
  for (const auto crc : {crc32c, crc32c_portable}) {
    CHECK(crc({}, 0) == 0);
    CHECK(crc(zeros, 0) == 0x8a9136aa);
    CHECK(crc(ones, 0) == 0x62a8ab43);
    CHECK(crc(rising, 0) == 0x46dd794e);
  }
}

TEST_CASE("crc32c_agrees_with_the_portable_one_at_every_length_and_cut") {
  std::mt19937 random(20);
  ByteVector bytes(100);
  for (std::uint8_t& byte : bytes) {
    byte = static_cast<std::uint8_t>(random());
  }
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const Bytes all = Bytes(bytes).first(size);
    const std::uint32_t whole = crc32c_portable(all);
    REQUIRE(crc32c(all) == whole);
    for (std::size_t cut = 0; cut <= size; ++cut) {
      REQUIRE(crc32c(all.subspan(cut), crc32c(all.first(cut))) == whole);
      REQUIRE(crc32c_portable(all.subspan(cut), crc32c_portable(all.first(cut))) == whole);
    }
  }
}

}  // namespace spillway::wire
