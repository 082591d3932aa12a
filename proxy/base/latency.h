// LatencyHistogram: how long things took, as counts between fixed bounds and a sum. One thread
// adds, without a locked instruction; any thread may read: a value is never torn, and may lack the addition under
// way.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "proxy/base/clock.h"

namespace spillway {

// Upper bounds, inclusive; a last count holds all longer times.
inline constexpr std::array<std::uint64_t, 16> latency_bounds_us{
    100,    250,     500,     1'000,   2'500,     5'000,     10'000,     25'000,
    50'000, 100'000, 250'000, 500'000, 1'000'000, 2'500'000, 10'000'000, 60'000'000};

// What a histogram held, or the sum of several.
struct LatencyReading {
  std::array<std::uint64_t, latency_bounds_us.size() + 1> counts{};
  std::uint64_t sum_us = 0;

  std::uint64_t total() const noexcept {
    std::uint64_t all = 0;
    for (const std::uint64_t count : counts) all += count;
    return all;
  }
  LatencyReading& operator+=(const LatencyReading& other) noexcept {
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
    sum_us += other.sum_us;
    return *this;
  }
};

// A counter that one thread adds to and any thread reads.
class OwnCounter {
 public:
  void add(std::uint64_t n = 1) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

class LatencyHistogram {
 public:
  // The owner's thread. A negative time counts as zero.
  void add(Duration time) noexcept {
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
    const std::uint64_t taken = us > 0 ? static_cast<std::uint64_t>(us) : 0;
    std::size_t at = 0;
    while (at < latency_bounds_us.size() && taken > latency_bounds_us[at]) ++at;
    counts_[at].add();
    sum_us_.add(taken);
  }
  LatencyReading read() const noexcept {
    LatencyReading reading;
    for (std::size_t i = 0; i < counts_.size(); ++i) reading.counts[i] = counts_[i].value();
    reading.sum_us = sum_us_.value();
    return reading;
  }

 private:
  std::array<OwnCounter, latency_bounds_us.size() + 1> counts_;
  OwnCounter sum_us_;
};

}  // namespace spillway
