#include "allocator/pressure.h"

#include <algorithm>
#include <utility>

namespace spillway {

std::string_view pressure_level_name(PressureLevel level) noexcept {
  constexpr std::string_view names[] = {"normal", "tight", "critical"};
  return names[static_cast<std::size_t>(level)];
}

std::string_view pressure_cause_name(PressureCause cause) noexcept {
  constexpr std::string_view names[] = {"none", "budget", "cgroupMax", "cgroupHigh", "stall", "signal"};
  return names[static_cast<std::size_t>(cause)];
}

double PressureInputs::budget_share() const noexcept {
  if (budget_limit_bytes == 0) return 0;
  return static_cast<double>(budget_used_bytes) / static_cast<double>(budget_limit_bytes);
}

std::uint64_t PressureInputs::group_missing_bytes() const noexcept {
  const PressureOptions options;
  double most = 0;
  for (const auto& [share, leave] : {std::pair(cgroup.own_max_share, options.max_critical.leave),
                                     std::pair(cgroup.own_high_share, options.high_critical.leave)}) {
    if (share > leave) most = std::max(most, 1 - leave / share);
  }
  return static_cast<std::uint64_t>(most * static_cast<double>(cgroup.usage_bytes) + 0.5);
}

PressureFsm::Reason PressureFsm::wanted(const PressureInputs& inputs,
                                        PressureLevel held) const noexcept {
  Reason reason;
  const auto consider = [&](PressureLevel level, PressureCause cause, double value,
                            const PressureThreshold& threshold) {
    const double bound = held >= level ? threshold.leave : threshold.enter;
    if (value >= bound && level > reason.level) reason = {level, cause, value};
  };
  const double some = inputs.psi ? inputs.psi->some_avg10 : 0;
  const PressureOptions& o = options_;
  // All of an ancestor's memory may belong to its other children.
  consider(PressureLevel::critical, PressureCause::cgroup_max, inputs.cgroup.own_max_share,
           o.max_critical);
  consider(PressureLevel::critical, PressureCause::cgroup_high, inputs.cgroup.own_high_share,
           o.high_critical);
  consider(PressureLevel::critical, PressureCause::budget, inputs.budget_share(),
           o.budget_critical);
  consider(PressureLevel::tight, PressureCause::cgroup_max, inputs.cgroup.max_share, o.max_tight);
  consider(PressureLevel::tight, PressureCause::cgroup_high, inputs.cgroup.high_share,
           o.high_tight);
  consider(PressureLevel::tight, PressureCause::budget, inputs.budget_share(), o.budget_tight);
  consider(PressureLevel::tight, PressureCause::stall, some, o.stall_tight);
  if (inputs.signalled && reason.level < PressureLevel::tight) {
    reason = {PressureLevel::tight, PressureCause::signal, 0};
  }
  return reason;
}

std::optional<LevelChange> PressureFsm::step(const PressureInputs& inputs,
                                             std::int64_t now_ns) noexcept {
  const Reason reason = wanted(inputs, level_);
  if (reason.level >= level_) asked_ns_ = now_ns;
  if (reason.level > level_) {
    const LevelChange change{std::exchange(level_, reason.level), reason.level, reason.cause,
                             reason.value};
    cause_ = reason.cause;
    return change;
  }
  if (level_ == PressureLevel::normal || now_ns - asked_ns_ < options_.calm_ns) return std::nullopt;
  // One level down; the next one needs another calm period.
  const PressureLevel lower =
      level_ == PressureLevel::critical ? PressureLevel::tight : PressureLevel::normal;
  const LevelChange change{std::exchange(level_, lower), lower, cause_, 0};
  asked_ns_ = now_ns;
  return change;
}

void Pressure::publish(const PressureInputs& inputs, const std::optional<LevelChange>& change,
                       Cgroup::Version version) {
  const std::lock_guard lock(mutex_);
  state_.cgroup_version = version;
  state_.last = inputs;
  ++state_.samples;
  if (inputs.signalled) ++state_.signals;
  if (!change) return;
  ++state_.changes;
  state_.level = change->to;
  state_.cause = change->to == PressureLevel::normal ? PressureCause::none : change->cause;
  if (change->to > change->from) {
    ++(change->to == PressureLevel::tight ? state_.times_tight : state_.times_critical);
  }
  level_.store(change->to, std::memory_order_relaxed);
}

PressureState Pressure::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

}  // namespace spillway
