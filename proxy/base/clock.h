// The program's steady clock. now() is declared here and defined at link time: by clock_steady.cpp in
// programs, by tests/support/clock_manual.cpp in simulations, where a test moves time by hand.
#pragma once

#include <chrono>
#include <cstdint>

namespace spillway {

struct Clock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Clock>;
  static constexpr bool is_steady = true;
  static time_point now() noexcept;
  // The thread's last reading, for a fraction of the time. A loop reads the clock each time it wakes, so that it is at
  // most as old as the loop's present turn.
  static time_point recent() noexcept;
};

using TimePoint = Clock::time_point;
using Duration = Clock::duration;

// "No deadline": later than any other.
inline constexpr TimePoint time_point_never = TimePoint::max();

// Since the Unix epoch: for replies that carry a date, for log lines and for spans only.
std::int64_t wall_clock_ns() noexcept;
inline std::int64_t wall_clock_ms() noexcept { return wall_clock_ns() / 1'000'000; }

}  // namespace spillway
