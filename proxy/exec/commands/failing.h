// The fail point failCommand in the way of a command: core/fail_command.h.
#pragma once

#include <optional>

#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"

namespace spillway::exec {

// The answer of a command that is to fail; none: it runs, perhaps later. Marks a request whose answer
// fail_write_concern() may have to read.
Task<std::optional<Response>> fail_on_purpose(Context& context, Client& client, Request& request);

// Adds the write concern error that the fail point has for the command. Anything but a stream.
void fail_write_concern(Context& context, const Client& client, const Request& request, Response& response);

}  // namespace spillway::exec
