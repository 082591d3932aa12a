#include "proxy/exec/tables/transaction_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace spillway::exec {

namespace {

constexpr std::int32_t too_many_sessions = 261;
// Shards abort transactions after transactionLifetimeLimitSeconds: 60, unless it is set.
constexpr Duration aborted_by_shards = std::chrono::minutes(3);
constexpr Duration fruitless_sweep_pause = std::chrono::milliseconds(100);

Error no_such_transaction(std::int64_t txn_number, std::string_view why) {
  return Error(ErrorCode::no_such_transaction, fmt::format("Transaction {} {}", txn_number, why));
}

Error has_been_committed(std::int64_t txn_number) {
  constexpr std::int32_t transaction_committed = 256;
  return Error(transaction_committed, fmt::format("Transaction {} has been committed", txn_number));
}

Error too_old(std::int64_t txn_number, std::int64_t seen) {
  return Error(ErrorCode::transaction_too_old,
               fmt::format("txnNumber {} is less than last txnNumber {} seen in this session",
                           txn_number, seen));
}

}  // namespace

TransactionTable::TransactionTable(std::size_t capacity)
    : stripe_entries_max_(std::max<std::size_t>(1, capacity / stripe_count)) {}

TransactionTable::Entries::iterator TransactionTable::Stripe::erase(Entries::iterator at) {
  const auto holder = held.find(at->second.user);
  if (--holder->second.entries == 0) held.erase(holder);
  return entries.erase(at);
}

std::size_t TransactionTable::Stripe::drop_done(TimePoint now, std::optional<std::uint64_t> user) {
  const auto drop = [&](const auto& done) {
    std::size_t dropped = 0;
    for (auto at = entries.begin(); at != entries.end();) {
      const bool drops = (!user || at->second.user == *user) && done(at->second);
      dropped += drops ? 1 : 0;
      at = drops ? erase(at) : std::next(at);
    }
    return dropped;
  };
  if (const std::size_t expired = drop([now](const Transaction& each) { return each.last_used + lifetime <= now; })) {
    return expired;
  }
  // Or was begun on no shard.
  const auto has_ended = [](const Transaction& each) {
    return each.state != Transaction::State::active || each.participants.empty();
  };
  std::vector<TimePoint> ends;
  for (const auto& [key, each] : entries) {
    if ((!user || each.user == *user) && has_ended(each)) ends.push_back(each.last_used);
  }
  if (ends.empty()) {
    return user ? drop([now](const Transaction& each) { return each.last_used + aborted_by_shards <= now; }) : 0;
  }
  const auto middle = ends.begin() + static_cast<std::ptrdiff_t>(ends.size() / 2);
  std::nth_element(ends.begin(), middle, ends.end());
  return drop([&](const Transaction& each) { return has_ended(each) && each.last_used <= *middle; });
}

void TransactionTable::Stripe::sweep(TimePoint now, std::optional<std::uint64_t> user) {
  if (user && !held.contains(*user)) return;
  if (now < (user ? held.at(*user).next_sweep : next_sweep) || drop_done(now, user) > 0) return;
  (user ? held.at(*user).next_sweep : next_sweep) = now + fruitless_sweep_pause;
}

void TransactionTable::Stripe::note_end(const Transaction& transaction) {
  held[transaction.user].next_sweep = {};
  next_sweep = {};
}

std::vector<OpenTransaction> TransactionTable::Stripe::end(Entries::iterator first, Entries::iterator last,
                                                           bool kills) {
  std::vector<OpenTransaction> open;
  std::size_t count = static_cast<std::size_t>(std::distance(first, last));
  for (; count > 0; --count) {
    Transaction& transaction = first->second;
    const bool active = transaction.state == Transaction::State::active;
    if (active && !transaction.participants.empty()) {
      open.push_back({first->first.second, transaction.txn_number, transaction.participants.shards()});
    }
    if (active && kills) {
      transaction.state = Transaction::State::aborted;
      note_end(transaction);
    }
    first = kills ? std::next(first) : erase(first);
  }
  return open;
}

Transaction* TransactionTable::Stripe::latest(const Key& key, std::int64_t txn_number) {
  const auto found = entries.find(key);
  return found == entries.end() || found->second.txn_number != txn_number ? nullptr : &found->second;
}

