// What several programs of the experiments need and must have without linking a heap: random
// numbers that a seed decides, and this process's resident memory.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace spillway::bench {

// xorshift64; `state` must not be 0.
inline std::uint64_t next_random(std::uint64_t& state) noexcept {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

inline std::size_t rss_bytes() noexcept {
  std::size_t pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%*u %zu", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace spillway::bench
