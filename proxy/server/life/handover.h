// Handover: the process starts the one that replaces it, and gives it what it has.
//
// 1. Start: the program that is installed now, with the same arguments and environment, and copies of the listening
//    sockets. Until it says that it is ready, nothing changes here; if it ends, or takes longer than ready_max, it is
//    killed, and nothing has changed. A request that comes meanwhile, or while the process before this one lives,
//    waits.
// 2. Move: it listens instead of this process, and gets each client between two requests. Clients that cannot move,
//    those with TLS, are told that this process ends, and connect to the new one.
// 3. Stay: for requests under way, and for cursors and transactions, which the other process's clients reach through
//    it. Then, or after Parameters::cursor_timeout_ms, this process shuts down.
//
// Lives on the main thread's loop.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "proxy/base/file_descriptor.h"
#include "proxy/base/loop.h"
#include "proxy/exec/core/context.h"
#include "proxy/server/connections/handover_channel.h"
#include "proxy/server/connections/listener.h"
#include "proxy/server/connections/worker.h"
#include "proxy/server/life/shutdown.h"

namespace spillway::server {

// The variable that tells a new process the descriptor of its channel.
inline constexpr const char* handover_variable = "SPILLWAY_HANDOVER_SOCKET";

// A program as it was when this process started. A path without a folder is the running program's.
class Program {
 public:
  explicit Program(const std::string& name);
  const std::string& path() const noexcept { return path_; }
  // Is another file there now?
  bool replaced() const;

 private:
  std::string path_;
  std::vector<std::int64_t> identity_;
};

class Handover final : private Timer {
 public:
  struct Options {
    Program program;
    std::vector<std::string> arguments;  // argv
    std::function<std::vector<OfferedSocket>()> offer;
    std::function<bool()> must_wait;  // for the end of the process before this one; retry() tells it
    std::function<void()> began;
    std::function<void(const std::string& status)> goes_on;  // it has come to nothing, or waits
    std::function<void()> reload;                            // what a reload was to bring is this process's to take
    // The new process is ready: this one must not listen any more, nor speak to a service manager.
    std::function<void(::pid_t)> replaced;
  };
  // All arguments outlive it.
  Handover(Loop& loop, const exec::Services& shared, std::vector<Worker*> workers, Listener& listener,
           Shutdown& shutdown, Options options);
  ~Handover() override;

  // Begins, now or as soon as it can. False, with a line in the log: it cannot. `reloads`: if no process takes what has
  // changed, Options::reload follows.
  bool request(bool reloads = false);
  // The process before this one has ended: a request may wait for that.
  void retry();
  bool waits() const noexcept { return asked_ && state_ == State::none; }
  // The process ends: no other one begins, and one that is not ready is ended.
  void stop();
  // Is a request the only way to what is installed now?
  bool is_due() const;

 private:
  enum class State : std::uint8_t { none, starting, moving };
  void begin();
  void heard(HandoverChannel::Message message);
  void fail(const std::string& why);
  void give_up();
  void move();
  Duration announced_for() const;
  Task<void> tell_others();
  Task<void> stay();
  void tell_held();
  void on_timer() override;

  Loop& loop_;
  const exec::Services shared_;
  std::vector<Worker*> workers_;
  Listener& listener_;
  Shutdown& shutdown_;
  Options options_;
  State state_ = State::none;
  bool asked_ = false;    // for one that must wait
  bool reloads_ = false;  // any request since the last one that came to nothing
  bool stopped_ = false;
  ::pid_t started_ = 0;
  FileDescriptor started_process_;  // a pidfd
  std::uint64_t memory_limit_bytes_ = 0;  // of clients' memory, before; 0: none
  std::unique_ptr<HandoverChannel> channel_;
  std::atomic<std::int64_t> passing_{0};  // clients on their way from a worker to the channel
};

// A process's own limit while another process holds `held_bytes`. `now`: its use, and its limit so far. The result is
// not below the use, unless the use exceeds the limit so far.
std::uint64_t limit_beside(std::uint64_t limit_bytes, std::uint64_t held_bytes, const BudgetUsage& now) noexcept;
// Gives `own` that limit. Nothing happens if there is none (0).
void share_memory(MemoryBudget& own, std::uint64_t limit_bytes, std::uint64_t held_bytes) noexcept;

}  // namespace spillway::server
