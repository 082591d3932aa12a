#include "proxy/server/life/signals.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <exception>
#include <utility>

#include "proxy/base/log.h"
#include "proxy/config/parameters.h"
#include "proxy/exec/access/audit.h"

namespace spillway::server {

namespace {
// After the second signal.
constexpr auto hurried_stop_max = std::chrono::seconds(2);

void rotate_log(const exec::Services& shared) {
  if (shared.audit) shared.audit->rotate();
  try {
    if (log::rotate()) {
      log::info("the log file was opened anew");
    } else {
      log::info("there is no log file to open anew: systemLog.destination is another");
    }
  } catch (const std::exception& error) {
    log::error("the log cannot be rotated: {}", error.what());
  }
}

[[noreturn]] void end_process() {
  log::error("shutdown: the process ends now; its shards learn by their time-outs");
  ::_exit(1);
}
}  // namespace

Signals::Signals(Loop& loop, const exec::Services& shared, Shutdown& shutdown, Reload& reload, Handover& handover)
    : loop_(loop),
      shared_(shared),
      shutdown_(shutdown),
      reload_(reload),
      handover_(handover),
      signals_(loop.io(), SIGTERM, SIGINT),
      last_resort_(loop.io()) {
  signals_.add(SIGHUP);
  signals_.add(SIGUSR1);
  signals_.add(SIGUSR2);
}

void Signals::start() {
  stop_early_ = nullptr;
  for (const int signal : std::exchange(early_, {})) handle(signal);
}

void Signals::wait_for_stop(std::function<void()> stop) {
  stop_early_ = std::move(stop);
  wait();
}

void Signals::wait() {
  signals_.async_wait([this](const boost::system::error_code& ec, int signal) {
    if (ec) return;
    if (!stop_early_) {
      handle(signal);
    } else if (signal == SIGTERM || signal == SIGINT) {
      stop();
    } else if (signal == SIGUSR1) {
      handle(signal);  // the log may be what fills the disk
    } else {
      log::warning("received signal {}: it is taken when the start has ended; to use another configuration before, "
                   "restart the router",
                   signal);
      early_.push_back(signal);
    }
    wait();
  });
}

void Signals::handle(int signal) {
  log::info("received signal {}", signal);
  if (signal == SIGUSR2 || signal == SIGHUP) {
    const bool due = signal == SIGUSR2 || handover_.is_due();
    if (due) handover_.request(signal == SIGHUP);
    if (signal == SIGHUP && (!due || handover_.waits())) reload_.request();
  } else if (signal == SIGUSR1) {
    rotate_log(shared_);
  } else {
    stop();
  }
}

void Signals::stop() {
  reload_.stop();
  handover_.stop();
  ++stops_;
  if (stops_ == 1 && stop_early_) {
    stop_early_();
  } else if (stops_ == 1) {
    shutdown_.begin(std::chrono::milliseconds(shared_.parameters.shutdown_timeout_ms.load()));
  } else if (stops_ == 2) {
    shutdown_.hurry();
    end_process_later();
  } else {
    end_process();
  }
}

void Signals::end_process_later() {
  last_resort_.expires_after(hurried_stop_max);
  last_resort_.async_wait([](const boost::system::error_code& ec) {
    if (!ec) end_process();
  });
}

}  // namespace spillway::server
