// What roles allow: MongoDB's built-in roles as sets of actions on namespaces and on the cluster.
// Source: the server's manual, "Built-In Roles".
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cursor/error.h"

namespace spillway::auth {

// MongoDB's actions, as far as a command here needs one.
enum class Action : std::uint8_t {
  // on collections and databases
  find, insert, update, remove, change_stream,
  coll_stats, db_stats, index_stats, list_collections, list_indexes, plan_cache_read,
  create_collection, create_index, drop_collection, drop_index, rename_collection_same_db, convert_to_capped,
  coll_mod, validate, compact, drop_database, bypass_document_validation,
  create_search_indexes, update_search_index, drop_search_index, list_search_indexes,
  compact_structured_encryption_data, cleanup_structured_encryption_data,
  // on the cluster
  server_status, conn_pool_stats, get_cmd_line_opts, get_log, get_parameter, get_shard_map, get_shard_version,
  host_info, inprog, list_databases, list_sessions, list_shards, netstat, repl_set_get_status,
  sharded_data_distribution, top,
  set_parameter, flush_router_config, kill_op, kill_any_cursor, kill_any_session, log_rotate, shutdown,
  enable_profiler, view_user,
  // of a cluster's commands
  add_shard, remove_shard, enable_sharding, split_chunk, split_vector, move_chunk, cleanup_orphaned, clear_jumbo_flag,
  refine_collection_shard_key, reshard_collection, move_collection, unshard_collection, check_metadata_consistency,
  analyze_shard_key, configure_query_analyzer, set_default_rw_concern, get_default_rw_concern, get_cluster_parameter,
  set_cluster_parameter, set_feature_compatibility_version, set_user_write_block_mode,
  bypass_write_blocking_mode, fsync, unlock,
  append_oplog_note, drop_connections, invalidate_user_cache, plan_cache_write, plan_cache_index_filter,
  db_hash, kill_cursors, re_index, use_uuid, advance_cluster_time, impersonate, internal,
  create_user, drop_user, create_role, drop_role, grant_role, revoke_role, view_role, change_password,
  change_custom_data, change_own_password, change_own_custom_data, set_authentication_restriction,
};

class ActionSet {
 public:
  constexpr ActionSet() = default;
  constexpr ActionSet(Action action) {  // NOLINT: one is a set
    bits_[static_cast<unsigned>(action) / 64] = 1ULL << (static_cast<unsigned>(action) % 64);
  }
  constexpr ActionSet(std::initializer_list<Action> actions) {
    for (const Action action : actions) *this |= action;
  }
  constexpr ActionSet& operator|=(ActionSet other) noexcept {
    for (std::size_t i = 0; i < bits_.size(); ++i) bits_[i] |= other.bits_[i];
    return *this;
  }
  static constexpr ActionSet all() noexcept {
    ActionSet set;
    set.bits_.fill(~0ULL);
    return set;
  }
  friend constexpr ActionSet operator|(ActionSet a, ActionSet b) noexcept { return a |= b; }
  constexpr bool has(ActionSet all) const noexcept {
    return (bits_[0] & all.bits_[0]) == all.bits_[0] && (bits_[1] & all.bits_[1]) == all.bits_[1];
  }
  constexpr bool empty() const noexcept { return (bits_[0] | bits_[1]) == 0; }
  constexpr bool operator==(const ActionSet&) const = default;

 private:
  std::array<std::uint64_t, 2> bits_{};
};

struct RoleGrant {
  std::string role;
  std::string db;

  bool operator==(const RoleGrant&) const = default;
};

// Every role that is known, in the order of the manual.
std::span<const std::string_view> role_names();
// BadValue(2): there is no such role, or not on that database.
Result<void> check_role(const RoleGrant& grant);

// What a server made of a user's roles, custom ones too: an item of usersInfo's inheritedPrivileges.
struct Privilege {
  enum class On : std::uint8_t { cluster, anything, collections, buckets };
  On on = On::collections;
  std::string db = {};          // of collections and buckets; empty: any
  // Empty: all but system.*, and the database as such. Of buckets, the time series' name; empty: any.
  std::string collection = {};
  ActionSet actions;

  bool operator==(const Privilege&) const = default;
};

// The privileges of a user: computed once, when the user is loaded; then asked by every command. Never changes.
class Privileges {
 public:
  Privileges() = default;
  // Unknown roles allow nothing.
  explicit Privileges(const std::vector<RoleGrant>& roles);
  // As a server matches them (authorization_session_impl.cpp, 4.2).
  static Privileges of_resolved(const std::vector<Privilege>& resolved);

  ActionSet on_cluster() const noexcept { return cluster_; }
  // On a collection; an empty name: on the database as such.
  ActionSet on(std::string_view db, std::string_view collection) const noexcept;
  bool allows(ActionSet actions, std::string_view db, std::string_view collection) const noexcept {
    return on(db, collection).has(actions);
  }
  // Does any grant apply there?
  bool touches(std::string_view db) const noexcept;
  // The collections of the database that a grant names. Views into this.
  std::vector<std::string_view> named_collections(std::string_view db) const;

  // As a server would list them.
  std::vector<Privilege> list() const;

  // What a grant allows, by kind of collection: system.* have rules of their own.
  struct Reach {
    ActionSet plain;           // and the database as such
    ActionSet system_js;
    ActionSet system_profile;
    ActionSet other_system;
    ActionSet buckets{};  // of time series, beside other_system

    Reach& operator|=(const Reach& other) noexcept;
    ActionSet of(std::string_view collection) const noexcept;
  };

 private:
  struct OnDatabase {
    std::string db;
    Reach reach;
  };
  // Of one collection by its name; an empty `db`: of any database.
  struct OnCollection {
    std::string db;
    std::string collection;
    ActionSet actions;
  };
  void add(const RoleGrant& grant);
  void add(const Privilege& privilege);
  ActionSet of_collection(std::string_view db, std::string_view collection) const noexcept;
  Reach& reach_of(const std::string& db);

  ActionSet cluster_;
  Reach everywhere_;  // except on config, local, and the proxy's own database
  std::vector<OnDatabase> databases_;
  ActionSet anything_;                     // included in cluster_
  ActionSet buckets_;                      // on those of any time series
  ActionSet normal_;                       // on collections but system.*, except of config and local
  std::vector<OnCollection> collections_;  // by db and collection
};

}  // namespace spillway::auth
