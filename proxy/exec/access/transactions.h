// Transactions on one shard: which session's transaction is pinned to which shard, and a router's answers about it. A
// transaction over several shards is refused with 263.
//
// A session's statements may come over any connection and worker: the table is shared, striped by
// lsid, and never does I/O. Messages to shards (aborts) are returned to the caller.
//
// An open transaction is never dropped for another. So that no user fills the table, a user may have at most as many
// as there are free entries: one user alone has at most half of it, two a third each, and a new user always finds
// room.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"

#include "allocator/mutex.h"
#include "cursor/session_id.h"
#include "proxy/base/clock.h"
#include "proxy/catalog/chunk_map.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"

namespace spillway::exec {

// A session's latest transaction in the table.
struct Transaction {
  enum class State : std::uint8_t { active, committing, aborted };
  std::int64_t txn_number = 0;
  State state = State::active;
  std::optional<catalog::ShardIndex>
      shard;           // where its statements run; none: no statement has reached a shard
  bool wrote = false;  // its shard is in recoveryToken
  TimePoint last_used{};
  std::uint64_t user = 0;  // the user's hash; 0 where there are no users
};

// A transaction that is open on a shard and must be aborted there.
struct OpenTransaction {
  std::string lsid;  // the lsid document's bytes
  std::int64_t txn_number = 0;
  catalog::ShardIndex shard = 0;
};

// Thread-safe.
class TransactionTable {
 public:
  static constexpr Duration lifetime = std::chrono::minutes(30);
  static constexpr std::size_t entries_max = 100'000;

  explicit TransactionTable(std::size_t capacity = entries_max);

  // A statement that will run on `targets`. Begins or continues the session's transaction and pins
  // it. `to_abort`: a transaction that this statement ended, to be aborted on its shard, whether an
  // error comes back or not. `user`: empty where there are none. Errors: 117 started twice, 225 an
  // older number, 251 unknown or aborted, 263 a second shard, 261 too many transactions.
  struct Statement {
    std::optional<OpenTransaction> to_abort;
    std::optional<Error> error;
  };
  Statement statement(std::string_view lsid, std::int64_t txn_number, bool starts,
                      const catalog::ShardSet& targets, bool writes, TimePoint now,
                      std::string_view user = {});

  // commitTransaction and abortTransaction: where to send them. nullopt shard: nowhere, the answer
  // is ok. Errors: 225, 251. Not known here at all: nullopt, and a recoveryToken may help.
  struct Ending {
    std::optional<catalog::ShardIndex> shard;
    bool wrote = false;
  };
  Result<std::optional<Ending>> commit(std::string_view lsid, std::int64_t txn_number,
                                       TimePoint now);
  Result<Ending> abort(std::string_view lsid, std::int64_t txn_number, TimePoint now);

  // A statement has failed: later ones get 251. Returns the transaction if it was active, to be aborted on its shard;
  // a commit under way decides by itself.
  std::optional<OpenTransaction> fail(std::string_view lsid, std::int64_t txn_number);

  // The statement that began it after `since` was not executed: the number may be begun again.
  void forget(std::string_view lsid, std::int64_t txn_number, TimePoint since);

  // The transaction's present state, if it has this number.
  std::optional<Transaction> find(std::string_view lsid, std::int64_t txn_number) const;

  // Forgets these sessions; the caller aborts their active transactions.
  std::vector<OpenTransaction> end_sessions(const std::vector<SessionId>& sessions);
  std::vector<OpenTransaction> end_all_sessions();
  std::size_t size() const;

 private:
  static constexpr std::size_t stripe_count = 16;
  // Its session, and then the whole lsid.
  using Key = std::pair<SessionId, std::string>;
  using Entries = absl::btree_map<Key, Transaction>;
  struct alignas(64) Stripe {
    mutable Mutex mutex;
    Entries entries ABSL_GUARDED_BY(mutex);
    absl::flat_hash_map<std::uint64_t, std::size_t> held ABSL_GUARDED_BY(mutex);  // entries by user; none is 0

    Entries::iterator erase(Entries::iterator at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    // Makes room: drops expired entries, else the older half of the ended ones. Of one user, or of all.
    void drop_done(TimePoint now, std::optional<std::uint64_t> user) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    std::vector<OpenTransaction> end(Entries::iterator first, Entries::iterator last)
        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  };
  static Key key_of(std::string_view lsid) { return {session_id_of_lsid(lsid), std::string(lsid)}; }
  Stripe& stripe_of(const Key& key) noexcept { return stripes_[number_of(key.first)]; }
  const Stripe& stripe_of(const Key& key) const noexcept { return stripes_[number_of(key.first)]; }
  static std::size_t number_of(const SessionId& session) noexcept { return absl::HashOf(session) % stripe_count; }
  // A new transaction of this session.
  std::optional<Error> begin(Stripe& stripe, const Key& key, std::int64_t txn_number,
                             const catalog::ShardSet& targets, TimePoint now, std::uint64_t user, Statement& result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mutex);
  bool has_room(Stripe& stripe, std::uint64_t user) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mutex);

  std::size_t stripe_entries_max_;
  std::array<Stripe, stripe_count> stripes_;
};

// Called by every command that may be part of a transaction, once it knows its shards. Outside transactions it only
// refuses a txnNumber for shards that keep no record of it: IllegalOperation(20). Inside, it pins the transaction; a
// statement for a second shard aborts it on the first and is refused (263).
Task<Result<void>> check_transaction(Context& context, const Request& request,
                                     const catalog::ShardSet& targets);

// A txnNumber needs replica-set members, which remember the statements that they executed. No command is sent before
// this check.
Result<void> check_retryable(Context& context, const Request& request,
                             const catalog::ShardSet& targets);

inline constexpr auto abort_time_max = std::chrono::seconds(10);
// abortTransaction on its shard; the answer is ignored.
Task<void> abort_on_shard(Context& context, OpenTransaction open, TimePoint deadline = Clock::now() + abort_time_max);

// A command that ends with an error of the proxy's ends its transaction with it, in the background: the shard does
// not know of the error, and would commit the rest. If the error says that the command may be tried again unchanged,
// the transaction stays open, or not begun.
void abort_after_failure(Context& context, const Request& request, const Error& error);

// Adds what a router adds to a reply inside a transaction: recoveryToken if ok. REQUIRES no stream.
Response with_recovery_token(Context& context, const Request& request, Response response);
// Labels of a failure: TransientTransactionError inside a transaction, RetryableWriteError for a
// retryable write, when the shard could not be reached or this router shuts down. run_command() calls this for every
// failure of a command; other code need not. A command that began a transaction on its shard cannot be tried again by
// itself; the whole transaction can.
Error label_failure(const Request& request, Error error);

}  // namespace spillway::exec