bool TransactionTable::has_room(Stripe& stripe, std::uint64_t user) const {
  if (stripe.entries.size() >= stripe_entries_max_) return false;
  if (user == 0) return true;
  const auto holder = stripe.held.find(user);
  return holder == stripe.held.end() || holder->second.entries < stripe_entries_max_ - stripe.entries.size();
}

std::optional<Error> TransactionTable::begin(Stripe& stripe, const Key& key,
                                             std::int64_t txn_number,
                                             const catalog::ShardSet& targets, TimePoint now,
                                             std::uint64_t user, Statement& result) {
  const auto found = stripe.entries.find(key);
  const bool known = found != stripe.entries.end();
  if (known && found->second.txn_number == txn_number) {
    return Error(ErrorCode::conflicting_operation_in_progress,
                 fmt::format("txnNumber {} is already in progress in this session", txn_number));
  }
  if (known && found->second.state == Transaction::State::active) {
    // A shard drops the older one by itself when the newer one reaches it.
    catalog::ShardSet open;
    for (const catalog::ShardIndex shard : found->second.participants.shards()) {
      if (targets.size() != 1 || shard != targets.front()) open.insert(shard);
    }
    if (!open.empty()) result.to_abort = OpenTransaction{key.second, found->second.txn_number, std::move(open)};
  }
  if (!known && !has_room(stripe, user)) {
    const bool full = stripe.entries.size() >= stripe_entries_max_;
    stripe.sweep(now, full ? std::nullopt : std::optional(user));
    if (full && !has_room(stripe, user)) stripe.sweep(now, user);
    if (!has_room(stripe, user)) {
      return Error(too_many_sessions, user == 0 ? "there are too many sessions with transactions"
                                                : "this client has too many sessions with transactions");
    }
  }
  if (known && found->second.state == Transaction::State::active) mark_aborted(stripe, found->second);
  if (known) stripe.erase(found);
  started_.fetch_add(1, std::memory_order_relaxed);
  Transaction begun;
  begun.txn_number = txn_number;
  begun.user = user;
  stripe.entries.emplace(key, begun);
  ++stripe.held[user].entries;
  return std::nullopt;
}

Transaction* TransactionTable::take(Stripe& stripe, const Key& key, std::int64_t txn_number, bool starts,
                                    const catalog::ShardSet& targets, TimePoint now, std::string_view user,
                                    Statement& result) {
  auto found = stripe.entries.find(key);
  if (found != stripe.entries.end() && found->second.last_used + lifetime <= now) {
    stripe.erase(found);
    found = stripe.entries.end();
  }
  const bool known = found != stripe.entries.end();
  if (known && txn_number < found->second.txn_number) {
    result.error = too_old(txn_number, found->second.txn_number);
    return nullptr;
  }
  if (starts) {
    const std::uint64_t holder = user.empty() ? 0 : absl::HashOf(user) | 1;
    if (result.error = begin(stripe, key, txn_number, targets, now, holder, result); result.error) {
      return nullptr;
    }
    found = stripe.entries.find(key);
  } else if (!known || found->second.txn_number != txn_number) {
    result.error = no_such_transaction(
        txn_number, "cannot be continued: it was not started through this router");
    return nullptr;
  }
  Transaction& transaction = found->second;
  transaction.last_used = now;
  if (transaction.state == Transaction::State::aborted) {
    result.error = no_such_transaction(txn_number, "has been aborted");
    return nullptr;
  }
  return &transaction;
}

void TransactionTable::mark_aborted(Stripe& stripe, Transaction& transaction) {
  transaction.state = Transaction::State::aborted;
  stripe.note_end(transaction);
  aborted_.fetch_add(1, std::memory_order_relaxed);
}

TransactionTable::Statement TransactionTable::statement(std::string_view lsid,
                                                        std::int64_t txn_number, bool starts,
                                                        const catalog::ShardSet& targets,
                                                        bool writes, TimePoint now,
                                                        std::string_view user) {
  Statement result;
  const Key key = key_of(lsid);
  Stripe& stripe = stripe_of(key);
  const MutexLock lock(stripe.mutex);
  Transaction* const transaction = take(stripe, key, txn_number, starts, targets, now, user, result);
  if (transaction == nullptr) return result;
  Participants& participants = transaction->participants;
  if (targets.size() != 1 || (!participants.empty() && !participants.contains(targets.front()))) {
    mark_aborted(stripe, *transaction);
    if (!participants.empty()) result.to_abort = OpenTransaction{key.second, txn_number, participants.shards()};
    result.error = Error(
        ErrorCode::operation_not_supported_in_transaction,
        "a transaction may touch one shard only, and this statement needs another or several; "
        "the transaction has been aborted");
    return result;
  }
  participants.add(targets.front(), !writes);
  return result;
}

