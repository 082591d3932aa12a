// What of the shards and the config servers would hinder a router: each host is asked as a worker's connections would
// ask it, one step after the other, and what it says is judged.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proxy/base/task.h"
#include "proxy/server/tools/findings.h"
#include "proxy/shard/connection_string.h"
#include "proxy/shard/gateway.h"
#include "proxy/shard/pool.h"
#include "proxy/shard/server_description.h"

namespace spillway::server {

// A shard, or the config servers.
struct DoctorPlace {
  enum class Kind : std::uint8_t {
    table_shard,  // of a static routing table
    cluster_shard,
    config_servers,
  };
  Kind kind = Kind::table_shard;
  std::string name;
  shard::ConnectionString uri;
  shard::ShardCredentials credentials;
};

enum class DoctorStep : std::uint8_t { connect, tls, hello, log_in, ask };

// What one host did, up to the step that failed.
struct HostReport {
  shard::HostAddress address;
  std::optional<Error> error;
  DoctorStep failed_at = DoctorStep::connect;
  bool speaks_tls = false;    // it failed in plain text, and is good with TLS
  bool speaks_plain = false;  // and the other way round
  shard::ServerDescription server;
  Duration round_trip{};
  std::optional<std::int64_t> clock_ahead_ms;  // of ours, beyond what the round trip may explain
  std::string version;                         // buildInfo's
  std::string compatibility;                   // featureCompatibilityVersion; empty: not said
  BsonDoc login;                               // the reply to connectionStatus; {}: none
  std::optional<Error> read_refused;           // of admin.system.version
  bool owned = false;                          // it has a shardIdentity
  bool config_server = false;
  std::string its_config_servers;              // of the shardIdentity, as sharding.configDB is written
};

// Pure: what the reports of one place mean. `login`: whether the router logs in there.
Findings judge_place(const DoctorPlace& place, const std::vector<HostReport>& hosts);
// Pure: what the servers of all places mean together.
Findings judge_versions(const std::vector<HostReport>& hosts);

// Asks the hosts of a place, those that its primary names, too, all at the same time. No step takes longer than
// `patience`. `settings` without TLS and login.
Task<std::vector<HostReport>> examine_place(const shard::PoolSettings& settings, const DoctorPlace& place,
                                            Duration patience);

}  // namespace spillway::server
