#include "proxy/exec/access/user_needs.h"

#include <algorithm>

namespace spillway::exec {

namespace {

using enum auth::Action;

struct Asked {
  const auth::User& user;
  const Request& request;
  bool may(auth::ActionSet actions, std::string_view db) const { return user.privileges.allows(actions, db, {}); }
  bool may_here(auth::ActionSet actions) const { return may(actions, request.db); }
  // On every database: what is taken away is not known.
  bool may_everywhere(auth::ActionSet actions) const { return may(actions, {}); }
};

// Calls `look` with each occurrence of a field: a server may take any of them.
template <class Look>
bool each_field(const Asked& asked, std::string_view name, Look look) {
  for (auto at = asked.request.body.begin(); !at.done(); ++at) {
    if (at->name == name && !look(*at)) return false;
  }
  return true;
}

struct NameIn {
  std::string_view name, db;
};

// A user or a role: "name", or {<kind>: name, db}.
std::optional<NameIn> named(ValueView value, std::string_view kind, std::string_view db) {
  if (value.is_string()) return NameIn{value.as_string(), db};
  if (!value.is_document()) return std::nullopt;
  const ValueView name = value.as_document()[kind], of = value.as_document()["db"];
  if (!name.is_string() || !of.is_string()) return std::nullopt;
  return NameIn{name.as_string(), of.as_string()};
}

// Roles given or taken: the action on each one's database.
bool may_with_roles(const Asked& asked, auth::Action action) {
  return each_field(asked, "roles", [&](const Element& roles) {
    if (!roles.is_array()) return false;
    for (const Element& role : roles.as_document()) {
      const auto name = named(role, "role", asked.request.db);
      if (!name || !asked.may(action, name->db)) return false;
    }
    return true;
  });
}

// Privileges given or taken: on the database that they are about, else on admin. Those on buckets always on admin.
bool may_with_privileges(const Asked& asked, auth::Action action) {
  return each_field(asked, "privileges", [&](const Element& privileges) {
    if (!privileges.is_array()) return false;
    for (const Element& privilege : privileges.as_document()) {
      const ValueView resource = privilege.to_document()["resource"];
      if (!resource.is_document()) return false;
      const ValueView db = resource.as_document()["db"];
      const bool of_buckets = resource.as_document()["system_buckets"].exists();
      const bool of_one = db.is_string() && !db.as_string().empty() && !of_buckets;
      if (!asked.may(action, of_one ? db.as_string() : std::string_view("admin"))) return false;
    }
    return true;
  });
}

bool may_with_restrictions(const Asked& asked) {
  return each_field(asked, "authenticationRestrictions",
                    [&](const Element&) { return asked.may_here(set_authentication_restriction); });
}

bool may_give(const Asked& asked) {
  return may_with_roles(asked, grant_role) && may_with_privileges(asked, grant_role) && may_with_restrictions(asked);
}

bool may_update_user(const Asked& asked) {
  const Element who = asked.request.body.first();
  const bool self = who.is_string() && who.as_string() == asked.user.name && asked.request.db == asked.user.db;
  const auto may_change = [&](auth::Action any, auth::Action own) {
    return asked.may_here(any) || (self && asked.may_here(own));
  };
  for (const std::string_view field : {"pwd", "mechanisms", "digestPassword"}) {
    const bool may = each_field(asked, field, [&](const Element&) {
      return may_change(change_password, change_own_password);
    });
    if (!may) return false;
  }
  return each_field(asked, "customData",
                    [&](const Element&) { return may_change(change_custom_data, change_own_custom_data); }) &&
         each_field(asked, "roles", [&](const Element&) { return asked.may_everywhere(revoke_role); }) &&
         may_give(asked);
}

bool may_see_users(const Asked& asked) {
  const Element which = asked.request.body.first();
  if (which.is_number()) return asked.may_here(view_user);
  if (which.is_document() && which.as_document()["forAllDBs"].truthy()) {
    return asked.user.privileges.on_cluster().has(view_user);
  }
  const auto may_see = [&](ValueView value) {
    const auto name = named(value, "user", asked.request.db);
    if (!name) return false;
    const bool self = name->name == asked.user.name && name->db == asked.user.db;
    return self || asked.may(view_user, name->db);
  };
  if (!which.is_array()) return may_see(which);
  for (const Element& item : which.as_document()) {
    if (!may_see(item)) return false;
  }
  return true;
}

bool may_see_roles(const Asked& asked) {
  const Element which = asked.request.body.first();
  if (which.is_number()) return asked.may_here(view_role);
  const auto may_see = [&](ValueView value) {
    const auto name = named(value, "role", asked.request.db);
    if (!name) return false;
    const auto own = [&](const auth::RoleGrant& grant) { return grant.role == name->name && grant.db == name->db; };
    return std::any_of(asked.user.roles.begin(), asked.user.roles.end(), own) || asked.may(view_role, name->db);
  };
  if (!which.is_array()) return may_see(which);
  for (const Element& item : which.as_document()) {
    if (!may_see(item)) return false;
  }
  return true;
}

// The command turns the documents of two collections into users and roles, of any database.
bool may_merge(const Asked& asked) {
  auth::ActionSet actions{create_user, create_role, grant_role, revoke_role};
  if (!each_field(asked, "drop", [](const Element& drop) { return !drop.truthy(); })) {
    actions |= auth::ActionSet{drop_user, drop_role};
  }
  const auto may_read = [&](const Element& ns) {
    if (!ns.is_string()) return false;
    const std::string_view name = ns.as_string();
    const std::size_t dot = name.find('.');
    return name.empty() || (dot != name.npos && asked.user.privileges.allows(find, name.substr(0, dot),
                                                                             name.substr(dot + 1)));
  };
  return asked.may_everywhere(actions) && each_field(asked, "tempUsersCollection", may_read) &&
         each_field(asked, "tempRolesCollection", may_read);
}

}  // namespace

bool may_manage_users(const auth::User& user, const Request& request) {
  const Asked asked{user, request};
  const std::string_view name = request.name;
  if (name == "usersInfo") return may_see_users(asked);
  if (name == "rolesInfo") return may_see_roles(asked);
  if (name == "createUser") return asked.may_here(create_user) && may_give(asked);
  if (name == "updateUser") return may_update_user(asked);
  if (name == "dropUser" || name == "dropAllUsersFromDatabase") return asked.may_here(drop_user);
  if (name == "createRole") return asked.may_here(create_role) && may_give(asked);
  if (name == "updateRole") return asked.may_everywhere(revoke_role) && may_give(asked);
  if (name == "dropRole" || name == "dropAllRolesFromDatabase") return asked.may_here(drop_role);
  if (name == "grantRolesToUser" || name == "grantRolesToRole") return may_with_roles(asked, grant_role);
  if (name == "revokeRolesFromUser" || name == "revokeRolesFromRole") return may_with_roles(asked, revoke_role);
  if (name == "grantPrivilegesToRole") return may_with_privileges(asked, grant_role);
  if (name == "revokePrivilegesFromRole") return may_with_privileges(asked, revoke_role);
  if (name == "_mergeAuthzCollections") return may_merge(asked);
  return false;
}

}  // namespace spillway::exec
