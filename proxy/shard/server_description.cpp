#include "proxy/shard/server_description.h"

#include <fmt/format.h>

#include <algorithm>

#include "proxy/shard/connection_string.h"

namespace spillway::shard {

namespace {

// OP_MSG came with wire version 6.
constexpr std::int32_t wire_version_min = 6;
// A replica set has at most 50 members; a reply that lists more is invalid.
constexpr std::size_t members_max = 64;
// Wall clocks: differences of two must not overflow.
constexpr std::int64_t date_ms_max = std::int64_t{1} << 53;

std::optional<std::array<std::uint8_t, 12>> object_id(ValueView value) {
  if (value.type != BsonType::object_id) return std::nullopt;
  std::array<std::uint8_t, 12> id;
  std::copy(value.bytes.begin(), value.bytes.end(), id.begin());
  return id;
}

void add_hosts(ServerDescription& server, ValueView list) {
  if (!list.is_array()) return;
  for (const Element& entry : list.as_document()) {
    if (!entry.is_string() || server.hosts.size() >= members_max) return;
    auto address = parse_host_address(entry.as_string());
    if (address &&
        std::find(server.hosts.begin(), server.hosts.end(), *address) == server.hosts.end()) {
      server.hosts.push_back(*std::move(address));
    }
  }
}

ServerType member_type(DocView reply, bool primary) {
  if (reply["hidden"].truthy()) return ServerType::rs_other;
  if (primary) return ServerType::rs_primary;
  if (reply["secondary"].truthy()) return ServerType::rs_secondary;
  if (reply["arbiterOnly"].truthy()) return ServerType::rs_arbiter;
  return ServerType::rs_other;
}

std::int32_t small_int(ValueView value) {
  const std::int64_t number = value.to_int64().value_or(0);
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(number, 0, 1'000'000));
}

void describe_member(ServerDescription& server, DocView reply, bool primary) {
  server.type = member_type(reply, primary);
  add_hosts(server, reply["hosts"]);
  add_hosts(server, reply["passives"]);
  add_hosts(server, reply["arbiters"]);
  if (const ValueView me = reply["me"]; me.is_string())
    server.me = parse_host_address(me.as_string());
  if (const ValueView tags = reply["tags"]; tags.is_document()) {
    for (const Element& tag : tags.as_document()) {
      if (tag.is_string()) server.tags.emplace_back(tag.name, tag.as_string());
    }
  }
  if (const ValueView date = reply.find_path("lastWrite.lastWriteDate");
      date.type == BsonType::date) {
    server.last_write_ms = std::clamp<std::int64_t>(date.as_int64(), 0, date_ms_max);
  }
  server.election_id = object_id(reply["electionId"]);
  server.set_version = reply["setVersion"].to_int64();
}

Error reply_error(DocView reply) {
  const ValueView text = reply["errmsg"];
  const std::int64_t code = reply["code"].to_int64().value_or(0);
  return Error(static_cast<std::int32_t>(std::clamp<std::int64_t>(code, 1, 1'000'000)),
               text.is_string() ? std::string(text.as_string()) : "hello failed");
}

}  // namespace

std::string_view server_type_name(ServerType type) noexcept {
  constexpr std::string_view names[] = {"unknown", "standalone", "primary", "secondary", "arbiter", "other"};
  return names[static_cast<std::size_t>(type)];
}

std::optional<TopologyVersion> TopologyVersion::parse(ValueView value) {
  if (!value.is_document()) return std::nullopt;
  const auto process = object_id(value.as_document()["processId"]);
  const auto counter = value.as_document()["counter"].to_int64();
  if (!process || !counter) return std::nullopt;
  return TopologyVersion{*process, *counter};
}

Result<ServerDescription> describe_server(DocView reply, TimePoint now) {
  if (!reply["ok"].truthy()) return reply_error(reply);
  if (const ValueView kind = reply["msg"]; kind.is_string() && kind.as_string() == "isdbgrid") {
    return Error(ErrorCode::illegal_operation, "it is a router (mongos), which cannot be a shard");
  }
  ServerDescription server;
  server.updated = now;
  server.min_wire_version = small_int(reply["minWireVersion"]);
  server.max_wire_version = small_int(reply["maxWireVersion"]);
  if (server.max_wire_version < wire_version_min) {
    return Error(ErrorCode::protocol_error,
                 fmt::format("it speaks wire version {}; at least {} is needed",
                             server.max_wire_version, wire_version_min));
  }
  server.hello_ok = reply["helloOk"].truthy();
  server.topology_version = TopologyVersion::parse(reply["topologyVersion"]);
  const bool primary = reply["isWritablePrimary"].truthy() || reply["ismaster"].truthy();
  if (const ValueView name = reply["setName"]; name.is_string()) {
    server.set_name = name.as_string();
    describe_member(server, reply, primary);
  } else {
    // A member that is not initiated yet says so and has no set.
    server.type = reply["isreplicaset"].truthy() ? ServerType::rs_other : ServerType::standalone;
  }
  return server;
}

ServerDescription unknown_server(Error why, TimePoint now, bool refused) {
  ServerDescription server;
  server.error = std::move(why);
  server.refused = refused;
  server.updated = now;
  return server;
}

BuildInfo describe_build(DocView reply) {
  BuildInfo build;
  if (!reply["ok"].truthy()) {
    // MongoDB from 8.1 on says it to users only.
    build.offers_sort_key = reply["code"].to_int64() == static_cast<std::int64_t>(ErrorCode::unauthorized);
    return build;
  }
  for (const Element& field : reply) {
    if (field.name.starts_with("ferretdb")) build.ferretdb = true;
  }
  build.offers_sort_key = !build.ferretdb && reply["storageEngines"].is_array();
  return build;
}

}  // namespace spillway::shard
