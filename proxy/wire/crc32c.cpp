#include "proxy/wire/crc32c.h"

#include <boost/crc.hpp>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace spillway::wire {
namespace {

// The bits of a word in reverse order: Boost takes a running remainder unreflected.
std::uint32_t reflect(std::uint32_t word) noexcept {
  std::uint32_t reflected = 0;
  for (int bit = 0; bit < 32; ++bit) reflected = (reflected << 1) | ((word >> bit) & 1);
  return reflected;
}

using Crc = std::uint32_t (*)(Bytes, std::uint32_t) noexcept;

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) std::uint32_t crc32c_native(Bytes bytes,
                                                              std::uint32_t seed) noexcept {
  std::uint64_t state = ~seed;
  const std::uint8_t* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) state = _mm_crc32_u64(state, load_le<std::uint64_t>(at));
  auto narrow = static_cast<std::uint32_t>(state);
  for (; left > 0; --left, ++at) narrow = _mm_crc32_u8(narrow, *at);
  return ~narrow;
}

Crc choose() noexcept { return __builtin_cpu_supports("sse4.2") ? crc32c_native : crc32c_portable; }

#elif defined(__aarch64__)

__attribute__((target("+crc"))) std::uint32_t crc32c_native(Bytes bytes,
                                                            std::uint32_t seed) noexcept {
  std::uint32_t state = ~seed;
  const std::uint8_t* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) state = __crc32cd(state, load_le<std::uint64_t>(at));
  for (; left > 0; --left, ++at) state = __crc32cb(state, *at);
  return ~state;
}

Crc choose() noexcept {
  return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0 ? crc32c_native : crc32c_portable;
}

#else

Crc choose() noexcept { return crc32c_portable; }

#endif

}  // namespace

std::uint32_t crc32c_portable(Bytes bytes, std::uint32_t seed) noexcept {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc(reflect(~seed));
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

std::uint32_t crc32c(Bytes bytes, std::uint32_t seed) noexcept {
  static const Crc chosen = choose();
  return chosen(bytes, seed);
}

}  // namespace spillway::wire
