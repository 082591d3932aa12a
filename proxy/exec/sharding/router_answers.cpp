#include "proxy/exec/sharding/router_answers.h"

#include <fmt/format.h>

#include <map>

#include "allocator/limits.h"
#include "proxy/base/log.h"
#include "proxy/exec/cluster/cluster_table.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/sharding/run_by_form.h"

namespace spillway::exec {

namespace {

// config.databases' `partitioned`, which a 6.0 no longer has.
Task<Result<bool>> is_partitioned(Context* context, const Request* request, std::string db) {
  SPILLWAY_AWAIT(found, find_in_config(*context, *request, "databases", BsonWriter().append("_id", db).finish()));
  co_return first_of_batch(found->body())["partitioned"].truthy();
}

Task<Result<Response>> database_version(Context* context, const Request* request, std::string db) {
  BsonWriter reply;
  const catalog::Database* const database = request->routes->database(db);
  if (database == nullptr) co_return Error(ErrorCode::invalid_namespace, "Invalid namespace specified");
  reply.append("primaryShard", request->routes->shard(database->primary).name);
  if (config_wire_version(*context) < v6_0) {
    SPILLWAY_CO_TRY(partitioned, co_await is_partitioned(context, request, db));
    reply.append("shardingEnabled", *partitioned);
  }
  if (database->version) catalog::append_database_version(reply, *database->version, "version");
  co_return ok_response(std::move(reply));
}

void append_chunks(BsonWriter& out, const catalog::CollectionRouting& routing) {
  out.begin_array("chunks");
  for (std::size_t i = 0; i < routing.chunks.size() && out.size() < limits::document_bytes_max; ++i) {
    out.begin_array_item();
    out.append_item(routing.chunks.min_bound(i)).append_item(routing.chunks.max_bound(i));
    out.end();
  }
  out.end();
}

}  // namespace

std::string connection_string_of(const shard::ShardState& shard) {
  std::string text = shard.set_name;
  for (const shard::HostState& host : shard.hosts) {
    if (&host != &shard.hosts.front()) {
      text += ",";
    } else if (!text.empty()) {
      text += "/";
    }
    text += host.address.text();
  }
  return text;
}

Task<Result<Response>> list_shards_of_cluster(Context& context, const Request& request) {
  SPILLWAY_AWAIT(found, find_in_config(context, request, "shards", BsonDoc()));
  const ValueView batch = found->body().find_path("cursor.firstBatch");
  if (!batch.is_array()) co_return Error(ErrorCode::failed_to_parse, "the config servers' list of shards is damaged");
  co_return ok_response(BsonWriter().append_array("shards", batch.as_document()));
}

Task<Result<Response>> shard_map_of_cluster(Context& context) {
  std::map<std::string, std::string> strings, hosts, names;
  const bool by_all_names = config_wire_version(context) < v4_4;
  for (const shard::ShardState& shard : context.gateway.states()) {
    if (shard.retired) continue;
    const std::string text = connection_string_of(shard);
    strings[shard.name] = text;
    if (by_all_names) strings[text] = text;
    names[text] = shard.name;
    for (const shard::HostState& host : shard.hosts) {
      hosts[host.address.text()] = shard.name;
      if (by_all_names) strings[host.address.text()] = text;
    }
  }
  BsonWriter reply;
  const auto append = [&](std::string_view name, const std::map<std::string, std::string>& map) {
    reply.begin_document(name);
    for (const auto& [key, value] : map) reply.append(key, std::string_view(value));
    reply.end();
  };
  append("map", strings);
  if (!by_all_names) {
    append("hosts", hosts);
    append("connStrings", names);
  }
  co_return ok_response(std::move(reply));
}

Task<Result<Response>> shard_version_in_cluster(Context& context, const Request& request) {
  const Element which = request.body.first();
  if (!which.is_string()) {
    co_return Error(ErrorCode::bad_value, fmt::format("namespace has invalid type {}", bson_type_name(which.type)));
  }
  const std::string_view ns = which.as_string();
  if (catalog::split_namespace(ns).collection.empty()) {
    auto telling = database_version(&context, &request, std::string(ns));
    co_return co_await telling;
  }
  const catalog::CollectionRouting* const routing = request.routes->collection(ns);
  if (routing == nullptr || !routing->cluster) {
    co_return Error(ErrorCode::namespace_not_sharded, fmt::format("Collection {} is not sharded.", ns));
  }
  const catalog::ChunkVersion& version = routing->cluster->version;
  BsonWriter reply;
  reply.append_timestamp("version", version.lastmod());
  reply.append_object_id("versionEpoch", version.epoch);
  if (version.timestamp != 0) reply.append_timestamp("versionTimestamp", version.timestamp);
  if (request.body["fullMetadata"].truthy()) append_chunks(reply, *routing);
  co_return ok_response(std::move(reply));
}

Task<Result<Response>> flush_router_config_in_cluster(Context& context, const Request& request) {
  const Element which = request.body.first();
  catalog::Namespace name;
  if (which.is_string()) {
    name = catalog::split_namespace(which.as_string());
  } else if (!which.is_number() && which.type != BsonType::boolean) {
    co_return Error(ErrorCode::type_mismatch, "flushRouterConfig takes 1, a database or a namespace");
  }
  log::info("routing metadata is flushed: {}", which.is_string() ? which.as_string() : "all databases");
  auto forgetting = forget_everywhere(context, std::string(name.db), std::string(name.collection));
  co_await forgetting;
  co_return ok_response(BsonWriter().append("flushed", true));
}

}  // namespace spillway::exec
