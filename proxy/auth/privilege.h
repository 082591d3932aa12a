// Privileges as servers write them: usersInfo's inheritedPrivileges.
#pragma once

#include <optional>
#include <string_view>

#include "cursor/bson_view.h"
#include "proxy/auth/roles.h"

namespace spillway::auth {

// By MongoDB's name: "find", "collStats", …; no command here needs those that are not found.
std::optional<Action> action_named(std::string_view name);

// {resource: {db, collection} | {cluster: true} | {anyResource: true}, actions: [names]}. Unknown actions are left out.
// nullopt: a resource that is not known, which gives nothing.
std::optional<Privilege> read_privilege(DocView document);

}  // namespace spillway::auth
