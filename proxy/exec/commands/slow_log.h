// Slow operations: a line in the log for each that took longer than operationProfiling.slowOpThresholdMs (setParameter
// knows it as slowMS; the profile command changes it), in the shape of MongoDB's "Slow query", and a count by the shape
// of its command (core/slow_shapes.h).
#pragma once

#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"

namespace spillway::exec {

// `taken`: since its arrival. `error`: null when the command did not fail here. A streamed reply counts up to its
// first bytes.
void log_if_slow(const Context& context, const Client& client, const Request& request, Duration taken,
                 const Response* response, const Error* error);

}  // namespace spillway::exec
