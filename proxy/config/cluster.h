// sharding.configDB, and how a router speaks to the servers of a cluster: the login, TLS (tls.h has cluster_tls()).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proxy/auth/service_login.h"
#include "proxy/config/config.h"
#include "proxy/shard/gateway.h"

namespace spillway {

struct ConfigServers {
  std::string set_name;                    // not empty
  std::vector<shard::HostAddress> hosts;  // at least one, each once: the set's seeds

  bool operator==(const ConfigServers&) const = default;
};

inline constexpr std::uint16_t config_server_port = 27019;

// "SET/HOST[:PORT],…". FailedToParse(9).
Result<ConfigServers> parse_config_servers(std::string_view text);

// By security.keyFile or the cluster's certificate; else as security.shards says; null: no login. Reads files.
// BadValue(2). REQUIRES sharding.configDB.
Result<auth::ServiceLogin::Ptr> make_cluster_login(const Config& config);

// Do the cluster's servers believe what this router says? They believe a member, and any router where there is no
// login, but no ordinary user. REQUIRES sharding.configDB.
bool servers_trust(const Config& config) noexcept;

}  // namespace spillway
