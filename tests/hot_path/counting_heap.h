// A counting heap: this program's malloc and operator new, which count what one thread asks for and
// keep the stacks of the first askers. Memory comes from the malloc that lies beneath.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway::test {

// Counts for the calling thread from now on; one thread at a time.
void start_counting() noexcept;
// REQUIRES the thread of start_counting(). How many blocks were asked for since then.
std::uint64_t stop_counting() noexcept;

// The different stacks of the last count (the first few dozen), innermost frame first, each with
// how often it was seen. Not while counting.
std::vector<std::string> counted_stacks();

}  // namespace spillway::test
