#include "proxy/exec/core/command_need.h"

namespace spillway::exec {

bool Subject::may_on_collection(auth::ActionSet actions) const noexcept {
  const Element first = body.first();
  return first.is_string() && !first.as_string().empty() && may(actions, first.as_string());
}

bool Subject::may_on_namespace(std::string_view ns, auth::ActionSet actions) const noexcept {
  const std::size_t dot = ns.find('.');
  if (dot == std::string_view::npos || dot + 1 == ns.size()) return false;
  return privileges.allows(actions, ns.substr(0, dot), ns.substr(dot + 1));
}

bool meets(const CommandNeed& need, const Subject& subject) {
  const Element first = subject.body.first();
  switch (need.of) {
    case CommandNeed::Of::no_login:
    case CommandNeed::Of::any_user:
      return true;
    case CommandNeed::Of::cluster:
      return subject.may_on_cluster(need.actions);
    case CommandNeed::Of::database:
      return subject.may(need.actions, {});
    case CommandNeed::Of::collection:
      return subject.may_on_collection(need.actions);
    case CommandNeed::Of::named_database:
      return first.is_string() && subject.privileges.allows(need.actions, first.as_string(), {});
    case CommandNeed::Of::full_name:
      return first.is_string() && subject.may_on_namespace(first.as_string(), need.actions);
    case CommandNeed::Of::rule:
      return need.rule(subject);
  }
  return false;
}

}  // namespace spillway::exec
