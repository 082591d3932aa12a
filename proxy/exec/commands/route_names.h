// The databases and collections that a request's routes must know, before its handler runs.
#pragma once

#include "proxy/exec/core/command.h"

namespace spillway::exec {

// Views into the request. A malformed command names what it can: its handler answers with the error.
RouteNames route_names(const CommandSpec& spec, const Request& request);

}  // namespace spillway::exec
