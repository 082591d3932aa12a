#include "proxy/exec/access/transactions.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "proxy/base/check.h"
#include "proxy/exec/core/forward.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::exec {

namespace {

constexpr std::int32_t too_many_sessions = 261;

Error no_such_transaction(std::int64_t txn_number, std::string_view why) {
  return Error(ErrorCode::no_such_transaction, fmt::format("Transaction {} {}", txn_number, why));
}

Error too_old(std::int64_t txn_number, std::int64_t seen) {
  return Error(ErrorCode::transaction_too_old,
               fmt::format("txnNumber {} is less than last txnNumber {} seen in this session",
                           txn_number, seen));
}

bool writes_data(std::string_view command) noexcept {
  return command != "find" && command != "aggregate" && command != "distinct" &&
         command != "count" && command != "getMore" && command != "killCursors";
}

bool is_end(const Request& request) noexcept {
  return request.name == "commitTransaction" || request.name == "abortTransaction";
}

bool has_label(const Error& error, std::string_view label) noexcept {
  return std::find(error.labels.begin(), error.labels.end(), label) != error.labels.end();
}

// It has begun a transaction on a shard, as far as is known. (Each number begins once there.)
bool may_have_begun(const Request& request) noexcept {
  return request.start_transaction && (request.shard_time == nullptr || request.shard_time->calls() > 0);
}

bool is_unreachable(const Error& error) noexcept {
  return error.is(ErrorCode::host_unreachable) || error.is(ErrorCode::host_not_found) ||
         error.is(ErrorCode::network_timeout);
}

}  // namespace

TransactionTable::TransactionTable(std::size_t capacity)
    : stripe_entries_max_(std::max<std::size_t>(1, capacity / stripe_count)) {}

TransactionTable::Entries::iterator TransactionTable::Stripe::erase(Entries::iterator at) {
  const auto holder = held.find(at->second.user);
  if (--holder->second == 0) held.erase(holder);
  return entries.erase(at);
}

void TransactionTable::Stripe::drop_done(TimePoint now, std::optional<std::uint64_t> user) {
  const auto drop = [&](const auto& done) {
    std::size_t dropped = 0;
    for (auto at = entries.begin(); at != entries.end();) {
      const bool drops = (!user || at->second.user == *user) && done(at->second);
      dropped += drops ? 1 : 0;
      at = drops ? erase(at) : std::next(at);
    }
    return dropped;
  };
  if (drop([now](const Transaction& each) { return each.last_used + lifetime <= now; }) > 0) return;
  const auto has_ended = [](const Transaction& each) { return each.state != Transaction::State::active; };
  std::vector<TimePoint> ends;
  for (const auto& [key, each] : entries) {
    if ((!user || each.user == *user) && has_ended(each)) ends.push_back(each.last_used);
  }
  if (ends.empty()) return;
  const auto middle = ends.begin() + static_cast<std::ptrdiff_t>(ends.size() / 2);
  std::nth_element(ends.begin(), middle, ends.end());
  drop([&](const Transaction& each) { return has_ended(each) && each.last_used <= *middle; });
}

std::vector<OpenTransaction> TransactionTable::Stripe::end(Entries::iterator first, Entries::iterator last) {
  std::vector<OpenTransaction> open;
  std::size_t count = static_cast<std::size_t>(std::distance(first, last));
  for (; count > 0; --count) {
    const Transaction& transaction = first->second;
    if (transaction.state == Transaction::State::active && transaction.shard) {
      open.push_back({first->first.second, transaction.txn_number, *transaction.shard});
    }
    first = erase(first);
  }
  return open;
}

