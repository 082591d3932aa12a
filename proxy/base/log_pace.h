// LogPace: an occasional line for an event that may happen thousands of times a second. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

#include "proxy/base/clock.h"

namespace spillway::log {

class LogPace {
 public:
  // Set: write this event now; the number of events that were not written since the last line.
  std::optional<std::uint64_t> due(TimePoint now, Duration every = std::chrono::seconds(10)) noexcept {
    std::int64_t next = next_ns_.load(std::memory_order_relaxed);
    const std::int64_t now_ns = now.time_since_epoch().count();
    if (now_ns < next || !next_ns_.compare_exchange_strong(next, now_ns + Duration(every).count())) {
      unwritten_.fetch_add(1, std::memory_order_relaxed);
      return std::nullopt;
    }
    return unwritten_.exchange(0, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::int64_t> next_ns_{std::numeric_limits<std::int64_t>::min()};
  std::atomic<std::uint64_t> unwritten_{0};
};

}  // namespace spillway::log
