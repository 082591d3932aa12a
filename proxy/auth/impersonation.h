// What a member of a cluster (__system) says of the client for which it asks: its session's owner, its user and roles.
// Source: mongod's logical_session_id_helpers.cpp, impersonated_user_metadata.cpp (4.2).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "cursor/bson_writer.h"
#include "proxy/auth/crypto.h"
#include "proxy/auth/roles.h"

namespace spillway::auth {

// lsid.uid: of a user; both empty: of a client that has not logged in, or of any where authorization is off.
Digest session_uid(std::string_view db, std::string_view name);

// A server of this wire version and newer takes one user, not a list (7.0).
inline constexpr std::int32_t wire_version_of_one_impersonated_user = 21;

// "$audit": {users and roles}, in the form of a server of this wire version; `roles`: all that the user has, inherited
// ones too. Nothing for a client that has not logged in (both names empty). Only __system may send it.
void append_impersonation(BsonWriter& out, std::string_view db, std::string_view name, std::span<const RoleGrant> roles,
                          std::int32_t wire_version);

}  // namespace spillway::auth
