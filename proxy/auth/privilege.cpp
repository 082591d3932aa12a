#include "proxy/auth/privilege.h"

#include <algorithm>
#include <array>

namespace spillway::auth {

namespace {

using enum Action;

struct NamedAction {
  std::string_view name;
  Action action;
};

constexpr auto action_names = std::to_array<NamedAction>({  // by name
    {"addShard", add_shard}, {"advanceClusterTime", advance_cluster_time}, {"analyzeShardKey", analyze_shard_key},
    {"appendOplogNote", append_oplog_note}, {"bypassDocumentValidation", bypass_document_validation},
    {"bypassWriteBlockingMode", bypass_write_blocking_mode},
    {"changeCustomData", change_custom_data}, {"changeOwnCustomData", change_own_custom_data},
    {"changeOwnPassword", change_own_password}, {"changePassword", change_password}, {"changeStream", change_stream},
    {"checkMetadataConsistency", check_metadata_consistency}, {"cleanupOrphaned", cleanup_orphaned},
    {"cleanupStructuredEncryptionData", cleanup_structured_encryption_data}, {"clearJumboFlag", clear_jumbo_flag},
    {"collMod", coll_mod}, {"collStats", coll_stats}, {"compact", compact},
    {"compactStructuredEncryptionData", compact_structured_encryption_data},
    {"configureQueryAnalyzer", configure_query_analyzer}, {"connPoolStats", conn_pool_stats},
    {"convertToCapped", convert_to_capped}, {"createCollection", create_collection}, {"createIndex", create_index},
    {"createRole", create_role}, {"createSearchIndexes", create_search_indexes}, {"createUser", create_user},
    {"dbHash", db_hash}, {"dbStats", db_stats},
    {"dropCollection", drop_collection}, {"dropConnections", drop_connections}, {"dropDatabase", drop_database},
    {"dropIndex", drop_index}, {"dropRole", drop_role}, {"dropSearchIndex", drop_search_index},
    {"dropUser", drop_user}, {"enableProfiler", enable_profiler},
    {"enableSharding", enable_sharding}, {"find", find}, {"flushRouterConfig", flush_router_config}, {"fsync", fsync},
    {"getClusterParameter", get_cluster_parameter}, {"getCmdLineOpts", get_cmd_line_opts},
    {"getDefaultRWConcern", get_default_rw_concern}, {"getLog", get_log}, {"getParameter", get_parameter},
    {"getShardMap", get_shard_map}, {"getShardVersion", get_shard_version}, {"grantRole", grant_role},
    {"hostInfo", host_info}, {"impersonate", impersonate}, {"indexStats", index_stats}, {"inprog", inprog},
    {"insert", insert}, {"internal", internal}, {"invalidateUserCache", invalidate_user_cache},
    {"killAnyCursor", kill_any_cursor}, {"killAnySession", kill_any_session}, {"killCursors", kill_cursors},
    {"killop", kill_op}, {"listCollections", list_collections}, {"listDatabases", list_databases},
    {"listIndexes", list_indexes}, {"listSearchIndexes", list_search_indexes}, {"listSessions", list_sessions},
    {"listShards", list_shards},
    {"logRotate", log_rotate}, {"moveChunk", move_chunk},
    {"moveCollection", move_collection}, {"netstat", netstat},
    {"planCacheIndexFilter", plan_cache_index_filter}, {"planCacheRead", plan_cache_read},
    {"planCacheWrite", plan_cache_write}, {"reIndex", re_index},
    {"refineCollectionShardKey", refine_collection_shard_key}, {"remove", remove}, {"removeShard", remove_shard},
    {"renameCollectionSameDB", rename_collection_same_db}, {"replSetGetStatus", repl_set_get_status},
    {"reshardCollection", reshard_collection}, {"revokeRole", revoke_role}, {"serverStatus", server_status},
    {"setAuthenticationRestriction", set_authentication_restriction}, {"setClusterParameter", set_cluster_parameter},
    {"setDefaultRWConcern", set_default_rw_concern},
    {"setFeatureCompatibilityVersion", set_feature_compatibility_version}, {"setParameter", set_parameter},
    {"setUserWriteBlockMode", set_user_write_block_mode}, {"shardedDataDistribution", sharded_data_distribution},
    {"shutdown", shutdown}, {"splitChunk", split_chunk}, {"splitVector", split_vector}, {"top", top},
    {"unlock", unlock},
    {"unshardCollection", unshard_collection}, {"update", update},
    {"updateSearchIndex", update_search_index}, {"useUUID", use_uuid},
    {"validate", validate}, {"viewRole", view_role}, {"viewUser", view_user},
});
static_assert(std::is_sorted(action_names.begin(), action_names.end(),
                             [](const NamedAction& a, const NamedAction& b) { return a.name < b.name; }));

}  // namespace

std::optional<Action> action_named(std::string_view name) {
  const auto found = std::lower_bound(action_names.begin(), action_names.end(), name,
                                      [](const NamedAction& have, std::string_view want) { return have.name < want; });
  if (found == action_names.end() || found->name != name) return std::nullopt;
  return found->action;
}

std::optional<Privilege> read_privilege(DocView document) {
  const ValueView resource = document["resource"];
  const ValueView actions = document["actions"];
  if (!resource.is_document() || !actions.is_array()) return std::nullopt;
  const DocView where = resource.as_document();
  const ValueView db = where["db"];
  const ValueView collection = where["collection"];
  const ValueView buckets = where["system_buckets"];
  Privilege read;
  if (where["cluster"].truthy()) {
    read.on = Privilege::On::cluster;
  } else if (where["anyResource"].truthy()) {
    read.on = Privilege::On::anything;
  } else if (buckets.is_string()) {
    read.on = Privilege::On::buckets;
    if (db.is_string()) read.db = db.as_string();
    read.collection = buckets.as_string();
  } else if (db.is_string() && collection.is_string()) {
    read.db = db.as_string();
    read.collection = collection.as_string();
  } else {
    return std::nullopt;
  }
  for (const Element& item : actions.as_document()) {
    if (!item.is_string()) continue;
    if (item.as_string() == "anyAction") {
      read.actions = ActionSet::all();
    } else if (const auto action = action_named(item.as_string())) {
      read.actions |= *action;
    }
  }
  return read;
}

void append_privilege(BsonWriter& out, const Privilege& privilege) {
  out.begin_document_item().begin_document("resource");
  if (privilege.on == Privilege::On::cluster) {
    out.append("cluster", true);
  } else if (privilege.on == Privilege::On::anything) {
    out.append("anyResource", true);
  } else {
    const bool buckets = privilege.on == Privilege::On::buckets;
    out.append("db", privilege.db).append(buckets ? "system_buckets" : "collection", privilege.collection);
  }
  out.end().begin_array("actions");
  if (privilege.actions == ActionSet::all()) {
    out.append_item("anyAction");
  } else {
    for (const NamedAction& each : action_names) {
      if (privilege.actions.has(each.action)) out.append_item(each.name);
    }
  }
  out.end().end();
}

}  // namespace spillway::auth