bool TransactionTable::has_room(Stripe& stripe, std::uint64_t user) const {
  if (stripe.entries.size() >= stripe_entries_max_) return false;
  if (user == 0) return true;
  const auto holder = stripe.held.find(user);
  return holder == stripe.held.end() || holder->second < stripe_entries_max_ - stripe.entries.size();
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
  if (known && found->second.state == Transaction::State::active && found->second.shard) {
    // A shard drops the older one by itself when the newer one reaches it.
    const catalog::ShardIndex old_shard = *found->second.shard;
    if (targets.size() != 1 || targets.front() != old_shard) {
      result.to_abort = OpenTransaction{key.second, found->second.txn_number, old_shard};
    }
  }
  if (!known && !has_room(stripe, user)) {
    const bool full = stripe.entries.size() >= stripe_entries_max_;
    stripe.drop_done(now, full ? std::nullopt : std::optional(user));
    if (!has_room(stripe, user)) {
      return Error(too_many_sessions, user == 0 ? "there are too many sessions with transactions"
                                                : "this user has too many sessions with transactions");
    }
  }
  if (known) stripe.erase(found);
  Transaction begun;
  begun.txn_number = txn_number;
  begun.user = user;
  stripe.entries.emplace(key, begun);
  ++stripe.held[user];
  return std::nullopt;
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
  auto found = stripe.entries.find(key);
  if (found != stripe.entries.end() && found->second.last_used + lifetime <= now) {
    stripe.erase(found);
    found = stripe.entries.end();
  }
  const bool known = found != stripe.entries.end();
  if (known && txn_number < found->second.txn_number) {
    result.error = too_old(txn_number, found->second.txn_number);
    return result;
  }
  if (starts) {
    const std::uint64_t holder = user.empty() ? 0 : absl::HashOf(user) | 1;
    if (result.error = begin(stripe, key, txn_number, targets, now, holder, result); result.error) {
      return result;
    }
    found = stripe.entries.find(key);
  } else if (!known || found->second.txn_number != txn_number) {
    result.error = no_such_transaction(
        txn_number, "cannot be continued: it was not started through this router");
    return result;
  }
  Transaction& transaction = found->second;
  transaction.last_used = now;
  if (transaction.state == Transaction::State::aborted) {
    result.error = no_such_transaction(txn_number, "has been aborted");
    return result;
  }
  if (targets.size() != 1 || (transaction.shard && *transaction.shard != targets.front())) {
    transaction.state = Transaction::State::aborted;
    if (transaction.shard) result.to_abort = OpenTransaction{key.second, txn_number, *transaction.shard};
    result.error = Error(
        ErrorCode::operation_not_supported_in_transaction,
        "a transaction may touch one shard only, and this statement needs another or several; "
        "the transaction has been aborted");
    return result;
  }
  transaction.shard = targets.front();
  transaction.wrote = transaction.wrote || writes;
  return result;
}

Result<std::optional<TransactionTable::Ending>> TransactionTable::commit(std::string_view lsid,
                                                                         std::int64_t txn_number,
                                                                         TimePoint now) {
  const Key key = key_of(lsid);
  Stripe& stripe = stripe_of(key);
  const MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(key);
  if (found == stripe.entries.end() || found->second.txn_number < txn_number)
    return std::optional<Ending>();
  Transaction& transaction = found->second;
  if (txn_number < transaction.txn_number) return too_old(txn_number, transaction.txn_number);
  if (transaction.state == Transaction::State::aborted) {
    return no_such_transaction(txn_number, "has been aborted");
  }
  transaction.state = Transaction::State::committing;
  transaction.last_used = now;
  return std::optional(Ending{transaction.shard, transaction.wrote});
}

