// A command: its handler and its rules. Each family lists its own; commands/command_table.h joins them.
#pragma once

#include <span>
#include <string_view>

#include "proxy/exec/core/command_need.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"

namespace spillway::exec {

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
using Answer = Task<Result<Response>>;
using HandlerFunction = Answer(Context& context, Client& client, const Request& request);
using Handler = HandlerFunction*;

enum class Trait : std::uint16_t {
  admin_only = 1 << 0,      // Unauthorized(13) on other databases
  in_transaction = 1 << 1,  // allowed inside a transaction, else 263
  secondary_ok = 1 << 2,    // reads: for listCommands
  makes_database = 1 << 3,  // in a cluster: a database that does not exist is made first
  cluster_only = 1 << 4,    // unknown where the table is the configuration's
  test_only = 1 << 5,       // unknown unless setParameter.enableTestCommands
  // Lets a client finish or give back what it has begun, log in and log out. No limit of operations (tables/limits.h)
  // refuses it: otherwise no client could get below its limit again.
  drains = 1 << 6,
  opens_cursor = 1 << 7,    // it may hold more memory afterwards
  stable = 1 << 8,          // in version 1 of the Stable API, or an older name of such a command
  audited = 1 << 9,         // access/audit.h
  writes = 1 << 10,         // documents: its refusal says that nothing was written
};
constexpr Trait operator|(Trait a, Trait b) noexcept {
  return static_cast<Trait>(static_cast<std::uint16_t>(a) | static_cast<std::uint16_t>(b));
}

// A row of the command table.
struct CommandSpec {
  std::string_view name;
  std::string_view help;
  Handler handler;
  CommandNeed need;
  Trait traits{};
  RouteNeed routes = RouteNeed::none;
  std::size_t index = 0;  // position in the table; set when the table is built

  constexpr bool is(Trait trait) const noexcept {
    return (static_cast<std::uint16_t>(traits) & static_cast<std::uint16_t>(trait)) != 0;
  }
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
// By exact name, older ones included; null: unknown. Any thread.
const CommandSpec* command_named(std::string_view name);
// False: CommandNotFound(59) here.
bool is_known(const Context& context, const CommandSpec& spec);

}  // namespace spillway::exec
