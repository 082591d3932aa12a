#include "proxy/exec/write/write_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "proxy/base/memory_wait.h"
#include "proxy/base/time_slice.h"
#include "proxy/exec/access/transactions.h"
#include "proxy/exec/core/cluster_fields.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/write/write_choose.h"
#include "proxy/exec/write/write_move.h"
#include "proxy/shard/connection.h"

namespace spillway::exec {

WriteRun::Targeted WriteRun::targeted(std::size_t op) const {
  Targeted again;
  again.statement = parse_statement(command, op, routing).value();
  again.target = target_statement(*routing, again.statement).value();
  again.everywhere = send_everywhere(again.target, all_shards());
  return again;
}

catalog::ShardSet WriteRun::shards_left(std::uint32_t op, const catalog::ShardSet& shards) const {
  const auto found = partly.find(op);
  if (found == partly.end()) return shards;
  catalog::ShardSet left;
  for (const catalog::ShardIndex shard : shards) {
    if (!found->second.shards.contains(shard)) left.insert(shard);
  }
  return left;
}

Task<std::optional<Error>> find_stale(Context& context, RoutedBy by, const ShardOutcome& outcome) {
  if (outcome.stale()) co_return outcome.error;
  if (!outcome.ok() || outcome.reply.streaming()) co_return std::nullopt;
  TimeSlice slice(context.pump);
  const DocView errors = outcome.body()["writeErrors"].to_array();
  for (const Element& error : errors) {
    if (slice.is_over()) co_await slice.next();
    const DocView entry = error.to_document();
    const auto code = static_cast<std::int32_t>(entry["code"].to_int64().value_or(0));
    if (!is_stale(code)) continue;
    note_refusal(context, by, entry);
    co_return Error(static_cast<ErrorCode>(code), std::string(entry["errmsg"].to_text()));
  }
  co_return std::nullopt;
}

Task<std::optional<Error>> find_stale(WriteRun& run, const ShardOutcome& outcome) {
  auto stale = co_await find_stale(run.context, run.by(), outcome);
  if (stale && stale->code == cannot_implicitly_create_collection) run.collection_missing = true;
  co_return stale;
}

std::optional<Error> take_outcome(WriteRun& run, std::span<const std::uint32_t> ops,
                                  const ShardOutcome& outcome, std::vector<Refusal>& refused,
                                  std::int64_t* n, std::vector<Refusal>* lost) {
  if (outcome.ok()) {
    const std::int64_t count =
        run.results.add_reply(ops, outcome.body(), run.shard_name(outcome.shard));
    if (n != nullptr) *n += count;
    return std::nullopt;
  }
  if (run.command.ordered) ops = ops.first(1);  // what follows is not executed, and has no error
  const bool answered = outcome.reply.bytes.size() > 0;
  // With statement ids the whole command can be sent again; drivers do so when the reply itself is labelled.
  if (run.request->in_transaction || (!answered && run.command.retryable)) {
    return *outcome.error;
  }
  constexpr std::int32_t incomplete_transaction_history = 217;
  if (answered && outcome.error->code == incomplete_transaction_history) {
    // A statement that has become a transaction of its own, sent again. No other shard could answer it, either.
    run.results.add_errors(ops, *outcome.error);
  } else if (answered) {
    refused.push_back({{ops.begin(), ops.end()}, *outcome.error});
  } else if (lost != nullptr) {
    lost->push_back({{ops.begin(), ops.end()},
                     WriteResults::lost(*outcome.error, run.shard_name(outcome.shard))});
  } else {
    run.results.add_lost(ops, *outcome.error, run.shard_name(outcome.shard));
  }
  return std::nullopt;
}

std::optional<Error> settle_refusals(WriteRun& run, const std::vector<Refusal>& refused) {
  if (refused.empty()) return std::nullopt;
  if (!run.results.has_effects()) return refused.front().error;
  for (const Refusal& refusal : refused) run.results.add_errors(refusal.ops, refusal.error);
  return std::nullopt;
}

namespace {

// The proxy's own refusal of an operation. In a transaction it ends the command, and with it the
// transaction; an interrupt ends the command, too.
std::optional<Error> refuse(WriteRun& run, std::uint32_t op, const Error& why) {
  if (run.request->in_transaction || shard::requested_of(run.request->interrupt) != nullptr) return why;
  run.results.add_error(op, why);
  return std::nullopt;
}

}  // namespace

namespace {

constexpr std::size_t result_entries_per_step = 16;

}  // namespace

Task<void> add_failures(WriteRun& run, TimeSlice& slice, std::span<const Refusal> failures) {
  for (const Refusal& failure : failures) {
    WriteResults::Failing failing(run.results, failure.error);
    for (std::span<const std::uint32_t> rest = failure.ops; !rest.empty();) {
      const std::size_t now = std::min(rest.size(), result_entries_per_step);
      failing.add(rest.first(now));
      rest = rest.subspan(now);
      if (slice.is_over()) co_await slice.next();
    }
  }
}

namespace {

// These operations are not sent. A returned error ends the command.
Task<std::optional<Error>> refuse_for_memory(WriteRun& run, std::vector<std::uint32_t> ops, Error refusal) {
  if (!run.results.has_effects()) co_return without_writes(std::move(refusal));
  if (run.request->in_transaction) co_return do_not_try_again(std::move(refusal));
  if (run.command.ordered) ops.resize(1);
  const Refusal failed{std::move(ops), std::move(refusal)};
  TimeSlice slice(run.context.pump);
  co_await add_failures(run, slice, {&failed, 1});
  co_return std::nullopt;
}

}  // namespace

Task<std::optional<Error>> send_children(WriteRun& run, std::vector<ChildBatch> children) {
  TimeSlice slice(run.context.pump);
  std::vector<ChildMessage> messages;
  std::vector<ShardCommand> commands;
  messages.reserve(children.size());
  for (const ChildBatch& child : children) {
    std::vector<ChildOp> ops;
    ops.reserve(child.ops.size());
    for (const std::uint32_t op : child.ops) {
      const auto& new_id = run.batch.op(op).new_id;
      ops.push_back({run.command.ops[op], new_id ? &*new_id : nullptr, run.command.stmt_id(op)});
      if (slice.is_over_short(listed_op_bytes)) co_await slice.next();
    }
    auto built = co_await ChildMessage::build(run.context, *run.request, run.command, ops);
    if (built.has_error()) {
      auto refusing = refuse_for_memory(run, child.ops, built.error());
      if (auto failed = co_await refusing) co_return failed;
      messages.emplace_back();
      continue;
    }
    messages.push_back(*std::move(built));
  }
  std::vector<ChildBatch> sent;
  for (std::size_t i = 0; i < children.size(); ++i) {
    if (messages[i].empty()) continue;
    const bool everywhere = run.batch.op(children[i].ops.front()).everywhere;
    commands.emplace_back(children[i].shard, run.by(everywhere), messages[i].command());
    sent.push_back(std::move(children[i]));
  }
  auto calls = call_shards(run.context, commands, write_options(run.context, *run.request));
  auto outcomes = co_await calls;
  run.request.sent_a_step();
  co_return co_await take_answers(run, sent, outcomes);
}

namespace {

// `stale[i]`: operations of the child i that its shard has not executed. An operation that failed on another shard has
// failed.
void give_back(WriteRun& run, std::span<const ChildBatch> children, std::span<const ShardOutcome> outcomes,
               std::span<const std::vector<std::uint32_t>> stale) {
  const auto contains = [](const std::vector<std::uint32_t>& ops, std::uint32_t op) {
    return std::binary_search(ops.begin(), ops.end(), op);
  };
  for (std::size_t i = 0; i < children.size(); ++i) {
    for (const std::uint32_t op : stale[i]) {
      if (run.results.has_error(op)) continue;
      for (std::size_t k = 0; k < children.size() && run.batch.op(op).shards.size() > 1; ++k) {
        if (!outcomes[k].ok() || !contains(children[k].ops, op) || contains(stale[k], op)) continue;
        run.partly[op].shards.insert(outcomes[k].shard);
      }
      run.batch.give_back(op);
      run.stale = true;
    }
  }
}

// A shard of 4.2 that is asked with a newer version of its database than it knows reads that from the config servers
// for a find, but not for a write, which it would refuse for ever. It may also wait for a move of the database. This
// find meets nothing.
Task<void> let_shard_read_database(WriteRun& run, catalog::ShardIndex shard) {
  const BsonDoc nothing = match_nothing();
  BsonWriter body;
  body.append("find", run.command.collection).append("filter", nothing.view());
  body.append("limit", 1).append("singleBatch", true).append("$db", run.request->db);
  const BsonDoc find = std::move(body).finish();
  auto call = call_shard(run.context, {shard, run.by(), shard::Command::of_body(find)},
                         write_options(run.context, *run.request));
  co_await call;
}

}  // namespace

bool may_move_after(WriteRun& run, std::span<const std::uint32_t> ops, const ShardOutcome& outcome) {
  if (ops.size() != 1 || !run.command.numbered || run.routing == nullptr || !would_move(outcome)) return false;
  const Route route = run.batch.op(ops.front()).route;
  if (route != Route::one && route != Route::moves) return false;
  run.batch.plan_of(ops.front()).route = Route::moves;
  return true;
}

Task<std::optional<Error>> take_answers(WriteRun& run, std::span<const ChildBatch> children,
                                        std::span<const ShardOutcome> outcomes) {
  TimeSlice slice(run.context.pump);
  std::vector<Refusal> refused, lost;
  std::vector<std::vector<std::uint32_t>> stale(run.routes->in_cluster() ? children.size() : 0);
  std::optional<Error> fatal;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const std::vector<std::uint32_t>& ops = children[i].ops;
    std::optional<Error> is_stale_error;
    if (run.routes->in_cluster()) {
      is_stale_error = co_await find_stale(run, outcomes[i]);
    }
    if (is_stale_error && !run.may_send_again()) {
      if (!fatal) fatal = std::move(is_stale_error);
      continue;
    }
    if (is_stale_error && !outcomes[i].ok()) {
      stale[i] = ops;
      continue;
    }
    if (is_stale_error && is_stale_error->code == stale_db_version) {
      co_await let_shard_read_database(run, outcomes[i].shard);
    }
    if (outcomes[i].ok()) {
      WriteResults::Reading reading(run.results, ops, outcomes[i].body(), run.shard_name(outcomes[i].shard),
                                    is_stale_error ? &stale[i] : nullptr);
      while (!reading.step(result_entries_per_step)) {
        if (slice.is_over(4 * limits::kib)) co_await slice.next();
      }
      // An ordered batch ends with its first error.
      if (is_stale_error && run.command.ordered) {
        stale[i].assign(std::lower_bound(ops.begin(), ops.end(), stale[i].front()), ops.end());
      }
      continue;
    }
    if (may_move_after(run, ops, outcomes[i])) continue;
    auto error = take_outcome(run, ops, outcomes[i], refused, nullptr, &lost);
    if (error && !fatal) fatal = std::move(error);
  }
  co_await add_failures(run, slice, lost);
  if (fatal) co_return fatal;
  if (!refused.empty() && !run.results.has_effects()) co_return refused.front().error;
  co_await add_failures(run, slice, refused);
  if (!stale.empty()) give_back(run, children, outcomes, stale);
  co_return std::nullopt;
}