TransactionTable::Statement TransactionTable::statement_in_cluster(std::string_view lsid, std::int64_t txn_number,
                                                                   const TransactionConcern* begins, TimePoint now,
                                                                   std::string_view user) {
  Statement result;
  const Key key = key_of(lsid);
  Stripe& stripe = stripe_of(key);
  const MutexLock lock(stripe.mutex);
  Transaction* const transaction = take(stripe, key, txn_number, begins != nullptr, {}, now, user, result);
  if (transaction == nullptr) return result;
  if (transaction->state != Transaction::State::active) {
    // Without a label once it is committed: it must not be done again.
    result.error = transaction->committed
                       ? has_been_committed(txn_number)
                       : no_such_transaction(txn_number, "cannot be continued: its commit has begun");
    return result;
  }
  if (begins != nullptr) transaction->concern = *begins;
  transaction->participants.begin_statement();
  return result;
}

std::optional<TransactionTable::Contact> TransactionTable::contact(std::string_view lsid, std::int64_t txn_number,
                                                                   catalog::ShardIndex shard,
                                                                   std::uint64_t cluster_time) {
  const Key key = key_of(lsid);
  Stripe& stripe = stripe_of(key);
  const MutexLock lock(stripe.mutex);
  Transaction* const transaction = stripe.latest(key, txn_number);
  if (transaction == nullptr || transaction->state == Transaction::State::aborted) return std::nullopt;
  Participants& participants = transaction->participants;
  if (transaction->state == Transaction::State::committing) {
    const bool coordinates = !participants.empty() && participants.coordinator() == shard;
    return Contact{{.first = false, .coordinator = coordinates}, {}};
  }
  TransactionConcern& concern = transaction->concern;
  if (concern.began_at == 0) concern.began_at = cluster_time;
  if (concern.level == TransactionConcern::Level::snapshot && concern.at_cluster_time == 0) {
    concern.at_cluster_time = std::max(cluster_time, concern.after_cluster_time);
  }
  return Contact{participants.contact(shard), concern};
}

void TransactionTable::note_answer(std::string_view lsid, std::int64_t txn_number, catalog::ShardIndex shard,
                                   bool read_only, const std::vector<Added>& added) {
  const Key key = key_of(lsid);
  Stripe& stripe = stripe_of(key);
  const MutexLock lock(stripe.mutex);
  Transaction* const transaction = stripe.latest(key, txn_number);
  if (transaction == nullptr || transaction->state != Transaction::State::active) return;
  transaction->participants.note_answer(shard, read_only);
  for (const Added& each : added) transaction->participants.add(each.shard, each.read_only);
}

void TransactionTable::note_refusal(std::string_view lsid, std::int64_t txn_number, const std::vector<Added>& added) {
  const Key key = key_of(lsid);
  Stripe& stripe = stripe_of(key);
  const MutexLock lock(stripe.mutex);
  Transaction* const transaction = stripe.latest(key, txn_number);
  if (transaction == nullptr || transaction->state != Transaction::State::active) return;
  for (const Added& each : added) transaction->participants.add_with_error(each.shard);
}

std::optional<TransactionTable::Restart> TransactionTable::restart(std::string_view lsid, std::int64_t txn_number,
                                                                   bool of_view) {
  const Key key = key_of(lsid);
  Stripe& stripe = stripe_of(key);
  const MutexLock lock(stripe.mutex);
  Transaction* const transaction = stripe.latest(key, txn_number);
  if (transaction == nullptr || transaction->state != Transaction::State::active) return std::nullopt;
  Participants& participants = transaction->participants;
  if (!of_view && !participants.may_restart()) return std::nullopt;
  catalog::ShardSet forgotten = participants.restart();
  if (participants.empty()) transaction->concern.at_cluster_time = transaction->concern.began_at = 0;
  Restart result;
  if (!forgotten.empty()) result.to_abort = OpenTransaction{key.second, txn_number, std::move(forgotten)};
  return result;
}

