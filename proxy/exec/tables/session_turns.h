// The statements of a session's transaction take turns, as at a mongos, which checks the session out for each. Shards
// of a cluster learn of a transaction by the router's commands. Two statements at once could both begin it there, and
// one that is sent again would take the other's shards out of it.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/btree_map.h"

#include "allocator/mutex.h"
#include "cursor/error.h"
#include "proxy/base/clock.h"
#include "proxy/base/task.h"

namespace spillway {
class Loop;
}  // namespace spillway

namespace spillway::shard {
class Interrupt;
}  // namespace spillway::shard

namespace spillway::exec {

// Thread-safe: a session's statements may come over any connection and worker. Outlives its turns.
class SessionTurns {
 public:
  // Ends with this object, on the thread that took it. Empty: none.
  class Turn {
   public:
    Turn() = default;
    Turn(Turn&& other) noexcept : turns_(std::exchange(other.turns_, nullptr)), lsid_(std::move(other.lsid_)) {}
    Turn& operator=(Turn&& other) noexcept {
      std::swap(turns_, other.turns_);
      std::swap(lsid_, other.lsid_);
      return *this;
    }
    ~Turn() {
      if (turns_ != nullptr) turns_->end(lsid_);
    }

   private:
    friend class SessionTurns;
    Turn(SessionTurns& turns, std::string_view lsid) : turns_(&turns), lsid_(lsid) {}

    SessionTurns* turns_ = nullptr;
    std::string lsid_;
  };

  // Waits for the statements that came before. `lsid`: the document's bytes, valid until the end of the wait. Errors:
  // MaxTimeMSExpired(50), the interrupt's.
  Task<Result<Turn>> take(Loop& loop, std::string_view lsid, TimePoint deadline, shard::Interrupt* interrupt);

  // Sessions with a statement at work.
  std::size_t size() const;

 private:
  struct Place;
  // Those that wait, by lsid; a session whose turn it is has an entry.
  using Lines = absl::btree_map<std::string, std::deque<std::shared_ptr<Place>>, std::less<>>;

  void end(const std::string& lsid) noexcept;

  mutable Mutex mutex_;
  Lines lines_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace spillway::exec
