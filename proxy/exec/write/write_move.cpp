#include "proxy/exec/write/write_move.h"

#include <functional>
#include <optional>
#include <utility>

#include "proxy/exec/access/transactions.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/repeat.h"
#include "proxy/exec/tables/transaction_table.h"
#include "proxy/exec/write/write_run.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::exec {

namespace {

bool inserts(DocView refusal) noexcept { return refusal["shouldUpsert"].truthy(); }

// The document with this _id and key. A null matches a field that is missing.
BsonDoc filter_of(const catalog::ShardKeyPattern& key, DocView document) {
  BsonWriter out;
  out.begin_document("_id").append("$eq", document["_id"]).end();
  for (const auto& field : key.fields()) {
    if (field.path == "_id") continue;
    append_equality(out, field.path, document.find_path(field.path));
  }
  return std::move(out).finish();
}

void append_session(BsonWriter& out, const Request& request) {
  append_generic_arguments(out, request, {"readConcern", "writeConcern", "$readPreference", "startTransaction",
                                          "autocommit", "stmtId", "stmtIds"});
  out.append("autocommit", false);
}

BsonDoc deletion(const Request& request, std::string_view collection, DocView filter) {
  BsonWriter out;
  out.append("delete", collection);
  out.begin_array("deletes").begin_document_item();
  out.append("q", filter).append("limit", std::int32_t{1});
  // It is this very document, whatever the collection's default collation takes for equal.
  out.begin_document("collation").append("locale", "simple").end();
  out.end().end();
  append_session(out, request);
  return std::move(out).finish();
}

BsonDoc insertion(const Request& request, std::string_view collection, DocView document) {
  BsonWriter out;
  out.append("insert", collection);
  out.begin_array("documents").append_item(document).end();
  out.append("bypassDocumentValidation", request.body["bypassDocumentValidation"]);
  append_session(out, request);
  return std::move(out).finish();
}

// The command's error, or its first write error.
std::optional<Error> failure_of_statement(const ShardOutcome& outcome) {
  if (outcome.error) return outcome.error;
  const Element first = outcome.body()["writeErrors"].to_array().first();
  if (!first.is_document()) return std::nullopt;
  const auto told = [](std::string_view name) { return name != "index"; };
  return wire::error_from_reply(BsonWriter().append_elements(first.as_document(), told).finish());
}

// `body` outlives the task.
Task<ShardOutcome> call_in_transaction(Context& context, const Request& request, catalog::ShardIndex shard,
                                       RoutedBy by, const BsonDoc* body) {
  shard::CallOptions options = write_options(context, request);
  options.retry = shard::RetryPolicy::none;
  const catalog::ShardSet targets{shard};
  auto outcomes = co_await call_shards(context, targets, by, shard::Command::of_body(*body), options);
  auto stale = co_await find_stale(context, by, outcomes.front());
  if (stale) outcomes.front().error = std::move(stale);
  co_return std::move(outcomes.front());
}

}  // namespace

bool would_move(const ShardOutcome& outcome) noexcept {
  return outcome.answered() && outcome.error && outcome.error->is(ErrorCode::would_change_owning_shard) &&
         outcome.body()["postImage"].is_document();
}

