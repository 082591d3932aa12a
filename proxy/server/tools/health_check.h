// spillway --healthcheck: checks the process that serves on this machine with the same configuration. For containers,
// which have no shell.
#pragma once

#include <string>

#include "cursor/error.h"
#include "proxy/config/config.h"
#include "proxy/shard/gateway.h"

namespace spillway::server {

// Where to ask: the loopback address among those listened on, else the first of them.
shard::HostAddress health_address(const NetConfig& net);
// Likewise, of the admin port.
shard::HostAddress admin_address(const NetConfig& net);

// One hello over TCP, or TLS if net.tls.mode requires it. The server's certificate is not checked; net.tls's own is
// presented where clients need one. Takes five seconds at most. The result is "serving", or that the process is alive
// though it admits no client now: a limit refuses the connection, or keeps it waiting while the admin port's /healthz
// answers (asked if there is one). Errors: those of the connection, or of the hello, which fails once the process is
// shutting down.
Result<std::string> ask_health(const NetConfig& net);

// Prints the result. Ignores errors of the configuration that do not prevent the check: a file that a reload would
// refuse must not end a process that goes on without it. Where the configuration names no address, no process is
// asked. Returns the exit code.
int health_check(const LoadResult& loaded);

}  // namespace spillway::server
