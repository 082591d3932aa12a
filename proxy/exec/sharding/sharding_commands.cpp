// The rows of the commands that only a cluster has.
#include <fmt/format.h>

#include "proxy/exec/core/command.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/sharding/run_by_form.h"

namespace spillway::exec {

HandlerFunction split_command, move_chunk_command, merge_chunks_command, merge_all_chunks_command,
    clear_jumbo_flag_command;

namespace {

Answer by_form(Context& context, Client&, const Request& request) {
  co_return co_await run_by_form(context, request);
}

// What a mongos of some version does, and this router does not.
Answer only_through_mongos(Context&, Client&, const Request& request) {
  co_return Error(ErrorCode::command_not_supported,
                  fmt::format("{} is not possible through this router: send it to a mongos of the cluster",
                              request.name));
}

Answer not_on_routers(Context&, Client&, const Request& request) {
  co_return Error(ErrorCode::command_not_supported,
                  fmt::format("{} is not possible through a router: send it to the shard itself", request.name));
}

Answer by_reload(Context&, Client&, const Request& request) {
  co_return Error(ErrorCode::command_not_supported,
                  fmt::format("{} is not possible here: a reload (SIGHUP, systemctl reload spillway) reads them anew",
                              request.name));
}

Answer fsync_shards(Context& context, Client&, const Request& request) {
  if (request.body["lock"].truthy()) {
    co_return Error(ErrorCode::illegal_operation,
                    "can't do lock through this router: lock the primary of each shard and of the config servers");
  }
  BsonWriter body;
  body.append("fsync", std::int32_t{1});
  append_passed_arguments(body, request, config_wire_version(context));
  body.append("$db", "admin");
  const BsonDoc command = std::move(body).finish();
  shard::CallOptions options = write_options(context, request);
  options.retry = shard::RetryPolicy::idempotent;
  const ShardOutcomes outcomes = co_await call_shards(context, request.routes->all_shards(), RoutedBy::nothing(),
                                                      shard::Command::of_body(command), options);
  BsonWriter reply;
  std::int64_t files = 0;
  for (const ShardOutcome& outcome : outcomes) {
    if (outcome.error) co_return *outcome.error;
    files += outcome.body()["numFiles"].to_int64().value_or(0);
  }
  reply.append("numFiles", static_cast<std::int32_t>(files));
  reply.begin_document("all");
  for (const ShardOutcome& outcome : outcomes) {
    reply.append(request.routes->shard(outcome.shard).name, outcome.body());
  }
  reply.end();
  co_return ok_response(std::move(reply));
}

// The balancer and zones are documents of the config database: the right to change them allows the commands.
bool may_in_config(const Subject& subject, auth::ActionSet actions, std::string_view collection) {
  return subject.privileges.allows(actions, "config", collection);
}
bool may_set_balancer(const Subject& subject) { return may_in_config(subject, auth::Action::update, "settings"); }
bool may_see_balancer(const Subject& subject) { return may_in_config(subject, auth::Action::find, "settings"); }
bool may_configure_balancing(const Subject& subject) {
  using enum auth::Action;
  if (!meets(on_full_name(split_chunk), subject)) return false;
  return !subject.body["defragmentCollection"].truthy() || meets(on_full_name(move_chunk), subject);
}
bool may_add_to_zone(const Subject& subject) {
  using enum auth::Action;
  return subject.may_on_cluster(enable_sharding) || may_in_config(subject, update, "shards");
}
bool may_remove_from_zone(const Subject& subject) {
  using enum auth::Action;
  return subject.may_on_cluster(enable_sharding) ||
         (may_in_config(subject, update, "shards") && may_in_config(subject, find, "tags"));
}
bool may_change_zone(const Subject& subject) {
  using enum auth::Action;
  return subject.may_on_cluster(enable_sharding) ||
         (may_in_config(subject, find, "shards") && may_in_config(subject, {find, update, remove}, "tags"));
}

}  // namespace

std::span<const CommandSpec> sharding_commands() {
  using auth::Action;
  using enum Trait;
  static constexpr Trait in_cluster = admin_only | cluster_only;
  static constexpr auto form = [](std::string_view name, std::string_view help, CommandNeed need) {
    return CommandSpec{name, help, by_form, need, in_cluster | audited};
  };
  static constexpr auto asking = [](std::string_view name, std::string_view help, CommandNeed need) {
    return CommandSpec{name, help, by_form, need, in_cluster};
  };
  static constexpr auto refused = [](std::string_view name, Handler handler) {
    return CommandSpec{name, "not possible here", handler, any_user, cluster_only};
  };
  static constexpr CommandSpec specs[] = {
      form("enableSharding", "make a database, and let it have sharded collections",
       on_named_database(Action::enable_sharding)),
      form("enablesharding", "older name of enableSharding", on_named_database(Action::enable_sharding)),
      form("movePrimary", "move a database's primary shard", on_named_database(Action::move_chunk)),
      form("moveprimary", "older name of movePrimary", on_named_database(Action::move_chunk)),
      form("shardCollection", "shard a collection", on_full_name(Action::enable_sharding)),
      form("shardcollection", "older name of shardCollection", on_full_name(Action::enable_sharding)),
      form("refineCollectionShardKey", "add fields to a shard key", on_full_name(Action::refine_collection_shard_key)),
      form("reshardCollection", "change a shard key", on_full_name(Action::reshard_collection)),
      form("commitReshardCollection", "end resharding now", on_full_name(Action::reshard_collection)),
      form("abortReshardCollection", "give resharding up", on_full_name(Action::reshard_collection)),
      form("cleanupReshardCollection", "remove what failed resharding left", on_full_name(Action::reshard_collection)),
      form("moveCollection", "move a collection that is not sharded", on_full_name(Action::move_collection)),
      form("abortMoveCollection", "give moveCollection up", on_full_name(Action::move_collection)),
      form("unshardCollection", "make a collection unsharded", on_full_name(Action::unshard_collection)),
      form("abortUnshardCollection", "give unshardCollection up", on_full_name(Action::unshard_collection)),
      form("setAllowMigrations", "let chunks of a collection move, or not", on_full_name(Action::move_chunk)),
      form("repairShardedCollectionChunksHistory", "repair the chunks' history", on_full_name(Action::split_chunk)),
      {"split", "split a chunk", split_command, on_full_name(Action::split_chunk), in_cluster | audited},
      {"moveChunk", "move a chunk", move_chunk_command, on_full_name(Action::move_chunk), in_cluster | audited},
      {"movechunk", "older name of moveChunk", move_chunk_command, on_full_name(Action::move_chunk),
       in_cluster | audited},
      form("moveRange", "move a range of a chunk", on_full_name(Action::move_chunk)),
      {"mergeChunks", "merge chunks", merge_chunks_command, on_full_name(Action::split_chunk), in_cluster | audited},
      {"mergeAllChunksOnShard", "merge what can be merged on a shard", merge_all_chunks_command,
       on_full_name(Action::split_chunk), in_cluster | audited},
      {"clearJumboFlag", "let a jumbo chunk move again", clear_jumbo_flag_command,
       on_full_name(Action::clear_jumbo_flag), in_cluster | audited},
      form("addShard", "add a shard", on_cluster(Action::add_shard)),
      form("addshard", "older name of addShard", on_cluster(Action::add_shard)),
      form("removeShard", "drain a shard, and remove it", on_cluster(Action::remove_shard)),
      form("removeshard", "older name of removeShard", on_cluster(Action::remove_shard)),
      form("transitionFromDedicatedConfigServer", "let the config servers be a shard, too",
       on_cluster(Action::add_shard)),
      form("transitionToDedicatedConfigServer", "let the config servers be no shard", on_cluster(Action::remove_shard)),
      form("addShardToZone", "add a shard to a zone", by_rule(may_add_to_zone)),
      form("removeShardFromZone", "remove a shard from a zone", by_rule(may_remove_from_zone)),
      form("updateZoneKeyRange", "give a range to a zone", by_rule(may_change_zone)),
      form("balancerStart", "start the balancer", by_rule(may_set_balancer)),
      form("balancerStop", "stop the balancer", by_rule(may_set_balancer)),
      asking("balancerStatus", "state of the balancer", by_rule(may_see_balancer)),
      asking("balancerCollectionStatus", "is a collection balanced?", on_full_name(Action::enable_sharding)),
      form("configureCollectionBalancing", "how a collection is balanced", by_rule(may_configure_balancing)),
      form("setFeatureCompatibilityVersion", "let the features of a version be used",
       on_cluster(Action::set_feature_compatibility_version)),
      form("setDefaultRWConcern", "the cluster's default concerns", on_cluster(Action::set_default_rw_concern)),
      asking("getDefaultRWConcern", "the cluster's default concerns", on_cluster(Action::get_default_rw_concern)),
      form("setClusterParameter", "set a parameter of the cluster", on_cluster(Action::set_cluster_parameter)),
      asking("getClusterParameter", "read parameters of the cluster", on_cluster(Action::get_cluster_parameter)),
      form("setUserWriteBlockMode", "refuse users' writes", on_cluster(Action::set_user_write_block_mode)),
      {"fsync", "write the shards' data to disk", fsync_shards, on_cluster(Action::fsync), in_cluster | audited},
      {"fsyncUnlock", "not possible here", only_through_mongos, on_cluster(Action::unlock), in_cluster},
      refused("cloneCollectionAsCapped", not_on_routers),
      {"rotateCertificates", "not possible here", by_reload, any_user},
      refused("appendOplogNote", only_through_mongos),
      refused("checkMetadataConsistency", only_through_mongos),
      refused("analyzeShardKey", only_through_mongos),
      refused("configureQueryAnalyzer", only_through_mongos),
      refused("setQuerySettings", only_through_mongos),
      refused("removeQuerySettings", only_through_mongos),
      refused("setProfilingFilterGlobally", only_through_mongos),
      refused("validateDBMetadata", only_through_mongos),
  };
  return specs;
}

}  // namespace spillway::exec
