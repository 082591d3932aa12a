// May this client run this command? Asked before every command, where security.authorization is enabled.
#pragma once

#include "proxy/exec/core/command.h"

namespace spillway::exec {

// Unauthorized(13), in MongoDB's words. What is allowed takes no memory, but for what command_needs.h says.
Result<void> check_authorized(Context& context, Client& client, const CommandSpec& spec, const Request& request);

// Always without authorization. For what a handler looks at itself.
bool may_on_cluster(const Context& context, const Client& client, auth::ActionSet actions) noexcept;

// Is the request's session this client's? Always without authorization.
bool owns_session(const Context& context, const Client& client, const Request& request);

// Unauthorized(13): another user's session, and alive.
Result<void> claim_session(Context& context, Client& client, std::string_view uuid);

}  // namespace spillway::exec
