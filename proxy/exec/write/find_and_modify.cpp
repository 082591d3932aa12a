// findAndModify. One shard gets the client's bytes; a query that may match on several is narrowed to a chosen
// document first (write_choose.h states the guarantees).
#include <functional>
#include <span>

#include "proxy/exec/access/transactions.h"
#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/buckets.h"
#include "proxy/exec/core/cluster_fields.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/write/write_choose.h"
#include "proxy/exec/write/write_commands.h"
#include "proxy/exec/write/write_move.h"
#include "proxy/exec/write/write_target.h"

namespace spillway::exec {

namespace {

// A shard that remembers this statement as an insertion refuses to repeat it without upsert.
constexpr std::int32_t retried_as_other_write = 40608;

// The targeting data of the command. nullopt: every server refuses it.
Result<std::optional<Statement>> parse(const Request& request, const catalog::CollectionRouting& routing) {
  const DocView body = request.body;
  Statement statement;
  statement.of_measurements = is_on_buckets(request);
  statement.returns_document = true;
  SPILLWAY_TRY(query, document_argument("findAndModify.query", body["query"]));
  SPILLWAY_TRY(sort, document_argument("findAndModify.sort", body["sort"]));
  SPILLWAY_TRY(collation, document_argument("findAndModify.collation", body["collation"]));
  statement.query = *query;
  statement.sort = *sort;
  statement.collation = body["collation"];
  statement.simple_collation = is_simple_collation(statement.collation, &routing);
  statement.hint = body["hint"];
  statement.update = body["update"];
  statement.upsert = body["upsert"].truthy();
  const bool removes = body["remove"].truthy();
  if (removes) {
    if (statement.update.exists() || statement.upsert) return std::optional<Statement>();
    statement.kind = WriteKind::remove;
    return std::optional(statement);
  }
  if (!statement.update.is_document() && !statement.update.is_array())
    return std::optional<Statement>();
  statement.style = style_of(statement.update);
  return std::optional(statement);
}

struct Rewrite {
  std::optional<DocView> query, update;
  bool upsert = false;
};

BsonDoc rewritten(const Request& request, const Rewrite& rewrite) {
  BsonWriter out;
  bool has_query = false;
  for (const Element& field : request.body) {
    if (is_stripped_from_request(field.name)) continue;
    if (field.name == "query" && rewrite.query) {
      out.append("query", *rewrite.query);
      has_query = true;
    } else if (field.name == "update" && rewrite.update) {
      out.append("update", *rewrite.update);
    } else if (field.name == "upsert") {
      out.append("upsert", rewrite.upsert);
    } else {
      append_argument(out, request, field);
    }
  }
  if (rewrite.query && !has_query) out.append("query", *rewrite.query);
  return std::move(out).finish();
}

// To one shard. If the document would be another shard's then, it is moved: so the whole answer is checked, however
// large the document in it is.
Task<Result<Response>> modify(Context& context, const Request& request, const Statement& statement,
                              const catalog::CollectionRouting& routing, ShardCommand command) {
  auto call = call_shards(context, std::span(&command, 1), write_options(context, request));
  auto outcomes = co_await call;
  ShardOutcome& outcome = outcomes.front();
  if (!would_move(outcome) || !request.txn_number) {
    co_return passed_on(std::move(outcome));
  }
  const std::string_view collection = request.body.first().as_string();
  const bool wants_new = request.body["new"].truthy();
  if (request.in_transaction) {
    SPILLWAY_CO_TRY(moved, co_await move_document(context, request, collection, routing, outcome.body()));
    co_return Response(moved_modify_reply(outcome.body(), *moved, wants_new));
  }
  const DocView sent = body_of(command.command);
  const BsonDoc body = BsonWriter().append_elements(sent, std::not_fn(is_generic_argument)).finish();
  MovingWrite write{.collection = collection,
                    .command = body,
                    .filter = body.view()["query"].to_document(),
                    .simple_collation = statement.simple_collation,
                    .shard = outcome.shard,
                    .reply = [wants_new](DocView refusal, bool moved) {
                      return moved_modify_reply(refusal, moved, wants_new);
                    }};
  SPILLWAY_AWAIT(reply, move_in_own_transaction(context, request, std::move(write)));
  co_return Response(*std::move(reply));
}

bool has_matched(DocView reply) noexcept {
  const ValueView last = reply["lastErrorObject"];
  if (last.is_document()) {
    const auto n = last.as_document()["n"].to_int64();
    if (n) return *n > 0;
  }
  const ValueView value = reply["value"];
  return value.exists() && !value.is_null();
}

struct EarlierAttempt {
  std::optional<Response> response;
  std::optional<Error> error;
};

// A driver's second attempt: the shard that remembers the statement answers with its earlier result. One that does not
// answer, or refuses, may be the one.
Task<EarlierAttempt> ask_for_earlier_attempt(Context& context, const Request& request,
                                             const catalog::ShardSet& shards, RoutedBy by, bool upserts) {
  EarlierAttempt earlier;
  const BsonDoc nothing = match_nothing();
  const BsonDoc body = rewritten(request, {.query = nothing.view(), .update = {}, .upsert = false});
  auto calls = call_shards(context, shards, by, shard::Command::of_body(body), write_options(context, request));
  auto outcomes = co_await calls;
  std::optional<catalog::ShardIndex> inserted_by;
  for (ShardOutcome& outcome : outcomes) {
    if (outcome.ok()) {
      if (has_matched(outcome.body()) && !earlier.response)
        earlier.response = passthrough(std::move(outcome.reply));
    } else if (upserts && outcome.answered() && outcome.error->code == retried_as_other_write) {
      inserted_by = outcome.shard;
    } else if (!earlier.error || !outcome.answered()) {
      earlier.error = *outcome.error;
    }
  }
  if (earlier.response || inserted_by) earlier.error.reset();
  if (earlier.response || !inserted_by) co_return earlier;
  BsonDoc scratch;
  const ShardCommand same(*inserted_by, by, forward_command(request, scratch));
  auto answered = co_await call_for_write(context, request, same);
  if (answered.has_error()) {
    earlier.error = answered.error();
  } else {
    earlier.response = *std::move(answered);
  }
  co_return earlier;
}

// No document matches on any shard.
Task<Result<Response>> without_match(Context& context, const Request& request,
                                     const Statement& statement,
                                     const catalog::CollectionRouting& routing,
                                     const WriteTarget& target) {
  if (!target.upsert_after && (target.check_key || may_meet_orphans(context, routing))) {
    // The original filter might match by now and write an unchecked document, or one that has moved away.
    const BsonDoc nothing = match_nothing();
    const BsonDoc query = both_filters(statement.query, nothing);
    const BsonDoc body = rewritten(request, {.query = query.view(), .update = {}, .upsert = false});
    const ShardCommand command(target.shards.front(), RoutedBy::sharded(routing), shard::Command::of_body(body));
    co_return co_await modify(context, request, statement, routing, command);
  }
  if (!target.upsert_after) {
    BsonDoc scratch;
    const ShardCommand whole(target.shards.front(), RoutedBy::sharded(routing), forward_command(request, scratch));
    co_return co_await modify(context, request, statement, routing, whole);
  }
  SPILLWAY_CO_TRY(plan, plan_upsert(routing, statement, make_object_id()));
  Rewrite rewrite;
  rewrite.upsert = true;
  if (plan->update) rewrite.update = plan->update->view();
  const auto query = query_of_upsert(context, routing, statement, *plan);
  if (query) rewrite.query = query->view();
  const BsonDoc body = rewritten(request, rewrite);
  const ShardCommand command(plan->shard, RoutedBy::sharded(routing), shard::Command::of_body(body));
  co_return co_await modify(context, request, statement, routing, command);
}

// The document of a replacement is looked for where the replacement belongs. That it lives elsewhere is an error, for
// null would say that there is none.
Task<Result<void>> check_not_elsewhere(Context& context, const Request& request, std::string_view collection,
                                       const Statement& statement, const catalog::CollectionRouting& routing,
                                       const WriteTarget& target) {
  if (!target.check_key || target.upsert_after || statement.style != UpdateStyle::replacement || request.in_transaction)
    co_return Result<void>();
  SPILLWAY_CO_TRY(possible, routing.target_filter(statement.query, statement.simple_collation));
  catalog::ShardSet others;
  for (const catalog::ShardIndex shard : *possible) {
    if (!target.shards.contains(shard)) others.insert(shard);
  }
  if (others.empty()) co_return Result<void>();
  auto choosing = choose_document(context, request, collection, statement, others, RoutedBy::sharded(routing),
                                  paths_to_check(routing.key, statement));
  const auto chosen = co_await choosing;
  if (chosen.error) co_return *chosen.error;
  if (!chosen.choice) co_return Result<void>();
  co_return check_key_kept(routing.key, statement, chosen.choice->document);
}

Task<Result<Response>> modify_chosen(Context& context, const Request& request,
                                     std::string_view collection, const Statement& statement,
                                     const catalog::CollectionRouting& routing,
                                     const WriteTarget& target) {
  SteppedRequest step(request);
  Choices choices(context, collection, statement, routing, target);
  for (bool again = false;; again = true) {
    // The driver may have sent it again, to another router.
    if (again && request.retryable_write()) {
      const catalog::ShardSet possible = possible_shards(routing, statement, target);
      auto earlier = co_await ask_for_earlier_attempt(context, request, possible, RoutedBy::sharded(routing),
                                                      statement.upsert);
      if (earlier.error) co_return std::move(*earlier.error);
      if (earlier.response) co_return std::move(*earlier.response);
    }
    auto chosen = co_await choices.next(*step);
    if (chosen.error) co_return *std::move(chosen.error);
    if (!chosen.found) {
      SPILLWAY_CO_TRY(checked, co_await check_not_elsewhere(context, *step, collection, statement, routing, target));
      co_return co_await without_match(context, *step, statement, routing, target);
    }
    const BsonDoc body = rewritten(*step, {.query = chosen.query.view(), .update = {}, .upsert = false});
    const ShardCommand command(chosen.shard, RoutedBy::sharded(routing), shard::Command::of_body(body));
    auto answered = co_await modify(context, *step, statement, routing, command);
    if (answered.has_error() || answered->failed) co_return answered;
    const auto pieces = answered->pieces();
    if (pieces.size() != 1 || has_matched(DocView::trusted(pieces.front().iov_base)))
      co_return answered;
    step.sent_a_step();
  }
}

// So a shard answers while the collection gets another key (resharding), too, by which the document would move.
bool would_move(const Request& request, const Result<Response>& answered) noexcept {
  return request.txn_number && answered.has_value() && answered->failed &&
         answered->failure_code == static_cast<std::int32_t>(ErrorCode::would_change_owning_shard);
}

// `moves`: the only shard has said so.
Task<Result<Response>> run_sharded(Context& context, const Request& request,
                                   const catalog::CollectionRouting& routing, bool moves = false) {
  SPILLWAY_CO_TRY(parsed, parse(request, routing));
  if (!*parsed) {
    co_return co_await forward_write(context, request, routing.chunks.first_shard(), RoutedBy::sharded(routing));
  }
  const Statement& statement = **parsed;
  SPILLWAY_CO_TRY(targeted, target_statement(routing, statement));
  WriteTarget& target = *targeted;
  if (moves && target.route == Route::one) target.route = Route::moves;
  if (target.route == Route::one && !target.upsert_after) {
    auto answered = co_await forward_write(context, request, target.shards.front(), RoutedBy::sharded(routing));
    if (!would_move(request, answered)) co_return answered;
    target.route = Route::moves;
  }
  // The command as it is narrowed to a document, and as it is sent in a transaction that moves it.
  SPILLWAY_CO_TRY(room, room_for_copies(context, request.body.size(), 2));
  if (target.route == Route::moves) {
    SPILLWAY_CO_TRY(checked, co_await check_transaction(context, request, target.shards));
    BsonDoc scratch;
    const ShardCommand whole(target.shards.front(), RoutedBy::sharded(routing), forward_command(request, scratch));
    co_return co_await modify(context, request, statement, routing, whole);
  }
  const catalog::ShardSet possible = possible_shards(routing, statement, target);
  SPILLWAY_CO_TRY(checked, co_await check_transaction(context, request, possible));
  SessionTurns::Turn turn;
  if (request.retryable_write()) {
    // An attempt before may be at work yet: what it writes is known to one shard, and asked for only once here.
    auto taken = co_await take_turn(context, request);
    if (taken.has_error()) co_return taken.error();
    turn = *std::move(taken);
    auto earlier = co_await ask_for_earlier_attempt(context, request, possible, RoutedBy::sharded(routing),
                                                    statement.upsert);
    if (earlier.error) co_return std::move(*earlier.error);
    if (earlier.response) co_return std::move(*earlier.response);
  }
  auto modifying =
      modify_chosen(context, request, request.body.first().as_string(), statement, routing, target);
  co_return co_await modifying;
}

}  // namespace

Task<Result<Response>> find_and_modify_command(Context& context, Client&, const Request& request) {
  if (reads_own_config(request)) co_return config_is_read_only();
  SPILLWAY_CO_TRY(collection, collection_argument(request.body));
  const catalog::CollectionRouting* routing = request.routes->collection(request.ns());
  if (routing != nullptr && routing->all_shards().size() > 1) {
    co_return co_await run_sharded(context, request, *routing);
  }
  const catalog::ShardIndex shard = routing == nullptr ? request.routes->primary_shard(request.db)
                                                       : routing->chunks.first_shard();
  auto forwarding =
      forward_write(context, request, shard, RoutedBy::collection(routing, request.routes->database(request.db)));
  auto answered = co_await forwarding;
  if (routing == nullptr || !would_move(request, answered)) co_return answered;
  co_return co_await run_sharded(context, request, *routing, true);
}

}  // namespace spillway::exec
