#include "cursor/md5_lanes.h"

#include <utility>

namespace spillway {

namespace {

// RFC 1321. The compiler makes of a wide vector what the processor has.
using Lane = std::uint32_t __attribute__((vector_size(4 * Md5Lanes::lanes), may_alias));

constexpr std::array<std::uint32_t, 64> sines = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};
constexpr int turns[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

struct State {
  Lane a, b, c, d;
};

template <int number>
[[gnu::always_inline]] inline void step(State& state, const Lane* words) noexcept {
  auto& [a, b, c, d] = state;
  constexpr int round = number / 16;
  Lane mixed;
  int word;
  if constexpr (round == 0) {
    mixed = d ^ (b & (c ^ d));
    word = number;
  } else if constexpr (round == 1) {
    mixed = c ^ (d & (b ^ c));
    word = (5 * number + 1) % 16;
  } else if constexpr (round == 2) {
    mixed = b ^ c ^ d;
    word = (3 * number + 5) % 16;
  } else {
    mixed = c ^ (b | ~d);
    word = 7 * number % 16;
  }
  mixed += a + (words[word] + sines[number]);
  constexpr int turn = turns[round][number % 4];
  const Lane next = b + (mixed << turn | mixed >> (32 - turn));
  a = d;
  d = c;
  c = b;
  b = next;
}

template <int... numbers>
[[gnu::always_inline]] inline void run(std::integer_sequence<int, numbers...>, State& state,
                                       const Lane* words) noexcept {
  (step<numbers>(state, words), ...);
}

using Words = std::array<std::array<std::uint32_t, Md5Lanes::lanes>, 16>;
using Digests = std::array<std::int64_t, Md5Lanes::lanes>;

[[gnu::always_inline]] inline void digest(const Words& words, Digests& first_bytes) noexcept {
  constexpr std::uint32_t first = 0x67452301, second = 0xefcdab89, third = 0x98badcfe, fourth = 0x10325476;
  State state{Lane{} + first, Lane{} + second, Lane{} + third, Lane{} + fourth};
  run(std::make_integer_sequence<int, 64>(), state, reinterpret_cast<const Lane*>(words.data()));
  const Lane low = state.a + first, high = state.b + second;
  for (std::size_t i = 0; i < Md5Lanes::lanes; ++i) {
    first_bytes[i] = static_cast<std::int64_t>(std::uint64_t{high[i]} << 32 | low[i]);
  }
}

#ifdef __x86_64__
// (No resolver of the dynamic linker chooses: sanitizers are not ready at that time.)
[[gnu::target("avx2")]] void digest_avx2(const Words& words, Digests& first_bytes) noexcept {
  digest(words, first_bytes);
}
#endif

}  // namespace

std::array<std::int64_t, Md5Lanes::lanes> Md5Lanes::finish() const noexcept {
  Digests first_bytes;
#ifdef __x86_64__
  static const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  if (avx2) {
    digest_avx2(words_, first_bytes);
    return first_bytes;
  }
#endif
  digest(words_, first_bytes);
  return first_bytes;
}

}  // namespace spillway
