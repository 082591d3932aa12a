#include "proxy/auth/roles.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "proxy/auth/concat.h"

namespace spillway::auth {

namespace {

using enum Action;

constexpr ActionSet read_actions{
    find, change_stream, coll_stats, db_stats, list_collections, list_indexes, list_search_indexes, plan_cache_read};
constexpr ActionSet write_actions =
    read_actions |
    ActionSet{insert,           update,          remove,     create_collection,
              create_index,     drop_collection, drop_index, rename_collection_same_db,
              convert_to_capped, create_search_indexes, update_search_index, drop_search_index,
              compact_structured_encryption_data, cleanup_structured_encryption_data};
constexpr ActionSet admin_actions{coll_stats,
                                  db_stats,
                                  list_collections,
                                  list_indexes,
                                  plan_cache_read,
                                  plan_cache_write,
                                  plan_cache_index_filter,
                                  index_stats,
                                  create_collection,
                                  create_index,
                                  drop_collection,
                                  drop_index,
                                  rename_collection_same_db,
                                  convert_to_capped,
                                  coll_mod,
                                  validate,
                                  compact,
                                  drop_database,
                                  bypass_document_validation,
                                  create_search_indexes,
                                  update_search_index,
                                  drop_search_index,
                                  list_search_indexes,
                                  enable_profiler};
constexpr ActionSet statistics{coll_stats, db_stats, index_stats};

constexpr ActionSet monitor_cluster{server_status,     conn_pool_stats,     get_cmd_line_opts,
                                    get_log,           get_parameter,       get_shard_map,
                                    get_shard_version, host_info,           inprog,
                                    list_databases,    list_sessions,       list_shards,
                                    netstat,           repl_set_get_status, sharded_data_distribution,
                                    top};
constexpr ActionSet manage_cluster{set_parameter,    flush_router_config, kill_op, kill_any_cursor,
                                   kill_any_session, log_rotate,          shutdown};

constexpr Privileges::Reach reach_read{read_actions, read_actions, {}, {}};
constexpr Privileges::Reach reach_write{write_actions, write_actions, {}, {}};
// An administrator may read and drop the profile.
constexpr Privileges::Reach reach_admin{
    admin_actions, {}, read_actions | ActionSet{drop_collection, create_collection, convert_to_capped}, {}};
constexpr ActionSet everything = write_actions | admin_actions;
constexpr Privileges::Reach reach_all{everything, everything, everything, everything};
constexpr Privileges::Reach reach_monitor{statistics, statistics, read_actions | statistics,
                                          statistics};
constexpr Privileges::Reach reach_read_all{read_actions, read_actions, read_actions, read_actions};

constexpr std::array<std::string_view, 9> names = {"read",
                                                   "readWrite",
                                                   "dbAdmin",
                                                   "clusterMonitor",
                                                   "clusterAdmin",
                                                   "readAnyDatabase",
                                                   "readWriteAnyDatabase",
                                                   "dbAdminAnyDatabase",
                                                   "root"};

// Databases that roles on any database do not cover.
bool is_apart(std::string_view db) noexcept {
  return db == "config" || db == "local" || db == "spillway";
}

constexpr std::string_view buckets_prefix = "system.buckets.";

bool of_one_database(std::string_view role) noexcept {
  return role == "read" || role == "readWrite" || role == "dbAdmin";
}

}  // namespace

std::span<const std::string_view> role_names() { return names; }

Result<void> check_role(const RoleGrant& grant) {
  if (std::find(names.begin(), names.end(), grant.role) == names.end()) {
    return Error(ErrorCode::bad_value, concat("there is no role \"", grant.role, "\""));
  }
  if (grant.db.empty()) return Error(ErrorCode::bad_value, "a role needs a database (db)");
  if (!of_one_database(grant.role) && grant.db != "admin") {
    return Error(ErrorCode::bad_value, concat("the role ", grant.role,
                                              " is one of the database admin, not of ", grant.db));
  }
  return {};
}

Privileges::Reach& Privileges::Reach::operator|=(const Reach& other) noexcept {
  plain |= other.plain;
  system_js |= other.system_js;
  system_profile |= other.system_profile;
  other_system |= other.other_system;
  buckets |= other.buckets;
  return *this;
}

ActionSet Privileges::Reach::of(std::string_view collection) const noexcept {
  constexpr std::string_view system = "system.";
  if (!collection.starts_with(system)) return plain;
  const std::string_view rest = collection.substr(system.size());
  if (rest == "js") return system_js;
  if (rest == "profile") return system_profile;
  return collection.starts_with(buckets_prefix) ? other_system | buckets : other_system;
}

Privileges::Privileges(const std::vector<RoleGrant>& roles) {
  for (const RoleGrant& grant : roles) {
    if (!check_role(grant).has_error()) add(grant);
  }
}

Privileges::Reach& Privileges::reach_of(const std::string& db) {
  for (OnDatabase& known : databases_) {
    if (known.db == db) return known.reach;
  }
  return databases_.emplace_back(OnDatabase{db, {}}).reach;
}

void Privileges::add(const RoleGrant& grant) {
  const std::string_view role = grant.role;
  if (of_one_database(role)) {
    reach_of(grant.db) |= role == "read"        ? reach_read
                          : role == "readWrite" ? reach_write
                                                : reach_admin;
    return;
  }
  if (role == "clusterMonitor" || role == "clusterAdmin" || role == "root") {
    cluster_ |= monitor_cluster;
    everywhere_ |= reach_monitor;
    for (const char* const db : {"config", "spillway"}) reach_of(db) |= reach_read_all;
    reach_of("local").plain |= statistics;
  }
  if (role == "clusterAdmin" || role == "root") {
    cluster_ |= manage_cluster;
    everywhere_.plain |= drop_database;
    reach_of("config") |= reach_all;
  }
  for (const auto& [name, reach] : {std::pair("readAnyDatabase", &reach_read), {"readWriteAnyDatabase", &reach_write},
                                    {"dbAdminAnyDatabase", &reach_admin}}) {
    if (role != name) continue;
    everywhere_ |= *reach;
    buckets_ |= reach->plain;
  }
  if (role.ends_with("AnyDatabase")) cluster_ |= list_databases;
  if (role == "root") {
    everywhere_ |= reach_all;
    reach_of("spillway") |= reach_all;
    cluster_ |= ActionSet{enable_profiler, view_user, bypass_write_blocking_mode};
  }
}

Privileges Privileges::of_resolved(const std::vector<Privilege>& resolved) {
  Privileges made;
  for (const Privilege& privilege : resolved) made.add(privilege);
  std::sort(made.collections_.begin(), made.collections_.end(), [](const OnCollection& a, const OnCollection& b) {
    return std::tie(a.db, a.collection) < std::tie(b.db, b.collection);
  });
  return made;
}

void Privileges::add(const Privilege& privilege) {
  const ActionSet actions = privilege.actions;
  if (privilege.on == Privilege::On::cluster) {
    cluster_ |= actions;
  } else if (privilege.on == Privilege::On::anything) {
    anything_ |= actions;
    cluster_ |= actions;
  } else if (!privilege.collection.empty()) {
    const std::string_view prefix = privilege.on == Privilege::On::buckets ? buckets_prefix : "";
    collections_.push_back({privilege.db, concat(prefix, privilege.collection), actions});
  } else if (privilege.on == Privilege::On::buckets) {
    (privilege.db.empty() ? buckets_ : reach_of(privilege.db).buckets) |= actions;
  } else if (privilege.db.empty()) {
    normal_ |= actions;
  } else {
    reach_of(privilege.db).plain |= actions;
  }
}

ActionSet Privileges::of_collection(std::string_view db, std::string_view collection) const noexcept {
  ActionSet actions;
  const auto wanted = std::pair(db, collection);
  auto at = std::lower_bound(collections_.begin(), collections_.end(), wanted, [](const auto& have, const auto& want) {
    return std::pair<std::string_view, std::string_view>(have.db, have.collection) < want;
  });
  for (; at != collections_.end() && at->db == db && at->collection == collection; ++at) actions |= at->actions;
  return actions;
}

ActionSet Privileges::on(std::string_view db, std::string_view collection) const noexcept {
  ActionSet actions = anything_;
  if (!is_apart(db)) actions |= everywhere_.of(collection);
  if (db != "config" && db != "local" && !collection.starts_with("system.")) actions |= normal_;
  if (collection.starts_with(buckets_prefix)) actions |= buckets_;
  for (const OnDatabase& known : databases_) {
    if (known.db == db) actions |= known.reach.of(collection);
  }
  if (!collections_.empty()) actions |= of_collection(db, collection) | of_collection({}, collection);
  return actions;
}

std::vector<Privilege> Privileges::list() const {
  std::vector<Privilege> all;
  const auto add = [&](Privilege::On on, std::string_view db, std::string_view collection, ActionSet actions) {
    if (!actions.empty()) all.push_back({on, std::string(db), std::string(collection), actions});
  };
  const auto add_reach = [&](std::string_view db, const Reach& reach) {
    add(Privilege::On::collections, db, "", reach.plain);
    add(Privilege::On::collections, db, "system.js", reach.system_js);
    add(Privilege::On::collections, db, "system.profile", reach.system_profile);
    add(Privilege::On::buckets, db, "", reach.buckets);
  };
  add(Privilege::On::cluster, "", "", cluster_);
  add(Privilege::On::anything, "", "", anything_);
  add(Privilege::On::collections, "", "", normal_);
  add(Privilege::On::buckets, "", "", buckets_);
  add_reach("", everywhere_);
  for (const OnDatabase& known : databases_) add_reach(known.db, known.reach);
  for (const OnCollection& known : collections_) {
    add(Privilege::On::collections, known.db, known.collection, known.actions);
  }
  return all;
}

std::vector<std::string_view> Privileges::named_collections(std::string_view db) const {
  std::vector<std::string_view> names;
  for (const OnCollection& known : collections_) {
    if (known.db.empty() || known.db == db) names.emplace_back(known.collection);
  }
  return names;
}

bool Privileges::touches(std::string_view db) const noexcept {
  if (!on(db, {}).empty()) return true;
  return std::any_of(collections_.begin(), collections_.end(),
                     [&](const OnCollection& known) { return known.db.empty() || known.db == db; });
}

}  // namespace spillway::auth
