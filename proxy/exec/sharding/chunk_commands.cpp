// Commands about chunks: the router finds the chunk, and tells the config servers or its owner what to do with it.
#include <fmt/format.h>

#include <chrono>

#include "proxy/catalog/config_documents.h"
#include "proxy/cluster/config_client.h"
#include "proxy/exec/cluster/cluster_table.h"
#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/sharding/router_answers.h"
#include "proxy/exec/sharding/run_by_form.h"

namespace spillway::exec {

HandlerFunction split_command, move_chunk_command, merge_chunks_command, merge_all_chunks_command,
    clear_jumbo_flag_command;

namespace {

using catalog::CollectionRouting;

constexpr std::int32_t cannot_split = 87;
constexpr std::int64_t chunk_bytes_max_default = 64 * std::int64_t{1} << 20;

Result<std::string> chunk_ns(const Request& request) {
  const std::string_view ns = request.body.first().to_text();
  const catalog::Namespace name = catalog::split_namespace(ns);
  if (name.db.empty() || name.collection.empty() || name.collection.find('\0') != std::string_view::npos) {
    return Error(ErrorCode::invalid_namespace, fmt::format("Invalid namespace specified '{}'", ns));
  }
  return std::string(ns);
}

// A chunk bound with its fields in the shard key's order.
Result<BsonDoc> in_key_order(const CollectionRouting& routing, ValueView bound) {
  const auto bad = [&] {
    return Error(ErrorCode::bad_value,
                 fmt::format("{} is not a bound of a chunk for the shard key pattern {}",
                             bound.is_document() ? to_json(bound.as_document()) : "it",
                             to_json(routing.key.pattern())));
  };
  if (!bound.is_document() || bound.as_document().count() != routing.key.fields().size()) return bad();
  BsonWriter out;
  for (const auto& field : routing.key.fields()) {
    const ValueView value = bound.as_document()[field.path];
    if (!value.exists()) return bad();
    out.append(field.path, value);
  }
  BsonDoc ordered = std::move(out).finish();
  if (routing.key.key_of_bound(ordered.view()).has_error()) return bad();
  return ordered;
}

struct Bounds {
  BsonDoc min, max;
};

Result<Bounds> parse_bounds(const CollectionRouting& routing, ValueView bounds) {
  const DocView list = bounds.as_document();
  if (list.count() != 2) {
    return Error(ErrorCode::bad_value, "bounds takes two documents: the lower and the upper bound");
  }
  SPILLWAY_TRY(min, in_key_order(routing, list["0"]));
  SPILLWAY_TRY(max, in_key_order(routing, list["1"]));
  return Bounds{*std::move(min), *std::move(max)};
}

std::size_t chunk_of_bound(const CollectionRouting& routing, DocView bound) {
  return routing.chunks.chunk_for(*routing.key.key_of_bound(bound));
}

// An empty document counts as missing.
bool given(ValueView value) noexcept {
  return (value.is_document() || value.is_array()) && !value.as_document().empty();
}

Result<std::size_t> chunk_of_find(const CollectionRouting& routing, DocView find) {
  const auto key = routing.key.key_of_query(find);
  if (!key) {
    return Error(ErrorCode::shard_key_not_found, fmt::format("no shard key found in chunk query {}", to_json(find)));
  }
  return routing.chunks.chunk_for(*key);
}

// The chunk that has exactly these bounds.
Result<std::size_t> chunk_of_bounds(const CollectionRouting& routing, ValueView value) {
  SPILLWAY_TRY(bounds, parse_bounds(routing, value));
  const std::size_t chunk = chunk_of_bound(routing, bounds->min.view());
  const auto same = [&](DocView bound, const BsonDoc& asked) {
    return *routing.key.key_of_bound(bound) == *routing.key.key_of_bound(asked.view());
  };
  if (same(routing.chunks.min_bound(chunk), bounds->min) && same(routing.chunks.max_bound(chunk), bounds->max)) {
    return chunk;
  }
  return Error(ErrorCode::operation_failed,
               fmt::format("no chunk found with the shard key bounds [{}, {})", to_json(bounds->min.view()),
                           to_json(bounds->max.view())));
}

Result<std::size_t> chunk_of(const Request& request, const CollectionRouting& routing) {
  const ValueView find = request.body["find"], bounds = request.body["bounds"];
  if (given(find) == given(bounds)) {
    return Error(ErrorCode::bad_value, "need to specify either a find query, or both lower and upper bounds.");
  }
  return given(find) ? chunk_of_find(routing, find.as_document()) : chunk_of_bounds(routing, bounds);
}

// The command's collection as the config servers have it now; and afterwards it is read again.
struct Fresh {
  std::string ns;
  Routes routes;
  const CollectionRouting* routing = nullptr;
};

Task<Result<Fresh>> fresh_table(Context* context, const Request* request) {
  SPILLWAY_CO_TRY(ns, chunk_ns(*request));
  SPILLWAY_CO_TRY(routes, co_await read_again(*context, *request, *ns));
  Fresh fresh{*std::move(ns), *std::move(routes)};
  fresh.routing = fresh.routes.collection(fresh.ns);
  co_return fresh;
}

Task<void> forget_ns(Context* context, std::string ns) {
  const catalog::Namespace name = catalog::split_namespace(ns);
  auto forgetting = forget_everywhere(*context, std::string(name.db), std::string(name.collection));
  co_await forgetting;
}

// The client's answer, when the owner's or the config servers' has come.
Task<Result<Response>> answer_and_forget(Context* context, std::string ns, Result<shard::Reply> reply, bool whole) {
  auto forgetting = forget_ns(context, std::move(ns));
  co_await forgetting;
  if (reply.has_error()) co_return std::move(reply.error());
  co_return whole ? passthrough(*std::move(reply)) : ok_response();
}

// --- split

Result<std::size_t> chunk_to_split(const Request& request, const CollectionRouting& routing, BsonDoc& at) {
  const ValueView find = request.body["find"], bounds = request.body["bounds"], middle = request.body["middle"];
  if (!given(find) && !given(bounds) && !given(middle)) {
    return Error(ErrorCode::bad_value, "need to specify find/bounds or middle");
  }
  if (given(find) && given(bounds)) {
    return Error(ErrorCode::bad_value, "cannot specify bounds and find at the same time");
  }
  if (given(find) && given(middle)) return Error(ErrorCode::bad_value, "cannot specify find and middle together");
  if (given(bounds) && given(middle)) return Error(ErrorCode::bad_value, "cannot specify bounds and middle together");
  if (given(find)) return chunk_of_find(routing, find.as_document());
  if (given(bounds)) return chunk_of_bounds(routing, bounds);
  SPILLWAY_TRY(ordered, in_key_order(routing, middle));
  at = *std::move(ordered);
  const std::size_t chunk = chunk_of_bound(routing, at.view());
  if (*routing.key.key_of_bound(routing.chunks.min_bound(chunk)) == *routing.key.key_of_bound(at.view())) {
    return Error(ErrorCode::operation_failed,
                 fmt::format("new split key {} is a boundary key of existing chunk [{},{})", to_json(at.view()),
                             to_json(routing.chunks.min_bound(chunk)), to_json(routing.chunks.max_bound(chunk))));
  }
  return chunk;
}

// The middle of a chunk's documents, which its owner finds.
Task<Result<BsonDoc>> median_of(Context* context, const Request* request, const Fresh* fresh, std::size_t chunk) {
  const catalog::ChunkMap& chunks = fresh->routing->chunks;
  BsonWriter body;
  body.append("splitVector", fresh->ns).append("keyPattern", fresh->routing->key.pattern());
  body.append("min", chunks.min_bound(chunk)).append("max", chunks.max_bound(chunk));
  body.append("force", true).append("$db", "admin");
  SPILLWAY_AWAIT(reply, command_to(*context, *request, chunks.owner(chunk), std::move(body).finish(),
                                   shard::RetryPolicy::idempotent));
  const Element first = reply->body()["splitKeys"].to_array().first();
  if (!first.is_document()) {
    co_return Error(cannot_split, "Unable to find median in chunk, possibly because chunk is empty.");
  }
  co_return BsonDoc(first.as_document());
}

// Tables have none while the featureCompatibilityVersion is 4.4.
bool has_timestamp(std::int32_t wire_version, const catalog::ChunkVersion& version) noexcept {
  return wire_version >= v5_0 && version.timestamp != 0;
}

BsonDoc split_at(const Context& context, const Fresh& fresh, std::size_t chunk, DocView at) {
  const CollectionRouting& routing = *fresh.routing;
  const catalog::ChunkVersion& version = routing.cluster->version;
  const std::int32_t wire_version = config_wire_version(context);
  BsonWriter body;
  body.append("splitChunk", fresh.ns);
  body.append("from", fresh.routes.shard(routing.chunks.owner(chunk)).name);
  body.append("keyPattern", routing.key.pattern());
  body.append_object_id("epoch", version.epoch);
  if (has_timestamp(wire_version, version)) {
    body.append_timestamp("timestamp", version.timestamp);
  } else {
    catalog::append_shard_version(body, version, catalog::VersionForm::array);
  }
  body.append("min", routing.chunks.min_bound(chunk)).append("max", routing.chunks.max_bound(chunk));
  body.begin_array("splitKeys").append_item(at).end();
  body.append("$db", "admin");
  return std::move(body).finish();
}

// --- moveChunk

// The setting of the cluster, in bytes.
Task<Result<std::int64_t>> chunk_bytes_max(Context* context, const Request* request) {
  if (const auto asked = request->body["maxChunkSizeBytes"].to_int64(); asked && *asked > 0) co_return *asked;
  auto finding = find_in_config(*context, *request, "settings", BsonWriter().append("_id", "chunksize").finish());
  SPILLWAY_CO_TRY(found, co_await finding);
  const auto mib = first_of_batch(found->body())["value"].to_int64();
  co_return mib && *mib > 0 ? *mib << 20 : chunk_bytes_max_default;
}

// The shard that `to` names: its id, or its connection string.
std::optional<std::string> shard_named(const Routes& routes, std::string_view to) {
  if (routes.shard_by_name(to)) return std::string(to);
  for (const catalog::Shard& shard : routes.table().shards()) {
    if (shard.holds_data && catalog::host_of_uri(shard.uri) == to) return shard.name;
  }
  return std::nullopt;
}

// The same of all shards that the config servers know now. ShardNotFound(70): there is none.
Task<Result<std::string>> find_shard(Context* context, const Request* request, std::string_view named) {
  for (int look = 0; look < 2; ++look) {
    const auto routes = context->router->resolve({});
    if (auto name = routes ? shard_named(*routes, named) : std::nullopt) co_return *std::move(name);
    if (look > 0) break;
    const RouteWait wait{request->deadline, false, request->interrupt};
    SPILLWAY_AWAIT(read, read_shards_again(*context, wait));
  }
  co_return Error(ErrorCode::shard_not_found, fmt::format("Shard {} not found", named));
}

Task<Result<std::string>> target_shard(Context* context, const Request* request, const std::string* ns) {
  const ValueView to = request->body["to"];
  if (!to.is_string()) co_return Error(ErrorCode::type_mismatch, "'to' must be of type String");
  if (to.as_string().empty()) {
    co_return Error(ErrorCode::bad_value, "you have to specify where you want to move the chunk");
  }
  auto found = co_await find_shard(context, request, to.as_string());
  if (found.has_error() && found.error().is(ErrorCode::shard_not_found)) {
    found.error().message = fmt::format(
        "Could not move chunk in '{}' to shard '{}' because that shard does not exist", *ns, to.as_string());
  }
  co_return found;
}

ValueView throttle_of(const Request& request) {
  const ValueView own = request.body["secondaryThrottle"];
  return own.exists() ? own : request.body["_secondaryThrottle"];
}

void append_throttle(BsonWriter& out, const Request& request) {
  const ValueView throttle = throttle_of(request), concern = request.body["writeConcern"];
  out.begin_document("secondaryThrottle");
  if (throttle.exists()) out.append("secondaryThrottle", throttle.truthy());
  if (concern.exists() && throttle.truthy()) out.append("writeConcern", concern);
  out.end();
}

// Config servers are upgraded first: those of 6.0 have both commands, and shards of before know one.
bool moves_ranges(const Context& context, const Fresh& fresh, std::size_t chunk, std::string_view to) {
  const auto has = [&context](catalog::ShardIndex shard) { return may_have_version(context, shard, v6_0); };
  const auto target = fresh.routes.shard_by_name(to);
  return has(cluster::config_shard) && has(fresh.routing->chunks.owner(chunk)) && (!target || has(*target));
}

BsonDoc move_chunk_to(const Context& context, const Request& request, const Fresh& fresh, std::size_t chunk,
                      std::string_view to, std::int64_t bytes_max) {
  const CollectionRouting& routing = *fresh.routing;
  const catalog::ChunkVersion& version = routing.cluster->version;
  const std::int32_t wire_version = config_wire_version(context);
  const bool waits = request.body["_waitForDelete"].truthy() || request.body["waitForDelete"].truthy();
  const bool forces = request.body["forceJumbo"].truthy();
  BsonWriter body;
  if (moves_ranges(context, fresh, chunk, to)) {
    body.append("_configsvrMoveRange", fresh.ns).append("toShard", to);
    body.append("min", routing.chunks.min_bound(chunk)).append("max", routing.chunks.max_bound(chunk));
    body.append("waitForDelete", waits).append("forceJumbo", std::int32_t{forces ? 1 : 0});
    append_throttle(body, request);
  } else {
    body.append("_configsvrMoveChunk", std::int32_t{1}).append("ns", fresh.ns);
    if (wire_version >= v5_0 && routing.cluster->uuid) {
      body.append_binary("uuid", 4, Bytes(routing.cluster->uuid->data(), routing.cluster->uuid->size()));
    }
    body.append("min", routing.chunks.min_bound(chunk)).append("max", routing.chunks.max_bound(chunk));
    body.append("shard", fresh.routes.shard(routing.chunks.owner(chunk)).name);
    body.append_timestamp("lastmod", version.lastmod());
    body.append_object_id("lastmodEpoch", version.epoch);
    if (has_timestamp(wire_version, version)) body.append_timestamp("lastmodTimestamp", version.timestamp);
    body.append("toShard", to).append("maxChunkSizeBytes", bytes_max);
    append_throttle(body, request);
    body.append("waitForDelete", waits);
    if (forces) body.append("forceJumbo", true);
  }
  append_passed_arguments(body, request, wire_version);
  body.begin_document("writeConcern").append("w", "majority").append("wtimeout", std::int32_t{15'000}).end();
  body.append("$db", "admin");
  return std::move(body).finish();
}

}  // namespace

Answer split_command(Context& context, Client&, const Request& request) {
  SPILLWAY_CO_TRY(fresh, co_await fresh_table(&context, &request));
  BsonDoc at;
  SPILLWAY_CO_TRY(chunk, chunk_to_split(request, *fresh->routing, at));
  if (at.view().empty()) {
    SPILLWAY_CO_TRY(median, co_await median_of(&context, &request, &*fresh, *chunk));
    at = *std::move(median);
  }
  auto splitting = command_to(context, request, fresh->routing->chunks.owner(*chunk),
                              split_at(context, *fresh, *chunk, at.view()), shard::RetryPolicy::not_idempotent);
  auto split = co_await splitting;
  auto answering = answer_and_forget(&context, fresh->ns, std::move(split), false);
  co_return co_await answering;
}

Answer move_chunk_command(Context& context, Client&, const Request& request) {
  const TimePoint begun = Clock::now();
  SPILLWAY_CO_TRY(fresh, co_await fresh_table(&context, &request));
  SPILLWAY_CO_TRY(to, co_await target_shard(&context, &request, &fresh->ns));
  SPILLWAY_CO_TRY(bytes_max, co_await chunk_bytes_max(&context, &request));
  SPILLWAY_CO_TRY(chunk, chunk_of(request, *fresh->routing));
  if (request.body["writeConcern"].exists() && !throttle_of(request).truthy()) {
    co_return Error(ErrorCode::unsupported_format, "Cannot specify write concern when secondaryThrottle is not set");
  }
  auto moving = command_to(context, request, cluster::config_shard,
                           move_chunk_to(context, request, *fresh, *chunk, *to, *bytes_max),
                           shard::RetryPolicy::idempotent);
  auto moved = co_await moving;
  co_await forget_ns(&context, fresh->ns);
  if (moved.has_error()) co_return std::move(moved.error());
  BsonWriter reply;
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun);
  reply.append("millis", static_cast<std::int32_t>(took.count()));
  co_return ok_response(std::move(reply));
}

Answer merge_chunks_command(Context& context, Client&, const Request& request) {
  SPILLWAY_CO_TRY(fresh, co_await fresh_table(&context, &request));
  const CollectionRouting& routing = *fresh->routing;
  const ValueView given_bounds = request.body["bounds"];
  if (!given_bounds.is_array()) co_return Error(ErrorCode::bad_value, "no bounds were specified");
  SPILLWAY_CO_TRY(bounds, parse_bounds(routing, given_bounds));
  const catalog::ShardIndex owner = routing.chunks.owner(chunk_of_bound(routing, bounds->min.view()));
  const std::int32_t wire_version = config_wire_version(context);
  const std::string hosts = connection_string_of(context.gateway.states()[cluster::config_shard]);
  for (const std::string_view name : {"_shardsvrMergeChunks", "mergeChunks"}) {
    if (wire_version < v6_0 && name != "mergeChunks") continue;
    BsonWriter body;
    body.append(name, fresh->ns).append("bounds", given_bounds);
    body.append("config", std::string_view(hosts)).append("shardName", fresh->routes.shard(owner).name);
    body.append_object_id("epoch", routing.cluster->version.epoch);
    if (has_timestamp(wire_version, routing.cluster->version)) {
      body.append_timestamp("timestamp", routing.cluster->version.timestamp);
    }
    append_passed_arguments(body, request, wire_version);
    body.append("$db", "admin");
    auto merging = command_to(context, request, owner, std::move(body).finish(), shard::RetryPolicy::not_idempotent);
    auto merged = co_await merging;
    const bool unknown = merged.has_error() && merged.error().is(ErrorCode::command_not_found);
    if (unknown && name != "mergeChunks") continue;
    auto answering = answer_and_forget(&context, fresh->ns, std::move(merged), true);
    co_return co_await answering;
  }
  co_return Error(ErrorCode::command_not_found, "no such command: 'mergeChunks'");
}

// From 7.0: all that can be merged on a shard.
Answer merge_all_chunks_command(Context& context, Client&, const Request& request) {
  const std::int32_t wire_version = config_wire_version(context);
  if (wire_version < v7_0) {
    co_return Error(ErrorCode::command_not_found, fmt::format("no such command: '{}'", request.name));
  }
  SPILLWAY_CO_TRY(ns, chunk_ns(request));
  const ValueView named = request.body["shard"];
  if (!named.exists()) co_return missing_field("mergeAllChunksOnShard.shard");
  if (!named.is_string()) co_return wrong_type("mergeAllChunksOnShard.shard", named, "string");
  SPILLWAY_CO_TRY(name, co_await find_shard(&context, &request, named.as_string()));
  const auto routes = context.router->resolve({});
  const auto shard = routes ? routes->shard_by_name(*name) : std::nullopt;
  if (!shard) co_return Error(ErrorCode::shard_not_found, fmt::format("Shard {} not found", *name));
  BsonWriter body;
  body.append("_shardsvrMergeAllChunksOnShard", *ns);
  own_fields(body, request, nullptr);
  append_passed_arguments(body, request, wire_version);
  body.append("$db", "admin");
  auto merging = command_to(context, request, *shard, std::move(body).finish(), shard::RetryPolicy::idempotent);
  auto merged = co_await merging;
  auto answering = answer_and_forget(&context, *std::move(ns), std::move(merged), true);
  co_return co_await answering;
}

Answer clear_jumbo_flag_command(Context& context, Client&, const Request& request) {
  SPILLWAY_CO_TRY(fresh, co_await fresh_table(&context, &request));
  SPILLWAY_CO_TRY(chunk, chunk_of(request, *fresh->routing));
  const catalog::ChunkMap& chunks = fresh->routing->chunks;
  BsonWriter body;
  body.append("_configsvrClearJumboFlag", fresh->ns);
  body.append_object_id("epoch", fresh->routing->cluster->version.epoch);
  body.append("minKey", chunks.min_bound(*chunk)).append("maxKey", chunks.max_bound(*chunk));
  append_passed_arguments(body, request, config_wire_version(context));
  append_majority(body, request);
  body.append("$db", "admin");
  auto clearing = command_to(context, request, cluster::config_shard, std::move(body).finish(),
                             shard::RetryPolicy::idempotent);
  auto cleared = co_await clearing;
  auto answering = answer_and_forget(&context, fresh->ns, std::move(cleared), false);
  co_return co_await answering;
}

}  // namespace spillway::exec
