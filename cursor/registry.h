// CursorRegistry: every open cursor of the process, by id, in a striped table with check-out.
//
// Thread-safe. Does no I/O, and waits for a stripe's lock only. If shard cursors must be killed, the caller gets the
// cursors and does that.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"

#include "allocator/limits.h"
#include "allocator/mutex.h"
#include "allocator/small_blocks.h"
#include "cursor/cursor.h"
#include "cursor/idle_list.h"
#include "cursor/session_id.h"

namespace spillway {

// The sender of a getMore or killCursors.
struct CursorCaller {
  std::string_view lsid;  // the lsid document's bytes; empty: none
  std::optional<std::int64_t> txn_number;
  bool in_transaction = false;
  std::string_view user;
  ApiParameters api{};
};

// A getMore that waits while read-ahead fills its cursor. deliver() is called at most once, on any thread, without
// locks: with the checked-out cursor, or with the error.
class CursorWaiter {
 public:
  explicit CursorWaiter(const CursorCaller& caller)
      : lsid_(caller.lsid), user_(caller.user), caller_(caller) {
    caller_.lsid = lsid_;
    caller_.user = user_;
  }
  CursorWaiter(const CursorWaiter&) = delete;
  CursorWaiter& operator=(const CursorWaiter&) = delete;
  virtual ~CursorWaiter() = default;
  virtual void deliver(Result<CursorPtr> cursor) = 0;
  const CursorCaller& caller() const noexcept { return caller_; }

 private:
  using Text = std::basic_string<char, std::char_traits<char>, RecyclingAllocator<char>>;
  Text lsid_, user_;
  CursorCaller caller_;
};

struct CursorCounts {
  std::uint64_t open_total = 0;
  std::uint64_t open_single_target = 0;
  std::uint64_t open_multi_target = 0;
  std::uint64_t pinned = 0;
  std::uint64_t filling = 0;  // of those pinned: read-ahead fills them, and no getMore waits
  std::uint64_t no_timeout = 0;
  std::uint64_t clientless = 0;       // idle ones whose client is gone
  std::uint64_t timed_out = 0;        // ever
  std::uint64_t evicted = 0;          // ever, for memory
  std::uint64_t evicted_bytes = 0;    // ever, what they held
  std::uint64_t orphaned = 0;         // ever
  std::uint64_t total_opened = 0;     // ever
  std::uint64_t looked_at = 0;        // ever, in searches by connection or session
  std::uint64_t buffered_bytes = 0;   // of idle cursors
};

class CursorRegistry {
 public:
  // The process's steady clock: this layer has no clock.
  using SteadyNs = std::int64_t;

  CursorRegistry();
  ~CursorRegistry();

  // Stores a new idle cursor. Returns its id: positive, random, not guessable.
  std::int64_t insert(CursorPtr cursor, SteadyNs now);
  // Gives an id to a new cursor that stays checked out.
  std::int64_t insert_checked_out(const ClusterCursor& cursor, SteadyNs now);

  // Errors: CursorNotFound(43), also for another namespace; CursorInUse(143), Unauthorized(13), session mismatches
  // 50799–50804. An error does not change the cursor. Null: read-ahead fills the cursor, and the waiter that
  // `make_waiter` returned will get it. `make_waiter` is called under a lock; empty: CursorInUse instead.
  using MakeWaiter = std::function<std::shared_ptr<CursorWaiter>()>;
  Result<CursorPtr> check_out(std::int64_t id, std::string_view ns, const CursorCaller& caller,
                              const MakeWaiter& make_waiter = {});
  // Stops waiting. False: deliver() was called, or will be at once.
  bool stop_waiting(std::int64_t id, const CursorWaiter& waiter);
  // Read-ahead begins on a checked-out cursor: a getMore for it waits from now on. False: it was killed meanwhile.
  bool begin_filling(const ClusterCursor& cursor);
  // Puts a cursor back. If it was killed meanwhile, returns it, and the caller must end it.
  CursorPtr check_in(CursorPtr cursor, SteadyNs now);
  // Forgets a checked-out cursor (exhausted or failed). True if it had been killed meanwhile.
  bool forget(std::int64_t id);
  // Was this checked-out cursor killed? Then the present reply is its last.
  bool killed(std::int64_t id) const;

  // Does the cursor belong to another user? False for an unknown id.
  bool is_another_users(std::int64_t id, std::string_view ns, std::string_view user) const;

  // The cursor's namespace; empty for an unknown id.
  std::string ns_of(std::int64_t id) const;

  enum class KillOutcome : std::uint8_t { killed_idle, marked_in_use, not_found };
  struct Killed {
    KillOutcome outcome;
    CursorPtr cursor;  // set for killed_idle: its remotes must be killed
  };
  Killed kill(std::int64_t id, std::string_view ns);
  // Kills by session. Idle ones are returned.
  std::vector<CursorPtr> kill_sessions(const std::vector<SessionId>& sessions);
  std::vector<CursorPtr> kill_all_sessions();  // not cursors without a session
  // Kills the cursors that this connection used last, and counts them as orphaned. Idle ones are returned.
  std::vector<CursorPtr> kill_connection(std::int64_t connection_id);
  std::vector<CursorPtr> kill_all();

  // Ends idle cursors that were not used since `not_after`, and counts them as timed out. Not those with no_timeout;
  // those with a session only if `with_sessions`.
  std::vector<CursorPtr> expire(SteadyNs not_after, bool with_sessions);

