// Shutdown: ends service as a mongos does.
//
// 1. Announce: hello fails with ShutdownInProgress(91) and a new topologyVersion, those that wait for one included;
//    everything else is served, new connections too. Ends after the given time, or as soon as no connection is left
//    that has sent more than hello: drivers close those after the announcement.
// 2. Drain: nothing is listened on; requests under way have `drain` to end, idle connections end at once.
// 3. Cut: operations that still run fail with InterruptedAtShutdown(11600). Transactions are aborted and cursors
//    killed on the shards.
//
// Lives on the main thread's loop.
#pragma once

#include <functional>
#include <vector>

#include "proxy/exec/core/context.h"
#include "proxy/server/connections/worker.h"

namespace spillway::server {

class Shutdown {
 public:
  struct Options {
    Duration drain{};  // how long requests under way may take after the announcement
    // Called at the beginning, with the time that the whole shutdown may take. May be empty, as the others.
    std::function<void(std::chrono::seconds at_most)> began{};
    std::function<void()> stop_listening{};
    std::function<void()> ended{};
  };
  // `loop`, `shared` and the workers, in order, outlive it.
  Shutdown(Loop& loop, const exec::Services& shared, std::vector<Worker*> workers, Options options);

  // During the announcement a shorter time counts from now on, a longer one has no effect.
  void begin(Duration announce);
  // Ends all waits.
  void hurry();
  // For a later shutdown.
  void set_drain(Duration drain) noexcept { options_.drain = drain; }
  bool begun() const noexcept { return begun_; }
  bool done() const noexcept { return done_; }

 private:
  Task<void> run();
  Task<void> announce();
  Task<void> stop_workers();

  Loop& loop_;
  const exec::Services shared_;
  std::vector<Worker*> workers_;
  Options options_;
  TimePoint announced_until_{};
  bool begun_ = false;
  bool hurried_ = false;
  bool done_ = false;
};

}  // namespace spillway::server
