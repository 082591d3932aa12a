// May this client run this command? Asked before every command, where security.authorization is enabled.
#pragma once

#include "proxy/exec/command_table.h"

namespace spillway::exec {

// Unauthorized(13), in MongoDB's words. What is allowed takes no memory, but for what command_needs.h says.
Result<void> check_authorized(Context& context, Client& client, const CommandSpec& spec, const Request& request);

}  // namespace spillway::exec
