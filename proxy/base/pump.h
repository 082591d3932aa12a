// The pump: one first-in-first-out line of bulk transfers per loop. A turn is one piece; between two turns the loop
// polls its sockets, so that point operations overtake scans at every piece. (Plain round robin of coroutines
// measured worse for point reads than no fairness at all.) A single transfer need not wait for its turn if the last
// poll was just now and found nothing else: a poll costs as much as splicing 50 KiB.
#pragma once

#include <chrono>
#include <coroutine>
#include <cstdint>
#include <deque>
#include <memory>

#include "allocator/limits.h"
#include "allocator/small_blocks.h"
#include "cursor/bson_view.h"
#include "proxy/base/loop.h"

namespace spillway {

class Pump {
 public:
  explicit Pump(Loop& loop)
      : loop_(loop), piece_(std::make_unique<std::uint8_t[]>(limits::stream_piece_bytes)) {}

  // co_await pump.turn(): resumes in order, one per pass of the loop; at once while no poll is needed.
  struct Turn {
    Pump& pump;
    bool await_ready() const noexcept { return pump.may_go_on(); }
    void await_suspend(std::coroutine_handle<> waiter) { pump.enqueue(waiter); }
    void await_resume() const noexcept {}
  };
  Turn turn() noexcept { return Turn{*this}; }

  // The buffer shared by all transfers of this loop: its content is lost at the next suspension.
  MutableBytes piece() noexcept { return {piece_.get(), limits::stream_piece_bytes}; }

 private:
  bool may_go_on() noexcept {
    if (loop_.polls() == 0 || !waiting_.empty() || loop_.has_more_to_run()) return false;
    const TimePoint now = Clock::now();
    if (loop_.polls() != polls_) {
      polls_ = loop_.polls();
      looked_ = now;
    }
    return now - looked_ < look_every;
  }
  void enqueue(std::coroutine_handle<> waiter) {
    waiting_.push_back(waiter);
    if (!posted_) post();
  }
  void post() {
    posted_ = true;
    loop_.post([this] {
      posted_ = false;
      const std::coroutine_handle<> next = waiting_.front();
      waiting_.pop_front();
      if (!waiting_.empty()) post();
      next.resume();
    });
  }

  static constexpr Duration look_every = std::chrono::microseconds(50);

  Loop& loop_;
  std::unique_ptr<std::uint8_t[]> piece_;
  std::deque<std::coroutine_handle<>, RecyclingAllocator<std::coroutine_handle<>>> waiting_;
  bool posted_ = false;
  // The loop's last poll that was noticed here, and when.
  std::uint64_t polls_ = 0;
  TimePoint looked_{};
};

}  // namespace spillway
