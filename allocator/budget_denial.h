// For tests: refuses charges that a budget would grant, so that a test can reach every refusal in a request's life.
// While it is off, as always outside tests, it costs one relaxed load for each charge.
#pragma once

#include <cstdint>

namespace spillway {

class MemoryBudget;

// Of the charges that reach `node`, the nth from now (1: the next) is refused; with `and_later` all
// that follow too. One node at a time; null: none. The node outlives this. Resets denied_charges().
void deny_charges(const MemoryBudget* node, std::int64_t nth, bool and_later) noexcept;
// The number of charges refused since then.
std::uint64_t denied_charges() noexcept;

}  // namespace spillway