  // Ends idle cursors that were not used since `not_after`, the heaviest first, until they held `bytes_wanted`. Not
  // cursors without buffered bytes. A later getMore gets the reason.
  std::vector<CursorPtr> evict(SteadyNs not_after, std::uint64_t bytes_wanted);
  // The same for clients (address and application) other than `asking` whose cursors hold more than `share_bytes`,
  // until they hold no more than that.
  std::vector<CursorPtr> evict_beyond_share(const CursorClient* asking, std::uint64_t share_bytes,
                                            SteadyNs not_after);

  // Ends idle cursors that have had no client (`has_client`) since `now - grace`. The time begins with the first call
  // that finds no client.
  struct Orphans {
    std::vector<CursorPtr> ended;
    std::size_t clientless = 0;  // whose grace has not passed
  };
  Orphans end_orphans(const std::function<bool(const ClusterCursor&)>& has_client, SteadyNs now,
                      SteadyNs grace);

  // Ids of at most `count_max` idle cursors that could park at least `bytes_min` and have no client or were not used
  // since `not_after`. Those without a client come first, then the heaviest.
  std::vector<std::int64_t> heaviest_idle(SteadyNs not_after, std::size_t bytes_min,
                                          std::size_t count_max) const;
  // Calls `work` with an idle cursor, under its lock: keep it short. False: the cursor is not idle any more.
  bool with_idle(std::int64_t id, const std::function<void(ClusterCursor&)>& work);
  // Calls `look` with each idle cursor, under its lock: keep it short.
  void for_each_idle(const std::function<void(const ClusterCursor&, SteadyNs last_used)>& look) const;

  CursorCounts counts() const;

 private:
  struct Entry {
    CursorPtr cursor;  // null while checked out
    SteadyNs last_used = 0;
    std::shared_ptr<CursorWaiter> waiter;  // only while filling
    bool killed = false, filling = false;
    // Copies for the time when the cursor is checked out.
    bool multi_target = false, no_timeout = false;
    std::int64_t connection_id = 0;
    std::uint64_t owner = 0;  // a hash of the user's id
    std::string ns, lsid;
  };
  using Entries = absl::flat_hash_map<std::int64_t, Entry>;
  // An index by another value than the id. 16 or 24 bytes per cursor, and a third more.
  template <class Key>
  using Index = absl::btree_set<std::pair<Key, std::int64_t>>;

  // Why a cursor is not found: for the last ones that ended without the client's doing.
  enum class EndedBy : std::uint8_t { eviction, orphanage };
  struct Ended {
    std::int64_t id = 0;
    EndedBy by = EndedBy::eviction;
  };

  struct alignas(64) Stripe {
    mutable Mutex mutex;
    Entries entries ABSL_GUARDED_BY(mutex);
    Index<std::int64_t> by_connection ABSL_GUARDED_BY(mutex);  // that used it last; not cursors of the router itself
    Index<SessionId> by_session ABSL_GUARDED_BY(mutex);       // not cursors without one
    IdleList idle ABSL_GUARDED_BY(mutex);          // with neither a session nor no_timeout
    IdleList idle_session ABSL_GUARDED_BY(mutex);  // with a session
    std::array<Ended, 32> ended ABSL_GUARDED_BY(mutex);
    std::size_t next_ended ABSL_GUARDED_BY(mutex) = 0;
    std::uint64_t timed_out ABSL_GUARDED_BY(mutex) = 0;
    std::uint64_t evicted ABSL_GUARDED_BY(mutex) = 0;
    std::uint64_t evicted_bytes ABSL_GUARDED_BY(mutex) = 0;
    std::uint64_t orphaned ABSL_GUARDED_BY(mutex) = 0;
    std::uint64_t opened ABSL_GUARDED_BY(mutex) = 0;
    std::uint64_t looked_at ABSL_GUARDED_BY(mutex) = 0;

    void used_by(std::int64_t id, Entry& entry, std::int64_t connection_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    void erase(Entries::iterator at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    void put_idle(Entry& entry, CursorPtr cursor, SteadyNs now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    CursorPtr take_idle(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    void remember(std::int64_t id, EndedBy by) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    Error not_found(std::int64_t id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    // Takes an idle cursor out of the table and counts it as evicted.
    CursorPtr evict(Entries::iterator at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    void expire(IdleList Stripe::* list, SteadyNs not_after, std::vector<CursorPtr>& taken)
        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  };
  static std::size_t stripe_of(std::int64_t id) noexcept {
    return static_cast<std::size_t>(id) % limits::cursor_stripes;
  }
  struct Weight {
    std::uint64_t bytes;
    std::int64_t id;
    SteadyNs last_used;
    bool operator>(const Weight& other) const noexcept { return bytes > other.bytes; }
  };
  std::int64_t emplace(Entry entry, SteadyNs now, CursorPtr cursor);
  CursorPtr evict_one(const Weight& chosen);
  // Killed cursors. Tell their waiters after the locks are released.
  struct AllKilled {
    std::vector<CursorPtr> idle;
    std::vector<std::pair<std::int64_t, std::shared_ptr<CursorWaiter>>> waiters;
    std::vector<CursorPtr> tell() &&;
  };
  static void kill_here(Stripe& stripe, Entries::iterator at, AllKilled& killed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mutex);
  std::vector<CursorPtr> kill_matching(const std::function<bool(const Entry&)>& matches);

  std::array<Stripe, limits::cursor_stripes> stripes_;
};

}  // namespace spillway
