// The databases and collections that a request's routes must know, before its handler runs.
#pragma once

#include "proxy/exec/core/command.h"

namespace spillway::exec {

// Views into the request, which learns the name of the buckets that it may write to. A malformed command names what it
// can: its handler answers with the error.
RouteNames route_names(const Context& context, const CommandSpec& spec, Request& request);

}  // namespace spillway::exec
