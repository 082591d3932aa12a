#include "proxy/config/cluster.h"

#include <fmt/format.h>

#include <algorithm>

#include "proxy/config/shard_login.h"
#include "proxy/config/text.h"
#include "proxy/config/yaml_keys.h"
#include "proxy/shard/connection_string.h"

namespace spillway {

Result<ConfigServers> parse_config_servers(std::string_view text) {
  constexpr std::string_view form = "write SET/HOST:PORT,HOST:PORT,…, as the config servers' replica set is called";
  const auto wrong = [](const std::string& what) { return Error(ErrorCode::failed_to_parse, what); };
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos || trim(text.substr(0, slash)).empty()) {
    return wrong(fmt::format("\"{}\" names no replica set: {}", text, form));
  }
  if (text.find("://") != std::string_view::npos) return wrong(fmt::format("it is no connection string: {}", form));
  ConfigServers servers{std::string(trim(text.substr(0, slash))), {}};
  for (const std::string_view part : split(text.substr(slash + 1), ",")) {
    const std::string_view word = trim(part);
    const auto host = shard::parse_host_address(word, config_server_port);
    if (!host) {
      return wrong(word.empty() ? fmt::format("a host of {} is missing: {}", servers.set_name, form)
                                : fmt::format("\"{}\" is no HOST or HOST:PORT (IPv6: [::1]:{})", word,
                                              config_server_port));
    }
    if (std::find(servers.hosts.begin(), servers.hosts.end(), *host) == servers.hosts.end()) {
      servers.hosts.push_back(*host);
    }
  }
  return servers;
}

namespace {

bool is_member(const ClusterConfig& cluster) noexcept { return cluster.auth_mode || !cluster.key_file.empty(); }

}  // namespace

bool servers_trust(const Config& config) noexcept {
  return is_member(config.cluster) || !names_login(config.shard_login);
}

Result<auth::ServiceLogin::Ptr> make_cluster_login(const Config& config) {
  const ClusterConfig& cluster = config.cluster;
  if (!is_member(cluster)) return make_shard_login(config.shard_login);
  std::vector<auth::Secret::Ptr> keys;  // none: by certificate
  if (!cluster.auth_mode || *cluster.auth_mode == ClusterAuthMode::key_file ||
      *cluster.auth_mode == ClusterAuthMode::send_key_file) {
    auto read = read_key_file(cluster.key_file);
    if (read.has_error()) return read.error();
    keys = *std::move(read);
  }
  return auth::ServiceLogin::make_internal(keys, cluster.transition_to_auth);
}

}  // namespace spillway
