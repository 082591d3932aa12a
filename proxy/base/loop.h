// Loop: one thread's event loop (an Asio io_context) with its timers.
//
// All methods are for the loop's own thread, except post() and stop(). Timers live in an ordered map
// under one Asio timer, so that arming a deadline costs no system call, and so that a simulation knows
// when the next one is due.
#pragma once

#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/btree_map.h"
#include "proxy/base/clock.h"
#include "proxy/base/task.h"

namespace spillway {

namespace asio = boost::asio;

// Something that happens at a time. Owned by its user; must be disarmed (Loop::disarm) or fired before
// it is destroyed.
class Timer {
 public:
  virtual ~Timer() { SPILLWAY_CHECK(!armed_); }
  virtual void on_timer() = 0;
  bool armed() const noexcept { return armed_; }

 private:
  friend class Loop;
  std::pair<TimePoint, std::uint64_t> key_;
  bool armed_ = false;
};

class Loop {
 public:
  // What makes timers fire: real time (programs), or poll_until_idle() (simulations).
  enum class Drive { real_time, manual };
  explicit Loop(Drive drive = Drive::real_time);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  asio::io_context& io() noexcept { return io_; }

  // Any thread: runs `handler` on the loop's thread, later.
  template <class Handler>
  void post(Handler&& handler) {
    posted_.fetch_add(1);
    asio::post(io_, [this, run = std::forward<Handler>(handler)]() mutable {
      posted_.fetch_sub(1, std::memory_order_relaxed);
      run();
    });
    if (asleep_.load()) sleeper_->wake();
  }
  // Starts a coroutine that is never awaited; runs until its first suspension before it returns.
  void spawn(Task<void> task);
  std::size_t spawned() const noexcept { return spawned_; }

  void arm(Timer& timer, TimePoint at);  // REQUIRES !timer.armed()
  void disarm(Timer& timer) noexcept;    // nothing happens if it is not armed

  // co_await loop.sleep_until(t)
  struct Sleep final : Timer {
    Sleep(Loop& loop, TimePoint at) : loop_(loop), at_(at) {}
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiter) {
      waiter_ = waiter;
      loop_.arm(*this, at_);
    }
    void await_resume() const noexcept {}
    void on_timer() override { std::exchange(waiter_, nullptr).resume(); }

   private:
    Loop& loop_;
    TimePoint at_;
    std::coroutine_handle<> waiter_;
  };
  Sleep sleep_until(TimePoint at) { return Sleep(*this, at); }
  Sleep sleep_for(Duration d) { return Sleep(*this, Clock::now() + d); }

  // co_await loop.yield(): goes to the end of the loop's queue.
  struct Yield {
    Loop& loop;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiter) {
      loop.post([waiter] { waiter.resume(); });
    }
    void await_resume() const noexcept {}
  };
  Yield yield() { return Yield{*this}; }

  // Runs until stop(). REQUIRES Drive::real_time.
  void run();
  void stop();  // any thread

  // Runs everything that can run at the present Clock::now(), timers that are due included. Returns how many
  // handlers ran. REQUIRES Drive::manual.
  std::size_t poll_until_idle();
  std::optional<TimePoint> next_timer() const;

  // Blocking elsewhere than in Asio (poller.h). While begin_sleep() was true, wake() is called, on any thread, for
  // each posted handler and for stop(); the sleeper wakes by itself for next_timer(). False: something is posted,
  // Asio has an operation of its own under way, or the loop is not in run().
  class Sleeper {
   public:
    virtual void wake() noexcept = 0;

   protected:
    ~Sleeper() = default;
  };
  bool begin_sleep(Sleeper& sleeper) noexcept;
  void end_sleep();  // runs the timers that are due

  // Called by the poller of the loop's sockets: it found `events` events and runs them one after the other.
  void note_poll(int events) noexcept {
    ++polls_;
    events_left_ = events;
  }
  void note_event_run() noexcept { --events_left_; }
  // The number of polls; 0 without a poller.
  std::uint64_t polls() const noexcept { return polls_; }
  // Is a handler posted, or an event found, that has not run yet?
  bool has_more_to_run() const noexcept { return events_left_ > 0 || posted_.load(std::memory_order_relaxed) > 0; }

  // Held during an operation that Asio's own reactor ends.
  class AsioOperation {
   public:
    explicit AsioOperation(Loop& loop) noexcept : loop_(loop) { ++loop_.asio_operations_; }
    AsioOperation(const AsioOperation&) = delete;
    AsioOperation& operator=(const AsioOperation&) = delete;
    ~AsioOperation() { --loop_.asio_operations_; }

   private:
    Loop& loop_;
  };

 private:
  void schedule();
  void fire_due();
  static detail::Detached run_spawned(Loop* loop, Task<void> task);

  Drive drive_;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  asio::basic_waitable_timer<std::chrono::steady_clock, asio::wait_traits<std::chrono::steady_clock>,
                             asio::io_context::executor_type>
      alarm_;
  TimePoint alarm_at_ = time_point_never;
  absl::btree_map<std::pair<TimePoint, std::uint64_t>, Timer*> timers_;
  std::uint64_t next_sequence_ = 0;
  std::size_t spawned_ = 0;
  bool running_ = false;
  std::size_t asio_operations_ = 0;
  std::uint64_t polls_ = 0;
  int events_left_ = 0;
  std::atomic<std::size_t> posted_{0};  // and not run yet
  std::atomic<bool> asleep_{false};
  Sleeper* sleeper_ = nullptr;  // set before asleep_ is
};

}  // namespace spillway
