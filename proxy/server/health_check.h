// spillway --healthcheck: asks the process that serves on this machine, with the same
// configuration, whether it does. For containers, which have no shell to ask with.
#pragma once

#include "cursor/error.h"
#include "proxy/server/config.h"
#include "proxy/shard/gateway.h"

namespace spillway::server {

// Where to ask: the loopback address among those listened on, else the first of them.
shard::HostAddress health_address(const NetConfig& net);

// One hello over TCP, or TLS if net.tls.mode requires it (the certificate is not checked; net.tls's
// own is shown where clients need one). Takes five seconds at most. The error is what went wrong:
// that of the connection, or of the hello, which fails once the process is shutting down.
Result<void> say_hello(const NetConfig& net);

// Prints what it found. Errors of the configuration that keep nobody from asking are ignored: a
// file that a reload would refuse must not end the process that goes on without it. The exit code.
int health_check(const LoadResult& loaded);

}  // namespace spillway::server
