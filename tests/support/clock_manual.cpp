#include "tests/support/clock_manual.h"

#include <atomic>

namespace spillway {

namespace {
std::atomic<std::int64_t> now_ns{86'400'000'000'000};
std::atomic<std::int64_t> look_ns{0};
}

TimePoint Clock::now() noexcept {
  const std::int64_t step = look_ns.load(std::memory_order_relaxed);
  return TimePoint(Duration(step == 0 ? now_ns.load(std::memory_order_relaxed) : now_ns += step));
}

TimePoint Clock::recent() noexcept { return TimePoint(Duration(now_ns.load(std::memory_order_relaxed))); }

std::int64_t wall_clock_ns() noexcept {
  return 1'700'000'000'000'000'000 + now_ns.load(std::memory_order_relaxed);
}

namespace test {
void set_time(TimePoint now) { now_ns = now.time_since_epoch().count(); }
void advance_time(Duration by) { now_ns += by.count(); }
void advance_time_at_each_look(Duration by) { look_ns = by.count(); }
}  // namespace test

}  // namespace spillway
