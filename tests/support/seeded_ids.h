// Cursor ids that follow from a seed, in place of cursor/cursor_id.cpp: a simulation's run must be the same every time.
#pragma once

#include <cstdint>

namespace spillway::test {

void seed_cursor_ids(std::uint64_t seed);

}  // namespace spillway::test
