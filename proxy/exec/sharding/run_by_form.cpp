#include "proxy/exec/sharding/run_by_form.h"

#include <fmt/format.h>

#include "proxy/base/log.h"
#include "proxy/cluster/config_client.h"
#include "proxy/exec/cluster/cluster_table.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/repeat.h"
#include "proxy/exec/core/shard_call.h"

namespace spillway::exec {

namespace {

constexpr std::int32_t config_find_max = 10'000;

Error not_in_this_version(const Request& request) {
  return Error(ErrorCode::command_not_found,
               fmt::format("no such command: '{}': the cluster's version does not have it", request.name));
}

// {collectionsharded: ns, …}, as config servers answered before.
Response collection_sharded(DocView reply, std::string_view ns) {
  BsonWriter out;
  out.append("collectionsharded", ns);
  out.append_elements(reply, [](std::string_view name) {
    return name != "collectionVersion" && name != "collectionUUID" && !is_stripped_from_reply(name);
  });
  return Response(out.finish());
}

Response answer_of(const CommandForm& form, std::string_view name, ShardOutcome outcome) {
  const bool ok = outcome.ok();
  if (!ok || form.reply == CommandForm::Reply::whole) return passthrough(std::move(outcome.reply));
  if (form.reply == CommandForm::Reply::sharded) return collection_sharded(outcome.body(), name);
  const Element concern = outcome.body().find("writeConcernError");
  if (!concern.exists()) return ok_response();
  return ok_response(BsonWriter().append_element(concern));
}

// One try. The error of a server that did not take the command for what it concerns: its own answer otherwise.
Task<Result<Response>> run_one_form(Context* context, const Request* request, const CommandForm* form,
                                    std::string name) {
  const std::int32_t wire_version = config_wire_version(*context);
  // The config servers of 6.0 do not look whether it is there before they use it.
  if (form->command == "moveRange" && wire_version < v7_0 && !request->body["min"].exists()) {
    co_return Error(ErrorCode::invalid_options, "Missing required parameter 'min'");
  }
  const bool to_primary = form->target == CommandForm::Target::primary_shard;
  catalog::ShardIndex shard = cluster::config_shard;
  RoutedBy by = RoutedBy::nothing();
  std::optional<Routes> routes;
  const catalog::CollectionRouting* routing = nullptr;
  const catalog::Namespace parts = catalog::split_namespace(name);
  if (form->needs_table) {
    SPILLWAY_CO_TRY(read, co_await read_again(*context, *request, name));
    routing = routes.emplace(*std::move(read)).collection(name);
  } else if (to_primary) {
    SPILLWAY_AWAIT(resolved, routes_of(*context, *request, RouteNames{RouteName{parts.db, {}}}, form->makes_database));
    const catalog::Database* const database = routes.emplace(*std::move(resolved)).database(parts.db);
    shard = database->primary;
    by = RoutedBy::database(database);
    // Config servers are upgraded first. A shard of before may know the command, and take less for what it asks.
    if (!may_have_version(*context, shard, form->from)) co_return not_in_this_version(*request);
  }
  const BsonDoc body = make_command(*form, *request, name, wire_version, routing);
  shard::CallOptions options = write_options(*context, *request);
  options.retry = form->retry;
  ShardOutcome outcome = co_await call_shard(*context, shard, by, body, options);
  if (!outcome.answered() || outcome.stale()) co_return *std::move(outcome.error);
  co_return answer_of(*form, name, std::move(outcome));
}

Task<void> note_changes(Context* context, const Request* request, const CommandForm* form, std::string name) {
  const RouteWait wait{request->deadline, false, request->interrupt};
  if (form->changes_shards) {
    const auto read = co_await read_shards_again(*context, wait);
    if (read.has_error()) log::warning("the list of shards cannot be read: {}", read.error().message);
  }
  if (form->changes_concerns) {
    auto reading = read_concern_defaults_again(*context, wait);
    static_cast<void>(co_await reading);  // a warning is written
  }
  if (name.empty() || !form->changes_table) co_return;
  const catalog::Namespace parts = catalog::split_namespace(name);
  auto forgetting = forget_everywhere(*context, std::string(parts.db), std::string(parts.collection));
  co_await forgetting;
  const ValueView to = request->body["to"];
  if (form->command != "renameCollection" || !to.is_string()) co_return;
  const catalog::Namespace target = catalog::split_namespace(to.as_string());
  auto forgetting_target = forget_everywhere(*context, std::string(target.db), std::string(target.collection));
  co_await forgetting_target;
}

bool answers(const Result<Response>& result, ErrorCode code) noexcept {
  if (result.has_error()) return result.error().is(code);
  return result->failed && result->failure_code == static_cast<std::int32_t>(code);
}

}  // namespace

bool is_unknown_form(const Result<Response>& result) noexcept { return answers(result, ErrorCode::command_not_found); }

Task<Result<void>> make_collection(Context& context, const Request& request, std::string collection) {
  if (config_wire_version(context) < v8_0) co_return Result<void>();
  BsonWriter body;
  body.append("create", collection);
  const BsonDoc create = std::move(body).finish();
  Request making = request;
  making.name = "create";
  making.body = making.message.body = create.view();
  making.message.sequences.clear();
  making.sections = {};
  SPILLWAY_CO_TRY(made, co_await run_by_form(context, making));
  // Others may have made it meanwhile, with options of their own.
  if (made->failed && !answers(made, ErrorCode::namespace_exists)) {
    co_return Error(made->failure_code, fmt::format("the collection {}.{} could not be made", request.db, collection));
  }
  co_return Result<void>();
}

Task<Result<Routes>> routes_of(Context& context, const Request& request, RouteNames names, bool make_database) {
  const RouteWait wait{request.deadline, make_database, request.interrupt};
  if (auto routes = context.router->resolve(names)) co_return *std::move(routes);
  auto learning = learn_routes(*context.router, std::move(names), wait);
  co_return co_await learning;
}

Task<Result<Routes>> read_again(Context& context, const Request& request, std::string ns) {
  const catalog::Namespace parts = catalog::split_namespace(ns);
  const RouteName name{parts.db, parts.collection};
  // What is not known yet may come from what others have read before.
  SPILLWAY_AWAIT(resolved, routes_of(context, request, RouteNames{name}, false));
  context.router->note_stale(name);
  SPILLWAY_AWAIT(routes, routes_of(context, request, RouteNames{name}, false));
  const catalog::CollectionRouting* const routing = routes->collection(ns);
  if (routing == nullptr || !routing->cluster) {
    co_return Error(ErrorCode::namespace_not_sharded, fmt::format("Collection {} is not sharded.", ns));
  }
  co_return routes;
}

Task<Result<shard::Reply>> command_to(Context& context, const Request& request, catalog::ShardIndex shard, BsonDoc body,
                                      shard::RetryPolicy retry) {
  shard::CallOptions options = write_options(context, request);
  options.retry = retry;
  ShardOutcome outcome = co_await call_shard(context, shard, RoutedBy::nothing(), body, options);
  if (outcome.error) co_return *std::move(outcome.error);
  co_return std::move(outcome.reply);
}

Task<Result<shard::Reply>> find_in_config(Context& context, const Request& request, std::string_view collection,
                                          BsonDoc filter) {
  BsonWriter body;
  body.append("find", collection).append("filter", filter.view());
  body.append("batchSize", config_find_max).append("singleBatch", true);
  body.begin_document("readConcern").append("level", "majority").end();
  body.append("$db", "config");
  return command_to(context, request, cluster::config_shard, body.finish(), shard::RetryPolicy::idempotent);
}

Task<Result<Response>> run_by_form(Context& context, const Request& request) {
  const std::int32_t wire_version = config_wire_version(context);
  const CommandForm* form = find_form(request.name, wire_version);
  if (form == nullptr) co_return not_in_this_version(request);
  SPILLWAY_CO_TRY(name, name_of(*form, request));
  bool made_again = false;
  for (;;) {
    auto result = co_await run_one_form(&context, &request, form, *name);
    // Another router has dropped the database that this one knew.
    if (form->makes_database && !made_again && answers(result, ErrorCode::namespace_not_found)) {
      made_again = true;
      const std::string db(catalog::split_namespace(*name).db);
      auto forgetting = forget_everywhere(context, db, {});
      co_await forgetting;
      SPILLWAY_AWAIT(made, routes_of(context, request, RouteNames{RouteName{db, {}}}, true));
      continue;
    }
    const CommandForm* const older = is_unknown_form(result) ? find_form(request.name, form->from - 1) : nullptr;
    if (older == nullptr) {
      // Whatever has come of it: an answer may have been lost.
      auto noting = note_changes(&context, &request, form, *std::move(name));
      co_await noting;
      co_return result;
    }
    form = older;
  }
}

}  // namespace spillway::exec
