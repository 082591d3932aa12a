// The rows of the commands that only a cluster has.
#include <fmt/format.h>

#include "proxy/exec/core/command.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/sharding/run_by_form.h"

namespace spillway::exec {

Task<Result<Response>> split_command(Context& context, Client& client, const Request& request);
Task<Result<Response>> move_chunk_command(Context& context, Client& client, const Request& request);
Task<Result<Response>> merge_chunks_command(Context& context, Client& client, const Request& request);
Task<Result<Response>> merge_all_chunks_command(Context& context, Client& client, const Request& request);
Task<Result<Response>> clear_jumbo_flag_command(Context& context, Client& client, const Request& request);

namespace {

using Answer = Task<Result<Response>>;

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

}  // namespace

std::span<const CommandSpec> sharding_commands() {
  static constexpr auto form = [](std::string_view name, std::string_view help) {
    return CommandSpec{.name = name, .handler = by_form, .admin_only = true, .cluster_only = true, .help = help};
  };
  static constexpr auto own = [](std::string_view name, Handler handler, std::string_view help) {
    return CommandSpec{.name = name, .handler = handler, .admin_only = true, .cluster_only = true, .help = help};
  };
  static constexpr auto refused = [](std::string_view name, Handler handler) {
    return CommandSpec{.name = name, .handler = handler, .cluster_only = true, .help = "not possible here"};
  };
  static constexpr CommandSpec specs[] = {
      form("enableSharding", "make a database, and let it have sharded collections"),
      form("enablesharding", "older name of enableSharding"),
      form("movePrimary", "move a database's primary shard"),
      form("moveprimary", "older name of movePrimary"),
      form("shardCollection", "shard a collection"),
      form("shardcollection", "older name of shardCollection"),
      form("refineCollectionShardKey", "add fields to a shard key"),
      form("reshardCollection", "change a shard key"),
      form("commitReshardCollection", "end resharding now"),
      form("abortReshardCollection", "give resharding up"),
      form("cleanupReshardCollection", "remove what failed resharding left"),
      form("moveCollection", "move a collection that is not sharded"),
      form("abortMoveCollection", "give moveCollection up"),
      form("unshardCollection", "make a collection unsharded"),
      form("abortUnshardCollection", "give unshardCollection up"),
      form("setAllowMigrations", "let chunks of a collection move, or not"),
      form("repairShardedCollectionChunksHistory", "repair the chunks' history"),
      own("split", split_command, "split a chunk"),
      own("moveChunk", move_chunk_command, "move a chunk"),
      own("movechunk", move_chunk_command, "older name of moveChunk"),
      form("moveRange", "move a range of a chunk"),
      own("mergeChunks", merge_chunks_command, "merge chunks"),
      own("mergeAllChunksOnShard", merge_all_chunks_command, "merge what can be merged on a shard"),
      own("clearJumboFlag", clear_jumbo_flag_command, "let a jumbo chunk move again"),
      form("addShard", "add a shard"),
      form("addshard", "older name of addShard"),
      form("removeShard", "drain a shard, and remove it"),
      form("removeshard", "older name of removeShard"),
      form("transitionFromDedicatedConfigServer", "let the config servers be a shard, too"),
      form("transitionToDedicatedConfigServer", "let the config servers be no shard"),
      form("addShardToZone", "add a shard to a zone"),
      form("removeShardFromZone", "remove a shard from a zone"),
      form("updateZoneKeyRange", "give a range to a zone"),
      form("balancerStart", "start the balancer"),
      form("balancerStop", "stop the balancer"),
      form("balancerStatus", "state of the balancer"),
      form("balancerCollectionStatus", "is a collection balanced?"),
      form("configureCollectionBalancing", "how a collection is balanced"),
      form("setFeatureCompatibilityVersion", "let the features of a version be used"),
      form("setDefaultRWConcern", "the cluster's default concerns"),
      form("getDefaultRWConcern", "the cluster's default concerns"),
      form("setClusterParameter", "set a parameter of the cluster"),
      form("getClusterParameter", "read parameters of the cluster"),
      form("setUserWriteBlockMode", "refuse users' writes"),
      own("fsync", fsync_shards, "write the shards' data to disk"),
      own("fsyncUnlock", only_through_mongos, "not possible here"),
      refused("cloneCollectionAsCapped", not_on_routers),
      refused("checkMetadataConsistency", only_through_mongos),
      refused("analyzeShardKey", only_through_mongos),
      refused("configureQueryAnalyzer", only_through_mongos),
      refused("setQuerySettings", only_through_mongos),
      refused("removeQuerySettings", only_through_mongos),
  };
  return specs;
}

}  // namespace spillway::exec
