// RateLimiter: one bucket for the whole process, with MongoDB's settings and counters. There are two:
// of connections that come (applied by the listener), and of requests (by run_command).
//
// Thread-safe; settings may change at any time, and hold for who comes next.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "proxy/base/ip_address.h"
#include "proxy/base/log_pace.h"
#include "proxy/base/token_bucket.h"
#include "proxy/exec/metrics.h"

namespace spillway::exec {

struct RateLimiter {
  std::atomic<bool> enabled{false};
  std::atomic<std::int64_t> per_second{std::numeric_limits<std::int32_t>::max()};
  std::atomic<double> burst_seconds{std::numeric_limits<double>::max()};
  std::atomic<std::int64_t> queue_max{0};
  AddressList exempt;

  Counter attempted, successful, rejected, exempted;
  Counter added_to_queue, removed_from_queue, interrupted;
  log::LogPace log_pace;

  // The pace follows from the settings at each call: they may have changed.
  BucketPace pace() const noexcept {
    const auto rate = static_cast<double>(per_second.load(std::memory_order_relaxed));
    return BucketPace::of(rate, rate * burst_seconds.load(std::memory_order_relaxed));
  }
  bool try_take(TimePoint now) noexcept { return bucket_.try_take(now, pace()); }
  Duration wait(TimePoint now) const noexcept { return bucket_.wait(now, pace()); }
  double tokens(TimePoint now) const noexcept { return bucket_.tokens(now, pace()); }

  // Of those who waited, a mean in which the last ones count most. One thread notes.
  void note_wait(Duration waited) noexcept {
    constexpr double weight = 0.2;
    const double before = mean_wait_us_.load(std::memory_order_relaxed);
    const double us = static_cast<double>(waited.count()) / 1e3;
    mean_wait_us_.store(before + weight * (us - before), std::memory_order_relaxed);
  }
  double mean_wait_us() const noexcept { return mean_wait_us_.load(std::memory_order_relaxed); }

 private:
  TokenBucket bucket_;
  std::atomic<double> mean_wait_us_{0};
};

}  // namespace spillway::exec
