// Privileges as servers write them: usersInfo's inheritedPrivileges.
#pragma once

#include <optional>
#include <string_view>

#include "cursor/bson_view.h"
#include "cursor/bson_writer.h"
#include "proxy/auth/roles.h"

namespace spillway::auth {

// By MongoDB's name: "find", "collStats", …; no command here needs those that are not found.
std::optional<Action> action_named(std::string_view name);

// {resource: {db, collection} | {cluster: true} | {anyResource: true}, actions: [names]}. Unknown actions are left out.
// nullopt: a resource that is not known, which gives nothing.
std::optional<Privilege> read_privilege(DocView document);
// The same the other way round, as the next item of an array.
void append_privilege(BsonWriter& out, const Privilege& privilege);

}  // namespace spillway::auth
