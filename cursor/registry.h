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

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"

#include "allocator/limits.h"
#include "allocator/mutex.h"
#include "allocator/small_blocks.h"
#include "cursor/cursor.h"
#include "cursor/idle_list.h"
#include "cursor/session_id.h"

namespace spillway {

// What a getMore or killCursors knows about its sender.
struct CursorCaller {
  std::string_view lsid;  // the lsid document's bytes; empty: none
  std::optional<std::int64_t> txn_number;
  bool in_transaction = false;
  std::string_view user;
  ApiParameters api{};
};

// A getMore that waits for a cursor which is being filled. deliver() is called at most once, on any
// thread, without locks: with the cursor, checked out, or with why there is none.
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
  std::uint64_t filling = 0;  // of those pinned: nobody waits for what is being fetched
  std::uint64_t no_timeout = 0;
  std::uint64_t clientless = 0;       // idle ones whose client is gone
  std::uint64_t timed_out = 0;        // ever
  std::uint64_t evicted = 0;          // ever, for memory
  std::uint64_t evicted_bytes = 0;    // ever, what they held
  std::uint64_t orphaned = 0;         // ever
  std::uint64_t total_opened = 0;     // ever
  std::uint64_t looked_at = 0;        // ever, to find those of a connection or of sessions
  std::uint64_t buffered_bytes = 0;   // of idle cursors
};

class CursorRegistry {
 public:
  // The program's steady clock, so that this layer needs no clock of its own.
  using SteadyNs = std::int64_t;

  CursorRegistry();
  ~CursorRegistry();

  // Takes an idle cursor, draws its id (positive, random, unguessable), and returns the id.
  std::int64_t insert(CursorPtr cursor, SteadyNs now);
  // Registers an id for a cursor that is still being worked on: it counts as checked out.
  std::int64_t insert_checked_out(const ClusterCursor& cursor, SteadyNs now);

  // Errors: CursorNotFound(43), CursorInUse(143), Unauthorized(13), session mismatches 50799–50804. All leave
  // the cursor as it was. A cursor of another namespace is not found. Null: it is being filled, and what
  // `make_waiter` returned (it is called under a lock; empty: CursorInUse) will get it.
  using MakeWaiter = std::function<std::shared_ptr<CursorWaiter>()>;
  Result<CursorPtr> check_out(std::int64_t id, std::string_view ns, const CursorCaller& caller,
                              const MakeWaiter& make_waiter = {});
  // Stops waiting. False: deliver() was called or is about to be.
  bool stop_waiting(std::int64_t id, const CursorWaiter& waiter);
  // A checked-out cursor goes on being worked on, but a getMore for it waits from now on. False: it
  // was killed meanwhile.
  bool begin_filling(const ClusterCursor& cursor);
  // Gives a cursor back. Returned instead of stored when it was killed meanwhile: the caller must end it.
  CursorPtr check_in(CursorPtr cursor, SteadyNs now);
  // Forgets a checked-out cursor (exhausted or failed). True if it had been killed meanwhile.
  bool forget(std::int64_t id);
  // Was this checked-out cursor killed? (Then the reply under way is its last.)
  bool killed(std::int64_t id) const;

  // Was it made by somebody else than this user? False for an unknown one.
  bool is_another_users(std::int64_t id, std::string_view ns, std::string_view user) const;

  // Its namespace; empty for an unknown one.
  std::string ns_of(std::int64_t id) const;

  enum class KillOutcome : std::uint8_t { killed_idle, marked_in_use, not_found };
  struct Killed {
    KillOutcome outcome;
    CursorPtr cursor;  // set for killed_idle: its remotes must be killed
  };
  Killed kill(std::int64_t id, std::string_view ns);
  // Kills by session. Idle ones are returned.
  std::vector<CursorPtr> kill_sessions(const std::vector<SessionId>& sessions);
  std::vector<CursorPtr> kill_all_sessions();  // not those without one
  // Kills what a connection used last, counted as orphaned. Idle ones are returned.
  std::vector<CursorPtr> kill_connection(std::int64_t connection_id);
  std::vector<CursorPtr> kill_all();

  // Idle cursors not used since `not_after`; no_timeout ones are left alone, those with a session too unless
  // `with_sessions`. Counted as timed out.
  std::vector<CursorPtr> expire(SteadyNs not_after, bool with_sessions);

  // Ends idle cursors not used since `not_after`, the heaviest first, until they held `bytes_wanted`;
  // never one without buffered bytes. A getMore hears of it.
  std::vector<CursorPtr> evict(SteadyNs not_after, std::uint64_t bytes_wanted);
  // The same with the cursors of a client (address and application) other than `asking` whose cursors
  // hold more than `share_bytes`, until they hold no more than that.
  std::vector<CursorPtr> evict_beyond_share(const CursorClient* asking, std::uint64_t share_bytes,
                                            SteadyNs not_after);

  // Ends idle cursors whose client `has_client` has denied since `now - grace`; those that it denies
  // for the first time count from now on.
  struct Orphans {
    std::vector<CursorPtr> ended;
    std::size_t clientless = 0;  // those that may end later
  };
  Orphans end_orphans(const std::function<bool(const ClusterCursor&)>& has_client, SteadyNs now,
                      SteadyNs grace);

  // Ids of at most `count_max` idle cursors not used since `not_after`, or without a client, that could
  // park at least `bytes_min`: first those without a client, of each kind the heaviest.
  std::vector<std::int64_t> heaviest_idle(SteadyNs not_after, std::size_t bytes_min,
                                          std::size_t count_max) const;
  // Calls `work` with an idle cursor, under its lock: it must be short. False: it is not idle any more.
  bool with_idle(std::int64_t id, const std::function<void(ClusterCursor&)>& work);
  // Calls `look` with each idle cursor, under its lock: it must be short.
  void for_each_idle(const std::function<void(const ClusterCursor&, SteadyNs last_used)>& look) const;

  CursorCounts counts() const;

 private:
  struct Entry {
    CursorPtr cursor;  // null while checked out
    SteadyNs last_used = 0;
    std::shared_ptr<CursorWaiter> waiter;  // only while filling
    bool killed = false, filling = false;
    // Copies that are needed while the cursor is out.
    bool multi_target = false, no_timeout = false;
    std::int64_t connection_id = 0;
    std::uint64_t owner = 0;  // a hash of the user's id
    std::string ns, lsid;
  };
  using Entries = absl::flat_hash_map<std::int64_t, Entry>;
  // Of what is found by something else than its id: that, and the id. 16 and 24 bytes a cursor, a third more for room.
  template <class Key>
  using Index = absl::btree_set<std::pair<Key, std::int64_t>>;

  // Why a cursor is not found: of the last that ended otherwise than a client expects.
  enum class EndedBy : std::uint8_t { eviction, orphanage };
  struct Ended {
    std::int64_t id = 0;
    EndedBy by = EndedBy::eviction;
  };

  struct alignas(64) Stripe {
    mutable Mutex mutex;
    Entries entries ABSL_GUARDED_BY(mutex);
    Index<std::int64_t> by_connection ABSL_GUARDED_BY(mutex);  // that used it last; not those of nobody outside
    Index<SessionId> by_session ABSL_GUARDED_BY(mutex);       // not those without one
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
  // What was killed. Those who wait for it are to be told, outside of locks.
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