Result<std::optional<Participants>> TransactionTable::commit(std::string_view lsid, std::int64_t txn_number,
                                                             TimePoint now) {
  const Key key = key_of(lsid);
  Stripe& stripe = stripe_of(key);
  const MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(key);
  if (found == stripe.entries.end() || found->second.txn_number < txn_number)
    return std::optional<Participants>();
  Transaction& transaction = found->second;
  if (txn_number < transaction.txn_number) return too_old(txn_number, transaction.txn_number);
  if (transaction.state == Transaction::State::aborted) {
    return no_such_transaction(txn_number, "has been aborted");
  }
  if (transaction.participants.unanswered()) {
    return no_such_transaction(txn_number, "cannot be committed: a statement of it was not successful on a shard");
  }
  transaction.state = Transaction::State::committing;
  stripe.note_end(transaction);
  transaction.last_used = now;
  return std::optional(transaction.participants);
}

std::optional<CommitPlan> TransactionTable::plan_commit(std::string_view lsid, std::int64_t txn_number,
                                                        bool one_writer_last) {
  const Key key = key_of(lsid);
  Stripe& stripe = stripe_of(key);
  const MutexLock lock(stripe.mutex);
  Transaction* const transaction = stripe.latest(key, txn_number);
  if (transaction == nullptr) return std::nullopt;
  transaction->participants.choose_commit(one_writer_last);
  return transaction->participants.plan_commit();
}

bool TransactionTable::note_committed(std::string_view lsid, std::int64_t txn_number) {
  const Key key = key_of(lsid);
  Stripe& stripe = stripe_of(key);
  const MutexLock lock(stripe.mutex);
  Transaction* const transaction = stripe.latest(key, txn_number);
  return transaction == nullptr || !std::exchange(transaction->committed, true);
}

TransactionTable::AfterReaders TransactionTable::readers_answered(std::string_view lsid, std::int64_t txn_number,
                                                                  bool committed, bool lost) {
  const Key key = key_of(lsid);
  Stripe& stripe = stripe_of(key);
  const MutexLock lock(stripe.mutex);
  Transaction* const transaction = stripe.latest(key, txn_number);
  if (transaction == nullptr) return {committed, {}};
  if (committed) transaction->participants.note_readers_committed();
  AfterReaders result{transaction->participants.readers_committed(), {}};
  if (result.writer_is_next || !lost) return result;
  mark_aborted(stripe, *transaction);
  result.to_abort = OpenTransaction{key.second, txn_number, transaction->participants.shards()};
  return result;
}

Result<Participants> TransactionTable::abort(std::string_view lsid, std::int64_t txn_number, TimePoint now) {
  const Key key = key_of(lsid);
  Stripe& stripe = stripe_of(key);
  const MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(key);
  if (found == stripe.entries.end() || found->second.txn_number < txn_number) {
    return no_such_transaction(txn_number,
                               "cannot be aborted: no command of it was sent through this router");
  }
  Transaction& transaction = found->second;
  if (txn_number < transaction.txn_number) return too_old(txn_number, transaction.txn_number);
  // Once more: a shard that the first one has not reached holds its locks.
  if (transaction.state == Transaction::State::aborted && transaction.participants.empty()) {
    return no_such_transaction(txn_number, "has been aborted");
  }
  transaction.last_used = now;
  if (transaction.committed) return has_been_committed(txn_number);
  // A commit under way decides: one shard reports its outcome. Several might be prepared.
  if (transaction.state == Transaction::State::committing && transaction.participants.size() > 1) {
    return no_such_transaction(txn_number, "cannot be aborted: its commit has begun");
  }
  if (transaction.state == Transaction::State::active) mark_aborted(stripe, transaction);
  if (transaction.participants.empty()) {
    return no_such_transaction(txn_number,
                               "cannot be aborted: no command of it was sent through this router");
  }
  return transaction.participants;
}

