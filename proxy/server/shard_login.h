// security.shards as shard connections use it.
#pragma once

#include <string>

#include "proxy/auth/service_login.h"
#include "proxy/server/config.h"

namespace spillway::server {

// Null: shards are not logged in to, unless their connection strings say so. Reads the password's file. BadValue(2).
Result<auth::ServiceLogin::Ptr> make_shard_login(const ShardLoginConfig& config);

// A path that begins with $CREDENTIALS_DIRECTORY, where systemd puts what LoadCredential= names; others as they are.
// BadValue(2): it is not set.
Result<std::string> expand_credentials(const std::string& path);

}  // namespace spillway::server
