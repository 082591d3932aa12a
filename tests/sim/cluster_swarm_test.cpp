// The seeded simulation of a sharded cluster. SPILLWAY_SIM_SEEDS=n runs n seeds, SPILLWAY_SIM_SEED=s starts at s and,
// without the former, runs that one alone.
#include <cstdlib>
#include <optional>

#include "tests/sim/cluster_swarm.h"
#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

constexpr std::uint64_t cluster_seeds_default = 30;

std::optional<std::uint64_t> seeds_from_environment(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  return std::strtoull(text, nullptr, 10);
}

}  // namespace

TEST_CASE("seeded runs over a cluster that changes lose, double and misplace nothing", "[cluster][cluster_swarm]") {
  const auto seed = seeds_from_environment("SPILLWAY_SIM_SEED");
  const std::uint64_t first = seed.value_or(1);
  const std::uint64_t count =
      seeds_from_environment("SPILLWAY_SIM_SEEDS").value_or(seed ? 1 : cluster_seeds_default);
  std::size_t answered = 0, lost = 0;
  std::uint64_t stale = 0, moves = 0;
  std::map<std::int64_t, std::size_t> refused;
  for (std::uint64_t at = first; at < first + count; ++at) {
    const ClusterSwarmResult result = run_cluster_swarm(at);
    INFO("SPILLWAY_SIM_SEED=" << at << ": " << result.setting << "\n" << result.log_tail);
    for (const std::string& failure : result.failures) FAIL_CHECK(failure);
    CHECK(result.answered > 0);
    answered += result.answered;
    lost += result.lost;
    stale += result.stale;
    moves += result.moves;
    for (const auto& [code, times] : result.refused) refused[code] += times;
    if (at % 8 != 0 && count > 1) continue;
    const ClusterSwarmResult again = run_cluster_swarm(at);
    INFO("again:\n" << again.log_tail);
    CHECK(result.log_lines == again.log_lines);
    CHECK(result.log_hash == again.log_hash);
  }
  std::string codes;
  for (const auto& [code, times] : refused) codes += fmt::format(" {}: {}", code, times);
  WARN("seeds " << first << " to " << first + count - 1 << ": " << answered << " requests answered, " << lost
                << " lost, refused by code:" << codes << "; " << stale << " stale refusals, " << moves
                << " changes of the cluster");
  if (count < cluster_seeds_default) return;
  CHECK(lost > 0);
  CHECK(stale > answered / 20);
}

}  // namespace spillway::test
