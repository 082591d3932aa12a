#include "proxy/cluster/config_client.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "proxy/base/clock.h"
#include "proxy/base/memory_wait.h"
#include "proxy/base/time_slice.h"
#include "proxy/shard/connection.h"
#include "proxy/shard/message_turns.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::cluster {

namespace {

// As other routers wait for a config server's answer.
constexpr auto config_answer_max = std::chrono::seconds(30);
constexpr std::size_t documents_per_step = 32;

void append_read_preference(BsonWriter& out) {
  out.begin_document("$readPreference").append("mode", "primaryPreferred").end();
}

// Takes a batch's documents. The reply stays alive meanwhile.
Task<Result<void>> take_batch(Pump* pump, DocView batch, const ConfigClient::Take* take) {
  TimeSlice slice(*pump);
  std::size_t taken = 0;
  for (auto at = batch.begin(); !at.done(); ++at) {
    if (!at->is_document()) co_return Error(ErrorCode::failed_to_parse, "a config server's batch is damaged");
    if (auto result = (*take)(at->as_document()); result.has_error()) co_return result.error();
    if (++taken % documents_per_step == 0 && slice.is_over()) co_await slice.next();
  }
  co_return Result<void>();
}

}  // namespace

Task<Result<shard::Reply>> ConfigClient::call(BsonDoc body, std::optional<shard::HostAddress> host, bool reads) {
  shard::CallOptions options;
  options.budget = &budget_;
  options.deadline = Clock::now() + config_answer_max;
  options.host = std::move(host);
  if (reads) options.read_preference = &shard::ReadPreference::primary_preferred();
  options.retry = reads ? shard::RetryPolicy::idempotent : shard::RetryPolicy::not_idempotent;
  BsonWriter times;
  if (const auto time = clock_.for_server(trusted_)) auth::append_cluster_time(times, *time);
  const BsonDoc added = std::move(times).finish();
  shard::Command command = shard::Command::of_body(body);
  if (!added.view().empty()) command.suffix = shard::elements_of(added.view());
  auto reply = co_await gateway_.call(config_shard, command, options);
  if (reply.has_error()) co_return std::move(reply.error()).with_context("the config servers");
  auto looking = shard::is_valid_in_turns(pump_, reply->body());
  if (!co_await looking) {
    co_return Error(ErrorCode::failed_to_parse, "the config servers sent a damaged reply");
  }
  if (const ValueView told = reply->body()["$clusterTime"]; told.exists()) {
    if (const auto time = auth::read_cluster_time(told); !time.has_error()) clock_.hear(*time, wall_clock_ms() / 1000);
  }
  if (!wire::reply_is_ok(reply->body())) co_return wire::error_from_reply(reply->body());
  co_return reply;
}

Task<Result<BsonDoc>> ConfigClient::command(BsonDoc body) {
  auto calling = call(std::move(body), std::nullopt, false);
  SPILLWAY_CO_TRY(reply, co_await calling);
  co_return BsonDoc(reply->body());
}

Task<Result<void>> ConfigClient::read_on(std::string_view db, std::string collection, std::int64_t id,
                                         shard::HostAddress host, Take take) {
  while (id != 0) {
    BsonWriter body;
    body.append("getMore", id).append("collection", collection).append("$db", db);
    append_read_preference(body);
    auto calling = call(std::move(body).finish(), host, true);
    SPILLWAY_CO_TRY(reply, co_await calling);
    SPILLWAY_CO_TRY(parsed, wire::parse_cursor_reply(reply->body()));
    auto taking = take_batch(&pump_, parsed->batch, &take);
    if (auto taken = co_await taking; taken.has_error()) co_return taken;
    id = parsed->id;
  }
  co_return Result<void>();
}

Task<Result<void>> ConfigClient::find(Find find, Take take) {
  BsonWriter body;
  body.append("find", find.collection);
  body.append("filter", find.filter.view());
  if (!find.sort.view().empty()) body.append("sort", find.sort.view());
  if (find.limit > 0) body.append("limit", find.limit).append("singleBatch", true);
  body.begin_document("readConcern").append("level", "majority");
  // No later than the time that call() tells: a server refuses times that it does not know.
  const auto told = clock_.for_server(trusted_);
  if (find.after_now && told) body.append_timestamp("afterClusterTime", told->time);
  body.end();
  body.append("$db", find.db);
  append_read_preference(body);
  auto calling = call(std::move(body).finish(), std::nullopt, true);
  SPILLWAY_CO_TRY(reply, co_await calling);
  SPILLWAY_CO_TRY(parsed, wire::parse_cursor_reply(reply->body()));
  auto taking = take_batch(&pump_, parsed->batch, &take);
  if (auto taken = co_await taking; taken.has_error()) co_return taken;
  const std::int64_t id = parsed->id;
  const shard::HostAddress host = reply->host;
  *reply = {};  // its bytes
  auto reading = read_on(find.db, std::move(find.collection), id, host, std::move(take));
  co_return co_await reading;
}

