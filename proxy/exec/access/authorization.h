// May this client run this command? Asked before every command, where security.authorization is enabled.
#pragma once

#include "proxy/auth/impersonation.h"
#include "proxy/exec/core/command.h"

namespace spillway::exec {

// Unauthorized(13), with MongoDB's text. An allowed command takes no memory, except as CommandNeed::Rule says.
Result<void> check_authorized(Context& context, Client& client, const CommandSpec& spec, const Request& request);

// Always true without authorization. For handlers with a check of their own.
bool may_on_cluster(const Context& context, const Client& client, auth::ActionSet actions) noexcept;

// Is the request's session this client's? Always true without authorization.
bool owns_session(const Context& context, const Client& client, const Request& request);

// Whom the servers of a cluster are told that this router, a member of it, asks for. Null: nobody.
const auth::User* impersonated(const Context& context, const Client& client) noexcept;
// lsid.uid of this client's sessions: whose they are, for the shards of a cluster, to which this router speaks as its
// member. nullopt: nobody says.
std::optional<auth::Digest> session_owner(const Context& context, const Client& client);
// Adds it to the request's session; `kept` holds the bytes and outlives the request.
void name_session_owner(const Context& context, const Client& client, Request& request, BsonDoc& kept);

// Unauthorized(13): a live session of another user.
Result<void> claim_session(Context& context, Client& client, std::string_view uuid);

}  // namespace spillway::exec
