#include "proxy/exec/read/merge_on_shard.h"

#include <fmt/format.h>

#include <algorithm>

#include "proxy/cluster/config_client.h"
#include "proxy/exec/core/cluster_fields.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/cursors/working_set.h"
#include "proxy/exec/read/find.h"
#include "proxy/exec/streams/single_shard.h"
#include "proxy/pipeline/split/split_for_merger.h"

namespace spillway::exec {

namespace {

// A shard's reply that opens a cursor without documents.
constexpr std::size_t opening_bytes = 4096;

// Have all servers of the cluster this version?
bool all_have(const Context& context, const Request& request, std::int32_t version) {
  const auto has = [&context, version](catalog::ShardIndex shard) {
    return may_have_version(context, shard, version);
  };
  // A shard that has not answered yet may be as old as the config servers.
  const catalog::ShardSet all = request.routes->all_shards();
  return has(cluster::config_shard) && std::all_of(all.begin(), all.end(), has);
}

bool names_key(const Element& merge) noexcept { return merge.is_document() && merge.as_document()["on"].exists(); }

Result<void> need_shard(MergerNeeds& needs, catalog::ShardIndex shard) {
  if (needs.shard && *needs.shard != shard) {
    return Error(ErrorCode::command_not_supported,
                 "the aggregation names collections of two databases that no single shard can read and write");
  }
  needs.shard = shard;
  return {};
}

Result<void> need_primary(MergerNeeds& needs, const Request& request, std::string_view db) {
  if (auto needed = need_shard(needs, request.routes->primary_shard(db)); needed.has_error()) return needed;
  if (db == request.db) needs.database = request.routes->database(db);  // the version of another one is not looked at
  return {};
}

// The fields that a shard finds $merge's documents by, unless the client says which: those that tell a document from
// all others of the collection. A shard knows them only if it is not sharded.
void append_key_fields(BsonWriter& out, const catalog::CollectionRouting* routing) {
  out.begin_array("on");
  bool has_id = false;
  if (is_sharded(routing)) {
    for (const auto& field : routing->key.fields()) {
      out.append_item(std::string_view(field.path));
      has_id = has_id || field.path == "_id";
    }
  }
  if (!has_id) out.append_item("_id");
  out.end();
}

void append_merge_stage(BsonWriter& out, const Request& request, DocView stages, const Element& merge) {
  const auto targets = involved_namespaces(stages, request.db);
  if (targets.has_error() || targets->empty()) {
    out.append_element(merge);
    return;
  }
  const InvolvedNamespace& target = targets->back();
  out.begin_document("$merge");
  if (merge.is_document() && merge.as_document()["into"].exists()) {
    out.append_elements(merge.as_document());
  } else {
    out.append("into", ValueView(merge));
  }
  append_key_fields(out, request.routes->collection(NamespaceText(target.db, target.collection).view()));
  out.end();
}

}  // namespace

bool shards_may_merge(const Context& context) noexcept {
  return context.in_cluster() && context.shared.shards_trust_us;
}

Result<void> refuse_router_options(DocView aggregate) {
  for (const Element& option : aggregate) {
    const bool flag = option.name == "needsMerge" || option.name == "fromMongos" || option.name == "fromRouter" ||
                      option.name == "mergeByPBRT";
    if (flag && option.truthy()) {
      return Error(51089, "Internal parameter(s) [needsMerge, fromMongos, mergeByPBRT] cannot be set to 'true' when "
                          "sent to mongos");
    }
    if (option.name == "exchange") return Error(51028, "Cannot specify exchange option to a mongos");
  }
  return {};
}

Result<MergerNeeds> merger_needs(const Context& context, const Request& request, DocView pipeline,
                                 std::span<const InvolvedNamespace> involved) {
  MergerNeeds needs;
  if (involved.empty()) return needs;
  // From 5.1 on any shard joins sharded collections, but in transactions from 8.0 on only. Others it joins as what it
  // has itself, in transactions and while the featureCompatibilityVersion is 5.0: that must be the primary shard.
  const bool anywhere = all_have(context, request, wire_version_of_8_0);
  const bool sharded_ones =
      anywhere || (!request.in_transaction && all_have(context, request, wire_version_of_5_1));
  bool on_primary = false;
  for (const InvolvedNamespace& each : involved) {
    const bool joins = each.stage == "$lookup" || each.stage == "$graphLookup";
    const auto* const routing = request.routes->collection(NamespaceText(each.db, each.collection).view());
    const bool sharded = is_sharded(routing);
    if (sharded && (each.stage == "$out" || (joins && !sharded_ones))) {
      return Error(28769, fmt::format("{}.{} cannot be sharded", each.db, each.collection));
    }
    if (joins) {
      on_primary = on_primary || !(sharded || anywhere);
      continue;
    }
    std::string_view db = request.db;
    if (each.stage == "$merge") {
      const bool named = names_key(last_stage(pipeline));
      if (sharded && !named) {
        needs.divided = true;
        continue;
      }
      // The shard looks among its own indexes for one that makes these fields unique. From 4.4 on the primary shard has
      // them only if it owns a part of the collection.
      const catalog::ShardSet owners = routing != nullptr ? routing->all_shards() : catalog::ShardSet();
      const bool elsewhere = owners.size() > 0 && !owners.contains(request.routes->primary_shard(each.db));
      if (named && elsewhere && all_have(context, request, wire_version_of_4_4)) {
        if (auto needed = need_shard(needs, owners.front()); needed.has_error()) return std::move(needed.error());
        continue;
      }
      if (named) db = each.db;
    } else if (each.stage != "$out") {
      continue;
    }
    if (auto needed = need_primary(needs, request, db); needed.has_error()) return std::move(needed.error());
  }
  // Where the target of a $merge names its shard, that one joins as well, if any does.
  if (on_primary && !(needs.shard && sharded_ones)) {
    if (auto needed = need_primary(needs, request, request.db); needed.has_error()) return std::move(needed.error());
  }
  return needs;
}

BsonDoc stages_for_merger(const Request& request, DocView merge_part) {
  const Element last = last_stage(merge_part);
  const bool adds_key = last.name == "$merge" && !names_key(last) && (last.is_document() || last.is_string());
  std::size_t left = merge_part.count();
  BsonWriter out;
  for (const Element& each : merge_part) {
    if (--left > 0 || !adds_key) {
      out.append_element(each);
    } else {
      out.begin_document(each.name);
      append_merge_stage(out, request, merge_part, last);
      out.end();
    }
  }
  return std::move(out).finish();
}

namespace {

// `batch_size`: of the first reply; nullopt: the shard's own.
BsonDoc shard_command_for(const Request& request, const pipeline::SplitForMerger& divided, bool merges,
                          std::optional<std::int32_t> batch_size) {
  BsonWriter out;
  if (merges) {
    copy_command(out, request, {"pipeline", "cursor", "writeConcern"});
  } else {
    copy_command(out, request, {"pipeline", "cursor"});
  }
  out.append_array("pipeline", divided.shard_part);
  const Element first = divided.shard_part.view().first();
  // They say then which shard they speak of.
  const bool of_shard = first.is_document() && pipeline::is_statistics_stage(first.as_document().first().name);
  if (divided.needs_merge || of_shard) out.append("fromMongos", true);
  if (divided.needs_merge) out.append("needsMerge", true);
  out.begin_document("cursor");
  if (batch_size) out.append("batchSize", *batch_size);
  out.end();
  return std::move(out).finish();
}

void append_merge_cursors(BsonWriter& out, const Request& request, const ClusterCursor& opened, DocView sort) {
  const NamespaceText ns(request.db, opened.remote_collection());
  out.begin_document_item().begin_document("$mergeCursors");
  if (!request.lsid.empty()) out.append("lsid", request.lsid_document());
  if (request.in_transaction) out.append("txnNumber", *request.txn_number).append("autocommit", false);
  if (!sort.empty()) out.append("sort", sort);
  out.append("compareWholeSortKey", false);
  out.begin_array("remotes");
  for (const RemoteCursor& remote : opened.remotes) {
    out.begin_document_item();
    out.append("shardId", request.routes->shard(remote.shard).name);
    out.append("hostAndPort", shard::HostAddress{remote.host, remote.port}.text());
    out.begin_document("cursorResponse").begin_document("cursor");
    out.append("id", remote.id).append("ns", ns.view()).begin_array("firstBatch").end().end();
    out.append("ok", 1.0).end().end();
  }
  out.end();
  out.append("tailableMode", "normal").append("nss", ns.view()).append("allowPartialResults", false);
  out.end().end();
}

BsonDoc merger_command(const Request& request, const AggregateArguments& aggregate, const ClusterCursor& opened,
                       const pipeline::SplitForMerger& divided, const Targets& targets) {
  const BsonDoc stages = stages_for_merger(request, divided.merge_part);
  BsonWriter out;
  copy_command(out, request, {"pipeline", "cursor", "hint"});
  out.begin_array("pipeline");
  append_merge_cursors(out, request, opened, divided.merge_sort);
  for (const Element& each : stages.view()) out.append_item(ValueView(each));
  out.end();
  // With it, a shard takes $merge's fields on trust.
  const Element last = last_stage(divided.merge_part);
  if (last.name != "$merge" || !names_key(last)) out.append("fromMongos", true);
  // The merger may have nothing of the collection.
  const bool has_default = targets.routing != nullptr && targets.routing->cluster &&
                           !targets.routing->cluster->default_collation.view().empty();
  if (has_default && !request.body["collation"].exists()) {
    out.append("collation", targets.routing->cluster->default_collation.view());
  }
  out.begin_document("cursor");
  if (aggregate.first.size) out.append("batchSize", *aggregate.first.size);
  out.end();
  return std::move(out).finish();
}

Task<Result<Response>> unite(Context& context, Client& client, const Request& request,
                             const AggregateArguments& aggregate, const Targets& targets,
                             const pipeline::SplitForMerger& divided) {
  SPILLWAY_CO_TRY(kept, reserve_kept(context, request, aggregate.collection));
  ActiveCursor cursor(context, make_cursor(client, request, aggregate.collection, *std::move(kept)));
  cursor->batch_size = aggregate.first.size.value_or(0);
  const std::int64_t wanted = FirstBatch().documents_max();
  expect_output(context, *cursor, divided.shard_part.view());
  const FirstReplies first = first_replies(context, *cursor, wanted, targets.shards.size());
  std::optional<std::int32_t> less;
  if (first.documents < wanted) less = static_cast<std::int32_t>(first.documents);
  const BsonDoc body = shard_command_for(request, divided, false, less);
  auto failed = co_await open_remotes(context, request, *cursor, targets, body, first);
  if (failed) co_return *std::move(failed);
  auto answering = answer_first_batch(context, std::move(cursor), aggregate.first, request);
  co_return co_await answering;
}

// Those that send, in turn.
catalog::ShardIndex merger_among(const catalog::ShardSet& shards, const Client& client) {
  auto skipped = static_cast<std::uint64_t>(client.operation_id) % shards.size();
  for (const catalog::ShardIndex shard : shards) {
    if (skipped-- == 0) return shard;
  }
  return shards.front();
}

}  // namespace

Task<Result<Response>> aggregate_on_shards(Context& context, Client& client, const Request& request,
                                           const AggregateArguments& aggregate, const AggregatePlan& plan,
                                           Error refusal) {
  // The halves, the command around each, and the merger's half with what is added to it.
  TakeCopyRoom taking_room(context, request, 4);
  SPILLWAY_CO_TRY(room, co_await taking_room);
  SPILLWAY_CO_TRY(divided, pipeline::split_for_merger(aggregate.pipeline));
  if (divided->merge_part.view().empty() && divided->merge_sort.view().empty()) {
    co_return co_await unite(context, client, request, aggregate, plan.targets, *divided);
  }
  if (!shards_may_merge(context)) co_return std::move(refusal);
  // Until the merger has taken them over, the cursors end with this one.
  ActiveCursor opened(context, make_cursor(client, request, aggregate.collection, Reservation()));
  BsonDoc body = shard_command_for(request, *divided, true, 0);
  auto failed = co_await open_remotes(context, request, *opened, plan.targets, body,
                                       FirstReplies{0, opening_bytes});
  if (failed) co_return *std::move(failed);
  body = merger_command(request, aggregate, *opened, *divided, plan.targets);
  CursorSeed seed{client, request, aggregate.collection};
  seed.batch_size = aggregate.first.size.value_or(0);
  seed.writes = ends_in_write(aggregate.pipeline) || request.body["writeConcern"].exists();
  seed.merges = true;
  seed.first_batch_documents = aggregate.first.documents_max();
  const catalog::ShardIndex merger = plan.merger.shard ? *plan.merger.shard : merger_among(plan.targets.shards, client);
  auto merging = open_on_one_shard(
      context, seed, {merger, RoutedBy::merging(plan.merger.database), shard::Command::of_body(body)}, true);
  auto answer = co_await merging;
  if (answer.has_error() && !seed.writes && Clock::now() >= request.deadline) {  // nothing is unknown then
    co_return time_limit_exceeded();
  }
  if (!answer.has_error() && !answer->failed) {
    for (RemoteCursor& remote : opened->remotes) remote.id = 0;
  }
  co_return answer;
}

}  // namespace spillway::exec
