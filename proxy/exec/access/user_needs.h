// The rights to manage users and roles of a cluster. The config servers do not check them: this router logs in as a
// member.
#pragma once

#include "proxy/auth/users.h"
#include "proxy/exec/core/request.h"

namespace spillway::exec {

// May this user run this command of users or roles? As servers decide it; a field of a wrong type is no.
bool may_manage_users(const auth::User& user, const Request& request);

}  // namespace spillway::exec
