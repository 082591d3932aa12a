// Settings that come from environment variables: the few that a container needs, so that it runs
// without a file. They go before the file, and --set goes before them. Reads nothing but its
// argument; does not throw.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proxy/config/config.h"

namespace spillway {

struct EnvironmentSetting {
  std::string_view variable;
  std::string_view key;  // of config_keys(); empty: the configuration file's path
};
// Those that keys name. None is called SPILLWAY_PORT: in a pod beside a service called "spillway" Kubernetes sets it.
std::vector<EnvironmentSetting> environment_settings();

struct Environment {
  std::string config_path;               // of SPILLWAY_CONFIG; empty: not set
  std::vector<EnvironmentValue> values;  // in the order of environment_settings()
  // Variables whose names begin like ours and have no meaning: probably mistyped. Those that Kubernetes makes of a
  // service's name (SPILLWAY_SERVICE_HOST, …) are left out.
  std::vector<std::string> warnings;
};
// `variables` is "NAME=value", null at its end. An empty value counts as not set.
Environment read_environment(const char* const* variables);

// SPILLWAY_SHARDS: connection strings separated by blanks. Each may have its shard's name and "=" before it;
// otherwise its name is shard0, shard1, … by its place. As (name, connection string).
std::vector<std::pair<std::string, std::string>> split_shards(std::string_view text);

}  // namespace spillway
