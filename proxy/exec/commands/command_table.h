// The command table: every command the proxy knows, its handler and its rules. A name that is not in it is
// CommandNotFound(59).
#pragma once

#include "proxy/exec/core/command.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"

namespace spillway::exec {

// True: the command ends when its client leaves (a read). False: it goes on (a write).
bool ends_with_client(const Request& request) noexcept;

// Is the command in the Stable API, if apiStrict requires it? (APIStrictError(323); run_command() calls it)
Result<void> check_api_strict(const CommandSpec& spec, const Request& request);

// The reply to a refused command; counted among the errors.
Response refuse(Metrics& metrics, const Error& why);

// May the client's user run it? For what another process runs: run_command() asks by itself. Unauthorized(13).
Result<void> check_may_run(Context& context, Client& client, const Request& request);

// Runs one command: envelope rules, handler, counters. Never fails: errors are replies.
Task<Response> run_command(Context& context, Client& client, Request& request);

}  // namespace spillway::exec
