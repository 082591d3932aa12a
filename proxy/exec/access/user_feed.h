// Users that are stored on a shard, as MongoDB stores them (admin.system.users), or on the config servers of a cluster:
// the first worker reads them now and then, as the router's own user there.
#pragma once

#include <string>

#include "proxy/auth/users.h"
#include "proxy/exec/core/context.h"

namespace spillway::exec {

struct Request;

// One document of admin.system.users, or of usersInfo with showPrivileges, whose roles are resolved. Otherwise unknown
// roles are left out; `unknown_roles` counts them. BadValue(2): not a user's document, or the user may log in from some
// addresses only, which is not checked here.
Result<auth::UserSpec> parse_stored_user(DocView document, std::size_t& unknown_roles);

// REQUIRES Services::users_from. Reads them and feeds the directory. An error: nothing changed.
Task<Result<void>> read_stored_users(Context& context);
// The same of the config servers of a cluster: with usersInfo, if their _getUserCacheGeneration is not `*generation`,
// which is then set. Empty: of nothing yet. The caller keeps it until the task has ended.
Task<Result<void>> read_cluster_users(Context& context, std::string* generation);
// One of them, which has changed.
Task<Result<void>> read_cluster_user(Context& context, std::string name, std::string db);
// One that is not known, and may have been made elsewhere a moment ago. Takes a second at most.
struct UserToLearn {
  std::string db, name;
};
Task<void> learn_user(Context& context, UserToLearn user);
// After a command that changes users or roles. When it returns, all workers know what users are now.
Task<void> read_changed_users(Context& context, const Request& request);

// Reads them again when it is time. Belongs to the first worker.
class UserFeed {
 public:
  void tick(Context& context, TimePoint now);

 private:
  Task<void> refresh(Context* context);

  TimePoint next_{};
  bool running_ = false;
  std::string generation_;  // of a cluster's users
  int failures_ = 0;  // in a row
};

}  // namespace spillway::exec
