// What each command of the command table needs to be allowed to: one row per command.
#pragma once

#include <span>
#include <string_view>

#include "proxy/auth/roles.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/wire/op_msg.h"

namespace spillway::exec {

// A command as far as it matters for what it needs: a request, or what an explain explains.
struct Subject {
  const auth::Privileges& privileges;
  std::string_view name;
  std::string_view db;
  DocView body;
  const wire::OpMsg* message = nullptr;  // its document sequences; null: none

  bool may(auth::ActionSet actions, std::string_view collection) const noexcept {
    return privileges.allows(actions, db, collection);
  }
};

struct CommandNeed {
  enum class Of : std::uint8_t {
    nobody,      // anybody may, without logging in
    somebody,    // who is logged in; the handler asks for more where it must
    cluster,     // the actions on the cluster
    database,    // the actions on its database
    collection,  // the actions on the collection that its first field names
    rule,        // what `rule` says
  };
  std::string_view command;
  Of of = Of::rule;
  auth::ActionSet actions = {};
  // No allocation where the answer is yes, but for aggregations that name other collections.
  bool (*rule)(const Subject& subject) = nullptr;
};

std::span<const CommandNeed> command_needs();
// Null: the command has no row, and nobody may.
const CommandNeed* find_need(std::string_view command);

bool meets(const CommandNeed& need, const Subject& subject);

}  // namespace spillway::exec