Task<Result<bool>> move_document(Context& context, const Request& request, std::string_view collection,
                                 const catalog::CollectionRouting& routing, DocView refusal) {
  const DocView document = refusal["postImage"].to_document();
  SPILLWAY_CO_TRY(room, room_for_copies(context, document.size()));
  const RoutedBy by = RoutedBy::sharded(routing);
  if (!inserts(refusal)) {
    const BsonDoc filter = filter_of(routing.key, refusal["preImage"].to_document());
    const auto from = routing.target_exact(filter, true);
    if (!from) co_return Error(ErrorCode::shard_key_not_found, "the document to be moved has no shard key");
    const BsonDoc body = deletion(request, collection, filter);
    const ShardOutcome outcome = co_await call_in_transaction(context, request, *from, by, &body);
    if (auto failed = failure_of_statement(outcome)) {
      if (outcome.stale()) co_return *std::move(failed);
      co_return std::move(*failed).with_context("During delete stage of updating a shard key");
    }
    if (outcome.body()["n"].to_int64().value_or(0) != 1) co_return false;
  }
  SPILLWAY_CO_TRY(to, routing.target_document(document));
  const BsonDoc body = insertion(request, collection, document);
  const ShardOutcome outcome = co_await call_in_transaction(context, request, *to, by, &body);
  auto failed = failure_of_statement(outcome);
  if (!failed) co_return true;
  if (outcome.stale()) co_return *std::move(failed);
  if (!failed->is(ErrorCode::duplicate_key)) {
    co_return std::move(*failed).with_context("During insert stage of updating a shard key");
  }
  const DocView extra = failed->extra.empty() ? DocView() : DocView::trusted(failed->extra.data());
  if (!extra.find_path("keyPattern._id").exists()) co_return *std::move(failed);
  co_return std::move(*failed).with_context(
      "Failed to update document's shard key field. There is either an orphan for this document or _id for this "
      "collection is not globally unique.");
}

BsonDoc moved_update_reply(DocView refusal, bool moved) {
  const bool upserts = moved && inserts(refusal);
  BsonWriter out;
  out.append("n", std::int32_t{moved});
  out.append("nModified", std::int32_t{moved && !upserts});
  if (upserts) {
    out.begin_array("upserted").begin_document_item().append("index", std::int32_t{0});
    out.append("_id", refusal["postImage"].to_document()["_id"]).end().end();
  }
  return ok_document(std::move(out));
}

BsonDoc moved_modify_reply(DocView refusal, bool moved, bool wants_new) {
  const bool upserts = moved && inserts(refusal);
  const DocView after = refusal["postImage"].to_document();
  BsonWriter out;
  out.begin_document("lastErrorObject").append("n", std::int32_t{moved}).append("updatedExisting", moved && !upserts);
  if (upserts) out.append("upserted", after["_id"]);
  out.end();
  if (moved && wants_new) {
    out.append("value", after);
  } else if (moved && !upserts) {
    out.append("value", refusal["preImage"].to_document());
  } else {
    out.append_null("value");
  }
  return ok_document(std::move(out));
}

namespace {

// Nothing of the transaction has happened, or it has been undone: may it be tried again?
bool is_passing(const Error& error) {
  constexpr std::int32_t migration_conflict = 272, snapshot_unavailable = 246;
  return is_stale(error.code) || error.is(ErrorCode::write_conflict) || error.is(ErrorCode::lock_timeout) ||
         error.is(ErrorCode::no_such_transaction) || error.is(ErrorCode::host_unreachable) ||
         error.is(ErrorCode::network_timeout) || error.is(ErrorCode::failed_to_satisfy_read_preference) ||
         error.code == migration_conflict || error.code == snapshot_unavailable;
}

// One attempt as far as the commit. `request`: within the transaction.
Task<Result<BsonDoc>> attempt(Context& context, const Request& request, const MovingWrite& write,
                              const catalog::CollectionRouting* routing) {
  // It is no longer sharded: the client repeats it.
  if (routing == nullptr) co_return Error(ErrorCode::conflicting_operation_in_progress, "the collection was dropped");
  const auto shard = routing->target_exact(write.filter, write.simple_collation).value_or(write.shard);
  BsonWriter out;
  out.append_elements(write.command);
  append_session(out, request);
  const BsonDoc body = std::move(out).finish();
  const ShardOutcome outcome = co_await call_in_transaction(context, request, shard, RoutedBy::sharded(*routing),
                                                            &body);
  if (would_move(outcome)) {
    SPILLWAY_CO_TRY(moved, co_await move_document(context, request, write.collection, *routing, outcome.body()));
    co_return write.reply(outcome.body(), *moved);
  }
  if (auto failed = failure_of_statement(outcome)) co_return *std::move(failed);
  co_return BsonWriter().append_elements(outcome.body(), std::not_fn(is_stripped_from_reply)).finish();
}

// `reply` with what the commit says of the write concern.
Task<Result<BsonDoc>> commit_own(Context& context, const Request& request, BsonDoc reply) {
  BsonWriter body;
  body.append("commitTransaction", std::int32_t{1});
  body.append("$db", "admin");
  append_generic_arguments(body, request, {"$db", "readConcern", "$readPreference", "startTransaction", "autocommit",
                                           "stmtId", "stmtIds"});
  body.append("autocommit", false);
  const BsonDoc command = std::move(body).finish();
  Request commit = request;
  commit.name = "commitTransaction";
  commit.db = "admin";
  commit.body = commit.message.body = command.view();
  SPILLWAY_CO_TRY(committed, co_await commit_transaction(context, commit));
  const DocView told = DocView::trusted(committed->pieces().front().iov_base);
  if (committed->failed) co_return wire::error_from_reply(told);
  const ValueView concern = told["writeConcernError"];
  if (!concern.exists()) co_return reply;
  co_return BsonWriter().append_elements(reply).append("writeConcernError", concern).finish();
}

}  // namespace

