#include "tests/support/seeded_ids.h"

#include <random>

#include "cursor/cursor_id.h"

namespace spillway {

namespace {
thread_local std::mt19937_64 generator;
}  // namespace

std::int64_t random_cursor_id() {
  for (;;) {
    const auto id = static_cast<std::int64_t>(generator() >> 1);
    if (id != 0) return id;
  }
}

namespace test {
void seed_cursor_ids(std::uint64_t seed) { generator.seed(seed + 1); }
}  // namespace test

}  // namespace spillway
