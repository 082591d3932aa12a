// insert, update and delete: one shard gets the client's bytes, several get their pieces.
#include <fmt/format.h>

#include <array>
#include <numeric>
#include <span>

#include "allocator/limits.h"
#include "proxy/base/check.h"
#include "proxy/base/memory_wait.h"
#include "proxy/base/time_slice.h"
#include "proxy/exec/access/command_rules.h"
#include "proxy/exec/access/transactions.h"
#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/buckets.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/repeat.h"
#include "proxy/exec/core/stale.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/sharding/run_by_form.h"
#include "proxy/exec/write/write_commands.h"
#include "proxy/exec/write/write_run.h"

namespace spillway::exec {

Error config_is_read_only() {
  return Error(ErrorCode::illegal_operation,
               "the config database shows the static routing table and cannot be written; the "
               "table is changed in "
               "the configuration file");
}

Task<Result<Response>> call_for_write(Context& context, const Request& request,
                                      ShardCommand command) {
  auto call = call_shard(context, command, write_options(context, request));
  ShardOutcome outcome = co_await call;
  co_return passed_on(std::move(outcome));
}

Task<Result<Response>> forward_write(Context& context, const Request& request,
                                     catalog::ShardIndex shard, RoutedBy by) {
  if (request.txn_number) {
    const catalog::ShardSet targets{shard};
    SPILLWAY_CO_TRY(checked, co_await check_transaction(context, request, targets));
  }
  SPILLWAY_CO_TRY(room, room_for_copy(context, request));
  BsonDoc scratch;
  const ShardCommand command(shard, by, forward_command(request, scratch));
  co_return co_await call_for_write(context, request, command);
}

namespace {

HostsTargeted& hosts_metric(Metrics& metrics, WriteKind kind) noexcept {
  return kind == WriteKind::insert   ? metrics.insert
         : kind == WriteKind::update ? metrics.update
                                     : metrics.delete_;
}

void count_operations_of(Metrics& metrics, WriteKind kind, std::size_t count) {
  (kind == WriteKind::insert   ? metrics.op_insert
   : kind == WriteKind::update ? metrics.op_update
                               : metrics.op_delete)
      .add(count);
}

void count_hosts(Context& context, const WriteRun& run) {
  HostsTargeted& metric = hosts_metric(context.shared.metrics, run.command.kind);
  const std::size_t owners = run.routing->all_shards().size();
  std::uint64_t one = 0, many = 0, all = 0;
  for (std::size_t i = 0; i < run.batch.size(); ++i) {
    const std::size_t shards = run.batch.op(i).shards.size();
    if (shards == 1) ++one;
    if (shards > 1) ++(shards >= owners ? all : many);
  }
  metric.one_shard.add(one);
  metric.many_shards.add(many);
  metric.all_shards.add(all);
}

const ObjectId* new_id_of(const PlannedWrite& op) noexcept {
  return op.new_id ? &*op.new_id : nullptr;
}

Result<WriteTarget> target_new(const catalog::CollectionRouting& routing, const WriteCommand& command,
                               std::size_t i, const ObjectId* new_id) {
  const DocView document = command.ops[i];
  if (document.size() > limits::document_bytes_max) {
    return Error(ErrorCode::bad_value,
                 fmt::format("object to insert too large. size in bytes: {}, max size: {}",
                             document.size(), limits::document_bytes_max));
  }
  if (command.whole_keys && routing.key.lacks_field(document, new_id != nullptr)) {
    return Error(ErrorCode::shard_key_not_found,
                 fmt::format("document {} does not contain shard key for pattern {}", to_json(document, 1024),
                             to_json(routing.key.pattern())));
  }
  return target_insert(routing, document, new_id, command.measurements);
}

// A shard of 4.2 takes a document that lacks a field of the shard key, and no later read finds it.
bool needs_whole_keys(const Context& context, const catalog::CollectionRouting* routing) {
  if (routing == nullptr || !routing->cluster) return false;
  const catalog::ShardSet& owners = routing->all_shards();
  return std::any_of(owners.begin(), owners.end(), [&](catalog::ShardIndex shard) {
    return !may_have_version(context, shard, wire_version_of_4_4);
  });
}

// Null `routing`: everything goes to the primary shard. `all_shards`: of send_everywhere().
Result<void> plan_one(const WriteCommand& command, std::size_t i, const catalog::CollectionRouting* routing,
                      catalog::ShardIndex primary, const std::optional<catalog::ShardSet>& all_shards,
                      PlannedWrite& op) {
  const DocView document = command.ops[i];
  Result<WriteTarget> target = WriteTarget{Route::one, {primary}, false, false};
  if (routing != nullptr && command.kind == WriteKind::insert) {
    if (!op.new_id && !document.find("_id").exists()) op.new_id = make_object_id();
    target = target_new(*routing, command, i, new_id_of(op));
  } else if (routing != nullptr) {
    SPILLWAY_TRY(statement, parse_statement(command, i, routing));
    target = target_statement(*routing, *statement);
  }
  op.bytes = static_cast<std::uint32_t>(ChildMessage::bytes_of({document, new_id_of(op), 0}));
  op.refused = target.has_error();
  if (op.refused) return {};
  op.everywhere = send_everywhere(*target, all_shards);
  op.shards = std::move(target->shards);
  // Without a number the shard refuses what would move.
  op.route = target->route == Route::moves && !command.numbered ? Route::one : target->route;
  op.upsert_after = target->upsert_after;
  return {};
}

// The next new documents that are hashed together: not many bytes, as all of them may be a key's.
constexpr std::size_t inserts_at_once = 32;
std::span<PlannedWrite> next_inserts(const WriteCommand& command, std::size_t first, std::span<PlannedWrite> planned) {
  constexpr std::size_t bytes_max = 64 * limits::kib;
  std::size_t count = 1;
  std::size_t bytes = command.ops[first].size();
  for (; count < inserts_at_once && first + count < planned.size(); ++count) {
    bytes += command.ops[first + count].size();
    if (bytes > bytes_max) break;
  }
  return planned.subspan(first, count);
}

// One of them that needs a look of its own gets it.
Result<void> plan_inserts(const WriteCommand& command, std::size_t first, const catalog::CollectionRouting& routing,
                          std::span<PlannedWrite> ops) {
  std::array<catalog::ShardIndex, inserts_at_once> owners;
  const std::span<const DocView> documents = std::span(command.ops).subspan(first, ops.size());
  routing.target_documents(documents, std::span(owners).first(ops.size()));
  const bool has_id = routing.key.hashes_id();  // where there is an owner
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const DocView document = documents[i];
    const bool usual = owners[i] != catalog::no_shard && !command.whole_keys &&
                       document.size() <= limits::document_bytes_max && (has_id || document.find("_id").exists());
    if (usual) {
      ops[i].shards.insert(owners[i]);
      ops[i].bytes = static_cast<std::uint32_t>(document.size());
    } else if (auto done = plan_one(command, first + i, &routing, {}, std::nullopt, ops[i]); done.has_error()) {
      return done;
    }
  }
  return {};
}

// Targets every operation. Fails as a whole only for malformed operations.
Task<Result<RecycledVector<PlannedWrite>>> plan(TimeSlice& slice, const WriteCommand& command,
                                                const catalog::CollectionRouting* routing,
                                                const Request& request) {
  const catalog::ShardIndex primary = request.routes->primary_shard(request.db);
  const auto all_shards = shards_for_multi_writes(request, *request.routes, routing);
  RecycledVector<PlannedWrite> planned(command.ops.size());
  const bool hashes_together = routing != nullptr && command.kind == WriteKind::insert && !routing->is_time_series();
  for (std::size_t i = 0; hashes_together && i < planned.size();) {
    const std::span<PlannedWrite> ops = next_inserts(command, i, planned);
    if (auto done = plan_inserts(command, i, *routing, ops); done.has_error()) co_return done.error();
    i += ops.size();
    if (slice.is_over(4 * limits::kib)) co_await slice.next();
  }
  for (std::size_t i = 0; !hashes_together && i < planned.size(); ++i) {
    if (slice.is_over()) co_await slice.next();
    auto done = plan_one(command, i, routing, primary, all_shards, planned[i]);
    if (done.has_error()) co_return done.error();
  }
  co_return std::move(planned);
}

Task<Result<WriteCommand>> parse_write_in_steps(TimeSlice& slice, const Request& request, WriteKind kind) {
  constexpr std::size_t operations_per_step = 64;
  WriteParser parser(request, kind);
  for (;;) {
    SPILLWAY_CO_TRY(stepped, parser.step(operations_per_step));
    if (*stepped) co_return std::move(parser).take();
    if (slice.is_over(4 * limits::kib)) co_await slice.next();
  }
}

// The one owner of a collection takes whatever it is sent: can each of these new documents be targeted? A shard hides
// the others from all later reads, as documents without a shard key.
Task<bool> are_targetable(Context& context, const Request& request, const catalog::CollectionRouting& routing) {
  TimeSlice slice(context.pump);
  auto command = co_await parse_write_in_steps(slice, request, WriteKind::insert);
  if (command.has_error()) co_return false;
  command->whole_keys = needs_whole_keys(context, &routing);
  const ObjectId any_id{};
  for (std::size_t i = 0; i < command->ops.size(); ++i) {
    const bool gets_id = !command->ops[i].find("_id").exists();
    if (target_new(routing, *command, i, gets_id ? &any_id : nullptr).has_error()) co_return false;
    if (slice.is_over()) co_await slice.next();
  }
  co_return true;
}

// The error of an operation that could not be targeted. Stored for each operation, the errors of a large batch would
// take more than the batch.
Error why_refused(const WriteRun& run, std::size_t i) {
  const Result<WriteTarget> target =
      run.command.kind == WriteKind::insert
          ? target_new(*run.routing, run.command, i, new_id_of(run.batch.op(i)))
          : target_statement(*run.routing, parse_statement(run.command, i, run.routing).value());
  SPILLWAY_CHECK(target.has_error());
  return target.error();
}

// The rounds so far, to see whether they lead anywhere.
struct Progress {
  std::size_t rounds = 0;
  std::size_t fruitless = 0;  // the last ones, with one and the same table
  std::size_t executed = 0;   // operations, and shards that have executed operations for several
  bool learned_for_refused = false;
};
constexpr std::size_t fruitless_max = 5;
constexpr std::int32_t no_progress_made = 82;

// Operations that are due fail with this: in an ordered batch the first of them.
Task<std::optional<Error>> fail_rest(WriteRun& run, Error error) {
  Refusal rest;
  for (std::size_t i = 0; i < run.batch.size(); ++i) {
    if (!run.batch.is_due(i)) continue;
    rest.ops.push_back(static_cast<std::uint32_t>(i));
    if (run.command.ordered) break;
  }
  run.batch.stop();
  if (!run.results.has_effects() && error.code != no_progress_made) co_return error;
  rest.error = std::move(error);
  TimeSlice slice(run.context.pump);
  co_await add_failures(run, slice, {&rest, 1});
  co_return std::nullopt;
}

std::size_t executed_by(const WriteRun& run) {
  std::size_t executed = 0;
  for (std::size_t i = 0; i < run.batch.size(); ++i) executed += run.batch.is_due(i) ? 0 : 1;
  for (const auto& [op, partly] : run.partly) executed += partly.shards.size();
  return executed;
}

// Reads what is known of the collection again, and targets by it what is due. A returned error ends the command.
Task<std::optional<Error>> target_again(WriteRun& run, const Client& client, Progress& progress) {
  run.stale = false;
  const std::size_t executed = executed_by(run);
  const bool progressed = executed > std::exchange(progress.executed, executed);
  if (progressed) progress.fruitless = 0;
  // Longer ones than a read's, as there are fewer tries.
  const Duration pause =
      progress.fruitless < 2 ? Duration::zero() : pause_before_try(1 + 2 * progress.fruitless);
  if (Clock::now() + pause >= run.request->deadline) {
    auto failing = fail_rest(run, time_limit_exceeded());
    co_return co_await failing;
  }
  if (pause > Duration::zero()) co_await run.context.loop.sleep_for(pause);
  if (const Error* why = client.interrupt.requested()) co_return *why;
  if (std::exchange(run.collection_missing, false)) {
    auto making = make_collection(run.context, *run.request, std::string(run.command.collection));
    if (const auto made = co_await making; made.has_error()) {
      auto failing = fail_rest(run, made.error());
      co_return co_await failing;
    }
  }
  const std::string_view db = run.request->db;
  RouteNames names{{db, run.command.collection}};
  const std::string_view buckets = run.request->buckets;
  if (!buckets.empty()) names.push_back({.db = db, .collection = buckets, .buckets = true});
  const RouteWait wait{run.request->deadline, true, run.request->interrupt};
  auto learned = co_await learn_routes(*run.context.router, names, wait);
  if (learned.has_error()) {
    auto failing = fail_rest(run, learned.error());
    co_return co_await failing;
  }
  const NamespaceText ns(db, run.command.collection);
  const auto version_of = [](const catalog::CollectionRouting* routing) {
    return routing == nullptr || !routing->cluster ? catalog::ChunkVersion::unsharded() : routing->cluster->version;
  };
  const auto version = version_of(run.routing);
  const catalog::Database* const database = run.routes->database(db);
  const auto database_version = database == nullptr ? std::nullopt : database->version;
  run.newer_routes = *std::move(learned);
  run.routes = &*run.newer_routes;
  run.routing = run.routes->collection(ns.view());
  const bool has_buckets = !buckets.empty() && run.routes->collection(NamespaceText(db, buckets).view()) != nullptr;
  if ((has_buckets || (run.command.measurements && run.routing == nullptr)) && !run.results.has_effects()) {
    co_return Error(stale_config, "the collection has become a sharded time series, or is none any more");
  }
  const catalog::Database* const newer = run.routes->database(db);
  const bool changed = version_of(run.routing) != version ||
                       (newer == nullptr ? std::nullopt : newer->version) != database_version;
  progress.fruitless = changed || progressed ? 0 : progress.fruitless + 1;
  if (progress.fruitless > fruitless_max) {
    Error why(no_progress_made,
              fmt::format("no progress was made executing batch write op in {} after {} rounds ({} ops completed in {} "
                          "rounds total)",
                          ns.view(), fruitless_max, executed, progress.rounds));
    auto failing = fail_rest(run, std::move(why));
    co_return co_await failing;
  }
  TimeSlice slice(run.context.pump);
  const catalog::ShardIndex primary = run.routes->primary_shard(db);
  const auto all_shards = run.all_shards();
  for (std::size_t i = 0; i < run.batch.size(); ++i) {
    if (!run.batch.is_due(i)) continue;
    if (slice.is_over()) co_await slice.next();
    PlannedWrite& op = run.batch.plan_of(i);
    const auto planned = plan_one(run.command, i, run.routing, primary, all_shards, op);
    if (planned.has_error()) {
      auto failing = fail_rest(run, planned.error());
      co_return co_await failing;
    }
    if (op.refused || !op.simple()) continue;
    op.shards = run.shards_left(static_cast<std::uint32_t>(i), op.shards);
    op.done = op.shards.empty();
  }
  co_return std::nullopt;
}

Task<Result<Response>> run_rounds(WriteRun& run, const Client& client) {
  constexpr std::size_t operations_per_step = 64, entries_per_step = 16;
  TimeSlice slice(run.context.pump);
  Progress progress;
  for (;;) {
    // The error has ended its transaction on the shard: later statements would hide it.
    const bool ends = run.command.ordered || run.request->in_transaction;
    if (ends && run.results.has_errors()) {
      run.batch.stop();
    } else if (run.stale) {
      auto fatal = co_await target_again(run, client, progress);
      if (fatal) co_return std::move(*fatal);
      slice.renew();
    }
    if (const Error* why = client.interrupt.requested()) co_return *why;
    WriteRound round;
    while (!run.batch.fill(round, operations_per_step)) {
      if (slice.is_over(4 * limits::kib)) co_await slice.next();
    }
    if (round.finished()) break;
    ++progress.rounds;
    if (round.failed && run.may_send_again() && !std::exchange(progress.learned_for_refused, true)) {
      // It may have been targeted by a collection that was dropped.
      run.context.router->note_stale({run.request->db, run.command.collection});
      run.batch.give_back(*round.failed);
      run.stale = true;
    } else if (round.failed) {
      run.results.add_error(*round.failed, why_refused(run, *round.failed));
      if (slice.is_over()) co_await slice.next();
    } else if (round.special) {
      auto fatal = co_await run_special(run, *round.special);
      if (fatal) co_return std::move(*fatal);
    } else {
      auto sending = send_children(run, std::move(round.children));
      auto fatal = co_await sending;
      slice.renew();
      if (fatal) co_return std::move(*fatal);
    }
  }
  WriteResults::Finishing finishing(run.results);
  while (!finishing.step(entries_per_step)) {
    if (slice.is_over(4 * limits::kib)) co_await slice.next();
  }
  co_return Response(std::move(finishing).take());
}

// All operations went to one shard together. Goes on with what it has not executed for a stale table.
Task<Result<Response>> finish_whole(WriteRun& run, const Client& client, ShardOutcome outcome) {
  if (run.routes->in_cluster()) {
    auto stale = co_await find_stale(run, outcome);
    if (stale && !run.may_send_again()) co_return *std::move(stale);
    if (stale) {
      std::vector<ChildBatch> all(1);
      all[0].shard = outcome.shard;
      all[0].ops.resize(run.batch.size());
      std::iota(all[0].ops.begin(), all[0].ops.end(), 0);
      run.batch.take_all();
      auto taking = take_answers(run, all, {&outcome, 1});
      auto fatal = co_await taking;
      if (fatal) co_return *std::move(fatal);
      outcome = {};
      co_return co_await run_rounds(run, client);
    }
    if (run.batch.size() == 1 && would_move(outcome)) {
      constexpr std::uint32_t only = 0;
      run.batch.take_all();
      if (may_move_after(run, {&only, 1}, outcome)) {
        outcome = {};  // with its two documents
        co_return co_await run_rounds(run, client);
      }
    }
  }
  co_return passed_on(std::move(outcome));
}

// All operations go to one shard, but new documents need their _id.
Task<Result<Response>> send_with_ids(WriteRun& run, const Client& client, catalog::ShardIndex shard) {
  std::vector<ChildOp> ops;
  ops.reserve(run.command.ops.size());
  TimeSlice slice(run.context.pump);
  for (std::size_t i = 0; i < run.command.ops.size(); ++i) {
    if (slice.is_over()) co_await slice.next();
    ops.push_back({run.command.ops[i], new_id_of(run.batch.op(i)), run.command.stmt_id(i)});
  }
  auto message = co_await ChildMessage::build(run.context, *run.request, run.command, ops);
  if (message.has_error()) co_return without_writes(message.error());
  auto call = call_shard(run.context, {shard, run.by(), message->command()}, write_options(run.context, *run.request));
  ShardOutcome outcome = co_await call;
  auto finishing = finish_whole(run, client, std::move(outcome));
  co_return co_await finishing;
}

// FerretDB reports a failed update with index 0, whichever it was, and without the counts of those before it. So
// every update travels alone there, and both are known.
std::size_t child_operations_max(const Context& context, WriteKind kind,
                                 const catalog::CollectionRouting* routing) {
  const auto all = static_cast<std::size_t>(limits::write_batch_size_max);
  if (kind != WriteKind::update || routing == nullptr) return all;
  for (const catalog::ShardIndex shard : routing->all_shards()) {
    if (context.gateway.capabilities(shard).ferretdb) return 1;
  }
  return all;
}

ChildRoom child_room(const Context& context, const Request& request, const WriteCommand& command,
                     const catalog::CollectionRouting* routing) {
  ChildRoom room;
  room.bytes = ChildMessage::operations_bytes_max(request, command);
  room.bytes_per_op = command.retryable ? ChildMessage::statement_id_bytes : 0;
  room.ops = child_operations_max(context, command.kind, routing);
  return room;
}

// All shards that a transaction would have to include.
Task<catalog::ShardSet> shards_to_check(const WriteRun& run, TimeSlice& slice) {
  catalog::ShardSet shards = run.batch.shards();
  const std::size_t owners = run.routing == nullptr ? shards.size() : run.routing->all_shards().size();
  for (std::size_t i = 0; i < run.batch.size() && shards.size() < owners; ++i) {
    if (!run.batch.op(i).upsert_after) continue;
    const WriteRun::Targeted write = run.targeted(i);
    const catalog::ShardSet more = possible_shards(*run.routing, write.statement, write.target);
    for (const catalog::ShardIndex shard : more) shards.insert(shard);
    if (slice.is_over()) co_await slice.next();
  }
  co_return shards;
}

// Can one message have the whole command, with what is added for a shard?
bool fits_a_message(const Request& request) noexcept {
  std::size_t bytes = request.body.size();
  for (const wire::DocSequence& sequence : request.message.sequences) bytes += sequence.documents.size();
  return bytes + ChildMessage::envelope_bytes_max <= limits::message_bytes_max;
}

// `first`: one shard's answer to the whole command, part of which it has not executed for a stale table. None: nothing
// was sent, and the collection is sharded, or the command too long for one message.
Task<Result<Response>> run_batch(Context& context, const Client& client, const Request& request, WriteKind kind,
                                 const catalog::CollectionRouting* routing, std::optional<ShardOutcome> first) {
  TimeSlice slice(context.pump);
  SPILLWAY_CO_TRY(command, co_await parse_write_in_steps(slice, request, kind));
  command->whole_keys = kind == WriteKind::insert && needs_whole_keys(context, routing);
  // A child's list of indexes grows by doubling.
  constexpr std::size_t bytes_per_op = sizeof(DocView) + sizeof(PlannedWrite) +
                                       2 * sizeof(std::uint32_t) + sizeof(ChildOp);
  const std::size_t list_bytes =
      command->ops.size() * bytes_per_op + WriteResults::bytes_for(command->ops.size());
  const auto reservation = co_await take_reservation(context, request, context.shared.memory.writes, list_bytes,
                                                     "the list of operations");
  if (reservation.has_error()) {
    // What was executed is told at least.
    if (first && first->ok()) co_return passed_on(*std::move(first));
    co_return without_writes(reservation.error());
  }
  slice.renew();
  SPILLWAY_AWAIT(planned, plan(slice, *command, routing, request));
  const ChildRoom room = child_room(context, request, *command, routing);
  WriteRun run{context,
               SteppedRequest(request),
               *command,
               request.routes,
               routing,
               WriteBatch(*std::move(planned), command->ordered, room),
               WriteResults(kind, command->ordered, command->ops.size())};
  if (first) {
    auto finishing = finish_whole(run, client, *std::move(first));
    co_return co_await finishing;
  }
  // One pass over 100,000 operations takes a fraction of a millisecond.
  const std::size_t look_bytes = run.batch.size() * sizeof(PlannedWrite);
  if (routing != nullptr) count_hosts(context, run);
  if (slice.is_over(look_bytes)) co_await slice.next();
  if (request.in_transaction) {
    for (std::size_t i = 0; i < run.batch.size(); ++i) {
      if (run.batch.op(i).refused) co_return why_refused(run, i);
    }
  }
  if (request.txn_number) {
    const catalog::ShardSet shards = co_await shards_to_check(run, slice);
    SPILLWAY_CO_TRY(checked, co_await check_transaction(context, request, shards));
  }
  const auto only = run.batch.only_shard();
  if (slice.is_over(look_bytes)) co_await slice.next();
  if (only && !run.batch.adds_ids() && fits_a_message(request)) {
    SPILLWAY_CO_TRY(copy, room_for_copy(context, request));
    BsonDoc scratch;
    const shard::Command whole = forward_command(request, scratch);
    auto call = call_shard(context, {*only, run.by(), whole}, write_options(context, request));
    ShardOutcome outcome = co_await call;
    auto finishing = finish_whole(run, client, std::move(outcome));
    co_return co_await finishing;
  }
  if (slice.is_over(look_bytes)) co_await slice.next();
  // With the added fields it may exceed a message: then it takes several.
  if (only && run.batch.fits_one_child()) {
    co_return co_await send_with_ids(run, client, *only);
  }
  co_return co_await run_rounds(run, client);
}

// As forward_write(), with the reply as the shard gave it.
Task<Result<ShardOutcome>> forward_in_cluster(Context& context, const Request& request, catalog::ShardIndex shard,
                                              RoutedBy by) {
  const catalog::ShardSet targets{shard};
  SPILLWAY_CO_TRY(checked, co_await check_transaction(context, request, targets));
  SPILLWAY_CO_TRY(room, room_for_copy(context, request));
  BsonDoc scratch;
  auto call = call_shard(context, {shard, by, forward_command(request, scratch)}, write_options(context, request));
  co_return co_await call;
}

Task<Result<Response>> run_acknowledged(Context& context, Client& client, const Request& request) {
  const WriteKind kind = request.name == "insert"   ? WriteKind::insert
                         : request.name == "update" ? WriteKind::update
                                                    : WriteKind::remove;
  if (reads_own_config(request)) co_return config_is_read_only();
  SPILLWAY_CO_TRY(collection, collection_argument(request.body));
  SPILLWAY_CO_TRY(count, count_operations(request, list_name_of(kind)));
  count_operations_of(context.shared.metrics, kind, *count);
  const NamespaceText ns(request.db, *collection);
  const catalog::CollectionRouting* routing = request.routes->collection(ns.view());
  bool goes_whole = (routing == nullptr || routing->all_shards().size() == 1) && fits_a_message(request);
  if (goes_whole && kind == WriteKind::insert && catalog::is_sharded(routing)) {
    goes_whole = co_await are_targetable(context, request, *routing);
  }
  if (!goes_whole) co_return co_await run_batch(context, client, request, kind, routing, std::nullopt);
  HostsTargeted& metric = hosts_metric(context.shared.metrics, kind);
  (routing == nullptr ? metric.unsharded : metric.one_shard).add(*count);
  const catalog::ShardIndex shard = routing == nullptr ? request.routes->primary_shard(request.db)
                                                       : routing->chunks.first_shard();
  const RoutedBy by = RoutedBy::collection(routing, request.routes->database(request.db));
  if (!context.in_cluster()) {
    co_return co_await forward_write(context, request, shard, by);
  }
  SPILLWAY_CO_TRY(outcome, co_await forward_in_cluster(context, request, shard, by));
  auto stale = co_await find_stale(context, by, *outcome);
  if (stale && request.in_transaction) co_return *std::move(stale);
  if (stale || (would_move(*outcome) && request.txn_number)) {
    auto running = run_batch(context, client, request, kind, routing, *std::move(outcome));
    co_return co_await running;
  }
  co_return passed_on(*std::move(outcome));
}

// Of an unacknowledged write the client learns nothing but that it was one.
Task<Result<Response>> run_unacknowledged(Context& context, Client& client, const Request& request) {
  auto response = co_await run_acknowledged(context, client, request);
  if (response.has_error() || response->failed) co_return response;
  BsonWriter reply;
  co_return ok_response(std::move(reply));
}

Task<Result<Response>> run_write(Context& context, Client& client, const Request& request) {
  return request.unacknowledged ? run_unacknowledged(context, client, request)
                                : run_acknowledged(context, client, request);
}

Task<Result<Response>> refuse_internal_field() {
  constexpr std::int32_t internal_field = 5916401;
  co_return Error(internal_field, "the 'isTimeseriesNamespace' parameter cannot be used on mongos");
}

// Not a coroutine, since almost no collection is a time series.
template <Handler handler>
Task<Result<Response>> to_buckets_or(Context& context, Client& client, const Request& request) {
  if (request.routes->in_cluster() && is_on_buckets(request)) return refuse_internal_field();
  return has_sharded_buckets(request) ? run_on_buckets(context, client, request, handler)
                                      : handler(context, client, request);
}

}  // namespace

std::span<const CommandSpec> write_commands() {
  using auth::Action;
  using enum RouteNeed;
  using enum Trait;
  static constexpr CommandSpec specs[] = {
      {"insert", "insert documents", to_buckets_or<run_write>, by_rule(may_insert),
       in_transaction | makes_database | stable | writes, written},
      {"update", "update documents", to_buckets_or<run_write>, by_rule(may_update),
       in_transaction | makes_database | stable | writes, written},
      {"delete", "delete documents", to_buckets_or<run_write>, on_collection(Action::remove),
       in_transaction | makes_database | stable | writes, written},
      {"findAndModify", "write one document and return it", to_buckets_or<find_and_modify_command>,
       by_rule(may_find_and_modify), in_transaction | makes_database | stable | writes, written},
      {"findandmodify", "write one document and return it", to_buckets_or<find_and_modify_command>,
       by_rule(may_find_and_modify), in_transaction | makes_database | stable | writes, written},
  };
  return specs;
}

}  // namespace spillway::exec