Task<Result<BsonDoc>> move_in_own_transaction(Context& context, const Request& request, MovingWrite write) {
  SPILLWAY_CO_TRY(room, room_for_copies(context, write.command.size()));
  TransactionTable& table = *context.shared.transactions;
  Request inner = request;
  inner.in_transaction = true;
  inner.message.sequences.clear();
  inner.sections = {};
  inner.strips_fields = true;
  TransactionConcern concern;
  concern.level = TransactionConcern::Level::local;
  auto begun = table.statement_in_cluster(request.lsid, *request.txn_number, &concern, Clock::now(), request.user);
  if (begun.to_abort) context.background.start(abort_on_shards(context, *std::move(begun.to_abort)));
  if (begun.error) co_return *std::move(begun.error);
  const NamespaceText ns(request.db, write.collection);
  std::optional<Routes> newer;
  std::optional<Error> failed;
  for (std::size_t tries = 1; !failed; ++tries) {
    auto attempting = attempt(context, inner, write, inner.routes->collection(ns.view()));
    auto attempted = co_await attempting;
    if (const Error* why = shard::requested_of(request.interrupt)) {
      failed = *why;
      break;
    }
    if (!attempted.has_error()) {
      auto committing = commit_own(context, inner, *std::move(attempted));
      auto committed = co_await committing;
      if (!committed.has_error()) co_return committed;
      failed = std::move(committed.error());
      break;
    }
    if (!is_passing(attempted.error()) || tries >= tries_max) {
      failed = std::move(attempted.error());
      break;
    }
    auto restarting = restart_statement(context, inner, false);
    if (!co_await restarting) {
      failed = std::move(attempted.error());
      break;
    }
    if (is_stale(attempted.error().code)) {
      const RouteNames names{{request.db, write.collection}};
      const RouteWait wait{request.deadline, false, request.interrupt};
      auto learned = co_await learn_routes(*context.router, names, wait);
      if (learned.has_error()) {
        failed = std::move(learned.error());
        break;
      }
      newer = *std::move(learned);
      inner.routes = &*newer;
    }
    const Duration pause = pause_before_try(tries + 1);
    if (Clock::now() + pause >= request.deadline) failed = std::move(attempted.error());
    if (!failed && pause > Duration::zero()) co_await context.loop.sleep_for(pause);
  }
  if (auto open = table.fail(request.lsid, *request.txn_number)) {
    auto aborting = abort_on_shards(context, *std::move(open));
    co_await aborting;
  }
  failed->labels.clear();  // the client knows of no transaction
  co_return *std::move(failed);
}

}  // namespace spillway::exec
