// Server: all of main's parts. Owns the shared state, the workers and the listener; lives on the main thread, whose
// loop accepts clients and receives signals.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proxy/base/file_descriptor.h"
#include "proxy/config/config.h"
#include "proxy/exec/core/context.h"
#include "proxy/server/connections/worker.h"

namespace spillway::server {

struct ServerOptions {
  Config config;
  std::shared_ptr<const catalog::RoutingSnapshot> routing;
  bool in_cluster = false;             // `routing` holds the config servers alone
  std::vector<std::string> arguments;  // argv, as getCmdLineOpts shows it
  bool check_shards = true;            // shardIdentity and fingerprint guards; false for canned shards
  std::function<LoadResult()> load;    // reads the configuration again, for a reload
  FileDescriptor predecessor;          // the channel to the process that this one replaces; empty: none
};

// What a router of this cluster knows before it has asked: the config servers. Throws std::runtime_error. REQUIRES
// loaded.config_servers.
std::shared_ptr<const catalog::RoutingSnapshot> table_of_config_servers(const LoadResult& loaded);

// What a start with this configuration would refuse on this machine, in the words of the refusal: ports, the division
// of memory.limit, memory.spill.path. Listens for a moment. One line for each.
struct StartRefusals {
  std::vector<std::string> ports, memory, spill;
};
StartRefusals try_to_start(const Config& config, const std::shared_ptr<const catalog::RoutingSnapshot>& routing);

// Its part about memory, without listening.
std::optional<std::string> refuse_memory(const Config& config,
                                         const std::shared_ptr<const catalog::RoutingSnapshot>& routing);

// Serves until SIGTERM or SIGINT, then ends cleanly. Returns the process's exit code. Prints the ready line to
// standard output once it listens. Throws std::runtime_error when it cannot start.
int run_server(ServerOptions options);

}  // namespace spillway::server
