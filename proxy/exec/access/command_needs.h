// The privileges that each command of the command table needs: one row per command.
#pragma once

#include <span>
#include <string_view>

#include "proxy/auth/roles.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/wire/op_msg.h"

namespace spillway::exec {

// The parts of a command that decide its needs: of a request, or of the command inside an explain.
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
    nobody,      // needs no login
    somebody,    // needs a login; the handler checks more where it must
    cluster,     // the actions on the cluster
    database,    // the actions on its database
    collection,  // the actions on the collection that its first field names
    rule,        // decided by `rule`
  };
  std::string_view command;
  Of of = Of::rule;
  auth::ActionSet actions = {};
  // Takes no memory if the answer is yes, except for aggregations that name other collections.
  bool (*rule)(const Subject& subject) = nullptr;
};

std::span<const CommandNeed> command_needs();
// Null: the command has no row, and no user may run it.
const CommandNeed* find_need(std::string_view command);

bool meets(const CommandNeed& need, const Subject& subject);

}  // namespace spillway::exec
