#include "proxy/exec/commands/route_names.h"

#include <fmt/format.h>

#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/cluster_fields.h"
#include "proxy/exec/core/file_chunks.h"
#include "proxy/exec/read/aggregate.h"
#include "proxy/exec/read/map_reduce.h"

namespace spillway::exec {

namespace {

void add_pipeline(RouteNames& names, std::string_view db, DocView body) {
  const ValueView pipeline = body["pipeline"];
  if (pipeline.is_array()) {
    const auto involved = involved_namespaces(pipeline.as_document(), db);
    if (!involved.has_error()) {
      for (const InvolvedNamespace& ns : *involved) names.push_back({ns.db, ns.collection});
    }
  }
  if (const ValueView source = body["viewOn"]; source.is_string()) names.push_back({db, source.as_string()});
}

void add_collection(RouteNames& names, std::string_view db, DocView body) {
  names.push_back({db, body.first().to_text()});
}

void add_full_name(RouteNames& names, ValueView name) {
  if (!name.is_string()) return;
  const catalog::Namespace parts = catalog::split_namespace(name.as_string());
  names.push_back({parts.db, parts.collection});
}

bool may_shard_time_series(const Context& context) {
  return config_wire_version(context) >= wire_version_of_5_1;
}

void add_buckets(RouteNames& names, Request& request) {
  const std::string_view collection = names.back().collection;
  if (collection.empty() || collection.starts_with("system.")) return;
  request.buckets = fmt::format("system.buckets.{}", collection);
  names.push_back({.db = request.db, .collection = request.buckets, .buckets = true});
}

void add_output(RouteNames& names, std::string_view db, DocView map_reduce) {
  const InvolvedNamespace output = map_reduce_output(map_reduce, db);
  if (!output.collection.empty()) names.push_back({output.db, output.collection});
}

}  // namespace

RouteNames route_names(const Context& context, const CommandSpec& spec, Request& request) {
  RouteNames names;
  switch (spec.routes) {
    case RouteNeed::none:
      break;
    case RouteNeed::database:
      names.push_back({request.db, {}});
      break;
    case RouteNeed::collection:
      add_collection(names, request.db, request.body);
      break;
    case RouteNeed::written:
      add_collection(names, request.db, request.body);
      request.buckets.clear();
      if (may_shard_time_series(context)) add_buckets(names, request);
      break;
    case RouteNeed::pipeline:
      // On all shards, of a database that there may not be yet, too.
      if (spec.name == "aggregate" && !request.body["explain"].truthy() && opens_change_stream(request.body)) break;
      add_collection(names, request.db, request.body);
      add_pipeline(names, request.db, request.body);
      add_output(names, request.db, request.body);
      break;
    case RouteNeed::explained:
      if (const Element inner = request.body.first();
          inner.is_document() && !check_explained_database(request.db, inner.as_document()).has_error()) {
        add_collection(names, request.db, inner.as_document());
        add_pipeline(names, request.db, inner.as_document());
        add_output(names, request.db, inner.as_document());
      }
      break;
    case RouteNeed::full_name:
      add_full_name(names, request.body.first());
      // From 8.0 on the database that a collection is renamed into need not exist: its handler makes it.
      if (config_wire_version(context) < wire_version_of_8_0) add_full_name(names, request.body["to"]);
      break;
    case RouteNeed::file:
      request.buckets = chunks_of_file(request.body);
      names.push_back({request.db, request.buckets});
      break;
  }
  return names;
}

}  // namespace spillway::exec
