// TimeSlice: splits work whose length a peer decides, so that other work of the loop runs in between.
//   TimeSlice slice(pump);
//   for (...) {
//     if (slice.is_over(bytes_of_the_last_step)) co_await slice.next();
//     …one step…
//   }
#pragma once

#include <chrono>
#include <cstddef>

#include "allocator/limits.h"
#include "proxy/base/pump.h"

namespace spillway {

class TimeSlice {
 public:
  static constexpr Duration quantum = std::chrono::microseconds(200);

  explicit TimeSlice(Pump& pump) noexcept : pump_(pump), began_(Clock::recent()) {}

  // Call it between any two steps. The clock costs as much as a short step: it is read every few KiB.
  bool is_over(std::size_t step_bytes = 0) noexcept { return is_over_short(step_bytes_least + step_bytes); }
  // Of steps that take a few nanoseconds: as many bytes as a step of is_over() processes in that time.
  bool is_over_short(std::size_t step_bytes) noexcept {
    work_bytes_ += step_bytes;
    if (work_bytes_ < look_every_bytes) return false;
    work_bytes_ = 0;
    return Clock::now() - began_ >= quantum;
  }
  // Of steps that may be long: the clock is read each time.
  bool is_over_now() const noexcept { return Clock::now() - began_ >= quantum; }
  // After a suspension for another reason.
  void renew() noexcept {
    work_bytes_ = 0;
    began_ = Clock::now();
  }

  // co_await slice.next(): a turn of the pump, then a new slice.
  struct Next : Pump::Turn {
    TimeSlice& slice;
    void await_resume() const noexcept { slice.renew(); }
  };
  Next next() noexcept { return {pump_.turn(), *this}; }

 private:
  static constexpr std::size_t step_bytes_least = limits::kib;
  static constexpr std::size_t look_every_bytes = 4 * limits::kib;

  Pump& pump_;
  TimePoint began_;
  std::size_t work_bytes_ = 0;
};

}  // namespace spillway
