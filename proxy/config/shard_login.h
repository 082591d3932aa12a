// security.shards in the form that shard connections use.
#pragma once

#include "proxy/auth/service_login.h"
#include "proxy/config/config.h"

namespace spillway {

bool names_login(const ShardLoginConfig& config) noexcept;
// Null: no login to shards, unless their connection strings have one. Reads the password's file. BadValue(2).
Result<auth::ServiceLogin::Ptr> make_shard_login(const ShardLoginConfig& config);

}  // namespace spillway
