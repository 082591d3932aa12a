// The seeded simulation. SPILLWAY_SIM_SEEDS=n runs n seeds, SPILLWAY_SIM_SEED=s starts at s and,
// without the former, runs that one alone: a failure names its seed, and needs nothing else to come
// back.
#include <cstdlib>
#include <optional>

#include "tests/sim/sim_support.h"
#include "tests/sim/swarm.h"

namespace spillway::test {

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t seeds_default = 40;
#else
constexpr std::uint64_t seeds_default = 200;
#endif
// One seed in this number runs a second time, and must do the same.
constexpr std::uint64_t one_twice_in = 8;

std::optional<std::uint64_t> from_environment(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  return std::strtoull(text, nullptr, 10);
}

}  // namespace

TEST_CASE("seeded runs of the whole proxy keep every promise", "[swarm]") {
  const auto seed = from_environment("SPILLWAY_SIM_SEED");
  const std::uint64_t first = seed.value_or(1);
  const std::uint64_t count =
      from_environment("SPILLWAY_SIM_SEEDS").value_or(seed ? 1 : seeds_default);
  std::size_t answered = 0, refused = 0, lost = 0, twice = 0;
  for (std::uint64_t at = first; at < first + count; ++at) {
    const SwarmResult result = run_swarm(at);
    INFO("SPILLWAY_SIM_SEED=" << at << ": " << result.setting << "\n" << result.log_tail);
    for (const std::string& failure : result.failures) FAIL_CHECK(failure);
    CHECK(result.answered > 0);
    answered += result.answered;
    refused += result.refused;
    lost += result.lost;
    if (at % one_twice_in != 0 && count > 1) continue;
    const SwarmResult again = run_swarm(at);
    INFO("again:\n" << again.log_tail);
    CHECK(result.log_lines == again.log_lines);
    CHECK(result.log_hash == again.log_hash);
    ++twice;
  }
  WARN(count << " seeds, " << twice << " of them twice: " << answered << " requests answered, " << refused
             << " refused, " << lost << " lost");
  if (count >= seeds_default) {  // the faults are there
    CHECK(refused > 0);
    CHECK(lost > 0);
  }
}

}  // namespace spillway::test
