// What the configuration says of settings that setParameter can change while serving.
#pragma once

#include "proxy/exec/context.h"
#include "proxy/config/config.h"

namespace spillway::server {

// Takes those whose value differs from `before`'s, so that what setParameter changed since stays;
// null: all of them.
void take_parameters(exec::Parameters& into, const Config* before, const Config& config);

// The same of what limits clients: the limiters of connections and requests, failed logins, and, as
// they stand, the limits of users, applications and addresses.
void take_limits(exec::Shared& into, const Config* before, const Config& config);

}  // namespace spillway::server
