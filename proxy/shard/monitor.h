// Monitor: asks one host for its state, on a connection of its own, as often as the topology wants.
#pragma once

#include <memory>
#include <optional>

#include "proxy/shard/handshake.h"
#include "proxy/shard/pool.h"
#include "proxy/shard/server_description.h"
#include "proxy/shard/waiter.h"

namespace spillway::shard {

// Receives a monitor's reports. All calls come from the monitor's coroutine.
class MonitorSink {
 public:
  virtual void check_started(const HostAddress& host) = 0;
  virtual void check_succeeded(const HostAddress& host, ServerDescription server,
                               const BuildInfo& build, Duration round_trip) = 0;
  // `silent`: no sign of the host for the connect timeout.
  virtual void check_failed(const HostAddress& host, Error why, bool silent) = 0;
  virtual TimePoint next_check(const HostAddress& host) = 0;
  virtual void monitor_ended() = 0;

 protected:
  ~MonitorSink() = default;
};

// Life: spawn(run()) → wake() as often as next_check() may have moved → stop() → ended(). Must have
// ended before it is destroyed.
class Monitor {
 public:
  Monitor(const PoolSettings& settings, HostAddress address, MonitorSink& sink);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  Task<void> run();
  void wake();
  // run() returns soon: at the latest when its connection attempt ends.
  void stop();
  bool ended() const noexcept { return ended_; }
  const HostAddress& address() const noexcept { return address_; }

 private:
  struct Answer {
    ServerDescription server;
    Duration round_trip{};
  };
  Task<void> check();
  Task<Result<Answer>> ask();
  Task<Result<Answer>> connect();
  Task<Error> explain(Error why);
  Task<bool> answers_plain();
  Task<Result<BuildInfo>> ask_build();

  const PoolSettings& settings_;
  HostAddress address_;
  MonitorSink& sink_;
  std::unique_ptr<Connection> connection_;
  BuildInfo build_;
  bool hello_ok_ = false;
  bool down_ = false;    // the last check failed
  std::optional<bool> speaks_plain_;  // although TLS is wanted; set by the first handshake that fails
  TimePoint last_sign_;  // the host's last sign of life: an answer, a refusal, a hang-up
  Waiter* nap_ = nullptr;
  bool stopped_ = false;
  bool ended_ = true;
};

}  // namespace spillway::shard
