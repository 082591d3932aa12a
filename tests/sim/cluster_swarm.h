// One seeded run of the router over a scripted cluster: clients, the balancer, fail-overs and faults drawn from the
// seed, and an oracle that counts every document and every $inc.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace spillway::test {

struct ClusterSwarmResult {
  std::uint64_t log_hash = 0;
  std::size_t log_lines = 0;
  std::size_t answered = 0, lost = 0;
  std::map<std::int64_t, std::size_t> refused;  // by code
  std::uint64_t stale = 0;                      // refusals of shards
  std::uint64_t moves = 0;                      // of chunks and of databases
  std::vector<std::string> failures;
  std::string setting;
  std::string log_tail;
};

ClusterSwarmResult run_cluster_swarm(std::uint64_t seed);

}  // namespace spillway::test
