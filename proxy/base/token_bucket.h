// TokenBucket: a rate limit with a burst.
//
// Lock-free, takes no memory; time is a parameter. One number is all of it: the time at which the
// bucket would be full again (the "theoretical arrival time" of the generic cell rate algorithm).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

#include "proxy/base/clock.h"

namespace spillway {

// How fast a bucket fills, and how much it holds.
struct BucketPace {
  std::int64_t interval_ns = 0;  // per token; 0: no limit
  std::int64_t slack_ns = 0;     // what it holds beyond the first token, as time

  static BucketPace unlimited() noexcept { return {}; }
  // `burst`: tokens that a full bucket holds, at least one.
  static BucketPace of(double per_second, double burst) noexcept {
    constexpr double ns = 1e9;
    if (!(per_second < ns)) return {};
    const double interval = ns / std::max(per_second, 1e-6);
    const double slack = (std::max(burst, 1.0) - 1.0) * interval;
    constexpr double most = static_cast<double>(std::numeric_limits<std::int64_t>::max() / 4);
    if (!(slack < most)) return {};
    return {static_cast<std::int64_t>(interval), static_cast<std::int64_t>(slack)};
  }
  bool limits() const noexcept { return interval_ns > 0; }
  bool operator==(const BucketPace&) const = default;
};

class TokenBucket {
 public:
  bool try_take(TimePoint now, const BucketPace& pace) noexcept {
    if (!pace.limits()) return true;
    const std::int64_t now_ns = now.time_since_epoch().count();
    const std::int64_t empty = now_ns + pace.slack_ns + pace.interval_ns;
    std::int64_t full_at = full_at_ns_.load(std::memory_order_relaxed);
    for (;;) {
      // The bucket must not stay shut because an earlier pace was slower.
      if (full_at > empty && !full_at_ns_.compare_exchange_weak(full_at, empty, std::memory_order_relaxed)) continue;
      const std::int64_t at = std::max(full_at, now_ns);
      if (full_at > empty || at - now_ns > pace.slack_ns) return false;
      if (full_at_ns_.compare_exchange_weak(full_at, at + pace.interval_ns, std::memory_order_relaxed)) return true;
    }
  }
  // For work that was not done after all.
  void give_back(const BucketPace& pace) noexcept {
    full_at_ns_.fetch_sub(pace.interval_ns, std::memory_order_relaxed);
  }
  // Dropping this bucket would lose nothing.
  bool full(TimePoint now) const noexcept {
    return full_at_ns_.load(std::memory_order_relaxed) <= now.time_since_epoch().count();
  }

 private:
  std::atomic<std::int64_t> full_at_ns_{0};
};

}  // namespace spillway
