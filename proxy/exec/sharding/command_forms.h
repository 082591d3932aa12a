// What a router sends for a client's command in a sharded cluster. Its name, its fields and the server that it goes to
// depend on the version of the config servers: one row for a command and a range of versions.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "proxy/exec/core/cluster_fields.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"

namespace spillway::exec {

// config_wire_version() of these releases.
inline constexpr std::int32_t v4_2 = 8, v4_4 = 9, v5_0 = 13, v5_1 = 14, v6_0 = 17, v7_0 = 21, v8_0 = 25;

struct CommandForm {
  enum class Target : std::uint8_t { config_servers, primary_shard };
  // The name that the command is about: the first element's value, or with $db. Other commands read it again then.
  enum class About : std::uint8_t { nothing, database, collection, own_database, own_collection };
  enum class Value : std::uint8_t { same, one, full_name, collection, database };
  enum class Reply : std::uint8_t { whole, only_ok, sharded };  // sharded: {collectionsharded, …}
  // The fields after the first one. `routing`: if the row asks for it, else null.
  using Fields = void (*)(BsonWriter& out, const Request& request, const catalog::CollectionRouting* routing);

  std::string_view command;  // as clients name it
  std::int32_t from = v4_2, to = std::numeric_limits<std::int32_t>::max();
  Target target = Target::config_servers;
  std::string_view name;  // as it is sent
  Value value = Value::same;
  About about = About::nothing;
  Fields fields = nullptr;  // null: the client's own
  bool on_own_database = false;  // of what it is about; else on admin
  bool majority = true;          // carries writeConcern majority
  bool needs_table = false;      // of the collection, read before
  bool makes_database = false;   // if there is none
  bool changes_shards = false;
  bool changes_table = true;     // of what it is about
  bool changes_concerns = false;  // the cluster's default ones
  Reply reply = Reply::whole;
  shard::RetryPolicy retry = shard::RetryPolicy::idempotent;  // as a mongos sends it
};

// The form for these config servers; null: they do not have the command, or it is sent as clients send it.
const CommandForm* find_form(std::string_view command, std::int32_t wire_version);
// Every row.
std::span<const CommandForm> command_forms();

// "db" or "db.collection"; empty for About::nothing. InvalidNamespace(73) if the command does not name one.
Result<std::string> name_of(const CommandForm& form, const Request& request);
// The whole command. REQUIRES name_of()'s value.
BsonDoc make_command(const CommandForm& form, const Request& request, std::string_view name,
                     std::int32_t wire_version, const catalog::CollectionRouting* routing = nullptr);

// The client's own fields behind the first: no generic arguments, none that are stripped.
void own_fields(BsonWriter& out, const Request& request, const catalog::CollectionRouting*);
// maxTimeMS, and comment where servers take it.
void append_passed_arguments(BsonWriter& out, const Request& request, std::int32_t wire_version);
// writeConcern majority, with the client's own wtimeout, else with a minute.
void append_majority(BsonWriter& out, const Request& request);

}  // namespace spillway::exec
