// `spillway doctor`: says in plain words what would fail when a router starts and serves with a configuration, without
// serving. Looks at the machine, at this user's rights, at each host of the shards and of the config servers. Changes
// nothing; listens on the configured ports for a moment, if they are free.
#pragma once

#include "proxy/base/pump.h"
#include "proxy/config/config.h"
#include "proxy/server/system/credentials.h"
#include "proxy/server/tools/findings.h"

namespace spillway::server {

// How the shards are reached.
struct DoctorLinks {
  Loop& loop;
  Pump& pump;
  Network& network;
};

// Asks every host of the table, or of the config servers and of the shards that they know. No step of it takes longer
// than the connect timeout, five seconds at most; all are asked at the same time. `routing`: table_of_config_servers()
// in a cluster. The arguments outlive it.
Task<Findings> examine_servers(DoctorLinks links, const Config& config, const catalog::RoutingSnapshot& routing,
                               const Credentials& credentials);

// All of it, to standard output. Exit codes: exit_ok without errors (warnings are none), exit_failed with some,
// exit_config if the configuration cannot be used.
int doctor(const LoadResult& loaded, bool json);

}  // namespace spillway::server
