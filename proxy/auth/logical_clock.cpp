#include "proxy/auth/logical_clock.h"

#include <fmt/format.h>

namespace spillway::auth {

namespace {

constexpr std::int32_t cluster_time_fails_rate_limiter = 205;
constexpr std::int32_t cluster_time_at_its_end = 40484;
constexpr std::uint32_t int32_max = 0x7fff'ffff;

}  // namespace

Result<void> LogicalClock::advance(std::uint64_t time, std::int64_t wall_secs) {
  const std::uint32_t secs = seconds_of(time);
  if (std::int64_t{secs} - wall_secs > drift_secs_max_) {
    return Error(cluster_time_fails_rate_limiter,
                 fmt::format("New cluster time, {}, is too far from this node's wall clock time, {}.", secs,
                             wall_secs));
  }
  if (secs > int32_max || static_cast<std::uint32_t>(time) > int32_max) {
    return Error(cluster_time_at_its_end, "cluster time cannot be advanced beyond its maximum value");
  }
  std::uint64_t before = now();
  while (before < time && !now_.compare_exchange_weak(before, time, std::memory_order_relaxed)) {
  }
  return {};
}

bool LogicalClock::hear(const ClusterTime& time, std::int64_t wall_secs) {
  if (time.time > now() && advance(time.time, wall_secs).has_error()) return false;
  if (!time.is_signed()) return true;
  MutexLock lock(mutex_);
  if (time.time > heard_.time && time.time <= now()) heard_ = time;
  return true;
}

Result<void> LogicalClock::take(const ClusterTime& time, TimeTrust trust, std::int64_t wall_secs) {
  if (time.time <= now()) return {};  // it changes nothing
  if (trust == TimeTrust::stranger && !time.is_signed()) return {};
  if (trust != TimeTrust::full) {
    const ClusterKeys::Ptr known = keys();
    if (!known) return {};
    if (auto verified = known->verify(time); verified.has_error()) return verified;
  }
  return advance(time.time, wall_secs);
}

void LogicalClock::use_keys(ClusterKeys::Ptr keys) {
  MutexLock lock(mutex_);
  keys_.swap(keys);
  made_ = {};
}

ClusterKeys::Ptr LogicalClock::keys() const {
  MutexLock lock(mutex_);
  return keys_;
}

std::optional<ClusterTime> LogicalClock::signed_now() const {
  const std::uint64_t time = now();
  MutexLock lock(mutex_);
  if (keys_) {
    // Keys expire at whole seconds, so that a range has one key.
    if (made_.is_signed() && (made_.time | signed_range) == (time | signed_range)) {
      made_.time = time;
      return made_;
    }
    if (auto made = keys_->sign(time)) return made_ = *made;
  }
  if (heard_.time == 0) return std::nullopt;
  return heard_;
}

std::optional<ClusterTime> LogicalClock::for_client(TimeTrust trust) const {
  if (now() == 0) return std::nullopt;
  if (trust == TimeTrust::full) return ClusterTime{.time = now()};
  return signed_now();
}

std::optional<ClusterTime> LogicalClock::for_server(bool trusts_us) const {
  if (now() == 0) return std::nullopt;
  if (trusts_us) return ClusterTime{.time = now()};
  return signed_now();
}

}  // namespace spillway::auth
