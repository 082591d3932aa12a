// CursorRegistry: every open cursor of the process, by id, in a striped table with check-out.
//
// Thread-safe. Never does I/O and never waits for more than a stripe's lock: what must happen on shards
// (killing their cursors) is handed back to the caller as the cursors themselves.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "allocator/limits.h"
#include "allocator/mutex.h"
#include "cursor/cursor.h"

namespace spillway {

// What a getMore or killCursors knows about who asks.
struct CursorCaller {
  std::string_view lsid;  // the lsid document's bytes; empty: none
  std::optional<std::int64_t> txn_number;
  bool in_transaction = false;
  std::string_view user;
};

struct CursorCounts {
  std::uint64_t open_total = 0;
  std::uint64_t open_single_target = 0;
  std::uint64_t open_multi_target = 0;
  std::uint64_t pinned = 0;
  std::uint64_t no_timeout = 0;
  std::uint64_t timed_out = 0;        // ever
  std::uint64_t total_opened = 0;     // ever
  std::uint64_t buffered_bytes = 0;   // of idle cursors
};

// A row of currentOp's idle cursors; copies, so that no lock outlives the call.
struct IdleCursor {
  std::int64_t id;
  std::string ns, lsid, originating_command;
  std::int64_t created_ms, last_used_ns;
  std::uint64_t documents_returned, batches_returned, buffered_bytes;
  bool no_timeout, tailable, await_data;
};

class CursorRegistry {
 public:
  // Milliseconds on the program's steady clock, so that this layer needs no clock of its own.
  using SteadyNs = std::int64_t;

  CursorRegistry();
  ~CursorRegistry();

  // Takes an idle cursor, draws its id (positive, random, unguessable), and returns the id.
  std::int64_t insert(CursorPtr cursor, SteadyNs now);
  // Registers an id for a cursor that is still being worked on: it counts as checked out.
  std::int64_t insert_checked_out(const ClusterCursor& cursor, SteadyNs now);

  // Errors: CursorNotFound(43), CursorInUse(143), Unauthorized(13), session mismatches 50799–50804. All leave
  // the cursor as it was. A cursor of another namespace is not found.
  Result<CursorPtr> check_out(std::int64_t id, std::string_view ns, const CursorCaller& caller);
  // Gives a cursor back. Returned instead of stored when it was killed meanwhile: the caller must end it.
  CursorPtr check_in(CursorPtr cursor, SteadyNs now);
  // Forgets a checked-out cursor (exhausted or failed). True if it had been killed meanwhile.
  bool forget(std::int64_t id);
  // Was this checked-out cursor killed? (Then the reply under way is its last.)
  bool killed(std::int64_t id) const;

  enum class KillOutcome : std::uint8_t { killed_idle, marked_in_use, not_found };
  struct Killed {
    KillOutcome outcome;
    CursorPtr cursor;  // set for killed_idle: its remotes must be killed
  };
  Killed kill(std::int64_t id, std::string_view ns);
  // Kills by session: every cursor whose lsid is accepted. Idle ones are returned.
  std::vector<CursorPtr> kill_sessions(const std::function<bool(std::string_view lsid)>& matches);
  std::vector<CursorPtr> kill_all();

  // Idle cursors not used since `not_after`; no_timeout ones are left alone, those with a session too unless
  // `with_sessions`. Counted as timed out.
  std::vector<CursorPtr> expire(SteadyNs not_after, bool with_sessions);

  // Ids of at most `count_max` idle cursors not used since `not_after` that could park at least
  // `bytes_min`, the heaviest first.
  std::vector<std::int64_t> heaviest_idle(SteadyNs not_after, std::size_t bytes_min,
                                          std::size_t count_max) const;
  // Calls `work` with an idle cursor, under its lock: it must be short. False: it is not idle any more.
  bool with_idle(std::int64_t id, const std::function<void(ClusterCursor&)>& work);

  CursorCounts counts() const;
  std::vector<IdleCursor> idle() const;

 private:
  struct Entry {
    CursorPtr cursor;  // null while checked out
    SteadyNs last_used = 0;
    bool killed = false;
    // Copies that are needed while the cursor is out.
    std::string ns, lsid;
    bool multi_target = false, no_timeout = false;
  };
  struct alignas(64) Stripe {
    mutable Mutex mutex;
    absl::flat_hash_map<std::int64_t, Entry> entries ABSL_GUARDED_BY(mutex);
    std::uint64_t timed_out ABSL_GUARDED_BY(mutex) = 0;
    std::uint64_t opened ABSL_GUARDED_BY(mutex) = 0;
  };
  static std::size_t stripe_of(std::int64_t id) noexcept {
    return static_cast<std::size_t>(id) % limits::cursor_stripes;
  }
  std::int64_t emplace(Entry entry, SteadyNs now, CursorPtr cursor);

  std::array<Stripe, limits::cursor_stripes> stripes_;
};

}  // namespace spillway
