#include "tests/support/clock_manual.h"

#include <atomic>

namespace spillway {

namespace {
std::atomic<std::int64_t> now_ns{86'400'000'000'000};
}

TimePoint Clock::now() noexcept { return TimePoint(Duration(now_ns.load(std::memory_order_relaxed))); }

std::int64_t wall_clock_ms() noexcept {
  return 1'700'000'000'000 + now_ns.load(std::memory_order_relaxed) / 1'000'000;
}

namespace test {
void set_time(TimePoint now) { now_ns = now.time_since_epoch().count(); }
void advance_time(Duration by) { now_ns += by.count(); }
}  // namespace test

}  // namespace spillway
