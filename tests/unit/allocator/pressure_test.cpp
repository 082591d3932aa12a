#include "allocator/pressure.h"

#include <catch2/catch.hpp>
#include <thread>

namespace spillway {
namespace {

constexpr std::int64_t second = 1'000'000'000;
using Level = PressureLevel;
using Cause = PressureCause;

PressureInputs budget(double share) {
  PressureInputs inputs;
  inputs.budget_limit_bytes = 1000;
  inputs.budget_used_bytes = static_cast<std::uint64_t>(share * 1000);
  return inputs;
}

PressureInputs cgroup(double max_share, double high_share) {
  PressureInputs inputs;
  inputs.cgroup.max_share = max_share;
  inputs.cgroup.high_share = high_share;
  inputs.cgroup.own_max_share = max_share;
  inputs.cgroup.own_high_share = high_share;
  return inputs;
}

PressureInputs ancestor(double max_share, double high_share) {
  PressureInputs inputs;
  inputs.cgroup.max_share = max_share;
  inputs.cgroup.high_share = high_share;
  return inputs;
}

PressureInputs stalled(double some, double full) {
  PressureInputs inputs;
  inputs.psi = Psi{some, full};
  return inputs;
}

PressureInputs signalled() {
  PressureInputs inputs;
  inputs.signalled = true;
  return inputs;
}

}  // namespace

TEST_CASE("what_is_missing_is_what_the_own_group_uses_beyond_the_line", "[pressure]") {
  PressureInputs inputs = cgroup(0.96, 0);
  inputs.cgroup.usage_bytes = 960;
  CHECK(inputs.group_missing_bytes() == 60);
  inputs.cgroup.own_max_share = 0.90;
  CHECK(inputs.group_missing_bytes() == 0);
  inputs.cgroup.own_high_share = 1.9;  // the kernel throttles, and the group may grow on
  CHECK(inputs.group_missing_bytes() == 480);
  inputs = ancestor(0.99, 0.99);
  inputs.cgroup.usage_bytes = 960;
  CHECK(inputs.group_missing_bytes() == 0);
}

TEST_CASE("each_input_raises_the_level_at_once", "[pressure]") {
  struct Row {
    PressureInputs inputs;
    Level level;
    Cause cause;
  };
  const Row rows[] = {
      {budget(0.79), Level::normal, Cause::none},
      {budget(0.80), Level::tight, Cause::budget},
      {budget(0.95), Level::critical, Cause::budget},
      {cgroup(0.84, 0), Level::normal, Cause::none},
      {cgroup(0.86, 0), Level::tight, Cause::cgroup_max},
      {cgroup(0.96, 0), Level::critical, Cause::cgroup_max},
      {cgroup(0, 0.89), Level::normal, Cause::none},
      {cgroup(0, 0.91), Level::tight, Cause::cgroup_high},
      {cgroup(0, 1.00), Level::critical, Cause::cgroup_high},
      {cgroup(0.90, 1.20), Level::critical, Cause::cgroup_high},
      {stalled(9.9, 0), Level::normal, Cause::none},
      {stalled(10, 0), Level::tight, Cause::stall},
      {stalled(100, 100), Level::tight, Cause::stall},
      {ancestor(2, 0), Level::tight, Cause::cgroup_max},
      {ancestor(0, 2), Level::tight, Cause::cgroup_high},
      {signalled(), Level::tight, Cause::signal},
  };
  for (const Row& row : rows) {
    PressureFsm fsm;
    const auto change = fsm.step(row.inputs, 7 * second);
    CHECK(fsm.level() == row.level);
    CHECK(change.has_value() == (row.level != Level::normal));
    if (!change) continue;
    CHECK(change->from == Level::normal);
    CHECK(change->to == row.level);
    CHECK(change->cause == row.cause);
  }
}

TEST_CASE("no_limits_and_no_files_never_raise_the_level", "[pressure]") {
  PressureFsm fsm;
  PressureInputs inputs;
  inputs.budget_used_bytes = 1ULL << 60;  // without a limit
  for (int i = 0; i < 100; ++i) CHECK_FALSE(fsm.step(inputs, i * second));
}

TEST_CASE("a_change_is_told_once_and_values_between_the_thresholds_change_nothing", "[pressure]") {
  PressureFsm fsm;
  REQUIRE(fsm.step(budget(0.82), 0));
  std::int64_t now = 0;
  for (int i = 0; i < 100; ++i) {
    now += second;
    CHECK_FALSE(fsm.step(budget(i % 2 == 0 ? 0.72 : 0.85), now));
  }
  CHECK(fsm.level() == Level::tight);
}

TEST_CASE("a_level_sinks_after_a_calm_one_at_a_time", "[pressure]") {
  PressureFsm fsm;
  REQUIRE(fsm.step(budget(0.99), 0));
  CHECK_FALSE(fsm.step(budget(0.1), 1 * second));
  CHECK_FALSE(fsm.step(budget(0.1), 4 * second));
  CHECK_FALSE(fsm.step(budget(0.86), 4 * second + 1));  // asked for once more: the calm starts anew
  CHECK_FALSE(fsm.step(budget(0.1), 9 * second));
  const auto first = fsm.step(budget(0.1), 9 * second + 1);
  REQUIRE(first);
  CHECK(first->from == Level::critical);
  CHECK(first->to == Level::tight);
  CHECK(first->cause == Cause::budget);
  CHECK_FALSE(fsm.step(budget(0.1), 14 * second));
  const auto second_change = fsm.step(budget(0.1), 14 * second + 1);
  REQUIRE(second_change);
  CHECK(second_change->to == Level::normal);
  CHECK_FALSE(fsm.step(budget(0.1), 60 * second));
}

TEST_CASE("a_signal_holds_the_level_for_the_calm", "[pressure]") {
  PressureFsm fsm;
  REQUIRE(fsm.step(signalled(), 0));
  CHECK_FALSE(fsm.step({}, 4 * second));
  CHECK_FALSE(fsm.step(signalled(), 4 * second));
  CHECK_FALSE(fsm.step({}, 8 * second));
  CHECK(fsm.step({}, 9 * second));
  CHECK(fsm.level() == Level::normal);
}

TEST_CASE("an_oscillating_load_flaps_at_most_once_per_calm", "[pressure]") {
  PressureFsm fsm;
  int changes = 0;
  for (int i = 0; i < 1200; ++i) {  // ten minutes at 500 ms: two seconds full, two seconds empty
    if (fsm.step(budget(i / 4 % 2 == 0 ? 0.9 : 0.1), i * second / 2)) ++changes;
  }
  CHECK(changes == 1);
}

TEST_CASE("published_levels_are_seen_with_their_counts", "[pressure]") {
  Pressure pressure;
  CHECK(pressure.level() == Level::normal);
  PressureFsm fsm;
  const auto publish = [&](const PressureInputs& inputs, std::int64_t now) {
    pressure.publish(inputs, fsm.step(inputs, now), Cgroup::Version::v1);
  };
  publish(budget(0.5), 0);
  publish(budget(0.85), 1 * second);
  CHECK(pressure.at_least(Level::tight));
  CHECK_FALSE(pressure.at_least(Level::critical));
  publish(budget(0.97), 2 * second);
  PressureState state = pressure.state();
  CHECK(state.level == Level::critical);
  CHECK(state.cause == Cause::budget);
  CHECK(state.samples == 3);
  CHECK(state.changes == 2);
  CHECK(state.times_tight == 1);
  CHECK(state.times_critical == 1);
  CHECK(state.cgroup_version == Cgroup::Version::v1);
  publish(budget(0.1), 20 * second);
  publish(budget(0.1), 40 * second);
  state = pressure.state();
  CHECK(state.level == Level::normal);
  CHECK(state.cause == Cause::none);
  CHECK(state.changes == 4);
  CHECK(state.times_tight == 1);
  CHECK(state.last.budget_used_bytes == 100);
}

TEST_CASE("threads_read_the_level_while_one_publishes", "[pressure]") {
  Pressure pressure;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> seen_tight{0};
  std::thread reader([&] {
    while (!stop.load()) {
      if (pressure.at_least(Level::tight)) seen_tight.fetch_add(1);
      if (pressure.state().changes > pressure.state().samples) std::abort();
    }
  });
  PressureFsm fsm;
  for (int i = 0; i < 2000 || seen_tight.load() == 0; ++i) {
    const PressureInputs inputs = budget(i / 50 % 2 == 0 ? 0.9 : 0.1);
    pressure.publish(inputs, fsm.step(inputs, i * second));
  }
  stop = true;
  reader.join();
  CHECK(pressure.state().changes > 2);
}

}  // namespace spillway
