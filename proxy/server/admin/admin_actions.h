// AdminActions: what the page of the admin port does for a clusterAdmin: POST with a body of JSON.
//
//   /login            {user, db, password}; the answer has the session's token, and its cookie
//   /session          is the session still there?
//   /logout
//   /kill-operation   {opid}: killOp
//   /kill-cursor      {id}, a string: killCursors
//   /release-memory   releaseMemory
//   /drain            {timeoutSecs}, optional: shutdown
//
// Each is the command of this name, run on a worker as the user: the same checks of privileges, limits of failed
// logins, lines of the audit log. They are for this machine alone, because the port has no TLS, and only with
// security.authorization.
//
// Belongs to the admin port's thread. PBKDF2 runs there: a few milliseconds a login, half a second at most.
#pragma once

#include <string>
#include <string_view>

#include "allocator/budget.h"
#include "proxy/exec/core/context.h"
#include "proxy/server/admin/admin_http.h"
#include "proxy/server/admin/admin_sessions.h"

namespace spillway::server {

class AdminActions {
 public:
  // Both outlive it. `home`: the admin port's loop, which outlives the workers' threads.
  AdminActions(const exec::Services& shared, Loop& home) : shared_(shared), home_(home) {}
  AdminActions(const AdminActions&) = delete;
  AdminActions& operator=(const AdminActions&) = delete;

  static bool knows(std::string_view path) noexcept;

  // The two ends of the connection that asks.
  struct From {
    std::string peer, local;
  };
  struct Answer {
    unsigned status = 200;
    std::string json;
    std::string head = {};  // whole lines
  };
  // REQUIRES knows(request.path) and a POST. `worker`: one that lives; null: none does. The request outlives the task,
  // and loses its body.
  Task<Answer> answer(HttpRequest& request, From from, exec::Context* worker);
  // Ends all logins, and all waits for an answer.
  void end();

 private:
  Task<Answer> log_in(DocView fields, const HttpRequest& request, From from, exec::Context& worker);
  Task<Answer> act(DocView fields, const HttpRequest& request, From from, AdminSessions::User user,
                   exec::Context& worker);
  bool take_memory();

  const exec::Services shared_;
  Loop& home_;
  AdminSessions sessions_;
  Reservation memory_;  // of the sessions, from the first one on
  bool ended_ = false;
};

}  // namespace spillway::server
