// Sizes as tests write them.
#pragma once

#include <cstdint>

namespace spillway::test {

inline constexpr std::uint64_t mib = 1ULL << 20;

}  // namespace spillway::test
