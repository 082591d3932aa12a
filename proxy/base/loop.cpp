#include "proxy/base/loop.h"

namespace spillway {

Loop::Loop(Drive drive) : drive_(drive), work_(asio::make_work_guard(io_)), alarm_(io_.get_executor()) {}

Loop::~Loop() { SPILLWAY_CHECK(timers_.empty()); }

detail::Detached Loop::run_spawned(Loop* loop, Task<void> task) {
  ++loop->spawned_;
  co_await task;
  --loop->spawned_;
}

void Loop::spawn(Task<void> task) { run_spawned(this, std::move(task)); }

void Loop::arm(Timer& timer, TimePoint at) {
  SPILLWAY_CHECK(!timer.armed_);
  timer.key_ = {at, next_sequence_++};
  timer.armed_ = true;
  timers_.emplace(timer.key_, &timer);
  if (at < alarm_at_) schedule();
}

void Loop::disarm(Timer& timer) noexcept {
  if (!timer.armed_) return;
  timer.armed_ = false;
  timers_.erase(timer.key_);
  // The alarm stays: one needless wake-up is cheaper than re-arming for each deadline.
}

void Loop::schedule() {
  if (drive_ == Drive::manual || timers_.empty()) return;
  alarm_at_ = timers_.begin()->first.first;
  const Duration wait = std::max(Duration::zero(), alarm_at_ - Clock::now());
  alarm_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(wait));
  alarm_.async_wait([this](const boost::system::error_code& ec) {
    if (ec) return;
    alarm_at_ = time_point_never;
    fire_due();
    if (!timers_.empty() && timers_.begin()->first.first < alarm_at_) schedule();
  });
}

void Loop::fire_due() {
  const TimePoint now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    Timer* timer = timers_.begin()->second;
    timers_.erase(timers_.begin());
    timer->armed_ = false;
    timer->on_timer();
  }
}

void Loop::run() {
  running_ = true;
  io_.run();
  running_ = false;
}

void Loop::stop() {
  io_.stop();
  if (asleep_.load()) sleeper_->wake();
}

// A poster counts first and then looks for a sleeper; here the order is reversed, so that one of the two sees the
// other.
bool Loop::begin_sleep(Sleeper& sleeper) noexcept {
  if (!running_ || asio_operations_ > 0) return false;
  // Once: a thread that saw the last sleep may still be about to read it.
  if (sleeper_ != &sleeper) sleeper_ = &sleeper;
  asleep_.store(true);
  if (posted_.load() == 0 && !io_.stopped()) return true;
  asleep_.store(false);
  return false;
}

void Loop::end_sleep() {
  asleep_.store(false);
  // Asio's alarm may be in the past now: it fires without effect, and is set anew.
  fire_due();
}

std::size_t Loop::poll_until_idle() {
  SPILLWAY_CHECK(drive_ == Drive::manual);
  std::size_t ran = 0;
  for (;;) {
    // Timers fire between handlers that take turns without end and let time pass.
    std::size_t now_ran = 0;
    const TimePoint late = Clock::now() + std::chrono::microseconds(100);
    while (io_.poll_one() > 0) {
      ++now_ran;
      if (Clock::now() >= late) break;
    }
    const TimePoint now = Clock::now();
    while (!timers_.empty() && timers_.begin()->first.first <= now) {
      Timer* timer = timers_.begin()->second;
      timers_.erase(timers_.begin());
      timer->armed_ = false;
      timer->on_timer();
      ++now_ran;
    }
    if (now_ran == 0) return ran;
    ran += now_ran;
  }
}

std::optional<TimePoint> Loop::next_timer() const {
  if (timers_.empty()) return std::nullopt;
  return timers_.begin()->first.first;
}

}  // namespace spillway
