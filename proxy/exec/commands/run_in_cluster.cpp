#include "proxy/exec/commands/run_in_cluster.h"

#include <fmt/format.h>

#include <utility>

#include "cursor/field_table.h"
#include "proxy/exec/access/transactions.h"
#include "proxy/exec/commands/route_names.h"
#include "proxy/exec/commands/sharded_view.h"
#include "proxy/exec/commands/snapshot_read.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/cluster_fields.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/repeat.h"
#include "proxy/exec/core/shard_call.h"
#include "proxy/exec/core/stale.h"
#include "proxy/exec/core/wire_version.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/read/aggregate.h"
#include "proxy/exec/sharding/run_by_form.h"
#include "proxy/pipeline/split/run.h"

namespace spillway::exec {

namespace {

constexpr int views_max = 10;  // over each other

Task<Result<Response>> run_nested(Context& context, Client& client, const CommandSpec& spec, Request& request,
                                  int views, std::optional<Result<Response>> answer);

Response empty_cursor(std::string_view db, std::string_view collection) {
  return ok_response(BsonWriter().begin_document("cursor").begin_array("firstBatch").end()
                         .append("id", std::int64_t{0}).append("ns", fmt::format("{}.{}", db, collection)).end());
}

// What shards say of these names, before they look whether there is such a database.
Result<void> check_names(const CommandSpec& spec, const RouteNames& names) {
  const bool may_name_database = spec.name == "getShardVersion" || spec.name == "getshardversion";
  for (const auto& name : names) {
    const bool lacks_collection =
        spec.routes == RouteNeed::full_name && name.collection.empty() && !may_name_database;
    const bool lacks_database = name.db.empty() && !name.collection.empty();
    if (lacks_collection || lacks_database || name.collection.find('\0') != std::string_view::npos)
      return Error(ErrorCode::invalid_namespace, "Invalid namespace specified");
  }
  return {};
}

// What is wrong with a read whose database does not exist: no shard is asked. One is asked about a find, if the router
// does not know the query's operators.
Task<Result<void>> check_read(Context& context, const CommandSpec& spec, const Request& request) {
  constexpr FieldTable<4> reads({"find", "count", "distinct", "mapReduce"});
  if (reads.contains(spec.name) && request.body["writeConcern"].exists()) {
    co_return Error(ErrorCode::invalid_options, "Command does not support writeConcern");
  }
  const ValueView filter = request.body["filter"];
  const Element collection = request.body.first();
  if (spec.name != "find" || !filter.is_document() || !collection.is_string()) co_return Result<void>();
  pipeline::FindQuery query;
  query.filter = filter.as_document();
  const auto parsed = pipeline::DocumentQuery::of_find(query, context.shared.memory.cursors,
                                                       [](BsonDoc) { return Result<void>(); });
  if (!parsed.has_error()) co_return Result<void>();
  if (parsed.error().is(ErrorCode::bad_value)) co_return parsed.error();
  const auto routes = context.router->resolve({});
  if (!routes || routes->all_shards().size() == 0) co_return Result<void>();
  BsonWriter out;
  out.append("find", collection.as_string()).append("filter", filter);
  for (const std::string_view name : {"let", "collation", "$readPreference"}) out.append(name, request.body[name]);
  out.append("limit", 1).append("singleBatch", true).append("$db", request.db);
  const BsonDoc find = std::move(out).finish();
  auto call = call_shard(context, {routes->all_shards().front(), RoutedBy::nothing(), shard::Command::of_body(find)},
                         read_options(context, request));
  const ShardOutcome outcome = co_await call;
  if (outcome.answered() && outcome.error) co_return *outcome.error;
  co_return Result<void>();
}

bool explains(const Request& request) { return request.name == "explain" && request.body.first().is_document(); }

// The command that is run, or explained.
DocView command_of(const Request& request) {
  return explains(request) ? request.body.first().as_document() : request.body;
}

// Of the aggregation that is run or explained; empty: there is none.
DocView pipeline_of(const Request& request) {
  const DocView command = command_of(request);
  return command.first().name == "aggregate" ? command["pipeline"].to_array() : DocView();
}

// Documents that need no database; other collections would.
bool brings_documents(const Request& request) {
  if (command_of(request).first().is_string()) return false;  // the stage stands on a collection: a shard refuses it
  const DocView pipeline = pipeline_of(request);
  if (first_stage_name(pipeline) != "$documents") return false;
  const auto involved = involved_namespaces(pipeline, request.db);
  return involved.has_value() && involved->empty();
}

// The error if a router tells it, and with what.
std::optional<Error> missing_database(const Context& context, const Request& request, const Error& missing) {
  const std::string_view stage = first_stage_name(pipeline_of(request));
  if (stage == "$documents") return missing;  // beside other collections
  if (stage != "$collStats" || config_wire_version(context) < wire_version_of_6_0) return std::nullopt;
  return Error(missing).with_context("Unable to retrieve information for $collStats stage");
}

// What a router answers for a database that does not exist; nothing: the error.
std::optional<Response> without_database(const CommandSpec& spec, const Request& request) {
  const Element first = request.body.first();
  if (spec.name == "explain" && first.is_document()) {
    const Element explained = first.as_document().first();
    if (explained.name == "aggregate" && explained.is_string()) return empty_cursor(request.db, explained.as_string());
  }
  const std::string_view collection = first.to_text();
  const ValueView pipeline = request.body["pipeline"];
  if (spec.name == "aggregate" && pipeline.is_array() && ends_in_write(pipeline.as_document())) return std::nullopt;
  if (spec.name == "find" || spec.name == "aggregate") {
    return empty_cursor(request.db, collection.empty() ? "$cmd.aggregate" : collection);
  }
  if (spec.name == "listCollections") return empty_cursor(request.db, "$cmd.listCollections");
  BsonWriter reply;
  if (spec.name == "count") {
    reply.begin_document("shards").end().append("n", std::int32_t{0});
  } else if (spec.name == "distinct") {
    reply.begin_array("values");
    reply.end();
  } else {
    return std::nullopt;
  }
  return ok_response(std::move(reply));
}

// What the shard says the view is; empty: nothing that can be run.
DocView view_of(const Error& error) {
  if (error.code != command_on_sharded_view || error.extra.empty()) return {};
  return DocView::trusted(error.extra.data())["resolvedView"].to_document();
}

std::int32_t failure_of(const Result<Response>& result) {
  if (result.has_error()) return result.error().code;
  return result->failed ? result->failure_code : 0;
}

// {explain: <command>, …} with this command instead.
BsonDoc explained(const Request& request, const BsonDoc& command) {
  const auto kept = [](std::string_view name) { return name == "verbosity" || is_generic_argument(name); };
  return BsonWriter().append("explain", command).append_elements(request.body, kept).finish();
}

// The aggregation that a command on a view has become, explained or not, if a time series lies below. REQUIRES routes.
// Empty: it is another one, or right.
BsonDoc with_span_of_table(const Request& request) {
  const DocView aggregation = command_of(request);
  const Element named = aggregation.first();
  if (request.view.empty() || !named.is_string()) return {};
  const NamespaceText ns(request.db, named.as_string());
  const catalog::CollectionRouting* const below = request.routes->collection(ns.view());
  if (below == nullptr || !below->is_time_series()) return {};
  BsonDoc spanned = with_bucket_span(aggregation, below->cluster->time_series->span_s);
  return explains(request) && !spanned.view().empty() ? explained(request, spanned) : spanned;
}

// The command as an aggregation of the view's collection. The shards' error stays if that is not possible.
Task<Result<Response>> run_on_view(Context& context, Client& client, const CommandSpec& spec, const Request& request,
                                   Error refused, int views) {
  const DocView of_view = command_of(request);
  const bool flags = advertised_wire_version(context.gateway) >= wire_version_of_6_0;
  SPILLWAY_CO_TRY(rewritten, aggregation_over_view(of_view, view_of(refused), flags));
  if (rewritten->view().empty() || views == views_max) co_return refused;
  if (explains(request)) *rewritten = explained(request, *rewritten);
  const bool counts = spec.name == "count", distinct = spec.name == "distinct";
  Request inner = request;
  inner.name = explains(request) ? "explain" : "aggregate";
  const Element named = of_view.first();
  if (inner.view.empty() && named.is_string()) inner.view = named.as_string();
  inner.answers_router = counts || distinct;
  inner.replace_body(*rewritten);
  inner.message.sequences.clear();
  auto running = run_nested(context, client, *command_named(inner.name), inner, views + 1, std::nullopt);
  auto response = co_await running;
  if (response.has_error() || response->failed || !(counts || distinct)) co_return response;
  if (counts) co_return count_of_view(*response);
  std::size_t bytes = 0;
  for (const iovec& piece : response->pieces()) bytes += piece.iov_len;
  SPILLWAY_CO_TRY(reserved, co_await take_reservation(context, request, context.shared.memory.replies, 2 * bytes,
                                                      "a view's values"));
  co_return distinct_of_view(*response);
}

}  // namespace

bool begins_again(const Request& request, const Result<Response>& answer) {
  if (request.name == "getMore") return false;  // its cursor has ended with the error
  if (failure_of(answer) == key_not_found) return !request.in_transaction;
  if (!answer.has_error()) return false;
  const Error& refused = answer.error();
  if (!view_of(refused).empty()) return true;
  // A transaction makes no collections.
  return is_stale(refused.code) && !(request.in_transaction && refused.code == cannot_implicitly_create_collection);
}

namespace {

Task<Result<Response>> run_in_transaction(Context& context, Client& client, const CommandSpec& spec,
                                          Request& request) {
  if (auto begun = begin_statement(context, request); begun.has_error()) co_return std::move(begun.error());
  // Every shard that joins is told that its part begins, by call_shard(), and no other.
  SteppedRequest first(request);
  first.sent_a_step();
  Request statement = *first;
  co_return co_await run_nested(context, client, spec, statement, 0, std::nullopt);
}

// With a newer time as long as shards cannot read at the one that was chosen.
Task<Result<Response>> run_at_snapshot(Context& context, Client& client, const CommandSpec& spec,
                                       const Request& request) {
  SPILLWAY_CO_TRY(time, SnapshotTime::of(context, request));
  for (std::size_t tries = 1;; ++tries) {
    Request read = request;
    time->give(context, read);
    auto answer = co_await run_nested(context, client, spec, read, 0, std::nullopt);
    if (tries >= tries_max || !time->may_choose_again(failure_of(answer))) co_return answer;
    const Duration pause = pause_before_try(tries + 1);
    if (Clock::now() + pause >= request.deadline) co_return answer;
    if (pause > Duration::zero()) co_await context.loop.sleep_for(pause);
    if (const Error* why = client.interrupt.requested()) co_return *why;
  }
}

}  // namespace

Task<Result<Response>> run_in_cluster(Context& context, Client& client, const CommandSpec& spec, Request& request,
                                      std::optional<Result<Response>> answer) {
  if (request.in_transaction) return run_in_transaction(context, client, spec, request);
  if (reads_snapshot(request)) return run_at_snapshot(context, client, spec, request);
  return run_nested(context, client, spec, request, 0, std::move(answer));
}

namespace {

// An explained update or deletion, too, as through a mongos.
bool makes_database(const CommandSpec& spec, const Request& request) {
  if (spec.is(Trait::makes_database)) return true;
  const Element first = request.body.first();
  if (spec.name != "explain" || !first.is_document()) return false;
  const std::string_view explained = first.as_document().first().name;
  return explained == "update" || explained == "delete";
}

// The tags of Queryable Encryption lie on the primary shard. A mongos looks there before it asks the others; each of
// them would look at its own.
Result<void> check_encrypted(const Request& request) {
  const catalog::Namespace target = request.target();
  if (request.routes->collection(NamespaceText(target.db, target.collection).view()) == nullptr) return {};
  return Error(ErrorCode::command_not_supported,
               fmt::format("Queryable Encryption of a sharded collection ({}.{}) is not supported: use a mongos for it",
                           target.db, target.collection));
}

// `answer`: of the first try, which the caller has made.
Task<Result<Response>> run_nested(Context& context, Client& client, const CommandSpec& spec, Request& request,
                                  int views, std::optional<Result<Response>> answer) {
  const RouteNames names = route_names(context, spec, request);
  if (auto checked = check_names(spec, names); checked.has_error()) co_return std::move(checked.error());
  // Before it is told whether there is such a database.
  SPILLWAY_CO_TRY(judged, refuse_unjudged(context, pipeline_of(request)));
  const RouteWait wait{request.deadline, makes_database(spec, request), request.interrupt};
  bool learned_keys = false;
  BsonDoc of_buckets;
  for (std::size_t tries = 1;; ++tries) {
    if (!answer) {
      auto routes = context.router->resolve(names);
      if (!routes) {
        auto learned = co_await learn_routes(*context.router, names, wait);
        const bool missing = learned.has_error() && learned.error().is(ErrorCode::namespace_not_found);
        if (missing && brings_documents(request)) routes = context.router->resolve({});
        if (missing && routes && routes->all_shards().empty()) routes.reset();
        if (learned.has_error() && !routes) {
          if (missing) {
            if (auto told = missing_database(context, request, learned.error())) co_return *std::move(told);
            SPILLWAY_CO_TRY(checked, co_await check_read(context, spec, request));
            if (auto empty = without_database(spec, request)) co_return *std::move(empty);
          }
          co_return std::move(learned.error());
        }
        if (!routes) routes = *std::move(learned);
      }
      request.routes = &*routes;
      auto checked = check_snapshot(context, request);
      if (checked.has_value() && request.encrypted) checked = check_encrypted(request);
      if (checked.has_error()) {
        request.routes = nullptr;
        co_return std::move(checked.error());
      }
      if (BsonDoc spanned = with_span_of_table(request); !spanned.view().empty()) {
        of_buckets = std::move(spanned);
        request.replace_body(of_buckets);
      }
      auto result = co_await spec.handler(context, client, request);
      answer.emplace(std::move(result));
      request.routes = nullptr;
    }
    if (!begins_again(request, *answer)) co_return *std::move(answer);
    if (failure_of(*answer) == key_not_found) {
      if (std::exchange(learned_keys, true)) co_return *std::move(answer);
      const RouteWait for_keys{.deadline = request.deadline, .interrupt = request.interrupt};
      co_await context.router->learn_keys(for_keys);
      answer.reset();
      continue;
    }
    const Error& refused = answer->error();
    const bool of_view = !view_of(refused).empty();
    if (!of_view && tries >= tries_max) co_return *std::move(answer);
    auto restarting = restart_statement(context, request, of_view);
    if (!co_await restarting) co_return *std::move(answer);
    if (of_view) {
      auto running = run_on_view(context, client, spec, request, answer->error(), views);
      co_return co_await running;
    }
    if (refused.code == cannot_implicitly_create_collection && request.body.first().is_string()) {
      SPILLWAY_AWAIT(made, make_collection(context, request, std::string(request.body.first().as_string())));
    }
    const Duration pause = pause_before_try(tries + 1);
    if (pause > Duration::zero()) {
      if (Clock::now() + pause >= request.deadline) co_return *std::move(answer);
      co_await context.loop.sleep_for(pause);
      if (const Error* why = client.interrupt.requested()) co_return *why;
    }
    answer.reset();
  }
}

}  // namespace

}  // namespace spillway::exec
