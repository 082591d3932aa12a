// Logging in on a shard connection. Source: the drivers' Authentication specification. Monitors do not.
#pragma once

#include "proxy/auth/service_login.h"
#include "proxy/shard/handshake.h"

namespace spillway::shard {

// After introduce(). HostUnreachable(6), with the shard's reason: to a client the shard is unreachable. Of two
// passwords (a cluster's keys) the second is tried when the first is wrong. `refused`: set if the server has refused
// the login, as opposed to a network that failed.
Task<Result<void>> log_in(Connection& connection, const auth::ServiceLogin& login, LinkBudgets budgets,
                          TimePoint deadline, bool* refused = nullptr);

}  // namespace spillway::shard
