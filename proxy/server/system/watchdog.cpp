#include "proxy/server/system/watchdog.h"

#include <utility>

#include "proxy/base/log.h"

namespace spillway::server {

namespace {
constexpr int rounds_per_interval = 4;
}  // namespace

Watchdog::Watchdog(Loop& main_loop, std::vector<Loop*> loops, std::chrono::microseconds interval,
                   std::function<void()> feed)
    : main_loop_(main_loop),
      loops_(std::move(loops)),
      round_(std::chrono::duration_cast<Duration>(interval) / rounds_per_interval),
      feed_(std::move(feed)) {}

void Watchdog::start() { on_timer(); }

void Watchdog::forget_loops() {
  loops_.clear();
  unanswered_ = std::make_shared<std::atomic<std::size_t>>(0);
}

void Watchdog::stop() noexcept { main_loop_.disarm(*this); }

void Watchdog::on_timer() {
  if (const std::size_t silent = unanswered_->load(); silent == 0) {
    feed_();
    unanswered_->store(loops_.size());
    for (Loop* loop : loops_) {
      loop->post([unanswered = unanswered_] { unanswered->fetch_sub(1); });
    }
  } else {
    log::warning("watchdog: {} of {} workers give no sign of life", silent, loops_.size());
  }
  main_loop_.arm(*this, Clock::now() + round_);
}

}  // namespace spillway::server
