// Cursor ids that follow from a seed, in place of cursor/cursor_id.cpp: every run of a simulation must be the same.
#pragma once

#include <cstdint>

namespace spillway::test {

void seed_cursor_ids(std::uint64_t seed);

}  // namespace spillway::test
