#include "bench/crc32c.h"

#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#define SPILLWAY_BENCH_SSE42 1
#endif

namespace spillway::bench {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1) ^ ((value & 1U) != 0 ? 0x82f63b78U : 0U);
    }
    table[byte] = value;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> table = make_table();

#ifdef SPILLWAY_BENCH_SSE42
bool has_instruction() noexcept {
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  return has;
}

std::uint64_t word_at(const char* from) noexcept {
  std::uint64_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

__attribute__((target("sse4.2"))) std::uint32_t extend_fast(std::uint32_t running, const char* from,
                                                            std::size_t size) noexcept {
  std::uint64_t wide = running;
  for (; size >= 8; size -= 8, from += 8) wide = _mm_crc32_u64(wide, word_at(from));
  auto narrow = static_cast<std::uint32_t>(wide);
  for (; size > 0; --size, ++from) {
    narrow = _mm_crc32_u8(narrow, static_cast<unsigned char>(*from));
  }
  return narrow;
}

__attribute__((target("sse4.2"))) std::array<std::uint32_t, 4> four_fast(
    const std::array<const char*, 4>& from, std::size_t size) noexcept {
  std::uint64_t a = crc32c_seed, b = crc32c_seed, c = crc32c_seed, d = crc32c_seed;
  std::size_t at = 0;
  for (; at + 8 <= size; at += 8) {
    a = _mm_crc32_u64(a, word_at(from[0] + at));
    b = _mm_crc32_u64(b, word_at(from[1] + at));
    c = _mm_crc32_u64(c, word_at(from[2] + at));
    d = _mm_crc32_u64(d, word_at(from[3] + at));
  }
  const std::size_t rest = size - at;
  return {extend_fast(static_cast<std::uint32_t>(a), from[0] + at, rest),
          extend_fast(static_cast<std::uint32_t>(b), from[1] + at, rest),
          extend_fast(static_cast<std::uint32_t>(c), from[2] + at, rest),
          extend_fast(static_cast<std::uint32_t>(d), from[3] + at, rest)};
}
#endif

}  // namespace

std::uint32_t crc32c_extend_by_table(std::uint32_t running, const void* bytes,
                                     std::size_t size) noexcept {
  const auto* from = static_cast<const unsigned char*>(bytes);
  for (std::size_t at = 0; at < size; ++at) {
    running = (running >> 8) ^ table[(running ^ from[at]) & 0xffU];
  }
  return running;
}

std::uint32_t crc32c_extend(std::uint32_t running, const void* bytes, std::size_t size) noexcept {
#ifdef SPILLWAY_BENCH_SSE42
  if (has_instruction()) return extend_fast(running, static_cast<const char*>(bytes), size);
#endif
  return crc32c_extend_by_table(running, bytes, size);
}

std::uint32_t crc32c_extend_number(std::uint32_t running, std::uint64_t number) noexcept {
  return crc32c_extend(running, &number, sizeof number);
}

std::array<std::uint32_t, 4> crc32c_four(const std::array<const char*, 4>& from,
                                         std::size_t size) noexcept {
#ifdef SPILLWAY_BENCH_SSE42
  if (has_instruction()) return four_fast(from, size);
#endif
  std::array<std::uint32_t, 4> out{};
  for (std::size_t run = 0; run < 4; ++run) out[run] = crc32c_extend(crc32c_seed, from[run], size);
  return out;
}

}  // namespace spillway::bench
