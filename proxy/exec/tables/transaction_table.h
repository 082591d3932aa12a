// Transactions: which shards take part in a session's transaction, and a router's answers about it. The shards of a
// static table know nothing of each other: there a transaction stays on one, and a second is refused with 263.
//
// A session's statements may come over any connection and worker: the table is shared, striped by
// lsid, and never does I/O. Messages to shards (aborts) are returned to the caller.
//
// An open transaction is never dropped for another. So that no user fills the table, a user may have at most as many
// as there are free entries: one user alone has at most half of it, two a third each, and a new user always finds
// room.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"

#include "allocator/mutex.h"
#include "cursor/cursor.h"
#include "cursor/error.h"
#include "cursor/session_id.h"
#include "proxy/base/clock.h"
#include "proxy/exec/tables/participants.h"
#include "proxy/exec/tables/session_turns.h"

namespace spillway::exec {

// The readConcern of a transaction's first statement: each shard gets it with its first command.
struct TransactionConcern {
  enum class Level : std::uint8_t { none, local, majority, snapshot };
  Level level = Level::none;
  std::uint64_t after_cluster_time = 0;  // 0: none
  std::uint64_t at_cluster_time = 0;     // of a snapshot: one for all shards, chosen with the first command
  std::uint64_t began_at = 0;            // the cluster's time at its first command
};

// A session's latest transaction in the table.
struct Transaction {
  enum class State : std::uint8_t { active, committing, aborted };
  std::int64_t txn_number = 0;
  State state = State::active;
  bool committed = false;
  Participants participants;
  TransactionConcern concern;
  TimePoint last_used{};
  std::uint64_t user = 0;  // a hash of the user, or of the address; 0: of neither
  ApiParameters api{};     // of its first command
};

// A transaction that is open on shards and must be aborted there.
struct OpenTransaction {
  std::string lsid;  // the lsid document's bytes
  std::int64_t txn_number = 0;
  catalog::ShardSet shards;  // not empty
};

// Thread-safe.
class TransactionTable {
 public:
  static constexpr Duration lifetime = std::chrono::minutes(30);
  static constexpr std::size_t entries_max = 100'000;

  explicit TransactionTable(std::size_t capacity = entries_max);

  // `to_abort`: a transaction that a statement ended, to be aborted on its shards, whether an error comes back or not.
  struct Statement {
    std::optional<OpenTransaction> to_abort;
    std::optional<Error> error;
  };
  // A statement that will run on `targets` of a static table. Begins or continues the session's transaction and pins
  // it. `user`: has the place in the table; an address where there are no users. Errors: 117 started twice, 225 an
  // older number, 251 unknown or aborted, 256 committed, 263 a second shard, 261 too many transactions.
  Statement statement(std::string_view lsid, std::int64_t txn_number, bool starts,
                      const catalog::ShardSet& targets, bool writes, TimePoint now,
                      std::string_view user = {});

  // The same in a cluster, before its shards are known. `begins`: with this readConcern; null: it goes on. The commands
  // to shards follow, with contact() before each and note_answer() after it.
  Statement statement_in_cluster(std::string_view lsid, std::int64_t txn_number, const TransactionConcern* begins,
                                 TimePoint now, std::string_view user = {});
  struct Contact {
    Participants::Contact with_shard;
    TransactionConcern concern;
  };
  // `cluster_time`: the present one. Null: there is no such transaction any more, and the shard begins none.
  std::optional<Contact> contact(std::string_view lsid, std::int64_t txn_number, catalog::ShardIndex shard,
                                 std::uint64_t cluster_time);
  // `ok: 1`. `added`: shards that this one has brought in itself.
  struct Added {
    catalog::ShardIndex shard = 0;
    bool read_only = false;
  };
  void note_answer(std::string_view lsid, std::int64_t txn_number, catalog::ShardIndex shard, bool read_only,
                   const std::vector<Added>& added = {});
  // The same with `ok: 0`.
  void note_refusal(std::string_view lsid, std::int64_t txn_number, const std::vector<Added>& added);
  // The present statement is to be sent again. Null: it must not be. Else what must be aborted before, if anything.
  // `of_view`: a shard that it has not begun on has refused it without aborting.
  struct Restart {
    std::optional<OpenTransaction> to_abort;
  };
  std::optional<Restart> restart(std::string_view lsid, std::int64_t txn_number, bool of_view);

  // A statement has begun it with these; all but abortTransaction must have the same: APIMismatchError (347).
  void note_api(std::string_view lsid, std::int64_t txn_number, const ApiParameters& api);
  Result<void> check_api(std::string_view lsid, std::int64_t txn_number, const ApiParameters& api) const;

  // commitTransaction and abortTransaction: where to send them. No participants: nowhere. Errors: 225, 251, and 256 for
  // an abort of what is committed. Not known here at all: nullopt, and a recoveryToken may help.
  Result<std::optional<Participants>> commit(std::string_view lsid, std::int64_t txn_number,
                                             TimePoint now);
  Result<Participants> abort(std::string_view lsid, std::int64_t txn_number, TimePoint now);