Task<Result<std::vector<catalog::ShardEntry>>> ConfigClient::shards() {
  std::vector<catalog::ShardEntry> entries;
  Find asked{"shards", BsonDoc(), BsonWriter().append("_id", 1).finish(), 0, "config", true};
  auto reading = find(std::move(asked), [&entries](DocView doc) -> Result<void> {
    SPILLWAY_TRY(entry, catalog::read_shard_entry(doc));
    entries.push_back(*std::move(entry));
    return {};
  });
  if (auto read = co_await reading; read.has_error()) co_return std::move(read.error());
  co_return entries;
}

template <class Entry>
Task<Result<std::optional<Entry>>> ConfigClient::entry(std::string collection, std::string id, bool after_now,
                                                       Result<Entry> (*read)(DocView)) {
  std::optional<Entry> found;
  auto reading = find({std::move(collection), BsonWriter().append("_id", id).finish(), {}, 1, "config", after_now},
                      [&found, read](DocView doc) -> Result<void> {
                        SPILLWAY_TRY(one, read(doc));
                        found = *std::move(one);
                        return {};
                      });
  if (auto done = co_await reading; done.has_error()) co_return std::move(done.error());
  co_return found;
}

Task<Result<std::optional<catalog::DatabaseEntry>>> ConfigClient::database(std::string name, bool after_now) {
  return entry("databases", std::move(name), after_now, catalog::read_database_entry);
}

Task<Result<std::optional<catalog::CollectionEntry>>> ConfigClient::collection(std::string ns, bool after_now) {
  auto reading = entry("collections", std::move(ns), after_now, catalog::read_collection_entry);
  auto found = co_await reading;
  if (found.has_value() && *found && (*found)->dropped) found->reset();
  co_return found;
}

Task<Result<void>> ConfigClient::chunks(catalog::RoutingUpdate& update, bool after_now) {
  Find asked{"chunks", update.filter(), catalog::chunks_sort(), 0, "config", after_now};
  Reservation held = *budget_.try_reserve(0);
  auto reading = find(std::move(asked), [&](DocView chunk) -> Result<void> {
    if (auto added = update.add(chunk); added.has_error()) return added;
    const std::size_t bytes = update.memory_bytes();
    if (bytes <= held.bytes() || held.try_grow(bytes - held.bytes())) return {};
    return memory_refused(budget_, bytes, "a collection's chunks");
  });
  co_return co_await reading;
}

Task<Result<catalog::ConcernDefaults>> ConfigClient::concern_defaults() {
  catalog::ConcernDefaults defaults;
  BsonWriter filter;
  filter.append("_id", catalog::concern_defaults_id);
  auto reading = find({"settings", std::move(filter).finish(), {}, 1}, [&defaults](DocView doc) -> Result<void> {
    defaults = catalog::read_concern_defaults(doc);
    return {};
  });
  if (auto read = co_await reading; read.has_error()) co_return std::move(read.error());
  co_return defaults;
}

Task<Result<auth::ClusterKeys::Ptr>> ConfigClient::keys() {
  auto keys = std::make_shared<auth::ClusterKeys>();
  Find asked{"system.keys"};
  asked.db = "admin";
  auto reading = find(std::move(asked), [&keys](DocView key) { return keys->add(key); });
  if (auto read = co_await reading; read.has_error()) co_return std::move(read.error());
  co_return auth::ClusterKeys::Ptr(std::move(keys));
}

Task<Result<catalog::ObjectId>> ConfigClient::cluster_id() {
  std::optional<catalog::ObjectId> id;
  auto reading = find({"version", BsonDoc(), {}, 1}, [&id](DocView doc) -> Result<void> {
    id = catalog::read_object_id(doc["clusterId"]);
    return {};
  });
  if (auto read = co_await reading; read.has_error()) co_return std::move(read.error());
  if (!id)
    co_return Error(ErrorCode::namespace_not_found, "config.version names no cluster: are these config servers?");
  co_return *id;
}

}  // namespace spillway::cluster
