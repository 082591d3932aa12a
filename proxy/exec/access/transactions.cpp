#include "proxy/exec/access/transactions.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "proxy/base/check.h"
#include "proxy/catalog/versions.h"
#include "proxy/exec/core/cluster_fields.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/streams/stream.h"

namespace spillway::exec {

namespace {

bool writes_data(std::string_view command) noexcept {
  return command != "find" && command != "aggregate" && command != "distinct" &&
         command != "count" && command != "getMore" && command != "killCursors";
}

bool is_end(const Request& request) noexcept {
  return request.name == "commitTransaction" || request.name == "abortTransaction";
}

// As far as is known, it has begun a transaction on a shard (each number begins once there), or written there.
bool has_left_traces(const Request& request) noexcept {
  return (request.start_transaction || writes_data(request.name)) &&
         (request.shard_time == nullptr || request.shard_time->calls() > 0);
}

bool is_lost(const Error& error) noexcept {
  return error.is(ErrorCode::host_unreachable) || error.is(ErrorCode::host_not_found) ||
         error.is(ErrorCode::network_timeout);
}

Task<ShardOutcomes> send_abort(Context& context, OpenTransaction open, TimePoint deadline) {
  BsonWriter body;
  body.append("abortTransaction", std::int32_t{1});
  body.append("lsid", DocView::trusted(open.lsid.data()));
  body.append("txnNumber", open.txn_number);
  body.append("autocommit", false);
  // Not the default: no client waits for a majority of its members.
  if (context.in_cluster()) body.begin_document("writeConcern").append("w", std::int32_t{1}).end();
  body.append("$db", "admin");
  const BsonDoc document = std::move(body).finish();
  shard::CallOptions options;
  options.budget = &context.shared.memory.replies;
  options.deadline = deadline;
  options.retry = shard::RetryPolicy::idempotent;  // the shard keeps its locks until it has one
  co_return co_await call_shards(context, open.shards, RoutedBy::nothing(), shard::Command::of_body(document), options);
}

// As servers read it. Only what they know is kept, and sent to each shard.
Result<TransactionConcern> read_concern_of(const Request& request) {
  TransactionConcern concern;
  if (!request.read_concern.is_document()) return concern;
  using Level = TransactionConcern::Level;
  for (const Element& field : request.read_concern.as_document()) {
    if (field.name == "level") {
      const std::string_view level = field.to_text();
      concern.level = level == "local"      ? Level::local
                      : level == "majority" ? Level::majority
                      : level == "snapshot" ? Level::snapshot
                                            : Level::none;
      if (concern.level != Level::none) continue;
      return Error(
          ErrorCode::invalid_options,
          "The first command in a transaction cannot specify a readConcern level other than local, majority, or "
          "snapshot");
    } else if (field.name == "afterClusterTime") {
      const auto time = catalog::read_timestamp(field);
      if (!time) {
        return Error(ErrorCode::type_mismatch,
                     fmt::format("\"afterClusterTime\" had the wrong type. Expected timestamp, found {}",
                                 bson_type_name(field.type)));
      }
      concern.after_cluster_time = *time;
    } else if (field.name != "provenance") {
      return Error(ErrorCode::invalid_options,
                   fmt::format("Unrecognized option in 'readConcern': {}", field.name));
    }
  }
  return concern;
}

}  // namespace

Result<void> check_api_of_transaction(const Context& context, const Request& request) {
  if (request.start_transaction) return {};
  return context.shared.transactions->check_api(request.lsid, *request.txn_number, request.api);
}

Task<void> abort_on_shards(Context& context, OpenTransaction open, TimePoint deadline) {
  auto aborting = send_abort(context, std::move(open), deadline);
  auto ignored = co_await aborting;  // a shard that did not get it lets the transaction expire
}

Result<void> begin_statement(Context& context, const Request& request) {
  if (!request.in_transaction || is_end(request)) return {};
  if ((request.db == "config" || request.db == "admin") && request.name != "bulkWrite") {
    return Error(ErrorCode::operation_not_supported_in_transaction,
                 fmt::format("Cannot run command against the '{}' database in a transaction", request.db));
  }
  if (auto checked = check_api_of_transaction(context, request); checked.has_error()) return checked;
  std::optional<TransactionConcern> begins;
  if (request.start_transaction) {
    SPILLWAY_TRY(concern, read_concern_of(request));
    begins = *concern;
  } else if (request.read_concern.is_document() && !request.read_concern.as_document().empty()) {
    return Error(ErrorCode::invalid_options, "Only the first command in a transaction may specify a readConcern");
  }
  auto step = context.shared.transactions->statement_in_cluster(request.lsid, *request.txn_number,
                                                                begins ? &*begins : nullptr, Clock::now(),
                                                                request.user);
  if (step.to_abort) context.background.start(abort_on_shards(context, *std::move(step.to_abort)));
  if (step.error) return *std::move(step.error);
  if (begins) context.shared.transactions->note_api(request.lsid, *request.txn_number, request.api);
  return {};
}

Result<void> check_snapshot(Context& context, const Request& request) {
  constexpr std::int32_t snapshot_unavailable = 246;
  if (!request.in_transaction) {
    if (request.at_cluster_time == 0 || request.routes->placed_at() <= request.at_cluster_time) return {};
    return Error(snapshot_unavailable, "the collection's chunks were moved since the time of the snapshot");
  }
  const auto transaction = context.shared.transactions->find(request.lsid, *request.txn_number);
  if (!transaction) return {};
  const TransactionConcern& concern = transaction->concern;
  Error error;
  if (const std::uint64_t at = concern.at_cluster_time; at != 0 && request.routes->learned_at() > at) {
    error = {snapshot_unavailable,
             "the routing table has changed since the time of the transaction's snapshot: try the transaction again"};
  } else if (at == 0 && concern.began_at != 0 &&
             std::max(request.routes->placed_at(), request.routes->databases_placed_at()) > concern.began_at &&
             config_wire_version(context) >= wire_version_of_5_0) {
    // A shard that took part before shows the data of that time: not what has moved to it since.
    constexpr std::int32_t migration_conflict = 272;
    error = {migration_conflict, "data were moved since the transaction began: try the transaction again"};
  } else {
    return {};
  }
  error.labels.emplace_back("TransientTransactionError");
  return error;
}

Task<bool> restart_statement(Context& context, const Request& request, bool of_view) {
  if (!request.in_transaction) co_return true;
  auto restart = context.shared.transactions->restart(request.lsid, *request.txn_number, of_view);
  if (!restart) co_return false;
  if (!restart->to_abort) co_return true;
  const TimePoint deadline = std::min(request.deadline, Clock::now() + abort_time_max);
  auto aborting = send_abort(context, *std::move(restart->to_abort), deadline);
  auto outcomes = co_await aborting;
  // With an error a shard has aborted it before. Without an answer the outcome is unknown.
  co_return std::all_of(outcomes.begin(), outcomes.end(), std::mem_fn(&ShardOutcome::answered));
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
  SPILLWAY_CO_TRY(retryable, check_retryable(context, request, targets));
  if (context.in_cluster()) co_return Result<void>();  // begin_statement() has seen it
  if (auto checked = check_api_of_transaction(context, request); checked.has_error()) co_return checked;
  auto step = context.shared.transactions->statement(request.lsid, *request.txn_number,
                                                     request.start_transaction, targets,
                                                     writes_data(request.name), Clock::now(), request.user);
  if (step.to_abort && !step.error) {
    context.background.start(abort_on_shards(context, *std::move(step.to_abort)));
  } else if (step.to_abort) {
    auto aborting = abort_on_shards(context, *std::move(step.to_abort));
    co_await aborting;
  }
  if (step.error) co_return *step.error;
  if (request.start_transaction) {
    context.shared.transactions->note_api(request.lsid, *request.txn_number, request.api);
  }
  co_return Result<void>();
}

namespace {

std::optional<OpenTransaction> fail_with_error(Context& context, const Request& request, const Error& error) {
  // A transaction that is started twice goes on.
  if (request.start_transaction && error.is(ErrorCode::conflicting_operation_in_progress)) return std::nullopt;
  if (has_label(error, "RetryableError") && !has_left_traces(request)) {
    if (request.start_transaction)
      context.shared.transactions->forget(request.lsid, *request.txn_number, request.arrived);
    return std::nullopt;
  }
  return context.shared.transactions->fail(request.lsid, *request.txn_number);
}

bool tells_of_failure(const Request& request, const Response& response) {
  if (response.stream() != nullptr) return false;
  if (request.name == "bulkWrite") return response.failed || response.copy().view()["nErrors"].truthy();
  const auto pieces = response.pieces();
  const bool wrote_errors =
      pieces.size() == 1 && DocView::trusted(pieces.front().iov_base).find("writeErrors").exists();
  return response.failed || wrote_errors;
}

}  // namespace

std::optional<OpenTransaction> fail_transaction(Context& context, const Request& request,
                                                const Result<Response>& answer) {
  if (!request.in_transaction || is_end(request)) return std::nullopt;
  if (answer.has_error()) return fail_with_error(context, request, answer.error());
  if (!context.in_cluster() || !tells_of_failure(request, *answer)) return std::nullopt;
  return context.shared.transactions->fail(request.lsid, *request.txn_number);
}

Task<Result<SessionTurns::Turn>> take_turn(Context& context, const Request& request) {
  TransactionTable& table = *context.shared.transactions;
  SessionTurns& turns = request.in_transaction ? table.turns() : table.turns_of_writes();
  auto taking = turns.take(context.loop, request.lsid, request.deadline, request.interrupt);
  co_return co_await taking;
}

void tell_recovery_token(const Context& context, const Request& request, Response& response) {
  if (!request.in_transaction || response.failed || response.closes) return;
  const auto transaction = context.shared.transactions->find(request.lsid, *request.txn_number);
  BsonWriter out;
  out.begin_document("recoveryToken");
  if (const auto shard = transaction ? transaction->participants.recovery_shard() : std::nullopt) {
    out.append("recoveryShardId", context.gateway.states()[*shard].name);
  }
  out.end();
  BsonDoc token = std::move(out).finish();
  if (StreamReply* const stream = response.stream()) {
    stream->recovery_token = std::move(token);
  } else {
    response.append_elements(std::move(token));
  }
}

bool has_label(const Error& error, std::string_view label) noexcept {
  return std::find(error.labels.begin(), error.labels.end(), label) != error.labels.end();
}

Error label_failure(const Request& request, Error error) {
  const auto add = [&error](const char* label) {
    if (!has_label(error, label)) error.labels.emplace_back(label);
  };
  const bool ends = is_end(request);
  if (request.in_transaction && has_label(error, "RetryableError") && has_left_traces(request)) {
    error.labels.clear();
    if (ends) {
      error.code = static_cast<std::int32_t>(ErrorCode::host_unreachable);  // how it ended is unknown
    } else {
      add("TransientTransactionError");
    }
  }
  // Its reply found no memory: sent again with its number, it is not executed twice.
  const bool numbered_retry = request.retryable_write() && has_label(error, "RetryableError") &&
                              !has_label(error, "NoWritesPerformed") && has_left_traces(request);
  if (numbered_retry) add("RetryableWriteError");
  // A command that this router's shutdown has cut may be retried through another router.
  const bool passing = is_lost(error) || error.is(ErrorCode::interrupted_at_shutdown) ||
                       error.is(ErrorCode::shutdown_in_progress);
  if (request.in_transaction) {
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
