#include "proxy/exec/read/aggregate.h"

#include <fmt/format.h>

#include "absl/container/inlined_vector.h"
#include "absl/hash/hash.h"
#include "cursor/field_table.h"
#include "proxy/auth/crypto.h"
#include "proxy/exec/access/command_rules.h"
#include "proxy/exec/access/transactions.h"
#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/cursors/working_set.h"
#include "proxy/exec/read/change_stream.h"
#include "proxy/exec/read/config_database.h"
#include "proxy/exec/read/find.h"
#include "proxy/exec/read/merge_on_shard.h"
#include "proxy/exec/read/pipeline_stage.h"
#include "proxy/exec/read/statistics_here.h"
#include "proxy/exec/streams/single_shard.h"
#include "proxy/pipeline/split/shape.h"
#include "proxy/pipeline/split/split.h"
#include "proxy/pipeline/split/split_for_merger.h"

namespace spillway::exec {

HandlerFunction count_command, distinct_command, explain_command, file_md5_command, map_reduce_command;
Task<Result<Response>> collectionless_aggregate(Context& context, Client& client, const Request& request,
                                                DocView pipeline);

namespace {

constexpr std::size_t accepted_stages_max = 4096;
// As many as a pipeline of a MongoDB server has stages: each is looked up.
constexpr std::size_t involved_max = 1000;

Result<void> collect(DocView pipeline, std::string_view db, int depth, std::vector<InvolvedNamespace>& into);

// A target written as "coll" or {db, coll}.
void add_target(ValueView target, std::string_view db, std::string_view stage, std::vector<InvolvedNamespace>& into) {
  if (target.is_string()) {
    into.push_back({db, target.as_string(), stage});
  } else if (target.is_document()) {
    const ValueView named_db = target.as_document()["db"];
    const ValueView coll = target.as_document()["coll"];
    if (!coll.is_string()) return;
    into.push_back({named_db.is_string() ? named_db.as_string() : db, coll.as_string(), stage});
  }
}

Result<void> collect_stage(const Element& stage, std::string_view db, int depth,
                           std::vector<InvolvedNamespace>& into) {
  const bool unites = stage.name == "$unionWith";
  if (unites || stage.name == "$lookup" || stage.name == "$graphLookup") {
    const DocView spec = stage.to_document();
    add_target(unites && stage.is_string() ? ValueView(stage) : spec[unites ? "coll" : "from"], db, stage.name, into);
    const ValueView nested = spec["pipeline"];
    return nested.is_array() ? collect(nested.as_document(), db, depth + 1, into) : Result<void>();
  }
  if (stage.name == "$facet") {
    for (const Element& facet : stage.to_document()) {
      if (!facet.is_array()) continue;
      if (auto nested = collect(facet.as_document(), db, depth + 1, into); nested.has_error()) return nested.error();
    }
    return {};
  }
  if (stage.name == "$out") add_target(stage, db, stage.name, into);
  if (stage.name == "$merge") {
    const ValueView named = stage.to_document()["into"];
    add_target(named.exists() ? named : ValueView(stage), db, stage.name, into);
  }
  return {};
}

Result<void> collect(DocView pipeline, std::string_view db, int depth, std::vector<InvolvedNamespace>& into) {
  if (depth > pipeline_nesting_max) return Error(ErrorCode::failed_to_parse, "the pipeline is nested too deeply");
  for (const Element& each : pipeline) {
    const Element stage = each.to_document().first();
    if (auto collected = collect_stage(stage, db, depth, into); collected.has_error()) return collected.error();
    if (into.size() > involved_max) {
      return Error(ErrorCode::failed_to_parse,
                   fmt::format("the pipeline names more than {} collections", involved_max));
    }
  }
  return {};
}

// Arithmetic of what it is given.
bool adds_up(ValueView accumulator) noexcept {
  const Element only = accumulator.to_document().first();
  const bool known = only.name == "$sum" || only.name == "$avg" || only.name == "$count" || only.name == "$push";
  return known && (only.name == "$count" || (!only.is_document() && !only.is_array()));
}

// All documents as one group, summed up.
bool is_total(ValueView group) noexcept {
  if (!group.is_document()) return false;
  for (auto at = group.as_document().begin(); !at.done(); ++at) {
    const bool constant = !at->is_document() && !at->is_array() && !at->is_string();
    if (at->name == "_id" ? !constant : !adds_up(*at)) return false;
  }
  return true;
}

// Is a merge of several shards' results right whatever the collation is? Stages behind a window run here.
bool merges_without_comparing(DocView pipeline) noexcept {
  constexpr FieldTable<8> of_shards({"$match", "$project", "$addFields", "$set", "$unset", "$unwind", "$replaceRoot",
                                     "$replaceWith"});
  bool window = false, total = false;
  for (auto at = pipeline.begin(); !at.done(); ++at) {
    const Element stage = at->to_document().first();
    if (total) return false;
    if (stage.name == "$skip" || stage.name == "$limit") {
      window = true;
    } else if (stage.name == "$count" || (stage.name == "$group" && is_total(stage))) {
      total = true;
    } else if (window || !of_shards.contains(stage.name)) {
      return false;
    }
  }
  return true;
}

// The shards of a cluster sort with the collation, and say what they compared.
bool tell_keys(const Request& request, const Targets& targets, const pipeline::SplitPipeline& divided) noexcept {
  return !targets.simple_collation && divided.merge_sort && divided.window_only && request.routes->in_cluster();
}

BsonDoc scatter_command(const Request& request, DocView shard_part, std::optional<std::int64_t> batch_size,
                        bool shards_tell_keys = false) {
  BsonWriter out;
  copy_command(out, request, {"pipeline", "cursor"});
  out.append_array("pipeline", shard_part);
  out.begin_document("cursor");
  if (batch_size) out.append("batchSize", *batch_size);
  out.end();
  if (shards_tell_keys) out.append("fromMongos", true).append("needsMerge", true);
  return std::move(out).finish();
}

// A stage that only runs here would succeed even if the shards refuse it, and the same pipeline narrowed to one shard
// would fail. So a shard is asked first, once per worker, shard and shape. Its refusal is the answer.
Task<std::optional<Error>> ask_about_unseen(Context& context, Client& client, const Request& request,
                                            const AggregateArguments& aggregate, DocView unseen,
                                            const Targets& targets) {
  const Targets one{{targets.shards.front()}, targets.routing};
  const std::uint64_t question = absl::HashOf(pipeline::shape_of(unseen), targets.shards.front());
  if (context.accepted_stages.contains(question)) co_return std::nullopt;
  ActiveCursor cursor(context, make_cursor(client, request, aggregate.collection, Reservation()));
  const BsonDoc body = scatter_command(request, unseen, std::nullopt);
  auto refused = co_await open_remotes(context, request, *cursor, one, body);
  if (refused) co_return refused;
  if (context.accepted_stages.size() >= accepted_stages_max) context.accepted_stages.clear();
  context.accepted_stages.insert(question);
  co_return std::nullopt;
}

// Merged here. CommandNotSupported (115) for what is not evaluated here.
Task<Result<Response>> aggregate_here(Context& context, Client& client, const Request& request,
                                      const AggregateArguments& aggregate, const Targets& targets) {
  // Two copies: the pipeline for the shards, and the command around it.
  TakeCopyRoom taking_room(context, request, 2);
  SPILLWAY_CO_TRY(room, co_await taking_room);
  SPILLWAY_CO_TRY(divided, split_here(context, request, aggregate, targets));
  const bool shards_tell_keys = tell_keys(request, targets, *divided);
  // The stages pay for themselves (SplitPipeline::parsed).
  const std::size_t sort_bytes = divided->merge_sort ? kept_sort_bytes(*divided->merge_sort) : 0;
  SPILLWAY_CO_TRY(kept, reserve_kept(context, request, aggregate.collection, sort_bytes));
  if (divided->unseen) {
    auto refused = co_await ask_about_unseen(context, client, request, aggregate, *divided->unseen, targets);
    if (refused) co_return *refused;
  }
  ActiveCursor cursor(context, make_cursor(client, request, aggregate.collection, *std::move(kept)));
  if (divided->merge_sort) {
    SPILLWAY_CO_TRY(pattern, SortPattern::parse(*divided->merge_sort));
    cursor->merge.sort = *std::move(pattern);
    cursor->merge.sort_keys = shards_tell_keys ? SortKeySource::sort_key_field : SortKeySource::document;
    // With the keys shards send all metadata that they have: of a text search its score.
    const bool has_score = auth::text_of(aggregate.pipeline.bytes()).find("$text") != std::string_view::npos;
    if (shards_tell_keys) cursor->merge.strip_fields = {"$sortKey"};
    if (shards_tell_keys && has_score) cursor->merge.strip_fields.emplace_back("$textScore");
  }
  if (divided->window_only) {
    cursor->merge.skip_remaining = divided->skip;
    cursor->merge.limit_remaining = divided->limit;
    cursor->batch_size = aggregate.first.size.value_or(0);
  } else {
    cursor->stage = std::make_unique<PipelineStage>(std::move(divided->merge), std::move(divided->parsed),
                                                    context.shared.memory.cursors);
  }
  // What a stage here reads has another size than what the client asks for.
  FirstBatch of_shards = divided->window_only ? aggregate.first : FirstBatch();
  expect_output(context, *cursor, divided->shard_part);
  const FirstReplies first = first_replies(context, *cursor, of_shards.documents_max(), targets.shards.size());
  if (auto refused = refuse_new_merge(context, client, *cursor, first, targets.shards.size())) {
    co_return *std::move(refused);
  }
  if (first.documents < of_shards.documents_max()) of_shards.size = first.documents;
  BsonDoc body = scatter_command(request, divided->shard_part, of_shards.size, shards_tell_keys);
  auto failed = co_await open_remotes(context, request, *cursor, targets, body, first);
  if (failed) co_return *failed;
  body = BsonDoc();
  divided->shard_part = BsonDoc();
  room->release();
  auto answering = answer_first_batch(context, std::move(cursor), aggregate.first, request);
  co_return co_await answering;
}

Task<Result<Response>> aggregate_on_many(Context& context, Client& client, const Request& request,
                                         const AggregateArguments& aggregate, const AggregatePlan& plan) {
  if (auto valid = aggregate.pipeline.validate(); valid.has_error()) co_return valid.error();
  if (!context.in_cluster() && pipeline::is_statistics_stage(first_stage_name(aggregate.pipeline))) {
    co_return co_await statistics_here(context, client, request, aggregate, plan.targets);
  }
  Error refusal(ErrorCode::command_not_supported, "");
  if (!plan.merger.any()) {
    auto answer = co_await aggregate_here(context, client, request, aggregate, plan.targets);
    const bool refused = answer.has_error() && answer.error().is(ErrorCode::command_not_supported);
    if (!refused || !context.in_cluster()) co_return answer;
    refusal = std::move(answer.error());
  }
  auto running = aggregate_on_shards(context, client, request, aggregate, plan, std::move(refusal));
  co_return co_await running;
}

// Stages that no collection has: what shards say to them.
Result<void> check_collection(const Request& request, const AggregateArguments& aggregate) {
  const std::string_view stage = first_stage_name(aggregate.pipeline);
  if (stage == "$currentOp") {
    return Error(ErrorCode::invalid_namespace,
                 "$currentOp must be run against the 'admin' database with {aggregate: 1}");
  }
  if (stage == "$listLocalSessions") {
    return Error(ErrorCode::invalid_namespace,
                 "$listLocalSessions must be run against the database with {aggregate: 1}, not a collection");
  }
  if (stage == "$listSessions" && (request.db != "config" || aggregate.collection != "system.sessions"))
    return Error(ErrorCode::invalid_namespace, "$listSessions may only be run against config.system.sessions");
  return {};
}

bool lists_sessions(const Request& request, const AggregateArguments& aggregate) noexcept {
  return first_stage_name(aggregate.pipeline) == "$listSessions" && request.db == "config" &&
         aggregate.collection == "system.sessions";
}

// Stages about a server, or about more than a collection: a shard may answer them if it is the only one.
bool is_for_only_shard(const Request& request, const AggregateArguments& aggregate) noexcept {
  if (request.routes->all_shards().size() != 1) return false;
  const std::string_view stage = first_stage_name(aggregate.pipeline);
  if (aggregate.collection.empty()) return stage == "$changeStream" || stage == "$documents";
  return lists_sessions(request, aggregate);
}

// Any shard has them, where there is no database yet; stages that follow name collections of it.
Targets targets_of_documents(const Request& request) {
  const catalog::Database* const database = request.routes->database(request.db);
  const catalog::ShardSet all = request.routes->all_shards();
  return {{database == nullptr ? all.front() : database->primary}, nullptr, database};
}

// The shard says then which one it speaks of.
shard::Command as_router(const Request& request, BsonDoc& scratch) {
  BsonWriter out;
  copy_command(out, request, {"fromMongos"});
  scratch = std::move(out.append("fromMongos", true)).finish();
  return shard::Command::of_body(scratch);
}

Task<Result<Response>> aggregate_on_one(Context& context, Client& client, const Request& request,
                                        const AggregateArguments& aggregate, catalog::ShardIndex shard, RoutedBy by) {
  CursorSeed seed{client, request, aggregate.collection.empty() ? "$cmd.aggregate" : aggregate.collection};
  seed.writes = ends_in_write(aggregate.pipeline) || request.body["writeConcern"].exists();
  seed.batch_size = aggregate.first.size.value_or(0);
  seed.first_batch_documents = aggregate.first.documents_max();
  // Its getMores wait for events, up to their maxTimeMS.
  seed.change_stream = seed.tailable = seed.await_data = opens_change_stream(request.body);
  // With that, a shard would take $merge's fields on trust.
  const bool of_shard = context.in_cluster() && last_stage(aggregate.pipeline).name != "$merge" &&
                        pipeline::is_statistics_stage(first_stage_name(aggregate.pipeline));
  SPILLWAY_CO_TRY(room, of_shard ? room_for_copies(context, request.body.size(), 1) : room_for_copy(context, request));
  BsonDoc scratch;
  const shard::Command command = of_shard ? as_router(request, scratch) : forward_command(request, scratch);
  auto opening = open_on_one_shard(context, seed, {shard, by, command}, true);
  co_return co_await opening;
}

Task<Result<Response>> run_aggregate(Context& context, Client& client, const Request& request) {
  SPILLWAY_CO_TRY(parsed, parse_aggregate(request.body));
  const AggregateArguments& aggregate = *parsed;
  if (context.in_cluster()) {
    if (auto checked = refuse_router_options(request.body); checked.has_error()) co_return std::move(checked.error());
  }
  if (aggregate.explain) {
    co_return co_await explain_command(context, client, request);
  }
  SPILLWAY_CO_TRY(judged, refuse_unjudged(context, aggregate.pipeline));
  if (context.in_cluster() && opens_change_stream(request.body)) {
    co_return co_await open_change_stream(context, client, request, aggregate);
  }
  if (context.in_cluster() && aggregate.collection.empty() && first_stage_name(aggregate.pipeline) == "$documents") {
    const Targets targets = targets_of_documents(request);
    SPILLWAY_CO_TRY(checked, co_await check_transaction(context, request, targets.shards));
    const RoutedBy by = targets.database == nullptr ? RoutedBy::nothing() : RoutedBy::database(targets.database);
    co_return co_await aggregate_on_one(context, client, request, aggregate, targets.shards.front(), by);
  }
  if (is_for_only_shard(request, aggregate)) {
    const catalog::ShardSet only = request.routes->all_shards();
    SPILLWAY_CO_TRY(checked, co_await check_transaction(context, request, only));
    co_return co_await aggregate_on_one(context, client, request, aggregate, only.front(), RoutedBy::nothing());
  }
  if (aggregate.collection.empty()) {
    co_return co_await collectionless_aggregate(context, client, request, aggregate.pipeline);
  }
  if (auto checked = check_collection(request, aggregate); checked.has_error()) co_return std::move(checked.error());
  if (!context.in_cluster() && lists_sessions(request, aggregate)) {
    const Targets all{request.routes->all_shards()};
    SPILLWAY_CO_TRY(checked, co_await check_transaction(context, request, all.shards));
    co_return co_await statistics_here(context, client, request, aggregate, all);
  }
  if (reads_own_config(request)) {
    co_return co_await config_aggregate(context, client, request);
  }
  SPILLWAY_CO_TRY(plan, plan_aggregate(context, request, aggregate));
  SPILLWAY_CO_TRY(checked, co_await check_transaction(context, request, plan->targets.shards));
  count_targets(context.shared.metrics.aggregate, plan->targets);
  if (!plan->whole) {
    co_return co_await aggregate_on_many(context, client, request, aggregate, *plan);
  }
  const catalog::CollectionRouting* const routing = plan->targets.routing;
  const RoutedBy by = routing != nullptr ? RoutedBy::sharded(*routing, plan->merger.database) : plan->targets.by();
  co_return co_await aggregate_on_one(context, client, request, aggregate, plan->targets.shards.front(), by);
}

}  // namespace

Result<pipeline::SplitPipeline> split_here(Context& context, const Request& request,
                                           const AggregateArguments& aggregate, const Targets& targets) {
  SPILLWAY_TRY(divided, pipeline::split(aggregate.pipeline, {.let = aggregate.let,
                                                             .budget = &context.shared.memory.cursors,
                                                             .refuse_partial = shards_may_merge(context)}));
  const bool compares = divided->merge_sort || !merges_without_comparing(aggregate.pipeline);
  if (!targets.simple_collation && compares && !tell_keys(request, targets, *divided)) {
    return Error(ErrorCode::command_not_supported,
                 "an aggregation with a collation cannot be merged from several shards");
  }
  if (!divided->window_only && aggregate.allow_disk_use && shards_may_merge(context)) {
    return Error(ErrorCode::command_not_supported, "stages that may use the disk are for shards");
  }
  return divided;
}

bool lies_on(const Routes& routes, const InvolvedNamespace& ns, catalog::ShardIndex shard) {
  const auto* routing = routes.collection(NamespaceText(ns.db, ns.collection).view());
  if (routing == nullptr) return routes.primary_shard(ns.db) == shard;
  return routing->all_shards().size() == 1 && routing->all_shards().front() == shard;
}

Result<std::vector<InvolvedNamespace>> involved_namespaces(DocView pipeline, std::string_view db) {
  std::vector<InvolvedNamespace> all;
  if (auto collected = collect(pipeline, db, 0, all); collected.has_error()) return collected.error();
  return all;
}

DocView leading_match(DocView pipeline) noexcept {
  const Element stage = pipeline.first().to_document().first();
  return stage.name == "$match" ? stage.to_document() : DocView();
}

namespace {

// Of all stages $match before the first one that changes documents or leaves some out: a view's own stands before the
// client's.
DocView leading_matches(DocView pipeline, BsonDoc& scratch) {
  absl::InlinedVector<DocView, 4> filters;
  for (auto at = pipeline.begin(); !at.done(); ++at) {
    const Element stage = at->to_document().first();
    if (stage.name == "$sort") continue;
    if (stage.name != "$match" || !stage.is_document()) break;
    filters.push_back(stage.as_document());
  }
  if (filters.empty()) return {};
  if (filters.size() == 1) return filters.front();
  BsonWriter all;
  all.begin_array("$and");
  for (const DocView filter : filters) all.append_item(filter);
  all.end();
  scratch = std::move(all).finish();
  return scratch.view();
}

}  // namespace

std::string_view first_stage_name(DocView pipeline) noexcept {
  return pipeline.first().to_document().first().name;
}

Result<void> refuse_unjudged(const Context& context, DocView pipeline) {
  const std::string_view stage = first_stage_name(pipeline);
  if (!context.shared.authorization || !is_unjudged_stage(stage)) return {};
  return Error(ErrorCode::command_not_supported, fmt::format("the pipeline stage {} is not supported", stage));
}

bool opens_change_stream(DocView body) noexcept {
  return first_stage_name(body["pipeline"].to_array()) == "$changeStream";
}

Element last_stage(DocView pipeline) noexcept {
  Element last;
  for (auto at = pipeline.begin(); !at.done(); ++at) {
    last = at->to_document().first();
  }
  return last;
}

bool ends_in_write(DocView pipeline) noexcept {
  const std::string_view stage = last_stage(pipeline).name;
  return stage == "$out" || stage == "$merge";
}

Result<AggregateArguments> parse_aggregate(DocView body) {
  AggregateArguments aggregate;
  const Element target = body.first();
  if (target.is_string()) {
    aggregate.collection = target.as_string();
    if (aggregate.collection.empty() || aggregate.collection.starts_with('.'))
      return Error(ErrorCode::invalid_namespace, "Invalid namespace specified");
  } else if (!target.is_number()) {
    return Error(ErrorCode::type_mismatch,
                 fmt::format("collection name has invalid type: {}", bson_type_name(target.type)));
  } else if (target.to_double() != 1.0) {
    return Error(ErrorCode::failed_to_parse,
                 "Invalid command format: the 'aggregate' field must specify a collection name or 1");
  }
  const ValueView pipeline = body["pipeline"];
  if (!pipeline.is_array()) {
    if (!pipeline.exists()) return missing_field("aggregate.pipeline");
    return Error(ErrorCode::type_mismatch, "'pipeline' option must be specified as an array");
  }
  aggregate.pipeline = pipeline.as_document();
  aggregate.explain = body["explain"].truthy();
  aggregate.allow_disk_use = body["allowDiskUse"].truthy();
  const ValueView cursor = body["cursor"];
  if (cursor.exists() && !cursor.is_document()) {
    return Error(ErrorCode::type_mismatch, "cursor field must be missing or an object");
  }
  if (!cursor.exists() && !aggregate.explain) {
    return Error(ErrorCode::failed_to_parse,
                 "The 'cursor' option is required, except for aggregate with the explain argument");
  }
  if (cursor.exists()) {
    for (const Element& option : cursor.as_document()) {
      if (option.name != "batchSize") {
        return Error(ErrorCode::bad_value, "cursor object can't contain fields other than batchSize");
      }
    }
    const ValueView batch = cursor.as_document()["batchSize"];
    if (batch.exists() && !batch.is_null()) {
      if (!batch.is_number()) return Error(ErrorCode::type_mismatch, "cursor.batchSize field must be a number");
      aggregate.first.size = *number_argument("batchSize", batch);
      if (*aggregate.first.size < 0) return negative_argument("batchSize", *aggregate.first.size);
    }
  }
  aggregate.let = body["let"].to_document();
  aggregate.collation = body["collation"];
  return aggregate;
}

Result<AggregatePlan> plan_aggregate(const Context& context, const Request& request,
                                     const AggregateArguments& aggregate) {
  AggregatePlan plan;
  if (context.in_cluster() && aggregate.collection.empty() && first_stage_name(aggregate.pipeline) == "$documents") {
    plan.targets = targets_of_documents(request);
    plan.whole = true;
    return plan;
  }
  BsonDoc scratch;
  const DocView filter = leading_matches(aggregate.pipeline, scratch);
  SPILLWAY_TRY(targets, read_targets(request, request.db, aggregate.collection, filter, aggregate.collation));
  plan.targets = *std::move(targets);
  SPILLWAY_TRY(involved, involved_namespaces(aggregate.pipeline, request.db));
  const bool one = plan.targets.shards.size() == 1;
  if (shards_may_merge(context)) {
    SPILLWAY_TRY(needs, merger_needs(context, request, aggregate.pipeline, *involved));
    plan.merger = *needs;
    const bool elsewhere = plan.merger.shard && *plan.merger.shard != plan.targets.shards.front();
    plan.whole = one && !elsewhere && !plan.merger.divided;
    return plan;
  }
  if (!one) return plan;
  plan.whole = true;
  for (const InvolvedNamespace& ns : *involved) {
    if (lies_on(*request.routes, ns, plan.targets.shards.front())) continue;
    return Error(ErrorCode::command_not_supported,
                 fmt::format("{} on {}.{} is not supported: that collection does not lie wholly on the shard that "
                             "runs the aggregation",
                             ns.stage, ns.db, ns.collection));
  }
  return plan;
}

std::span<const CommandSpec> aggregate_commands() {
  using auth::Action;
  using enum RouteNeed;
  using enum Trait;
  static constexpr CommandSpec specs[] = {
      {"aggregate", "run an aggregation pipeline", run_aggregate, by_rule(may_aggregate),
       in_transaction | secondary_ok | opens_cursor | stable, pipeline},
      {"count", "count documents", count_command, on_collection(Action::find), secondary_ok | stable, collection},
      {"distinct", "the distinct values of a field", distinct_command, on_collection(Action::find),
       in_transaction | secondary_ok, collection},
      {"explain", "explain a command's plan", explain_command, by_rule(may_explain), secondary_ok | stable, explained},
      {"filemd5", "deprecated: the checksum of a file of GridFS", file_md5_command, by_rule(may_sum_file),
       secondary_ok, file},
      {"mapReduce", "deprecated: aggregate by scripts", map_reduce_command, by_rule(may_map_reduce), {}, pipeline},
      {"mapreduce", "older name of mapReduce", map_reduce_command, by_rule(may_map_reduce), {}, pipeline},
  };
  return specs;
}

}  // namespace spillway::exec
