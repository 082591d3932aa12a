// Beginning again with a newer routing table, after shards have refused a command for its own.
#pragma once

#include <cstddef>

#include "proxy/exec/core/routes.h"

namespace spillway::exec {

inline constexpr std::size_t tries_max = 10;

// Before this try; the first has the number 1. A shard may itself wait for the config servers.
Duration pause_before_try(std::size_t number) noexcept;

// Reads what is not known of these names. Errors: those of Router::learn(), and ConflictingOperationInProgress(117)
// when others forget it each time.
Task<Result<Routes>> learn_routes(Router& router, RouteNames names, RouteWait wait);

}  // namespace spillway::exec
