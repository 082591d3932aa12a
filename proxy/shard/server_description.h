// A host's state as of its last hello, and its kind by buildInfo. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proxy/base/clock.h"
#include "proxy/shard/gateway.h"

namespace spillway::shard {

enum class ServerType : std::uint8_t {
  unknown,  // has not answered, or may not be used (see `error`)
  standalone,
  rs_primary,
  rs_secondary,
  rs_arbiter,
  rs_other,  // hidden, starting, recovering, not initiated
};
std::string_view server_type_name(ServerType type) noexcept;

// Orders the states of one server process.
struct TopologyVersion {
  std::array<std::uint8_t, 12> process_id{};
  std::int64_t counter = 0;
  // nullopt: the value is no topologyVersion.
  static std::optional<TopologyVersion> parse(ValueView value);
  // Is this state as old as `known`, or older? Of another process: no.
  bool not_after(const TopologyVersion& known) const noexcept {
    return process_id == known.process_id && counter <= known.counter;
  }
};

struct ServerDescription {
  ServerType type = ServerType::unknown;
  std::optional<Error> error;  // why it is unknown
  bool refused = false;        // it answered, but cannot be a shard: trying again is useless
  std::string set_name;
  std::vector<HostAddress> hosts;  // all members: hosts, passives, arbiters
  std::optional<HostAddress> me;
  ReadPreference::TagSet tags;
  std::int32_t min_wire_version = 0;
  std::int32_t max_wire_version = 0;
  std::int64_t last_write_ms = 0;  // the server's wall clock; 0: not said
  std::optional<std::array<std::uint8_t, 12>> election_id;
  std::optional<std::int64_t> set_version;
  std::optional<TopologyVersion> topology_version;
  bool hello_ok = false;  // it knows `hello`: isMaster is not needed any more
  TimePoint updated;

  bool known() const noexcept { return type != ServerType::unknown; }
  bool readable() const noexcept {
    return type == ServerType::rs_primary || type == ServerType::rs_secondary;
  }
};

// The reply to hello or isMaster. Errors: the reply's own error; IllegalOperation(20) for a router,
// which cannot be a shard; ProtocolError(17) for a server too old for OP_MSG or an invalid reply.
Result<ServerDescription> describe_server(DocView hello_reply, TimePoint now);

// A host that may not be used. `refused`: it answered; only the monitor asks again.
ServerDescription unknown_server(Error why, TimePoint now, bool refused = false);

struct BuildInfo {
  bool offers_sort_key = false;  // a mongod: $meta sortKey works
  bool ferretdb = false;
};
BuildInfo describe_build(DocView build_info_reply);

}  // namespace spillway::shard
