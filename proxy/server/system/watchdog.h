// Watchdog: tells the service manager that this process works, as long as every loop does.
//
// Four times in the interval each loop is asked for a sign of life. The service manager gets WATCHDOG=1 only when all
// loops have answered the round before. So systemd ends the process when a loop hangs. Lives on the main thread's
// loop.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "proxy/base/loop.h"

namespace spillway::server {

class Watchdog final : private Timer {
 public:
  // The loops outlive it, or have ended.
  Watchdog(Loop& main_loop, std::vector<Loop*> loops, std::chrono::microseconds interval, std::function<void()> feed);
  ~Watchdog() override { stop(); }

  void start();
  // From now on only the main loop must live: the others are about to end.
  void forget_loops();
  void stop() noexcept;

 private:
  void on_timer() override;

  Loop& main_loop_;
  std::vector<Loop*> loops_;
  Duration round_;
  std::function<void()> feed_;
  // The number of loops that have not answered; shared with the posted calls.
  std::shared_ptr<std::atomic<std::size_t>> unanswered_ = std::make_shared<std::atomic<std::size_t>>(0);
};

}  // namespace spillway::server