std::optional<OpenTransaction> TransactionTable::fail(std::string_view lsid,
                                                      std::int64_t txn_number) {
  const Key key = key_of(lsid);
  Stripe& stripe = stripe_of(key);
  const MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(key);
  if (found == stripe.entries.end() || found->second.txn_number != txn_number) return std::nullopt;
  Transaction& transaction = found->second;
  if (transaction.state != Transaction::State::active) return std::nullopt;
  mark_aborted(stripe, transaction);
  if (transaction.participants.empty()) return std::nullopt;
  return OpenTransaction{found->first.second, txn_number, transaction.participants.shards()};
}

void TransactionTable::forget(std::string_view lsid, std::int64_t txn_number, TimePoint since) {
  const Key key = key_of(lsid);
  Stripe& stripe = stripe_of(key);
  const MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(key);
  if (found == stripe.entries.end()) return;
  const Transaction& transaction = found->second;
  const bool begun = transaction.txn_number == txn_number && transaction.last_used >= since &&
                     transaction.state == Transaction::State::active;
  if (begun) stripe.erase(found);
}

void TransactionTable::note_api(std::string_view lsid, std::int64_t txn_number, const ApiParameters& api) {
  const Key key = key_of(lsid);
  Stripe& stripe = stripe_of(key);
  const MutexLock lock(stripe.mutex);
  if (Transaction* const transaction = stripe.latest(key, txn_number)) transaction->api = api;
}

Result<void> TransactionTable::check_api(std::string_view lsid, std::int64_t txn_number,
                                         const ApiParameters& api) const {
  const Key key = key_of(lsid);
  const Stripe& stripe = stripe_of(key);
  const MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(key);
  if (found == stripe.entries.end() || found->second.txn_number != txn_number || found->second.api == api) return {};
  return Error(ErrorCode::api_mismatch_error,
               "API parameter mismatch: a command that continues a transaction has other API parameters than the one "
               "that began it");
}

std::optional<Transaction> TransactionTable::find(std::string_view lsid,
                                                  std::int64_t txn_number) const {
  const Key key = key_of(lsid);
  const Stripe& stripe = stripe_of(key);
  const MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(key);
  if (found == stripe.entries.end() || found->second.txn_number != txn_number) return std::nullopt;
  return found->second;
}

bool TransactionTable::knows(const SessionId& session, std::int64_t txn_number) const {
  const Stripe& stripe = stripes_[number_of(session)];
  const MutexLock lock(stripe.mutex);
  for (auto at = stripe.entries.lower_bound({session, {}}); at != stripe.entries.end() && at->first.first == session;
       ++at) {
    if (at->second.txn_number == txn_number) return true;
  }
  return false;
}

std::size_t TransactionTable::active() const {
  std::size_t sum = 0;
  for (const Stripe& stripe : stripes_) {
    const MutexLock lock(stripe.mutex);
    for (const auto& [key, transaction] : stripe.entries) {
      if (transaction.state == Transaction::State::active) ++sum;
    }
  }
  return sum;
}

std::vector<OpenTransaction> TransactionTable::end_sessions(const std::vector<SessionId>& sessions, bool kills) {
  std::vector<OpenTransaction> open;
  for (const SessionId& session : sessions) {
    Stripe& stripe = stripes_[number_of(session)];
    const MutexLock lock(stripe.mutex);
    const auto first = stripe.entries.lower_bound({session, std::string()});
    auto last = first;
    while (last != stripe.entries.end() && last->first.first == session) ++last;
    for (OpenTransaction& each : stripe.end(first, last, kills)) open.push_back(std::move(each));
  }
  aborted_.fetch_add(open.size(), std::memory_order_relaxed);
  return open;
}

std::vector<OpenTransaction> TransactionTable::end_all_sessions(bool kills) {
  std::vector<OpenTransaction> open;
  for (Stripe& stripe : stripes_) {
    const MutexLock lock(stripe.mutex);
    for (OpenTransaction& each : stripe.end(stripe.entries.begin(), stripe.entries.end(), kills))
      open.push_back(std::move(each));
  }
  aborted_.fetch_add(open.size(), std::memory_order_relaxed);
  return open;
}

std::size_t TransactionTable::size() const {
  std::size_t sum = 0;
  for (const Stripe& stripe : stripes_) {
    const MutexLock lock(stripe.mutex);
    sum += stripe.entries.size();
  }
  return sum;
}

}  // namespace spillway::exec
