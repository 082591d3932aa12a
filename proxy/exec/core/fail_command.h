// FailCommand: the fail points failCommand and failGetMoreAfterCursorCheckout, by which tests make a router fail.
// configureFailPoint sets them where setParameter.enableTestCommands is on. One of each for all workers; thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "allocator/mutex.h"
#include "cursor/bson_writer.h"
#include "proxy/base/clock.h"
#include "proxy/base/task.h"

namespace spillway::exec {

struct Client;
struct Context;

// What the fail point looks at; a hello need not be a Request.
struct FailSubject {
  std::string_view name;
  std::string_view db;
  DocView body;
};

class FailCommand {
 public:
  // The data of configureFailPoint, read.
  struct Plan {
    std::vector<std::string> commands;
    bool all_commands = false;
    std::string application, thread, ns;  // empty: any
    bool internal_clients = false;
    bool closes = false;
    std::optional<Duration> blocks;
    std::optional<std::int32_t> code;
    std::string extra;                               // errorExtraInfo, BSON
    std::optional<std::vector<std::string>> labels;  // instead of the router's
    std::string write_concern_error;                 // BSON; empty: none
  };
  using PlanPtr = std::shared_ptr<const Plan>;
  // What is kept of one peer's wishes.
  static constexpr std::size_t data_bytes_max = 16 * 1024;

  FailCommand() = default;
  // Of this command alone, whatever its data say.
  explicit FailCommand(std::string_view command) : only_(command) {}

  // False costs commands one branch: no failure was configured.
  bool on() const noexcept { return on_.load(std::memory_order_relaxed); }
  // {configureFailPoint, mode, data}: how often commands had met it before. Errors: IllegalOperation(20) no mode,
  // TypeMismatch(14), BadValue(2), InvalidOptions(72) for blockConnection without a time.
  Result<std::int64_t> configure(DocView command);
  std::int64_t met() const;

  // Each call counts, if the plan concerns the command. Null: nothing is to happen.
  PlanPtr meet_before(const Client& client, const FailSubject& subject);
  PlanPtr meet_write_concern(const Client& client, const FailSubject& subject);
  // With an error in any case.
  PlanPtr meet_always(const Client& client, const FailSubject& subject);

 private:
  enum class Mode : std::uint8_t { off, always, times, skip, random };
  template <class Wanted>
  PlanPtr meet(const Client& client, const FailSubject& subject, Wanted wanted);
  bool passes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Result<void> set_mode(ValueView mode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string only_;
  std::atomic<bool> on_{false};
  mutable Mutex mutex_;
  Mode mode_ ABSL_GUARDED_BY(mutex_) = Mode::off;
  std::int64_t left_ ABSL_GUARDED_BY(mutex_) = 0;          // of times and skip
  double probability_ ABSL_GUARDED_BY(mutex_) = 0;
  std::minstd_rand random_ ABSL_GUARDED_BY(mutex_){std::random_device{}()};
  std::int64_t met_ ABSL_GUARDED_BY(mutex_) = 0;
  PlanPtr plan_ ABSL_GUARDED_BY(mutex_);
};

// How a command that is not to run ends.
struct PlannedFailure {
  bool closes = false;  // without an answer
  bool labelled = false;  // the error's labels are the plan's: no others
  Error error;
};

// Waits as long as the plan says. None: the command runs. `deadline`: MaxTimeMSExpired(50) ends the wait.
Task<std::optional<PlannedFailure>> fail_as_planned(Context& context, Client& client, FailSubject subject,
                                                    TimePoint deadline);

// A wait in the middle of an operation of the client. Errors: the interrupt's; MaxTimeMSExpired(50).
Task<Result<void>> pause_operation(Context& context, Client& client, TimePoint until, TimePoint deadline);

}  // namespace spillway::exec
