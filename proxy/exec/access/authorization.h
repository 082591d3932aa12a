// May this client run this command? Asked before every command, where security.authorization is enabled.
#pragma once

#include "proxy/auth/impersonation.h"
#include "proxy/exec/core/command.h"

namespace spillway::exec {

// Unauthorized(13), with MongoDB's text. An allowed command takes no memory, except as CommandNeed::Rule says.
Result<void> check_authorized(Context& context, Client& client, const CommandSpec& spec, const Request& request);

// Always true without authorization. For handlers with a check of their own.
bool may_on_cluster(const Context& context, const Client& client, auth::ActionSet actions) noexcept;

// The user's rights may have changed since the cursor was last used: may the user still run what opened it?
Result<void> check_cursor_rights(const Client& client, ClusterCursor& cursor);

// Is the request's session this client's? Always true without authorization.
bool owns_session(const Context& context, const Client& client, const Request& request);

// The user that this router, a member of the cluster, names to its servers as the one it asks for. Null: it names none.
const auth::User* impersonated(const Context& context, const Client& client) noexcept;
// lsid.uid of this client's sessions: the owner that this router, a member of the cluster, names to the shards.
// nullopt: it names none.
std::optional<auth::Digest> session_owner(const Context& context, const Client& client);
// Adds it to the request's session.
void name_session_owner(const Context& context, const Client& client, Request& request);

// Unauthorized(13): a live session of another user.
Result<void> claim_session(Context& context, Client& client, std::string_view uuid);

}  // namespace spillway::exec
