#include "proxy/exec/read/map_reduce.h"

#include <fmt/format.h>

#include "proxy/auth/logical_clock.h"
#include "proxy/base/clock.h"
#include "proxy/cluster/config_client.h"
#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/cluster_fields.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/read/map_reduce_pipeline.h"
#include "proxy/exec/read/merge_on_shard.h"

namespace spillway::exec {

namespace {

Error only_on_one_shard(std::string_view what) {
  return Error(ErrorCode::command_not_supported,
               fmt::format("mapReduce is not supported {}: use aggregate", what));
}

// May the shard run all of it, and write the output?
Result<void> check_whole(const Context& context, const Request& request, const Targets& targets,
                         const InvolvedNamespace& output) {
  // A cluster's shard takes it for a part of the whole if the collection is sharded.
  if (targets.shards.size() > 1 || (context.in_cluster() && targets.routing != nullptr))
    return only_on_one_shard("of a sharded collection");
  if (output.collection.empty()) return {};
  // Without its version, a cluster's shard would replace it as if it were not sharded.
  if (context.in_cluster() &&
      request.routes->collection(NamespaceText(output.db, output.collection).view()) != nullptr) {
    return Error(15920, "Cannot output to a non-sharded collection because sharded collection exists already");
  }
  if (context.in_cluster() && request.routes->primary_shard(output.db) == cluster::config_shard)
    return only_on_one_shard("into a database of the config servers");
  if (!lies_on(*request.routes, output, targets.shards.front()))
    return only_on_one_shard("into a collection that does not lie wholly on the shard of its source");
  return {};
}

// {results, ok: 1}, or where they were written.
Response answer_of(const Request& request, const InvolvedNamespace& output, const Response& aggregation) {
  BsonWriter out;
  const ValueView form = request.body["out"];
  if (output.collection.empty()) {
    const BsonDoc reply = aggregation.copy();
    const ValueView results = first_of_batch(reply)["results"];
    if (results.is_array()) {
      out.append("results", results);
    } else {
      out.begin_array("results").end();
    }
  } else if (form.is_document() && form.as_document()["db"].exists()) {
    out.begin_document("result").append("db", output.db).append("collection", output.collection).end();
  } else {
    out.append("result", output.collection);
  }
  return ok_response(std::move(out));
}

Task<Result<Response>> divide(Context& context, Client& client, const Request& request,
                              const InvolvedNamespace& output) {
  TakeCopyRoom taking_room(context, request, 2);
  SPILLWAY_CO_TRY(room, co_await taking_room);
  SPILLWAY_CO_TRY(command, map_reduce_aggregation(context, request.body, output));
  SPILLWAY_CO_TRY(aggregate, parse_aggregate(*command));
  Request inner = request;
  inner.name = "aggregate";
  inner.answers_router = true;
  inner.replace_body(*command);
  SPILLWAY_CO_TRY(plan, plan_aggregate(context, inner, *aggregate));
  auto running = aggregate_on_shards(context, client, inner, *aggregate, *plan, only_on_one_shard("here"));
  auto answer = co_await running;
  if (answer.has_error() || answer->failed) co_return answer;
  std::size_t bytes = 0;
  for (const iovec& piece : answer->pieces()) bytes += piece.iov_len;
  auto reserving = take_reservation(context, request, context.shared.memory.replies, 2 * bytes, "mapReduce's results");
  SPILLWAY_CO_TRY(reserved, co_await reserving);
  co_return answer_of(request, output, *answer);
}

}  // namespace

bool shards_divide_map_reduce(const Context& context, const Targets& targets) {
  if (!shards_may_merge(context)) return false;
  for (const catalog::ShardIndex shard : targets.shards) {
    if (context.gateway.capabilities(shard).max_wire_version < wire_version_of_4_4) return false;
  }
  return true;
}

Result<void> check_map_reduce_output(DocView body, const InvolvedNamespace& output, bool may_be_sharded) {
  const ValueView out = body["out"];
  if (!out.is_document()) {
    if (output.collection.empty()) return Error(ErrorCode::invalid_namespace, "Invalid output namespace");
    return {};
  }
  int outputs = 0, dbs = 0;
  bool is_inline = false, sharded = false;
  for (const Element& field : out.as_document()) {
    outputs += names_map_reduce_output(field.name);
    dbs += field.name == "db";
    is_inline = is_inline || field.name == "inline";
    sharded = sharded || (field.name == "sharded" && field.truthy());
  }
  if (outputs > 1 || dbs > 1) return Error(ErrorCode::invalid_options, "mapReduce has one output");
  if (is_inline && sharded) {
    return Error(ErrorCode::invalid_options, "cannot specify inline and sharded output at the same time");
  }
  if (is_inline && dbs != 0) {
    return Error(ErrorCode::invalid_options, "cannot specify inline and output database at the same time");
  }
  if (!is_inline && output.collection.empty()) return Error(ErrorCode::invalid_namespace, "Invalid output namespace");
  if (sharded && !may_be_sharded) return only_on_one_shard("into a sharded collection");
  return {};
}

Result<BsonDoc> map_reduce_aggregation(const Context& context, DocView body, const InvolvedNamespace& output) {
  return aggregation_of_map_reduce(body, output.db, output.collection, wall_clock_ms(), context.shared.clock.now());
}

InvolvedNamespace map_reduce_output(DocView body, std::string_view db) {
  InvolvedNamespace output{db, {}, "out"};
  const ValueView out = body["out"];
  if (out.is_string()) output.collection = out.as_string();
  if (!out.is_document()) return output;
  for (const Element& field : out.as_document()) {
    if (names_map_reduce_output(field.name) && field.is_string()) output.collection = field.as_string();
    if (field.name == "db" && field.is_string() && !field.as_string().empty()) output.db = field.as_string();
  }
  return output;
}

Task<Result<Response>> map_reduce_command(Context& context, Client& client, const Request& request) {
  const Element source = request.body.first();
  if (!source.is_string() || source.as_string().empty()) co_return no_collection(source);
  const NamespaceText ns(request.db, source.as_string());
  const Targets targets = shards_with_chunks(*request.routes, request.db, ns.view());
  const InvolvedNamespace output = map_reduce_output(request.body, request.db);
  const bool divides = shards_divide_map_reduce(context, targets);
  if (auto checked = check_map_reduce_output(request.body, output, divides); checked.has_error())
    co_return checked.error();
  if (auto whole = check_whole(context, request, targets, output); whole.has_error()) {
    if (!divides) co_return std::move(whole.error());
    co_return co_await divide(context, client, request, output);
  }
  const bool writes = !output.collection.empty();
  auto forwarding = writes ? forward_write(context, request, targets) : forward_read(context, request, targets);
  co_return co_await forwarding;
}

}  // namespace spillway::exec
