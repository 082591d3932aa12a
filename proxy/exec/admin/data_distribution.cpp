#include "proxy/exec/admin/data_distribution.h"

#include <fmt/format.h>

#include <limits>
#include <map>
#include <vector>

#include "proxy/base/time_slice.h"
#include "proxy/cluster/config_client.h"
#include "proxy/exec/core/shard_call.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::exec {

namespace {

constexpr std::int32_t whole_batch = std::numeric_limits<std::int32_t>::max();

// The documents of a reply that has them all.
Result<DocView> documents_of(Context& context, const ShardOutcome& outcome) {
  if (outcome.error) return *outcome.error;
  SPILLWAY_TRY(parsed, wire::parse_cursor_reply(outcome.body()));
  const ValueView batch = outcome.body().find_path("cursor.firstBatch");
  if (parsed->id == 0 && batch.is_array()) return batch.as_document();
  kill_unread(context, outcome, parsed->ns, parsed->id);
  return Error(ErrorCode::bson_object_too_large,
               fmt::format("{}: there are too many collections for one reply", distribution_stage));
}

BsonDoc sharded_collections(const Request& request) {
  BsonWriter out;
  out.append("find", "collections").begin_document("filter");
  for (const std::string_view flag : {"dropped", "unsplittable"}) out.begin_document(flag).append("$ne", true).end();
  out.end().begin_document("projection").append("_id", std::int32_t{1}).end();
  out.append("batchSize", whole_batch).begin_document("readConcern").append("level", "majority").end();
  out.append("$readPreference", request.body["$readPreference"]);  // members refuse the command without it
  out.append("$db", "config");
  return std::move(out).finish();
}

// As a mongos asks them: of all of a shard's collections at once.
BsonDoc statistics_of_all(const Request& request) {
  BsonWriter out;
  out.append("aggregate", std::int32_t{1}).begin_array("pipeline");
  out.begin_document_item().begin_document("$_internalAllCollectionStats");
  out.begin_document("stats").begin_document("storageStats").end().end().end().end();
  out.begin_document_item().begin_document("$project");
  for (const std::string_view field :
       {"ns", "storageStats.count", "storageStats.numOrphanDocs", "storageStats.avgObjSize"}) {
    out.append(field, std::int32_t{1});
  }
  out.end().end().end();
  out.append("fromMongos", true).begin_document("cursor").append("batchSize", whole_batch).end();
  out.append("$readPreference", request.body["$readPreference"]);  // members refuse the command without it
  out.append("$db", "admin");
  return std::move(out).finish();
}

void append_shard(BsonWriter& out, std::string_view shard, DocView statistics) {
  const auto orphans = statistics["numOrphanDocs"].to_int64(), count = statistics["count"].to_int64(),
             mean = statistics["avgObjSize"].to_int64();
  const auto append = [&out](std::string_view name, std::optional<std::int64_t> number) {
    if (number) {
      append_count(out, name, *number);
    } else {
      out.append_null(name);
    }
  };
  const auto times = [](std::optional<std::int64_t> a, std::optional<std::int64_t> b) {
    return a && b ? std::optional(*a * *b) : std::nullopt;
  };
  const auto owned = count && orphans ? std::optional(*count - *orphans) : std::nullopt;
  out.begin_document_item().append("shardName", shard);
  if (orphans) append_count(out, "numOrphanedDocs", *orphans);
  append("numOwnedDocuments", owned);
  append("ownedSizeBytes", times(mean, owned));
  append("orphanedSizeBytes", times(mean, orphans));
  out.end();
}

}  // namespace

Result<void> check_distribution(const Request& request, ValueView stage) {
  if (!stage.is_document() || !stage.as_document().empty()) {
    return Error(6789100, fmt::format("The {} stage specification must be an empty object", distribution_stage));
  }
  if (request.db == "admin") return {};
  return Error(6789102, fmt::format("The {} stage must be run on the admin database", distribution_stage));
}

Task<Result<void>> list_data_distribution(Context& context, const Request& request, QueryRun& into) {
  const BsonDoc find = sharded_collections(request), aggregate = statistics_of_all(request);
  auto asking = call_shard(context, {cluster::config_shard, RoutedBy::nothing(), shard::Command::of_body(find)},
                           read_options(context, request));
  const ShardOutcome sharded = co_await asking;
  SPILLWAY_CO_TRY(names, documents_of(context, sharded));
  auto calling = call_shards(context, request.routes->all_shards(), RoutedBy::nothing(),
                             shard::Command::of_body(aggregate), read_options(context, request));
  const ShardOutcomes outcomes = co_await calling;
  TimeSlice slice(context.pump);
  std::map<std::string_view, std::vector<std::pair<catalog::ShardIndex, DocView>>> parts;  // in the replies
  for (const Element& name : *names) {
    if (slice.is_over()) co_await slice.next();
    if (const ValueView ns = name.to_document()["_id"]; ns.is_string()) parts[ns.as_string()];
  }
  std::vector<Result<DocView>> told;  // all, since each may have a cursor to end
  for (const ShardOutcome& outcome : outcomes) told.push_back(documents_of(context, outcome));
  for (const Result<DocView>& each : told) {
    if (each.has_error()) co_return each.error();
  }
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    for (const Element& each : *told[i]) {
      if (slice.is_over()) co_await slice.next();
      const DocView document = each.to_document();
      const ValueView ns = document["ns"], statistics = document["storageStats"];
      if (!ns.is_string() || !statistics.is_document()) continue;
      const auto found = parts.find(ns.as_string());
      if (found != parts.end()) found->second.emplace_back(outcomes[i].shard, statistics.as_document());
    }
  }
  for (const auto& [ns, shards] : parts) {
    if (slice.is_over()) co_await slice.next();
    if (shards.empty()) continue;
    BsonWriter out;
    out.append("ns", ns).begin_array("shards");
    for (const auto& [shard, statistics] : shards) append_shard(out, request.routes->shard(shard).name, statistics);
    out.end();
    const BsonDoc document = std::move(out).finish();
    SPILLWAY_AWAIT(pushed, into.push(document));
  }
  co_return co_await into.finish();
}

}  // namespace spillway::exec
