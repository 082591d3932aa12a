// PendingFetch: getMores to a cursor's shards that wait there for events. They go on while the client is idle, and a
// shard is not asked again before it has answered.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "allocator/mutex.h"
#include "cursor/change_stream.h"
#include "proxy/exec/core/shard_call.h"

namespace spillway::exec {

// The cursor and the calls under way share it. Its cursor's holder asks, takes and waits, on any worker.
class PendingFetch final : public WaitingReplies, public std::enable_shared_from_this<PendingFetch> {
 public:
  // From a shard whose last reply was empty nothing is wanted before this has passed: one that does not wait as it is
  // told must not be asked in a loop.
  static constexpr Duration empty_pause = std::chrono::milliseconds(10);

  // May this remote be asked now? next_ask(): the time at which the next pause of a remote ends.
  bool may_ask(std::size_t remote, TimePoint now) const;
  TimePoint next_ask(TimePoint now) const;
  // Sends a getMore that waits up to `await_ms` for documents. Its reply waits here. REQUIRES may_ask().
  void ask(Context& context, const ClusterCursor& cursor, std::size_t remote, std::int64_t await_ms);

  struct Arrived {
    std::size_t remote;
    ShardOutcome outcome;
  };
  std::vector<Arrived> take();
  // Until a reply has arrived that was not taken, or until then. The interrupt (null: none) ends it, too.
  Task<void> wait(Context& context, TimePoint until, shard::Interrupt* interrupt);
  // The remote's last reply had no documents.
  void note_empty(std::size_t remote, TimePoint now);

  std::size_t held_bytes() const noexcept override { return held_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Slot {
    bool asked = false;
    std::optional<ShardOutcome> outcome;
    TimePoint not_before{};
  };
  struct Waiting;
  static Task<void> fetch(Context* context, std::shared_ptr<PendingFetch> self, std::size_t remote, std::uint16_t shard,
                          shard::HostAddress host, BsonDoc body);
  void arrive(std::size_t remote, ShardOutcome outcome);

  mutable Mutex mutex_;
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  std::atomic<std::size_t> held_bytes_ = 0;
};

}  // namespace spillway::exec
