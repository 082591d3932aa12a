// A command: its handler and its rules. Each family lists its own; commands/command_table.h joins them.
#pragma once

#include <span>
#include <string_view>

#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"

namespace spillway::exec {

struct CommandNeed;  // access/command_needs.h

// The names whose routes a command needs (commands/route_names.h).
enum class RouteNeed : std::uint8_t {
  none,       // at most the shards
  database,   // $db
  collection, // of $db: the value of the first element
  written,    // the same, and the buckets that it might have as a time series
  pipeline,   // those of collection, and those that its pipeline names, and viewOn
  explained,  // those of the command that is explained
  full_name,  // the first element's value is "db.collection" or "db"; "to", too
  file,       // the chunks of a file of GridFS
};

// A handler runs on the connection's worker. `request` and `client` outlive it. An Error becomes an ok: 0 reply.
using Handler = Task<Result<Response>> (*)(Context& context, Client& client, const Request& request);

struct CommandSpec {
  std::string_view name;
  Handler handler;
  bool admin_only = false;     // Unauthorized(13) on other databases
  bool in_transaction = false; // allowed inside a transaction, else 263
  bool secondary_ok = false;   // reads: for listCommands
  RouteNeed routes = RouteNeed::none;
  bool makes_database = false;  // in a cluster: a database that does not exist is made first
  bool cluster_only = false;    // unknown where the table is the configuration's
  bool test_only = false;       // unknown unless setParameter.enableTestCommands
  std::string_view help = "";
  std::size_t index = 0;       // position in the table; set when the table is built
  const CommandNeed* need = nullptr;  // the privileges that it needs; set then, too
  // See core/limits.h. drains: goes on with work or ends it, so that it is never refused.
  bool drains = false, opens_cursor = false;  // set then, too
  bool stable_api = false;                    // in version 1 of the Stable API; set then, too
  std::uint8_t audited = 0;                   // the same: of access/audit.h
};

std::span<const CommandSpec> read_commands();        // find, getMore, killCursors
std::span<const CommandSpec> aggregate_commands();   // aggregate, count, distinct, explain, …
std::span<const CommandSpec> write_commands();       // insert, update, delete, findAndModify
std::span<const CommandSpec> bulk_commands();        // bulkWrite
std::span<const CommandSpec> session_commands();     // transactions, endSessions, killSessions, …
std::span<const CommandSpec> sharding_commands();    // addShard, shardCollection, moveChunk, …: of a cluster only
std::span<const CommandSpec> schema_commands();      // listDatabases, createIndexes, drop, collStats, …
std::span<const CommandSpec> local_commands();       // ping, buildInfo, serverStatus, getParameter, …
std::span<const CommandSpec> authentication_commands();  // saslStart, saslContinue, authenticate, logout
std::span<const CommandSpec> user_commands();        // usersInfo, connectionStatus, …

// All of them; their order is CommandSpec::index. Any thread.
std::span<const CommandSpec> all_commands();
// False: CommandNotFound(59) here.
bool is_known(const Context& context, const CommandSpec& spec);

}  // namespace spillway::exec
