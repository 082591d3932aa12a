#include "proxy/base/clock.h"

namespace spillway {

namespace {
constinit thread_local TimePoint last_reading{};
}  // namespace

TimePoint Clock::now() noexcept {
  last_reading =
      TimePoint(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
  return last_reading;
}

TimePoint Clock::recent() noexcept { return last_reading == TimePoint{} ? now() : last_reading; }

std::int64_t wall_clock_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace spillway
