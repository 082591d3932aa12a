// spillway --healthcheck: asks the process that serves on this machine, with the same
// configuration, whether it does. For containers, which have no shell to ask with.
#pragma once

#include <string>

#include "cursor/error.h"
#include "proxy/config/config.h"
#include "proxy/shard/gateway.h"

namespace spillway::server {

// Where to ask: the loopback address among those listened on, else the first of them.
shard::HostAddress health_address(const NetConfig& net);

// One hello over TCP, or TLS if net.tls.mode requires it (the certificate is not checked; net.tls's
// own is shown where clients need one). Takes five seconds at most. "serving", or that the process
// is alive though it admits no client now: a limit refuses the connection, or keeps it waiting and the
// admin port's /healthz answers. That one is asked where there is one. The error is what went wrong:
// that of the connection, or of the hello, which fails once the process is shutting down.
Result<std::string> ask_health(const NetConfig& net);

// Prints what it found. Errors of the configuration that do not prevent the check are ignored: a
// file that a reload would refuse must not end the process that goes on without it. Where it does
// not name an address, no process is asked. The exit code.
int health_check(const LoadResult& loaded);

}  // namespace spillway::server
