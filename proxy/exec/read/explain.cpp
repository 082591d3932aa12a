// explain: the inner command has the same targets as when it is run; the plan names its shards.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "allocator/limits.h"
#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/cluster_fields.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/wire_version.h"
#include "proxy/exec/counters/process_facts.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/read/aggregate.h"
#include "proxy/exec/read/find.h"
#include "proxy/exec/read/map_reduce.h"
#include "proxy/exec/read/merge_on_shard.h"
#include "proxy/exec/sharding/router_answers.h"
#include "proxy/pipeline/split/split.h"
#include "proxy/pipeline/split/split_for_merger.h"

namespace spillway::exec {

namespace {

// The two halves of an aggregation, and where the second runs.
struct ExplainHalves {
  std::string_view merge_type;
  BsonDoc shard_part, merge_part;
  bool needs_merge = false;
};

// The command to explain, and its shards.
struct ExplainPlan {
  Targets targets;
  BsonDoc inner;            // the command for the shards
  // The command as the client sent it, if a shard would run a second half: to explain the first halves reads no word of
  // that, so one shard is asked whether it takes the whole. Otherwise empty.
  BsonDoc whole;
  std::string_view stage;   // of the winning plan
  bool aggregate = false;
  std::optional<ExplainHalves> divided;
};

bool is_write(std::string_view name) noexcept {
  return name == "update" || name == "delete" || name == "findAndModify" || name == "findandmodify";
}

// What chooses the documents of a command.
struct Selection {
  DocView filter;
  ValueView collation;
};

// Of the one operation of an update or delete: exactly one is explained.
Result<Selection> write_selection(DocView inner) {
  const std::string_view name = inner.first().name;
  if (name == "findAndModify" || name == "findandmodify") {
    return Selection{inner["query"].to_document(), inner["collation"]};
  }
  const ValueView operations = inner[name == "update" ? "updates" : "deletes"];
  if (!operations.is_array() || operations.as_document().count() != 1) {
    return Error(ErrorCode::invalid_length, "explained write batches must be of size 1");
  }
  const Element first = operations.as_document().first();
  if (!first.is_document()) return Selection();
  return Selection{first.as_document()["q"].to_document(), first.as_document()["collation"]};
}

std::string_view stage_name(std::string_view command, const Targets& targets, bool sorted) noexcept {
  const bool one = targets.shards.size() == 1;
  if (command == "update" || command == "delete" || (is_write(command) && !one)) return "SHARD_WRITE";
  if (one) return "SINGLE_SHARD";
  return sorted ? "SHARD_MERGE_SORT" : "SHARD_MERGE";
}

// May the router merge it?
enum class Here : std::uint8_t { yes, no };

Result<ExplainHalves> explain_halves(Context& context, const Request& request, const AggregateArguments& aggregate,
                                     const AggregatePlan& plan, Here here_too) {
  Error refusal(ErrorCode::command_not_supported, "");
  if (here_too == Here::yes && !plan.merger.any()) {
    auto here = context.in_cluster()
                    ? split_here(context, request, aggregate, plan.targets)
                    : pipeline::split(aggregate.pipeline, {aggregate.let, &context.shared.memory.cursors});
    if (!here.has_error()) return ExplainHalves{"mongos", std::move(here->shard_part), std::move(here->merge_part)};
    refusal = std::move(here.error());
    if (!refusal.is(ErrorCode::command_not_supported) || !context.in_cluster()) return refusal;
  }
  SPILLWAY_TRY(divided, pipeline::split_for_merger(aggregate.pipeline));
  ExplainHalves halves{"mongos", std::move(divided->shard_part), std::move(divided->merge_part), divided->needs_merge};
  if (halves.merge_part.view().empty() && divided->merge_sort.view().empty()) return halves;
  if (!shards_may_merge(context)) return refusal;
  halves.merge_type = plan.merger.shard ? "primaryShard" : "anyShard";
  return halves;
}

Result<ExplainPlan> plan_aggregate_explain(Context& context, const Request& request, DocView inner, Here here_too) {
  ExplainPlan plan;
  plan.aggregate = true;
  BsonWriter with_cursor;
  with_cursor.append_elements(inner);
  if (!inner["cursor"].exists()) with_cursor.begin_document("cursor").end();
  plan.inner = std::move(with_cursor).finish();
  SPILLWAY_TRY(aggregate, parse_aggregate(plan.inner));
  SPILLWAY_TRY(judged, refuse_unjudged(context, aggregate->pipeline));
  SPILLWAY_TRY(planned, plan_aggregate(context, request, *aggregate));
  plan.targets = planned->targets;
  if (planned->whole) return plan;
  if (auto valid = aggregate->pipeline.validate(); valid.has_error()) return valid.error();
  SPILLWAY_TRY(divided, explain_halves(context, request, *aggregate, *planned, here_too));
  plan.divided = *std::move(divided);
  if (plan.divided->merge_type != "mongos") plan.whole = BsonDoc(plan.inner.view());
  BsonWriter out;
  for (auto at = plan.inner.view().begin(); !at.done(); ++at) {
    if (at->name == "pipeline") {
      out.append_array("pipeline", plan.divided->shard_part);
    } else {
      out.append_element(*at);
    }
  }
  if (plan.divided->needs_merge) out.append("fromMongos", true).append("needsMerge", true);
  plan.inner = std::move(out).finish();
  return plan;
}

Error not_explained(std::string_view command) {
  return Error(ErrorCode::illegal_operation, fmt::format("Cannot explain cmd: {}", command));
}

// One shard explains it as it is; of several, the aggregation that they make of it.
Result<ExplainPlan> plan_map_reduce_explain(Context& context, const Request& request, DocView inner) {
  SPILLWAY_TRY(collection, collection_argument(inner));
  Targets targets = shards_with_chunks(*request.routes, request.db, NamespaceText(request.db, *collection).view());
  if (targets.routing == nullptr) {
    ExplainPlan plan;
    plan.aggregate = true;
    plan.inner = BsonDoc(inner);
    plan.targets = std::move(targets);
    return plan;
  }
  if (!shards_divide_map_reduce(context, targets)) return not_explained(inner.first().name);
  const InvolvedNamespace output = map_reduce_output(inner, request.db);
  if (auto checked = check_map_reduce_output(inner, output, true); checked.has_error())
    return std::move(checked.error());
  SPILLWAY_TRY(aggregation, map_reduce_aggregation(context, inner, output));
  return plan_aggregate_explain(context, request, *aggregation, Here::no);
}

Result<ExplainPlan> plan_explain(Context& context, const Request& request, DocView inner) {
  const Element command = inner.first();
  if (is_map_reduce(command.name)) return plan_map_reduce_explain(context, request, inner);
  if (command.name == "aggregate") {
    if (context.in_cluster()) {
      if (auto checked = refuse_router_options(inner); checked.has_error()) return std::move(checked.error());
    }
    return plan_aggregate_explain(context, request, inner, Here::yes);
  }
  ExplainPlan plan;
  plan.inner = BsonDoc(inner);
  const bool explained = is_write(command.name) || command.name == "find" || command.name == "count" ||
                         command.name == "distinct";
  if (!explained && command_named(command.name) != nullptr) {
    return not_explained(command.name);
  }
  if (!explained) {
    return Error(ErrorCode::command_not_found, fmt::format("Explain failed due to unknown command: {}", command.name));
  }
  if (!command.is_string()) return no_collection(command);
  Selection selection{{}, inner["collation"]};
  bool sorted = false;
  if (command.name == "find") {
    SPILLWAY_TRY(find, parse_find(inner));
    selection.filter = find->filter;
    sorted = !find->sort.empty();
  } else if (command.name == "count" || command.name == "distinct") {
    selection.filter = inner["query"].to_document();
  } else {
    SPILLWAY_TRY(of_write, write_selection(inner));
    selection = *of_write;
  }
  SPILLWAY_TRY(targets, read_targets(request, request.db, command.as_string(), selection.filter, selection.collation));
  plan.targets = *std::move(targets);
  plan.stage = stage_name(command.name, plan.targets, sorted);
  return plan;
}

// From 6.0 on servers also say which limits they have. This router has none of those: the first shard's stand there.
void append_server_info(BsonWriter& out, const Context& context, const ShardOutcomes& outcomes) {
  const std::string& host = context.shared.facts.host_name;
  const std::size_t colon = host.rfind(':');
  out.begin_document("serverInfo");
  out.append("host", std::string_view(host).substr(0, colon));
  out.append("port", static_cast<std::int32_t>(std::strtol(host.c_str() + colon + 1, nullptr, 10)));
  out.append("version", emulated_version(context.gateway));
  out.append("gitVersion", "spillway");
  out.end();
  const ValueView parameters = outcomes.empty() ? ValueView() : outcomes.front().body()["serverParameters"];
  if (parameters.is_document()) out.append("serverParameters", parameters);
}

constexpr std::string_view is_cut = "output truncated due to nearing BSON max user size";

// What shards say of their plans may repeat the command many times. Up to this size of the reply it is shown; the rest
// is for what the router adds for each shard.
std::size_t shown_bytes_max(const ShardOutcomes& outcomes) noexcept {
  constexpr std::size_t bytes_per_shard = 1 * limits::kib, bytes_around = 16 * limits::kib;
  static_assert(bytes_per_shard * limits::shards_max + bytes_around < limits::document_bytes_max / 2);
  return limits::document_bytes_max - bytes_around - bytes_per_shard * outcomes.size();
}

// The fields that `wanted` says; a note instead of those for which there is no room. False: there is one.
template <class Wanted>
bool append_shown(BsonWriter& out, DocView fields, std::size_t bytes_max, Wanted wanted) {
  bool cut = false;
  for (const Element& field : fields) {
    if (!wanted(field.name)) continue;
    if (out.size() + field.name.size() + field.bytes.size() + 2 <= bytes_max) {
      out.append_element(field);
    } else if (!std::exchange(cut, true)) {
      out.append("warning", is_cut);
    }
  }
  return !cut;
}

void append_command(BsonWriter& out, DocView command, std::size_t bytes_max) {
  if (out.size() + command.size() <= bytes_max) {
    out.append("command", command);
  } else {
    out.append("warning", is_cut);
  }
}

void append_shard(BsonWriter& out, const Context& context, const Routes& routes, const ShardOutcome& outcome,
                  std::size_t bytes_max) {
  out.begin_document_item();
  out.append("shardName", routes.shard(outcome.shard).name);
  out.append("connectionString", connection_string_of(context.gateway.states()[outcome.shard]));
  if (append_shown(out, outcome.body(), bytes_max, [](std::string_view name) { return name == "serverInfo"; })) {
    append_shown(out, outcome.body()["queryPlanner"].to_document(), bytes_max, [](auto) { return true; });
  }
  out.end();
}

std::int64_t number(ValueView value) { return value.to_int64().value_or(0); }

void append_all_plans(BsonWriter& out, const Routes& routes, const ShardOutcomes& outcomes, std::size_t bytes_max) {
  out.begin_array("allPlansExecution");
  for (const ShardOutcome& outcome : outcomes) {
    out.begin_document_item();
    out.append("shardName", routes.shard(outcome.shard).name);
    out.begin_array("allPlans");
    for (const Element& plan : outcome.body().find_path("executionStats.allPlansExecution").to_array()) {
      if (out.size() + plan.bytes.size() <= bytes_max) {
        out.append_item(ValueView(plan));
        continue;
      }
      out.begin_document_item().append("warning", is_cut).end();
      break;
    }
    out.end().end();
  }
  out.end();
}

void append_execution(BsonWriter& out, const Routes& routes, const ExplainPlan& plan, const ShardOutcomes& outcomes,
                      Duration taken, std::size_t bytes_max) {
  std::int64_t returned = 0, child_millis = 0, keys = 0, docs = 0;
  bool any = false, all_plans = false;
  for (const ShardOutcome& outcome : outcomes) {
    const ValueView value = outcome.body()["executionStats"];
    if (!value.is_document()) continue;
    const DocView stats = value.as_document();
    any = true;
    all_plans = all_plans || stats["allPlansExecution"].is_array();
    returned += number(stats["nReturned"]);
    child_millis += number(stats["executionTimeMillis"]);
    keys += number(stats["totalKeysExamined"]);
    docs += number(stats["totalDocsExamined"]);
  }
  if (!any) return;
  const std::int64_t millis = std::chrono::duration_cast<std::chrono::milliseconds>(taken).count();
  const auto totals = [&] {
    append_count(out, "nReturned", returned);
    append_count(out, "executionTimeMillis", millis);
    append_count(out, "totalKeysExamined", keys);
    append_count(out, "totalDocsExamined", docs);
  };
  out.begin_document("executionStats");
  totals();
  out.begin_document("executionStages");
  out.append("stage", plan.stage);
  totals();
  out.append("totalChildMillis", child_millis);
  out.begin_array("shards");
  for (const ShardOutcome& outcome : outcomes) {
    out.begin_document_item();
    out.append("shardName", routes.shard(outcome.shard).name);
    append_shown(out, outcome.body()["executionStats"].to_document(), bytes_max,
                 [](std::string_view name) { return name != "allPlansExecution"; });
    out.end();
  }
  out.end().end();
  if (all_plans) append_all_plans(out, routes, outcomes, bytes_max);
  out.end();
}

BsonDoc plan_reply(const Context& context, const Routes& routes, const ExplainPlan& plan, const ShardOutcomes& outcomes,
                   DocView inner, Duration taken) {
  const std::size_t bytes_max = shown_bytes_max(outcomes);
  BsonWriter reply;
  reply.begin_document("queryPlanner");
  reply.append("mongosPlannerVersion", std::int32_t{1});
  reply.begin_document("winningPlan").append("stage", plan.stage);
  reply.begin_array("shards");
  for (const ShardOutcome& outcome : outcomes) append_shard(reply, context, routes, outcome, bytes_max);
  reply.end().end().end();
  append_execution(reply, routes, plan, outcomes, taken, bytes_max);
  append_server_info(reply, context, outcomes);
  append_command(reply, inner, bytes_max);
  return ok_document(std::move(reply));
}

// The first shard's, which it made larger than a document may be.
BsonDoc cut_reply(const ShardOutcomes& outcomes) {
  BsonWriter reply;
  append_shown(reply, outcomes.front().body(), shown_bytes_max(outcomes),
               [](std::string_view name) { return name != "ok" && !is_stripped_from_reply(name); });
  return ok_document(std::move(reply));
}

BsonDoc aggregate_reply(const Context& context, const Routes& routes, const ExplainPlan& plan,
                        const ShardOutcomes& outcomes, DocView inner) {
  const std::size_t bytes_max = shown_bytes_max(outcomes);
  BsonWriter reply;
  append_server_info(reply, context, outcomes);
  if (!plan.divided) {
    reply.append_null("splitPipeline");
  } else {
    reply.append("mergeType", plan.divided->merge_type);
    reply.begin_document("splitPipeline");
    if (plan.divided->shard_part.size() + plan.divided->merge_part.size() <= bytes_max / 2) {
      reply.append_array("shardsPart", plan.divided->shard_part);
      reply.append_array("mergerPart", plan.divided->merge_part);
    } else {
      reply.append("warning", is_cut);
    }
    reply.end();
  }
  reply.begin_document("shards");
  for (const ShardOutcome& outcome : outcomes) {
    reply.begin_document(routes.shard(outcome.shard).name);
    reply.append("host", outcome.reply.host.text());
    append_shown(reply, outcome.body(), bytes_max,
                 [](std::string_view name) { return name != "ok" && !is_stripped_from_reply(name); });
    reply.end();
  }
  reply.end();
  append_command(reply, inner, bytes_max);
  return ok_document(std::move(reply));
}

// The inner command and the verbosity, of {explain: …} and of {aggregate: …, explain: true}.
struct Explained {
  BsonDoc inner;
  std::string verbosity = "allPlansExecution";
};

Result<Explained> subject_of(const Request& request) {
  Explained subject;
  if (request.name == "aggregate") {
    BsonWriter out;
    out.append_elements(request.body, [](std::string_view name) {
      return name != "explain" && !is_argument_of_any_command(name);
    });
    subject.inner = out.finish();
    subject.verbosity = "queryPlanner";
    return subject;
  }
  const Element inner = request.body.first();
  if (!inner.is_document()) return wrong_type("explain.explain", inner, "object");
  subject.inner = BsonDoc(inner.as_document());
  if (auto checked = check_explained_database(request.db, subject.inner); checked.has_error()) return checked.error();
  const ValueView verbosity = request.body["verbosity"];
  if (verbosity.exists()) {
    if (!verbosity.is_string() ||
        (verbosity.as_string() != "queryPlanner" && verbosity.as_string() != "executionStats" &&
         verbosity.as_string() != "allPlansExecution")) {
      return Error(ErrorCode::bad_value,
                   "verbosity string must be one of {'queryPlanner', 'executionStats', 'allPlansExecution'}");
    }
    subject.verbosity = verbosity.as_string();
  }
  return subject;
}

BsonDoc explain_of(DocView command, std::string_view verbosity, const Request& request) {
  BsonWriter body;
  body.append("explain", command);
  body.append("verbosity", verbosity);
  // Shards look at those outside only; those of the explained command count, as at a mongos.
  const auto inner = [command](std::string_view name) { return command[name].exists() ? name : std::string_view(); };
  append_generic_arguments(body, request, {inner("maxTimeMS"), inner("readConcern"), inner("comment")});
  for (const std::string_view name : {"maxTimeMS", "readConcern", "comment"}) body.append(name, command[name]);
  return std::move(body).finish();
}

// Not nullopt: why a shard refuses the whole command.
Task<std::optional<Error>> ask_about_whole(Context& context, const Request& request, const ExplainPlan& plan) {
  const BsonDoc command = explain_of(plan.whole, "queryPlanner", request);
  const ShardCommand asked{plan.targets.shards.front(), plan.targets.by(), shard::Command::of_body(command)};
  auto call = call_shard(context, asked, read_options(context, request));
  ShardOutcome outcome = co_await call;
  co_return std::move(outcome.error);
}

}  // namespace

Task<Result<Response>> explain_command(Context& context, Client&, const Request& request) {
  // Four copies: the explained command from the client, whole and divided for the shards, and the command around it.
  TakeCopyRoom taking_room(context, request, 4);
  SPILLWAY_CO_TRY(room, co_await taking_room);
  SPILLWAY_CO_TRY(subject, subject_of(request));
  SPILLWAY_CO_TRY(plan, plan_explain(context, request, subject->inner));
  if (!plan->whole.view().empty()) {
    auto refused = co_await ask_about_whole(context, request, *plan);
    if (refused) co_return *std::move(refused);
    plan->whole = BsonDoc();
  }
  const BsonDoc command = explain_of(plan->inner, subject->verbosity, request);
  auto calls = call_shards(context, plan->targets.shards, plan->targets.by(), shard::Command::of_body(command),
                           read_options(context, request));
  const TimePoint begun = Clock::now();
  auto outcomes = co_await calls;
  for (const ShardOutcome& outcome : outcomes) {
    if (outcome.error) co_return *outcome.error;
  }
  if (!plan->aggregate) {
    co_return Response(plan_reply(context, *request.routes, *plan, outcomes, subject->inner, Clock::now() - begun));
  }
  // Of a collection that is not sharded the shard explains the whole.
  if (!plan->divided && plan->targets.routing == nullptr) {
    if (outcomes.front().body().size() > limits::internal_document_bytes_max) co_return Response(cut_reply(outcomes));
    co_return passthrough_ok(std::move(outcomes.front().reply));
  }
  co_return Response(aggregate_reply(context, *request.routes, *plan, outcomes, subject->inner));
}

}  // namespace spillway::exec
