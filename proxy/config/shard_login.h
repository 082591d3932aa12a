// security.shards as shard connections use it.
#pragma once

#include "proxy/auth/service_login.h"
#include "proxy/config/config.h"

namespace spillway {

// Null: shards are not logged in to, unless their connection strings say so. Reads the password's file. BadValue(2).
Result<auth::ServiceLogin::Ptr> make_shard_login(const ShardLoginConfig& config);

}  // namespace spillway