Result<TransactionTable::Ending> TransactionTable::abort(std::string_view lsid,
                                                         std::int64_t txn_number, TimePoint now) {
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
  if (transaction.state == Transaction::State::aborted) {
    return no_such_transaction(txn_number, "has been aborted");
  }
  transaction.last_used = now;
  // A commit under way decides: the shard reports its outcome.
  if (transaction.state == Transaction::State::active)
    transaction.state = Transaction::State::aborted;
  if (!transaction.shard) {
    return no_such_transaction(txn_number,
                               "cannot be aborted: no command of it was sent through this router");
  }
  return Ending{transaction.shard, transaction.wrote};
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
  transaction.state = Transaction::State::aborted;
  if (!transaction.shard) return std::nullopt;
  return OpenTransaction{found->first.second, txn_number, *transaction.shard};
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

std::optional<Transaction> TransactionTable::find(std::string_view lsid,
                                                  std::int64_t txn_number) const {
  const Key key = key_of(lsid);
  const Stripe& stripe = stripe_of(key);
  const MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(key);
  if (found == stripe.entries.end() || found->second.txn_number != txn_number) return std::nullopt;
  return found->second;
}

std::vector<OpenTransaction> TransactionTable::end_sessions(const std::vector<SessionId>& sessions) {
  std::vector<OpenTransaction> open;
  for (const SessionId& session : sessions) {
    Stripe& stripe = stripes_[number_of(session)];
    const MutexLock lock(stripe.mutex);
    const auto first = stripe.entries.lower_bound({session, std::string()});
    auto last = first;
    while (last != stripe.entries.end() && last->first.first == session) ++last;
    for (OpenTransaction& each : stripe.end(first, last)) open.push_back(std::move(each));
  }
  return open;
}

std::vector<OpenTransaction> TransactionTable::end_all_sessions() {
  std::vector<OpenTransaction> open;
  for (Stripe& stripe : stripes_) {
    const MutexLock lock(stripe.mutex);
    for (OpenTransaction& each : stripe.end(stripe.entries.begin(), stripe.entries.end()))
      open.push_back(std::move(each));
  }
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

Task<void> abort_on_shard(Context& context, OpenTransaction open, TimePoint deadline) {
  BsonWriter body;
  body.append("abortTransaction", std::int32_t{1});
  body.append("lsid", DocView::trusted(open.lsid.data()));
  body.append("txnNumber", open.txn_number);
  body.append("autocommit", false);
  body.append("$db", "admin");
  const BsonDoc document = std::move(body).finish();
  shard::CallOptions options;
  options.budget = &context.shared.memory.replies;
  options.deadline = deadline;
  auto call = call_shard(context, {open.shard, RoutedBy::nothing(), shard::Command::of_body(document)}, options);
  auto ignored = co_await call;  // a shard that did not get it lets the transaction expire
}

Result<void> check_retryable(Context& context, const Request& request,
                             const catalog::ShardSet& targets) {
  if (!request.txn_number) return {};
  for (const catalog::ShardIndex shard : targets) {
    if (context.gateway.capabilities(shard).replica_set) continue;
    const shard::ShardState& state = context.gateway.states()[shard];
    const bool reached = state.any_known();
    if (!reached && state.set_name.empty()) {
      return Error(ErrorCode::host_unreachable,
                   fmt::format("shard {} cannot be reached: whether it takes transaction numbers is not known",
                               request.routes->shard(shard).name));
    }
    if (!reached) continue;  // an unreachable replica set: the call reports it
    return Error(ErrorCode::illegal_operation,
                 "Transaction numbers are only allowed on a replica set member or mongos");
  }
  return {};
}

Task<Result<void>> check_transaction(Context& context, const Request& request,
                                     const catalog::ShardSet& targets) {
  if (!request.in_transaction) {
    if (!request.txn_number) co_return Result<void>();
    co_return check_retryable(context, request, targets);
  }
  SPILLWAY_CHECK(request.txn_number.has_value());
  if (auto checked = check_retryable(context, request, targets); checked.has_error())
    co_return checked.error();
  auto step = context.shared.transactions->statement(request.lsid, *request.txn_number,
                                                     request.start_transaction, targets,
                                                     writes_data(request.name), Clock::now(), request.user);
  if (step.to_abort && !step.error) {
    context.background.start(abort_on_shard(context, *std::move(step.to_abort)));
  } else if (step.to_abort) {
    auto aborting = abort_on_shard(context, *std::move(step.to_abort));
    co_await aborting;
  }
  if (step.error) co_return *step.error;
  co_return Result<void>();
}

void abort_after_failure(Context& context, const Request& request, const Error& error) {
  if (!request.in_transaction || is_end(request)) return;
  // A transaction that is started twice goes on.
  if (error.is(ErrorCode::conflicting_operation_in_progress)) return;
  if (has_label(error, "RetryableError") && !may_have_begun(request)) {
    if (request.start_transaction)
      context.shared.transactions->forget(request.lsid, *request.txn_number, request.arrived);
    return;
  }
  auto open = context.shared.transactions->fail(request.lsid, *request.txn_number);
  if (open) context.background.start(abort_on_shard(context, *std::move(open)));
}

Response with_recovery_token(Context& context, const Request& request, Response response) {
  if (!request.in_transaction || response.failed || response.stream() != nullptr) return response;
  const auto transaction = context.shared.transactions->find(request.lsid, *request.txn_number);
  const auto pieces = response.pieces();
  if (pieces.size() != 1) return response;
  BsonWriter out;
  out.append_elements(DocView::trusted(pieces.front().iov_base));
  out.begin_document("recoveryToken");
  if (transaction && transaction->wrote && transaction->shard) {
    out.append("recoveryShardId", request.routes->shard(*transaction->shard).name);
  }
  out.end();
  return Response(std::move(out).finish());
}

Error label_failure(const Request& request, Error error) {
  const auto add = [&error](const char* label) {
    if (!has_label(error, label)) error.labels.emplace_back(label);
  };
  const bool ends = is_end(request);
  // A command that this router's shutdown has cut may be retried through another router.
  const bool passing = is_unreachable(error) || error.is(ErrorCode::interrupted_at_shutdown) ||
                       error.is(ErrorCode::shutdown_in_progress);
  if (request.in_transaction) {
    if (has_label(error, "RetryableError") && may_have_begun(request)) {
      error.labels.clear();
      add("TransientTransactionError");
    }
    // As routers to 4.2: nothing of a transaction is sent again by the router.
    if ((passing || is_stale(error.code)) && !ends) add("TransientTransactionError");
    if (error.is(ErrorCode::no_such_transaction) && request.name != "abortTransaction") {
      add("TransientTransactionError");
    }
  }
  if (passing && request.txn_number && (!request.in_transaction || ends))
    add("RetryableWriteError");
  return error;
}

}  // namespace spillway::exec
