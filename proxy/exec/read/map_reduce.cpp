#include "proxy/exec/read/map_reduce.h"

#include <fmt/format.h>

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
  const ValueView out = request.body["out"];
  if (out.is_document() && out.as_document()["sharded"].truthy())
    co_return only_on_one_shard("into a sharded collection");
  const bool writes = !output.collection.empty();
  if (writes && !lies_on(*request.routes, output, targets.shards.front()))
    co_return only_on_one_shard("into a collection that does not lie wholly on the shard of its source");
  auto forwarding = forward_to_shard(context, request, targets.shards.front(), targets.by(),
                                     writes ? write_options(context, request) : read_options(context, request));
  co_return co_await forwarding;
}

}  // namespace spillway::exec
