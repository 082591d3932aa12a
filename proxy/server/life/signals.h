// Signals: what the process does on SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2. Lives on the main thread's loop.
#pragma once

#include <boost/asio/signal_set.hpp>
#include <functional>
#include <vector>

#include "proxy/base/loop.h"
#include "proxy/exec/core/context.h"
#include "proxy/server/life/handover.h"
#include "proxy/server/life/shutdown.h"
#include "proxy/server/reload/reload.h"

namespace spillway::server {

class Signals {
 public:
  // From now on the signals no longer end the process; they wait until start(). All arguments outlive it.
  Signals(Loop& loop, const exec::Services& shared, Shutdown& shutdown, Reload& reload,
          Handover& handover);
  // The first SIGTERM or SIGINT begins a shutdown, the second one ends its waits, and the third one, or two more
  // seconds, the process (exit code 1). SIGUSR2 replaces the process by the program that is installed now, and so does
  // SIGHUP if that is another one than this; else, and if that fails, SIGHUP reloads the configuration. SIGUSR1 rotates
  // the log.
  // REQUIRES that wait_for_stop() was called.
  void start();
  // Until start(): calls `stop`, on the loop, in place of the shutdown; SIGHUP and SIGUSR2 wait.
  void wait_for_stop(std::function<void()> stop);

 private:
  void wait();
  void handle(int signal);
  void stop();
  void end_process_later();

  Loop& loop_;
  const exec::Services shared_;
  Shutdown& shutdown_;
  Reload& reload_;
  Handover& handover_;
  asio::signal_set signals_;
  asio::steady_timer last_resort_;
  int stops_ = 0;
  std::function<void()> stop_early_;  // until start(), which does not come after it was called
  std::vector<int> early_;            // signals that wait for it
};

}  // namespace spillway::server
