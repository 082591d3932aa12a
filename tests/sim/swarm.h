// One seeded run of the whole proxy: clients, shards and faults drawn from the seed, and the
// oracles over it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway::test {

struct SwarmResult {
  std::uint64_t seed = 0;
  std::uint64_t log_hash = 0;
  std::size_t log_lines = 0;
  std::size_t answered = 0;           // requests that were answered with ok: 1
  std::size_t refused = 0;            // with an error
  std::size_t lost = 0;               // whose connection ended
  std::vector<std::string> failures;  // what an oracle found; empty when all is well
  std::string setting;                // what the seed drew, in a line
  std::string log_tail;
};

SwarmResult run_swarm(std::uint64_t seed);

}  // namespace spillway::test