  // Participants::choose_commit(), and how it is committed. nullopt: it is not here any more.
  std::optional<CommitPlan> plan_commit(std::string_view lsid, std::int64_t txn_number, bool one_writer_last);

  // It has been committed. False: it was told before.
  bool note_committed(std::string_view lsid, std::int64_t txn_number);

  // The readers of a commit whose writer comes last have answered. `lost`: one of them has no such transaction, so that
  // the writer's part is to be aborted, unless another attempt has had them committed.
  struct AfterReaders {
    bool writer_is_next = false;
    std::optional<OpenTransaction> to_abort;
  };
  AfterReaders readers_answered(std::string_view lsid, std::int64_t txn_number, bool committed, bool lost);

  // A statement has failed: later ones get 251. Returns the transaction if it was active, to be aborted on its shards;
  // a commit under way decides by itself.
  std::optional<OpenTransaction> fail(std::string_view lsid, std::int64_t txn_number);

  // The statement that began it after `since` was not executed: the number may be begun again.
  void forget(std::string_view lsid, std::int64_t txn_number, TimePoint since);

  // The transaction's present state, if it has this number.
  std::optional<Transaction> find(std::string_view lsid, std::int64_t txn_number) const;
  // Is it here, in any state?
  bool knows(const SessionId& session, std::int64_t txn_number) const;

  // Forgets these sessions; the caller aborts their active transactions.
  // `kills`: their statements and commits get 251 from then on. Otherwise nothing is known of them any more.
  std::vector<OpenTransaction> end_sessions(const std::vector<SessionId>& sessions, bool kills);
  std::vector<OpenTransaction> end_all_sessions(bool kills);
  std::size_t size() const;
  std::size_t active() const;

  SessionTurns& turns() noexcept { return turns_; }
  // Of retryable writes that one of several shards executes.
  SessionTurns& turns_of_writes() noexcept { return turns_of_writes_; }

  // Since the process began. A commit that is sent again counts again.
  std::uint64_t started() const noexcept { return started_.load(std::memory_order_relaxed); }
  std::uint64_t aborted() const noexcept { return aborted_.load(std::memory_order_relaxed); }
  std::uint64_t committed() const noexcept { return committed_.load(std::memory_order_relaxed); }
  void count_commit() noexcept { committed_.fetch_add(1, std::memory_order_relaxed); }

 private:
  static constexpr std::size_t stripe_count = 16;
  // Its session, and then the whole lsid.
  using Key = std::pair<SessionId, std::string>;
  using Entries = absl::btree_map<Key, Transaction>;
  struct alignas(64) Stripe {
    mutable Mutex mutex;
    Entries entries ABSL_GUARDED_BY(mutex);
    struct Holder {
      std::size_t entries = 0;  // at least 1
      TimePoint next_sweep{};
    };
    absl::flat_hash_map<std::uint64_t, Holder> held ABSL_GUARDED_BY(mutex);  // by user
    TimePoint next_sweep ABSL_GUARDED_BY(mutex){};                           // of all users

    Entries::iterator erase(Entries::iterator at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    // Makes room: drops expired entries, else the older half of those that have ended or are open on no shard, of one
    // user or of all; else those of one user that shards have aborted by themselves. How many?
    std::size_t drop_done(TimePoint now, std::optional<std::uint64_t> user) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    // The same, which looks at all entries: not again soon after it found nothing, unless one has ended since.
    void sweep(TimePoint now, std::optional<std::uint64_t> user) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    void note_end(const Transaction& transaction) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    std::vector<OpenTransaction> end(Entries::iterator first, Entries::iterator last, bool kills)
        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    // Null unless the session's latest transaction has this number.
    Transaction* latest(const Key& key, std::int64_t txn_number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  };
  static Key key_of(std::string_view lsid) { return {session_id_of_lsid(lsid), std::string(lsid)}; }
  Stripe& stripe_of(const Key& key) noexcept { return stripes_[number_of(key.first)]; }
  const Stripe& stripe_of(const Key& key) const noexcept { return stripes_[number_of(key.first)]; }
  static std::size_t number_of(const SessionId& session) noexcept { return absl::HashOf(session) % stripe_count; }
  void mark_aborted(Stripe& stripe, Transaction& transaction) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mutex);
  // A new transaction of this session. `targets`: the shards that it goes to, as far as is known.
  std::optional<Error> begin(Stripe& stripe, const Key& key, std::int64_t txn_number,
                             const catalog::ShardSet& targets, TimePoint now, std::uint64_t user, Statement& result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mutex);
  // The transaction of a statement, begun or continued. Null: result.error says why.
  Transaction* take(Stripe& stripe, const Key& key, std::int64_t txn_number, bool starts,
                    const catalog::ShardSet& targets, TimePoint now, std::string_view user, Statement& result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mutex);
  bool has_room(Stripe& stripe, std::uint64_t user) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mutex);

  std::size_t stripe_entries_max_;
  std::array<Stripe, stripe_count> stripes_;
  SessionTurns turns_, turns_of_writes_;
  std::atomic<std::uint64_t> started_{0}, aborted_{0}, committed_{0};
};

}  // namespace spillway::exec
