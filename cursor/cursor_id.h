// Where cursor ids come from. The tests' simulation links a generator with a seed instead
// (tests/support/seeded_ids.cpp).
#pragma once

#include <cstdint>

namespace spillway {

// Positive and unguessable. Any thread.
std::int64_t random_cursor_id();

}  // namespace spillway
