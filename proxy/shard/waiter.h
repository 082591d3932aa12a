// Waiter: a coroutine in a line, until other code on the same loop wakes it or its deadline passes.
#pragma once

#include <boost/intrusive/list.hpp>
#include <coroutine>
#include <utility>

#include "proxy/base/loop.h"

namespace spillway::shard {

// Lives in the coroutine that waits:  Waiter w(loop, deadline);  line.push_back(w);  bool called =
// co_await w; wake() never runs the coroutine itself, but posts it: it may be called from
// destructors and from other coroutines. A waiter leaves its line when it is woken, timed out or
// destroyed.
class Waiter : public Timer,
               public boost::intrusive::list_base_hook<
                   boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  Waiter(Loop& loop, TimePoint deadline) : loop_(loop), deadline_(deadline) {}

  bool await_ready() const noexcept { return woken_; }
  void await_suspend(std::coroutine_handle<> handle) {
    handle_ = handle;
    if (deadline_ != time_point_never) loop_.arm(*this, deadline_);
  }
  bool await_resume() const noexcept { return woken_; }  // false: the deadline passed

  void wake() {
    woken_ = true;
    if (is_linked()) unlink();
    if (!handle_) return;  // it has not begun to wait
    loop_.disarm(*this);
    loop_.post([handle = std::exchange(handle_, nullptr)] { handle.resume(); });
  }

  void on_timer() override {
    if (is_linked()) unlink();
    std::exchange(handle_, nullptr).resume();
  }

 protected:
  // For an on_timer() that goes on waiting.
  void wait_until(TimePoint deadline) { loop_.arm(*this, deadline); }

 private:
  Loop& loop_;
  TimePoint deadline_;
  std::coroutine_handle<> handle_;
  bool woken_ = false;
};

using WaiterLine = boost::intrusive::list<Waiter, boost::intrusive::constant_time_size<false>>;

inline void wake_all(WaiterLine& line) {
  while (!line.empty()) line.front().wake();
}

}  // namespace spillway::shard
