// The command table: every command the proxy knows, its handler and its rules. A name that is not in it is
// CommandNotFound(59).
#pragma once

#include <span>
#include <string_view>

#include "proxy/exec/context.h"
#include "proxy/exec/request.h"
#include "proxy/exec/response.h"

namespace spillway::exec {

struct CommandNeed;  // command_needs.h

// A handler runs on the session's worker. `request` and `client` outlive it. An Error becomes an ok: 0 reply.
using Handler = Task<Result<Response>> (*)(Context& context, Client& client, const Request& request);

struct CommandSpec {
  std::string_view name;
  Handler handler;
  bool admin_only = false;     // Unauthorized(13) on other databases
  bool in_transaction = false; // allowed inside a transaction, else 263
  bool secondary_ok = false;   // reads: for listCommands
  std::string_view help = "";
  std::size_t index = 0;       // position in the table; set when the table is built
  const CommandNeed* need = nullptr;  // what it takes to be allowed to; set then, too
  // Of limits.h: goes on with, or ends, what was begun, so that it is never refused; opens a cursor.
  bool drains = false, opens_cursor = false;  // set then, too
  bool stable_api = false;                    // in version 1 of the Stable API; set then, too
  std::uint8_t audited = 0;                   // the same: of audit.h
};

// Each family of commands lists its own.
std::span<const CommandSpec> read_commands();        // find, getMore, killCursors
std::span<const CommandSpec> aggregate_commands();   // aggregate, count, distinct, explain
std::span<const CommandSpec> write_commands();       // insert, update, delete, findAndModify
std::span<const CommandSpec> session_commands();     // transactions, endSessions, killSessions, …
std::span<const CommandSpec> catalog_commands();     // listDatabases, createIndexes, drop, collStats, …
std::span<const CommandSpec> local_commands();       // ping, buildInfo, serverStatus, getParameter, …
std::span<const CommandSpec> authentication_commands();  // saslStart, saslContinue, authenticate, logout
std::span<const CommandSpec> user_commands();        // usersInfo, connectionStatus, …

// By exact name, aliases included; nullptr: unknown.
const CommandSpec* find_command(std::string_view name);
// Ends with its client: a read does. A write goes on.
bool ends_with_client(const Request& request) noexcept;
std::span<const CommandSpec> all_commands();

// Does a command with apiStrict keep to the Stable API? (APIStrictError(323); run_command() asks)
Result<void> check_api_strict(const CommandSpec& spec, const Request& request);

// The reply to what is refused, counted among the errors.
Response refuse(Metrics& metrics, const Error& why);

// Runs one command: envelope rules, handler, counters. Never fails: errors are replies.
Task<Response> run_command(Context& context, Client& client, const Request& request);

}  // namespace spillway::exec
