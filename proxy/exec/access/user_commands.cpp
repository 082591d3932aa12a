// connectionStatus, usersInfo, rolesInfo, and the commands that change users: in a cluster the config servers do that;
// else users come from the configuration.
#include <fmt/format.h>

#include "proxy/auth/privilege.h"
#include "proxy/auth/users.h"
#include "proxy/cluster/config_client.h"
#include "proxy/exec/access/authentication.h"
#include "proxy/exec/access/user_feed.h"
#include "proxy/exec/access/user_needs.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/sharding/command_forms.h"

namespace spillway::exec {

namespace {

constexpr std::size_t users_bytes_max = 15 * limits::mib;

// Only roles of admin, as {role, db} or by their names alone.
bool gives_roles_of_admin(ValueView roles) {
  if (!roles.is_array()) return !roles.exists();
  for (const Element& role : roles.as_document()) {
    if (role.is_string()) continue;
    const ValueView db = role.to_document()["db"];
    if (!db.is_string() || db.as_string() != "admin") return false;
  }
  return true;
}

// The localhost exception: a local client may make the cluster's first user. (It has been checked that the client is
// local, and that no user is known here.) The servers may have users that are left out here, and roles close it, too.
Task<bool> is_for_first_user(Context& context, const Request& request) {
  if (request.name != "createUser" || request.db != "admin" || !gives_roles_of_admin(request.body["roles"])) {
    co_return false;
  }
  for (const char* const list : {"users", "roles"}) {
    BsonWriter out;
    if (list == std::string_view("users")) {
      out.begin_document("usersInfo").append("forAllDBs", true).end();
    } else {
      out.append("rolesInfo", 1);
    }
    out.append("$db", "admin");
    const BsonDoc question = std::move(out).finish();
    auto asking = call_shard(
        context, {cluster::config_shard, RoutedBy::nothing(), shard::Command::of_body(question)},
        write_options(context, request));
    const ShardOutcome outcome = co_await asking;
    const ValueView found = outcome.error ? ValueView() : outcome.body()[list];
    if (!found.is_array() || !found.as_document().empty()) co_return false;
  }
  co_return true;
}

// Users and roles are the config servers': they take w: 1 or majority, and get majority.
Answer user_command(Context& context, Client& client, const Request& request) {
  if (context.shared.authorization) {
    const auth::User* const user = client.login.user.get();
    bool allowed = user != nullptr && may_manage_users(*user, request);
    if (user == nullptr) allowed = co_await is_for_first_user(context, request);
    if (!allowed) {
      co_return Error(ErrorCode::unauthorized,
                      fmt::format("not authorized on {} to execute command {}", request.db, request.name));
    }
  }
  const bool reads = request.name == "usersInfo" || request.name == "rolesInfo";
  BsonWriter body;
  body.append_element(request.body.first());
  own_fields(body, request, nullptr);
  append_passed_arguments(body, request, config_wire_version(context));
  if (!reads) {
    const DocView given = request.body["writeConcern"].to_document();
    const ValueView w = given["w"];
    const bool one = w.is_number() && w.to_int64() == 1;
    if (w.exists() && !one && !(w.is_string() && w.as_string() == "majority")) {
      co_return Error(ErrorCode::invalid_options,
                      fmt::format("Invalid replication write concern. User management write commands may only use w:1 "
                                  "or w:'majority', got: {}",
                                  to_json(given)));
    }
    body.begin_document("writeConcern").append("w", "majority");
    body.append("wtimeout", static_cast<std::int32_t>(given["wtimeout"].to_int64().value_or(0))).end();
  }
  body.append("$db", request.db);
  const BsonDoc command = std::move(body).finish();
  shard::CallOptions options = write_options(context, request);
  options.retry = reads ? shard::RetryPolicy::idempotent : shard::RetryPolicy::not_idempotent;
  ShardOutcome outcome = co_await call_shard(context, cluster::config_shard, RoutedBy::nothing(), command, options);
  if (!reads) {  // whatever has come of it: an answer may have been lost
    co_await read_changed_users(context, request);
  }
  co_return passed_on(std::move(outcome));
}

void append_roles(BsonWriter& out, std::string_view name,
                  const std::vector<auth::RoleGrant>& roles) {
  out.begin_array(name);
  for (const auth::RoleGrant& grant : roles) {
    out.begin_document_item().append("role", grant.role).append("db", grant.db).end();
  }
  out.end();
}

Answer connection_status(Context& context, Client& client, const Request& request) {
  refresh_login(context.shared.users, client);
  const auth::User* const user = client.login.user.get();
  BsonWriter reply;
  reply.begin_document("authInfo");
  reply.begin_array("authenticatedUsers");
  if (user != nullptr)
    reply.begin_document_item().append("user", user->name).append("db", user->db).end();
  reply.end();
  if (user != nullptr) {
    append_roles(reply, "authenticatedUserRoles", user->resolved ? user->resolved->roles : user->roles);
  } else {
    reply.begin_array("authenticatedUserRoles").end();
  }
  if (request.body["showPrivileges"].truthy()) {
    reply.begin_array("authenticatedUserPrivileges");
    if (user != nullptr) {
      for (const auth::Privilege& each : user->resolved ? user->resolved->privileges : user->privileges.list()) {
        auth::append_privilege(reply, each);
      }
    }
    reply.end();
  }
  reply.end();
  co_return ok_response(std::move(reply));
}

// --- usersInfo

struct Wanted {
  bool all_databases = false;
  bool all_of_database = false;
  std::vector<std::pair<std::string, std::string>> names;  // db, name
};

Error bad_users_info() {
  return Error(
      ErrorCode::bad_value,
      "usersInfo takes 1, {forAllDBs: true}, a name, {user, db}, or an array of the last two");
}

Result<void> add_name(Wanted& wanted, ValueView value, std::string_view db) {
  if (value.is_string()) {
    wanted.names.emplace_back(db, value.as_string());
    return {};
  }
  if (!value.is_document()) return bad_users_info();
  const ValueView user = value.as_document()["user"];
  const ValueView user_db = value.as_document()["db"];
  if (!user.is_string() || !user_db.is_string()) return bad_users_info();
  wanted.names.emplace_back(user_db.as_string(), user.as_string());
  return {};
}

Result<Wanted> parse_users_info(const Request& request) {
  Wanted wanted;
  const Element which = request.body.first();
  if (which.is_number()) {
    wanted.all_of_database = true;
    return wanted;
  }
  if (which.is_array()) {
    for (const Element& item : which.as_document()) {
      if (auto added = add_name(wanted, item, request.db); added.has_error()) return added.error();
    }
    return wanted;
  }
  if (which.is_document() && which.as_document()["forAllDBs"].truthy()) {
    wanted.all_databases = true;
    return wanted;
  }
  if (auto added = add_name(wanted, which, request.db); added.has_error()) return added.error();
  return wanted;
}

void append_user(BsonWriter& out, const auth::User& user) {
  out.begin_document_item();
  out.append("_id", user.id).append("user", user.name).append("db", user.db);
  append_roles(out, "roles", user.roles);
  out.begin_array("mechanisms");
  for (const auth::Hash hash : {auth::Hash::sha1, auth::Hash::sha256}) {
    if (user.credentials(hash)) out.append_item(auth::mechanism_name(hash));
  }
  if (user.db == auth::external_db) out.append_item("external");
  out.end();
  out.end();
}

Error own_only(const Request& request) {
  return Error(
      ErrorCode::unauthorized,
      fmt::format("not authorized on {} to execute command {}: users see themselves; the role root "
                  "sees all",
                  request.db, to_json(request.body)));
}

Answer users_info(Context& context, Client& client, const Request& request) {
  if (context.in_cluster()) {
    co_return co_await user_command(context, client, request);
  }
  SPILLWAY_CO_TRY(wanted, parse_users_info(request));
  if (request.body["showCredentials"].truthy()) {
    co_return Error(ErrorCode::command_not_supported,
                    "credentials are not shown: they stand in the configuration");
  }
  const auth::User* const self = client.login.user.get();
  const bool sees_all =
      !context.shared.authorization ||
      (self != nullptr && self->privileges.on_cluster().has(auth::Action::view_user));
  const auto table = context.shared.users.table();
  BsonWriter reply;
  reply.begin_array("users");
  if (wanted->all_databases || wanted->all_of_database) {
    if (!sees_all) co_return own_only(request);
    for (const auto& user : table->all()) {
      if (reply.size() > users_bytes_max) break;
      if (wanted->all_databases || user->db == request.db) append_user(reply, *user);
    }
  }
  for (const auto& [db, name] : wanted->names) {
    const bool own = self != nullptr && self->db == db && self->name == name;
    if (!own && !sees_all) co_return own_only(request);
    if (const auto user = table->find(db, name); user && reply.size() <= users_bytes_max)
      append_user(reply, *user);
  }
  reply.end();
  co_return ok_response(std::move(reply));
}

// 'name', {role, db}, or a list of such.
void add_named_roles(ValueView named, std::string_view db, std::vector<auth::RoleGrant>& roles) {
  if (named.is_string()) {
    roles.push_back({std::string(named.as_string()), std::string(db)});
  } else if (named.is_array()) {
    for (const Element& each : named.as_document()) {
      if (!each.is_array()) add_named_roles(each, db, roles);
    }
  } else if (named.is_document()) {
    const ValueView role = named.as_document()["role"], of = named.as_document()["db"];
    if (role.is_string() && of.is_string()) add_named_roles(role, of.as_string(), roles);
  }
}

Answer roles_info(Context& context, Client& client, const Request& request) {
  if (context.in_cluster()) {
    co_return co_await user_command(context, client, request);
  }
  const Element which = request.body.first();
  std::vector<auth::RoleGrant> roles;
  if (!which.is_number()) {
    add_named_roles(which, request.db, roles);
  } else if (request.body["showBuiltinRoles"].truthy()) {
    for (const std::string_view name : auth::role_names()) {
      roles.push_back({std::string(name), std::string(request.db)});
    }
  }
  BsonWriter reply;
  reply.begin_array("roles");
  for (const auth::RoleGrant& role : roles) {
    if (reply.size() > users_bytes_max) break;
    if (auth::check_role(role).has_error()) continue;
    reply.begin_document_item();
    reply.append("role", role.role).append("db", role.db).append("isBuiltin", true);
    reply.begin_array("roles").end();
    reply.begin_array("inheritedRoles").end();
    reply.end();
  }
  reply.end();
  co_return ok_response(std::move(reply));
}

Answer change_user(Context& context, Client& client, const Request& request) {
  if (context.in_cluster()) {
    co_return co_await user_command(context, client, request);
  }
  co_return Error(
      ErrorCode::command_not_supported,
      fmt::format(
          "{} is not supported: users stand in the configuration (security.users). \"spillway "
          "--hash-password NAME\" makes an entry, and a reload (SIGHUP) takes it",
          request.name));
}

Answer look_at_users_again(Context& context, Client&, const Request& request) {
  co_await read_changed_users(context, request);
  co_return ok_response();
}

}  // namespace

std::span<const CommandSpec> user_commands() {
  using auth::Action;
  using enum Trait;
  static constexpr CommandSpec specs[] = {
      {"connectionStatus", "who is logged in", connection_status, no_login, secondary_ok},
      {"usersInfo", "users and their roles", users_info, any_user, secondary_ok},
      {"rolesInfo", "the roles that there are", roles_info, any_user, secondary_ok},
      {"createUser", "says where users come from", change_user, any_user, audited},
      {"updateUser", "says where users come from", change_user, any_user, audited},
      {"dropUser", "says where users come from", change_user, any_user, audited},
      {"dropAllUsersFromDatabase", "says where users come from", change_user, any_user, audited},
      {"grantRolesToUser", "says where users come from", change_user, any_user, audited},
      {"revokeRolesFromUser", "says where users come from", change_user, any_user, audited},
      {"createRole", "says where users come from", change_user, any_user, audited},
      {"updateRole", "says where users come from", change_user, any_user, audited},
      {"dropRole", "says where users come from", change_user, any_user, audited},
      {"dropAllRolesFromDatabase", "drop all roles of a database", user_command, any_user, cluster_only | audited},
      {"grantPrivilegesToRole", "give privileges to a role", user_command, any_user, cluster_only | audited},
      {"revokePrivilegesFromRole", "take privileges from a role", user_command, any_user, cluster_only | audited},
      {"grantRolesToRole", "give roles to a role", user_command, any_user, cluster_only | audited},
      {"revokeRolesFromRole", "take roles from a role", user_command, any_user, cluster_only | audited},
      {"_mergeAuthzCollections", "take up users and roles that mongorestore has put beside", user_command, any_user,
       admin_only | cluster_only | audited},
      {"invalidateUserCache", "look at users again", look_at_users_again, on_cluster(Action::invalidate_user_cache),
       admin_only | cluster_only},
  };
  return specs;
}

}  // namespace spillway::exec
