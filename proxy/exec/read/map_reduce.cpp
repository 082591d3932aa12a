#include "proxy/exec/read/map_reduce.h"

#include <fmt/format.h>

#include "proxy/cluster/config_client.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/forward.h"

namespace spillway::exec {

namespace {

Error only_on_one_shard(std::string_view what) {
  return Error(ErrorCode::command_not_supported,
               fmt::format("mapReduce is not supported {}: use aggregate", what));
}

// The fields of `out` that name a collection.
bool names_output(std::string_view field) noexcept {
  return field == "replace" || field == "normal" || field == "merge" || field == "reduce";
}

// Of several outputs a shard would choose one: not the one that was checked, perhaps.
Result<void> check_output(ValueView out, const InvolvedNamespace& output) {
  if (!out.is_document()) {
    if (output.collection.empty()) return Error(ErrorCode::invalid_namespace, "Invalid output namespace");
    return {};
  }
  int outputs = 0, dbs = 0;
  bool is_inline = false, sharded = false;
  for (const Element& field : out.as_document()) {
    outputs += names_output(field.name);
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
  if (sharded) return only_on_one_shard("into a sharded collection");
  return {};
}

}  // namespace

InvolvedNamespace map_reduce_output(DocView body, std::string_view db) {
  InvolvedNamespace output{db, {}, "out"};
  const ValueView out = body["out"];
  if (out.is_string()) output.collection = out.as_string();
  if (!out.is_document()) return output;
  for (const Element& field : out.as_document()) {
    if (names_output(field.name) && field.is_string()) output.collection = field.as_string();
    if (field.name == "db" && field.is_string() && !field.as_string().empty()) output.db = field.as_string();
  }
  return output;
}

Task<Result<Response>> map_reduce_command(Context& context, Client&, const Request& request) {
  const Element source = request.body.first();
  if (!source.is_string() || source.as_string().empty()) {
    co_return Error(ErrorCode::invalid_namespace,
                    fmt::format("collection name has invalid type {}", bson_type_name(source.type)));
  }
  const NamespaceText ns(request.db, source.as_string());
  const Targets targets = shards_with_chunks(*request.routes, request.db, ns.view());
  // A cluster's shard takes it for a part of the whole if the collection is sharded.
  if (targets.shards.size() > 1 || (context.in_cluster() && targets.routing != nullptr))
    co_return only_on_one_shard("of a sharded collection");
  const InvolvedNamespace output = map_reduce_output(request.body, request.db);
  if (auto checked = check_output(request.body["out"], output); checked.has_error()) co_return checked.error();
  const bool writes = !output.collection.empty();
  // Without its version, a cluster's shard would replace it as if it were not sharded.
  if (writes && context.in_cluster() &&
      request.routes->collection(NamespaceText(output.db, output.collection).view()) != nullptr) {
    co_return Error(15920, "Cannot output to a non-sharded collection because sharded collection exists already");
  }
  if (writes && context.in_cluster() && request.routes->primary_shard(output.db) == cluster::config_shard)
    co_return only_on_one_shard("into a database of the config servers");
  if (writes && !lies_on(*request.routes, output, targets.shards.front()))
    co_return only_on_one_shard("into a collection that does not lie wholly on the shard of its source");
  auto forwarding = forward_to_shard(context, request, targets.shards.front(), targets.by(),
                                     writes ? write_options(context, request) : read_options(context, request));
  co_return co_await forwarding;
}

}  // namespace spillway::exec