namespace {

// An entry of updates or deletes with some of its fields replaced.
struct OpRewrite {
  std::optional<DocView> query;
  std::optional<DocView> update;
  std::optional<bool> upsert;
};

BsonDoc rewritten(DocView op, const OpRewrite& rewrite) {
  BsonWriter out;
  for (const Element& field : op) {
    if (field.name == "q" && rewrite.query) {
      out.append("q", *rewrite.query);
    } else if (field.name == "u" && rewrite.update) {
      out.append("u", *rewrite.update);
    } else if (field.name == "upsert" && rewrite.upsert) {
      out.append("upsert", *rewrite.upsert);
    } else {
      out.append_element(field);
    }
  }
  return std::move(out).finish();
}

struct StepOutcome {
  std::int64_t n = 0;
  std::optional<Error> fatal;
  bool stale = false;  // not executed where the table was stale: the operation is due again
};

// Sends one operation, in this form, to all these shards at once.
Task<ShardOutcomes> call_with(WriteRun& run, std::uint32_t op, DocView document,
                              const catalog::ShardSet& shards, ChildMessage& message, bool everywhere = false) {
  const ChildOp child{document, nullptr, run.command.stmt_id(op)};
  auto building = ChildMessage::build(run.context, *run.request, run.command, {&child, 1});
  auto built = co_await building;
  if (built.has_error()) {
    ShardOutcomes failed(1);
    failed.front().shard = shards.front();
    // Within a transaction a shard cannot know that it has executed a statement before.
    failed.front().error = run.request->in_transaction && run.results.has_effects()
                               ? do_not_try_again(built.error())
                               : built.error();
    co_return failed;
  }
  message = *std::move(built);
  auto calls = call_shards(run.context, shards, run.by(everywhere), message.command(),
                           write_options(run.context, *run.request));
  auto outcomes = co_await calls;
  run.request.sent_a_step();
  co_return outcomes;
}

// The shard `refused` the operation since its document would be another shard's. Its answer outlives the task.
Task<StepOutcome> move_one(WriteRun& run, std::uint32_t op, DocView document, const ShardOutcome* refused) {
  StepOutcome result;
  std::optional<Result<BsonDoc>> reply;
  if (run.request->in_transaction) {
    auto moved = co_await move_document(run.context, *run.request, run.command.collection, *run.routing,
                                        refused->body());
    if (moved.has_error()) {
      result.fatal = std::move(moved.error());
      co_return result;
    }
    reply = moved_update_reply(refused->body(), *moved);
  } else if (run.batch.size() > 1 || run.request->of_many) {
    reply = Error(ErrorCode::invalid_options,
                  "Document shard key value updates that cause the doc to move shards must be sent with write batch of "
                  "size 1");
  } else {
    BsonWriter command;
    command.append("update", run.command.collection);
    command.begin_array("updates").append_item(document).end();
    for (const std::string_view option : {"bypassDocumentValidation", "let"}) {
      command.append(option, run.request->body[option]);
    }
    const BsonDoc body = std::move(command).finish();
    MovingWrite write{.collection = run.command.collection,
                      .command = body,
                      .filter = document["q"].to_document(),
                      .simple_collation = is_simple_collation(document["collation"], run.routing),
                      .shard = refused->shard,
                      .reply = moved_update_reply};
    Request request = *run.request;
    request.routes = run.routes;
    auto moving = move_in_own_transaction(run.context, request, std::move(write));
    reply = co_await moving;
  }
  if (reply->has_error() && (reply->error().is(ErrorCode::host_unreachable) ||
                             reply->error().is(ErrorCode::network_timeout))) {
    result.fatal = std::move(reply->error());  // the outcome of the commit is unknown
  } else if (reply->has_error()) {
    result.fatal = refuse(run, op, reply->error());
  } else {
    result.n = run.results.add_reply({&op, 1}, **reply, run.shard_name(refused->shard));
  }
  co_return result;
}

bool found_any(const ShardOutcome& outcome) {
  return outcome.ok() && outcome.body()["n"].to_int64().value_or(0) > 0;
}

Task<StepOutcome> step(WriteRun& run, std::uint32_t op, DocView document,
                       const catalog::ShardSet& shards, bool everywhere = false) {
  StepOutcome result;
  if (shards.empty()) co_return result;
  ChildMessage message;
  auto outcomes = co_await call_with(run, op, document, shards, message, everywhere);
  std::vector<Refusal> refused;
  catalog::ShardSet executed;
  for (const ShardOutcome& outcome : outcomes) {
    if (would_move(outcome)) {
      auto moved = co_await move_one(run, op, document, &outcome);
      result.n += moved.n;
      if (!result.fatal) result.fatal = std::move(moved.fatal);
      continue;
    }
    if (run.routes->in_cluster()) {
      auto stale = co_await find_stale(run, outcome);
      result.stale = result.stale || stale;
      if (stale && !run.may_send_again() && !result.fatal) result.fatal = std::move(stale);
      if (stale) continue;
    }
    auto error = take_outcome(run, {&op, 1}, outcome, refused, &result.n);
    if (error && !result.fatal) result.fatal = std::move(error);
    // A shard where nothing matched is asked again: the document may be there when the table is read again.
    if (found_any(outcome)) executed.insert(outcome.shard);
  }
  if (!result.fatal) result.fatal = settle_refusals(run, refused);
  if (result.fatal || run.results.has_error(op)) result.stale = false;
  if (result.stale && !executed.empty()) {
    WriteRun::Partly& partly = run.partly[op];
    for (const catalog::ShardIndex shard : executed) partly.shards.insert(shard);
    partly.n += result.n;
  }
  co_return result;
}

// A driver's second attempt at an operation that may have been executed on one of several shards: the shard that
// remembers the statement answers with its earlier result; on the others nothing matches. One that does not answer, or
// refuses, may be the one that remembers it: then it is not executed.
Task<StepOutcome> ask_for_earlier_attempt(WriteRun& run, std::uint32_t op,
                                          const WriteRun::Targeted& write) {
  const BsonDoc nothing = match_nothing();
  const BsonDoc document =
      rewritten(run.command.ops[op], {.query = nothing.view(), .update = {}, .upsert = false});
  const catalog::ShardSet shards = possible_shards(*run.routing, write.statement, write.target);
  ChildMessage message;
  auto outcomes = co_await call_with(run, op, document, shards, message);
  StepOutcome result;
  const auto found = std::find_if(outcomes.begin(), outcomes.end(), found_any);
  if (found != outcomes.end()) {
    result.n = run.results.add_reply({&op, 1}, found->body(), run.shard_name(found->shard));
    co_return result;
  }
  std::vector<Refusal> refused;
  for (const ShardOutcome& outcome : outcomes) {
    if (run.routes->in_cluster()) {
      auto finding = find_stale(run, outcome);
      if (co_await finding) {
        result.stale = true;
        continue;
      }
    }
    if (outcome.ok() && !outcome.body()["writeErrors"].exists()) continue;
    auto error = take_outcome(run, {&op, 1}, outcome, refused);
    if (error && !result.fatal) result.fatal = std::move(error);
    if (run.results.has_error(op)) break;
  }
  if (!result.fatal && !run.results.has_error(op) && !refused.empty()) {
    refused.erase(refused.begin() + 1, refused.end());  // the operation has failed once
    result.fatal = settle_refusals(run, refused);
  }
  if (result.fatal || run.results.has_error(op)) result.stale = false;
  co_return result;
}

// The shards in turn, until one has the document. Stricter than asking all at once: not more than
// one is written.
Task<StepOutcome> write_where_found(WriteRun& run, std::uint32_t op, DocView document,
                                    const catalog::ShardSet& shards) {
  StepOutcome total;
  for (const catalog::ShardIndex shard : shards) {
    const catalog::ShardSet one{shard};
    auto done = co_await step(run, op, document, one);
    total.n += done.n;
    total.fatal = std::move(done.fatal);
    total.stale = done.stale;
    if (total.fatal || total.stale || total.n > 0 || run.results.has_error(op)) break;
  }
  co_return total;
}

// The operation with a filter that also matches nothing: a shard then reports only its errors.
BsonDoc probe_of(const Statement& statement, DocView document) {
  const BsonDoc nothing = match_nothing();
  const BsonDoc query = both_filters(statement.query, nothing);
  return rewritten(document, {.query = query.view(), .update = {}, .upsert = {}});
}

// A find was refused: the client must get the write's own error, so a shard gets the write with a filter that also
// matches nothing.
Task<StepOutcome> refuse_as_shard(WriteRun& run, std::uint32_t op,
                                  const WriteRun::Targeted& write, DocView document,
                                  const Error& why) {
  const BsonDoc probe = probe_of(write.statement, document);
  const catalog::ShardSet first{write.target.shards.front()};
  auto done = co_await step(run, op, probe, first);
  if (!done.fatal && !done.stale && !run.results.has_error(op)) done.fatal = refuse(run, op, why);
  co_return done;
}

// The find that chooses the document has failed.
Task<StepOutcome> fail_choice(WriteRun& run, std::uint32_t op, const WriteRun::Targeted& write,
                              DocView document, const Error& why, bool lost) {
  if (is_stale(why.code)) {
    StepOutcome result{.n = 0, .fatal = {}, .stale = run.may_send_again()};
    if (!result.stale) result.fatal = why;
    co_return result;
  }
  // A shard that has refused a transaction's find has aborted the transaction, and knows no other error any more.
  if (!lost && !run.request->in_transaction) co_return co_await refuse_as_shard(run, op, write, document, why);
  StepOutcome result;
  if (run.command.retryable || run.request->in_transaction) {
    result.fatal = why;
  } else {
    run.results.add_lost({&op, 1}, why, "a shard");
  }
  co_return result;
}

// A multi update that might change keys. One server would stop at the first document whose key changes, with some
// written; here nothing is written then. Concurrent changes are not detected.
Task<StepOutcome> write_all_kept(WriteRun& run, std::uint32_t op, const WriteRun::Targeted& write,
                                 DocView document) {
  const auto kept = kept_filter(run.routing->key, write.statement);
  Statement changing = write.statement;
  BsonDoc others;
  if (kept) {
    BsonWriter nor;
    nor.begin_array("$nor");
    nor.append_item(kept->view());
    nor.end();
    const BsonDoc not_kept = std::move(nor).finish();
    others = both_filters(write.statement.query, not_kept);
    changing.query = others;
  }
  auto choosing = choose_document(run.context, *run.request, run.command.collection, changing,
                                  write.target.shards, run.by(), {});
  const auto chosen = co_await choosing;
  if (chosen.error) {
    co_return co_await fail_choice(run, op, write, document, *chosen.error, chosen.lost);
  }
  if (chosen.choice) {
    co_return StepOutcome{
        .n = 0, .fatal = refuse(run, op, changes_key(run.routing->key, write.statement))};
  }
  const BsonDoc query = both_filters(write.statement.query, kept ? *kept : match_nothing());
  const BsonDoc narrowed = rewritten(document, {.query = query.view(), .update = {}, .upsert = {}});
  const catalog::ShardSet shards = run.shards_left(op, write.target.shards);
  co_return co_await step(run, op, narrowed, shards);
}

Task<StepOutcome> write_chosen(WriteRun& run, std::uint32_t op, const WriteRun::Targeted& write,
                               DocView document) {
  const Statement& statement = write.statement;
  const WriteTarget& target = write.target;
  Choices choices(run.context, run.command.collection, statement, *run.routing, target);
  for (bool again = false;; again = true) {
    // The driver may have sent it again, to another router.
    if (again && run.command.retryable) {
      auto earlier = co_await ask_for_earlier_attempt(run, op, write);
      if (earlier.fatal || earlier.stale || earlier.n > 0 || run.results.has_error(op)) co_return earlier;
    }
    const auto chosen = co_await choices.next(*run.request);
    if (chosen.by_find) co_return co_await fail_choice(run, op, write, document, *chosen.error, chosen.lost);
    if (chosen.error) co_return StepOutcome{.n = 0, .fatal = refuse(run, op, *chosen.error)};
    if (!chosen.found) {
      // No document matches; a shard may still find an error in the operation. The original filter might match by now
      // and write an unchecked document.
      const bool probes = target.check_key || may_meet_orphans(run.context, *run.routing);
      const BsonDoc probe = probes ? probe_of(statement, document) : BsonDoc(document);
      const catalog::ShardSet first{target.shards.front()};
      co_return co_await step(run, op, probe, first);
    }
    const BsonDoc narrowed =
        rewritten(document, {.query = chosen.query.view(), .update = {}, .upsert = {}});
    const catalog::ShardSet owner{chosen.shard};
    auto done = co_await step(run, op, narrowed, owner);
    if (done.fatal || done.stale || done.n > 0 || run.results.has_error(op)) co_return done;
  }
}

Task<StepOutcome> insert_by_upsert(WriteRun& run, std::uint32_t op,
                                            const Statement& statement) {
  auto plan = plan_upsert(*run.routing, statement, make_object_id());
  if (plan.has_error()) co_return StepOutcome{.n = 0, .fatal = refuse(run, op, plan.error())};
  OpRewrite rewrite;
  if (plan->update) rewrite.update = plan->update->view();
  const auto query = query_of_upsert(run.context, *run.routing, statement, *plan);
  if (query) rewrite.query = query->view();
  const BsonDoc document = rewritten(run.command.ops[op], rewrite);
  const catalog::ShardSet owner{plan->shard};
  co_return co_await step(run, op, document, owner);
}

Task<StepOutcome> run_steps(WriteRun& run, std::uint32_t op) {
  const WriteRun::Targeted write = run.targeted(op);
  const WriteTarget& target = write.target;
  // An orphan that a shard finds is not the document.
  const bool finds_orphans = target.route == Route::until_found && may_meet_orphans(run.context, *run.routing);
  const Route route = finds_orphans ? Route::choose : target.route;
  SessionTurns::Turn turn;
  if (run.command.retryable && (route == Route::choose || target.upsert_after)) {
    // An attempt before may be at work yet: what it writes is known to one shard, and asked for only once here.
    auto taken = co_await take_turn(run.context, *run.request);
    if (taken.has_error()) co_return StepOutcome{.n = 0, .fatal = refuse(run, op, taken.error())};
    turn = *std::move(taken);
    auto earlier = co_await ask_for_earlier_attempt(run, op, write);
    if (earlier.fatal || earlier.stale || earlier.n > 0 || run.results.has_error(op)) co_return earlier;
  }
  OpRewrite rewrite;
  if (target.upsert_after) rewrite.upsert = false;
  const BsonDoc document = rewritten(run.command.ops[op], rewrite);
  StepOutcome done;
  if (route == Route::choose) {
    done = co_await write_chosen(run, op, write, document);
  } else if (route == Route::all_kept) {
    done = co_await write_all_kept(run, op, write, document);
  } else if (route == Route::until_found) {
    done = co_await write_where_found(run, op, document, target.shards);
  } else {
    if (target.upsert_after && may_meet_orphans(run.context, *run.routing)) {
      auto choosing = choose_document(run.context, *run.request, run.command.collection, write.statement,
                                      target.shards, run.by(), {});
      const auto chosen = co_await choosing;
      if (chosen.error) co_return co_await fail_choice(run, op, write, document, *chosen.error, chosen.lost);
      // What the update would find is no document.
      if (!chosen.choice && !run.partly.contains(op)) co_return co_await insert_by_upsert(run, op, write.statement);
    }
    const catalog::ShardSet shards = run.shards_left(op, target.shards);
    done = co_await step(run, op, document, shards, write.everywhere);
  }
  if (const auto partly = run.partly.find(op); partly != run.partly.end()) done.n += partly->second.n;
  if (done.fatal || done.stale || done.n > 0 || !target.upsert_after || run.results.has_error(op)) co_return done;
  co_return co_await insert_by_upsert(run, op, write.statement);
}

}  // namespace

Task<std::optional<Error>> run_special(WriteRun& run, std::uint32_t op) {
  // The operation as it is rewritten, and narrowed to a document or sent in a transaction that moves it.
  const auto room = room_for_copies(run.context, run.command.ops[op].size(), 2);
  if (room.has_error()) {
    auto refusing = refuse_for_memory(run, {op}, room.error());
    co_return co_await refusing;
  }
  auto done = co_await run_steps(run, op);
  if (done.stale) {
    run.batch.give_back(op);
    run.stale = true;
  }
  co_return std::move(done.fatal);
}

}  // namespace spillway::exec
