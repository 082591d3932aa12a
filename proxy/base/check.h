// SPILLWAY_CHECK: a programming error ends the program, in every build. Never used on what a peer sent: that is an
// Error.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace spillway::detail {
[[noreturn]] inline void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "spillway: check failed: %s (%s:%d)\n", condition, file, line);
  std::abort();
}
}  // namespace spillway::detail

#define SPILLWAY_CHECK(condition) \
  ((condition) ? void(0) : ::spillway::detail::check_failed(#condition, __FILE__, __LINE__))
