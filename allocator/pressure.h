// Pressure: how scarce memory is: for the proxy's own budget, in its cgroup, on the machine.
//
//   PressureSource reads files and sockets -> PressureInputs -> PressureFsm (pure) -> LevelChange
//   Pressure publishes the level to every thread
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>

#include "allocator/cgroup.h"

namespace spillway {

enum class PressureLevel : std::uint8_t {
  normal,  // nothing is given up
  tight,   // costs only time: read-ahead, kept memory and the place of idle buffers in RAM are given up
  critical,  // costs clients something: idle cursors end, new work is refused
};
std::string_view pressure_level_name(PressureLevel level) noexcept;

// What raised a level, or was the last input to let it sink.
enum class PressureCause : std::uint8_t {
  none,
  budget,       // the process budget's use
  cgroup_max,   // usage against memory.max or memory.limit_in_bytes: beyond it the kernel kills
  cgroup_high,  // usage against memory.high: beyond it the kernel throttles
  stall,        // PSI: tasks wait for memory
  signal,       // the service manager said so
};
std::string_view pressure_cause_name(PressureCause cause) noexcept;

struct PressureInputs {
  std::uint64_t budget_used_bytes = 0;
  std::uint64_t budget_limit_bytes = 0;  // 0: none
  CgroupMemory cgroup;
  std::optional<Psi> psi;
  bool signalled = false;  // since the last step

  double budget_share() const noexcept;  // 0 without a limit
  // What must be given back for the process's own group to be no more than tight; 0: nothing.
  std::uint64_t group_missing_bytes() const noexcept;
};

// A level is entered at `enter` and left below `leave`: between them it stays as it is.
struct PressureThreshold {
  double enter = 0;
  double leave = 0;
};

struct PressureOptions {
  PressureThreshold budget_tight{0.80, 0.70}, budget_critical{0.95, 0.85};
  PressureThreshold max_tight{0.85, 0.80}, max_critical{0.95, 0.90};
  // Beyond memory.high every allocation is slow: shed before it.
  PressureThreshold high_tight{0.90, 0.85}, high_critical{1.00, 0.95};
  // Percent of `some`. Without cgroups of version 2 this measures the whole machine: no reason to end our own work.
  PressureThreshold stall_tight{10, 5};
  // A level sinks, one at a time, when no input has asked for it for this time. A signal asks for tight.
  std::int64_t calm_ns = 5'000'000'000;
};

struct LevelChange {
  PressureLevel from = PressureLevel::normal;
  PressureLevel to = PressureLevel::normal;
  PressureCause cause = PressureCause::none;
  double value = 0;  // the input that decided: a share of 1, or percent for stall; 0 for signal
};

// Levels from inputs, with hysteresis in value and in time. Pure: `now_ns` is the caller's steady
// clock and never goes back. Not thread-safe.
class PressureFsm {
 public:
  explicit PressureFsm(PressureOptions options = {}) : options_(options) {}

  PressureLevel level() const noexcept { return level_; }
  std::optional<LevelChange> step(const PressureInputs& inputs, std::int64_t now_ns) noexcept;

 private:
  struct Reason {
    PressureLevel level = PressureLevel::normal;
    PressureCause cause = PressureCause::none;
    double value = 0;
  };
  // The highest level that the inputs ask for, when `held` is the level now.
  Reason wanted(const PressureInputs& inputs, PressureLevel held) const noexcept;

  PressureOptions options_;
  PressureLevel level_ = PressureLevel::normal;
  PressureCause cause_ = PressureCause::none;
  std::int64_t asked_ns_ = 0;  // when the inputs last asked for the present level or a higher one
};

struct PressureState {
  PressureLevel level = PressureLevel::normal;
  PressureCause cause = PressureCause::none;
  Cgroup::Version cgroup_version = Cgroup::Version::none;
  PressureInputs last;  // of the latest sample
  std::uint64_t samples = 0;
  std::uint64_t signals = 0;      // samples that found a signal
  std::uint64_t changes = 0;      // of the level
  std::uint64_t times_tight = 0;  // entered from below
  std::uint64_t times_critical = 0;
};

// The level as all threads see it. level() is one relaxed load: ask as often as you like.
class Pressure {
 public:
  PressureLevel level() const noexcept { return level_.load(std::memory_order_relaxed); }
  bool at_least(PressureLevel level) const noexcept { return this->level() >= level; }

  // One thread publishes; any thread reads.
  void publish(const PressureInputs& inputs, const std::optional<LevelChange>& change,
               Cgroup::Version version = Cgroup::Version::none);
  PressureState state() const;

 private:
  std::atomic<PressureLevel> level_{PressureLevel::normal};
  mutable std::mutex mutex_;
  PressureState state_;
};

}  // namespace spillway
