// $listLocalSessions: the sessions that this router's clients use.
#pragma once

#include <string>
#include <vector>

#include "proxy/auth/impersonation.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/read/query_run.h"

namespace spillway::exec {

// Whose sessions: by the ids of their users ("db.name"; empty without authorization).
struct ListedSessions {
  bool all = false;
  std::vector<std::string> users{};
};
// The uid of the sessions of this user.
auth::Digest uid_of_sessions(std::string_view user);
// The stage's value; {}: the client's own. Errors: TypeMismatch(14), 40415, UnsupportedFormat(12).
Result<ListedSessions> parse_listed_sessions(const Client& client, ValueView stage);

// {_id: {id, uid}, lastUse} of each session that an open connection has used, once. (A connection remembers 256.)
Task<Result<void>> list_local_sessions(Context& context, ListedSessions listed, QueryRun& into);

}  // namespace spillway::exec
