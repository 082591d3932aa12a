// ShardTime: how long an operation waited for its shards: from a command's last byte sent to its reply's first byte
// received. While several shards are asked at once, their time counts once: until the last of them answers.
//
// It excludes waits for a connection of a pool or for memory, and sending. It includes the time that a reply waits in
// the kernel because this worker is busy, which looks like the shard's own. One per operation, on its worker's
// thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "proxy/base/clock.h"

namespace spillway::shard {

class CallTrace;  // call_trace.h

class ShardTime {
 public:
  // A command is to be sent to a shard. `bulk`: not for a point operation.
  void note_call(bool bulk) noexcept {
    ++calls_;
    bulk_ = bulk_ || bulk;
  }
  void note_bulk() noexcept { bulk_ = true; }
  std::uint32_t calls() const noexcept { return calls_; }
  // Has a whole command left for a shard?
  bool has_sent() const noexcept { return since_ != TimePoint{}; }
  // The operationTime of an answer; 0: none has come.
  void note_operation_time(std::uint64_t time) noexcept { operation_time_ = std::max(operation_time_, time); }
  std::uint64_t operation_time() const noexcept { return operation_time_; }
  bool bulk() const noexcept { return bulk_; }
  // What $$NOW and $$CLUSTER_TIME are for all of the operation's shards. Set once; unset as long as none reads them.
  struct Constants {
    std::int64_t now_ms;
    std::uint64_t cluster_time;
  };
  std::optional<Constants> constants;
  // Gets the operation's calls, and outlives them; null: it is not traced.
  void set_trace(CallTrace* trace) noexcept { trace_ = trace; }
  CallTrace* trace() const noexcept { return trace_; }

  // Of answered calls. Complete only while no call is waited for.
  Duration total() const noexcept { return total_; }

 private:
  friend class ShardWait;
  void begin(TimePoint now) noexcept {
    if (waiting_++ == 0) since_ = now;
  }
  void end(TimePoint now) noexcept {
    if (--waiting_ == 0) total_ += now - since_;
  }

  Duration total_{};
  TimePoint since_{};
  std::uint64_t operation_time_ = 0;
  CallTrace* trace_ = nullptr;
  std::uint32_t waiting_ = 0;
  std::uint32_t calls_ = 0;
  bool bulk_ = false;
};

// One wait for one shard: of an operation, or of none (null). Ends with its scope, if it has not ended before.
class ShardWait {
 public:
  explicit ShardWait(ShardTime* operation) noexcept : operation_(operation) {}
  ShardWait(const ShardWait&) = delete;
  ShardWait& operator=(const ShardWait&) = delete;
  ~ShardWait() {
    if (under_way_) end();
  }

  void begin() noexcept {
    under_way_ = true;
    began_ = Clock::now();
    if (operation_ != nullptr) operation_->begin(began_);
  }
  // No effect if it is not under way.
  void end() noexcept {
    if (!std::exchange(under_way_, false)) return;
    const TimePoint now = Clock::now();
    taken_ = now - began_;
    if (operation_ != nullptr) operation_->end(now);
  }
  Duration taken() const noexcept { return taken_; }  // REQUIRES that it has ended

 private:
  ShardTime* operation_;
  TimePoint began_{};
  Duration taken_{};
  bool under_way_ = false;
};

}  // namespace spillway::shard
