// The privileges that a command needs: a part of its row in the command table.
#pragma once

#include <string_view>

#include "proxy/auth/roles.h"
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
  // On the collection that its first field names.
  bool may_on_collection(auth::ActionSet actions) const noexcept;
  // On a namespace in one text, "db.collection".
  bool may_on_namespace(std::string_view ns, auth::ActionSet actions) const noexcept;
  bool may_on_cluster(auth::ActionSet actions) const noexcept { return privileges.on_cluster().has(actions); }
};

struct CommandNeed {
  enum class Of : std::uint8_t {
    no_login,
    any_user,        // that has logged in; the handler checks more where it must
    cluster,         // the actions on the cluster
    database,        // the actions on its database
    collection,      // the actions on the collection that its first field names
    named_database,  // the actions on the database that its first field names: $db does not count
    full_name,       // the actions on "db.collection" in its first field: $db does not count
    rule,            // decided by `rule`
  };
  // Takes no memory if the answer is yes, except for aggregations that name other collections.
  using Rule = bool(const Subject& subject);

  constexpr explicit CommandNeed(Of what, auth::ActionSet needed = {}, Rule* decides = nullptr) noexcept
      : of(what), actions(needed), rule(decides) {}
  Of of;
  auth::ActionSet actions;
  Rule* rule;
};

inline constexpr CommandNeed no_login{CommandNeed::Of::no_login}, any_user{CommandNeed::Of::any_user};
constexpr CommandNeed on_cluster(auth::ActionSet actions) { return CommandNeed(CommandNeed::Of::cluster, actions); }
constexpr CommandNeed on_database(auth::ActionSet actions) { return CommandNeed(CommandNeed::Of::database, actions); }
constexpr CommandNeed on_collection(auth::ActionSet actions) {
  return CommandNeed(CommandNeed::Of::collection, actions);
}
constexpr CommandNeed on_named_database(auth::ActionSet actions) {
  return CommandNeed(CommandNeed::Of::named_database, actions);
}
constexpr CommandNeed on_full_name(auth::ActionSet actions) {
  return CommandNeed(CommandNeed::Of::full_name, actions);
}
constexpr CommandNeed by_rule(CommandNeed::Rule* rule) { return CommandNeed(CommandNeed::Of::rule, {}, rule); }

bool meets(const CommandNeed& need, const Subject& subject);

}  // namespace spillway::exec
