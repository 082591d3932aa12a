// What the configuration says of settings that setParameter can change while serving.
#pragma once

#include "proxy/exec/context.h"
#include "proxy/server/config.h"

namespace spillway::server {

// Takes those whose value differs from `before`'s, so that what setParameter changed since stays;
// null: all of them.
void take_parameters(exec::Parameters& into, const Config* before, const Config& config);

}  // namespace spillway::server
