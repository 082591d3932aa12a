#include "proxy/exec/authorization.h"

#include <fmt/format.h>

#include "absl/container/inlined_vector.h"
#include "proxy/base/log.h"
#include "proxy/exec/authentication.h"
#include "proxy/exec/command_needs.h"

namespace spillway::exec {

namespace {

constexpr std::size_t shown_bytes_max = 1024;

// Two fields of one name could mean one thing here and another on a shard.
Result<void> check_fields_differ(DocView body) {
  absl::InlinedVector<std::string_view, 24> names;
  for (const Element& field : body) {
    for (const std::string_view known : names) {
      if (known == field.name) {
        return Error(ErrorCode::failed_to_parse, fmt::format("the field '{}' is written twice", field.name));
      }
    }
    names.push_back(field.name);
  }
  return {};
}

// MongoDB lets create users who comes from the machine itself while there are none. Here the answer to that tells
// where users come from, and nothing else is let through.
bool is_localhost_exception(const Context& context, const Client& client, const CommandSpec& spec) {
  return client.login.from_loopback && (spec.name == "createUser" || spec.name == "createRole") &&
         context.shared.users.table()->empty();
}

Error refused(const CommandSpec& spec, const Request& request) {
  const std::string command =
      is_sensitive(spec.name) ? fmt::format("{{ {}: <hidden> }}", spec.name) : to_json(request.body, shown_bytes_max);
  return Error(ErrorCode::unauthorized,
               fmt::format("not authorized on {} to execute command {}", request.db, command));
}

}  // namespace

Result<void> check_authorized(Context& context, Client& client, const CommandSpec& spec, const Request& request) {
  const CommandNeed* const need = spec.need;
  if (need != nullptr && need->of == CommandNeed::Of::nobody) return {};
  refresh_login(context, client);
  const auth::User* const user = client.login.user.get();
  if (user == nullptr) {
    if (is_localhost_exception(context, client, spec)) return {};
    context.shared.metrics.unauthenticated_commands.add();
    return Error(ErrorCode::unauthorized, fmt::format("Command {} requires authentication", spec.name));
  }
  if (auto differ = check_fields_differ(request.body); differ.has_error()) return differ.error();
  const Subject subject{user->privileges, spec.name, request.db, request.body, &request.message};
  if (need != nullptr && meets(*need, subject)) return {};
  context.shared.metrics.unauthorized_commands.add();
  return refused(spec, request);
}

}  // namespace spillway::exec
