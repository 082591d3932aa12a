#include "proxy/exec/access/authorization.h"

#include <fmt/format.h>

#include "proxy/auth/users.h"
#include "proxy/base/log.h"
#include "proxy/config/parameters.h"
#include "proxy/exec/access/authentication.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/tables/session_owners.h"

namespace spillway::exec {

namespace {

constexpr std::size_t shown_bytes_max = 1024;
constexpr Duration session_believed_for = std::chrono::minutes(1);

// A server takes any array from a document sequence: authorization must see all of it. (The parser of messages has
// made sure that no field occurs twice.)
Result<void> check_sequences(const CommandSpec& spec, const wire::OpMsg& message) {
  for (const wire::DocSequence& sequence : message.sequences) {
    const bool known = spec.name == "bulkWrite"
                           ? sequence.name == "ops" || sequence.name == "nsInfo"
                           : sequence.name == "documents" || sequence.name == "updates" || sequence.name == "deletes";
    if (!known) {
      return Error(ErrorCode::failed_to_parse,
                   fmt::format("'{}' must stand in the command's body, not in a document sequence",
                               sequence.name));
    }
  }
  return {};
}

// MongoDB lets a local client create users while there are none. In a cluster it makes the first one. Else the answer
// to that command explains where users come from; all others are refused.
bool is_localhost_exception(const Context& context, const Client& client, const CommandSpec& spec) {
  return client.login.from_loopback && context.shared.parameters.localhost_exception &&
         (spec.name == "createUser" || spec.name == "createRole") && context.shared.users.table()->empty();
}

Error refused(const CommandSpec& spec, const Request& request) {
  const std::string command = is_sensitive(request.body) ? fmt::format("{{ {}: <hidden> }}", spec.name)
                                                      : to_json(request.body, shown_bytes_max);
  return Error(ErrorCode::unauthorized,
               fmt::format("not authorized on {} to execute command {}", request.db, command));
}

// The session that a command names. A user part in an lsid is what a router adds towards its own cluster.
Result<void> check_session(Context& context, Client& client, const Request& request) {
  if (request.lsid.empty()) return {};
  const DocView lsid = request.lsid_document();
  if (lsid.count() != 1) {
    return Error(ErrorCode::unauthorized, "Unauthorized to set user digest in LogicalSessionId");
  }
  return claim_session(context, client, auth::text_of(lsid["id"].as_binary().data));
}

}  // namespace

bool may_on_cluster(const Context& context, const Client& client,
                    auth::ActionSet actions) noexcept {
  if (!context.shared.authorization) return true;
  return client.login.user && client.login.user->privileges.on_cluster().has(actions);
}

bool owns_session(const Context& context, const Client& client, const Request& request) {
  if (!context.shared.authorization) return true;
  if (!client.login.user || request.lsid.empty()) return false;
  const std::string_view uuid = auth::text_of(request.lsid_document()["id"].as_binary().data);
  return context.shared.session_owners.is_of(session_id_of(uuid), client.user);
}

const auth::User* impersonated(const Context& context, const Client& client) noexcept {
  const bool says = context.in_cluster() && context.shared.authorization && context.shared.shards_trust_us;
  return says ? client.login.user.get() : nullptr;
}

std::optional<auth::Digest> session_owner(const Context& context, const Client& client) {
  const auth::User* const user = impersonated(context, client);
  if (user == nullptr) return std::nullopt;
  return auth::session_uid(user->db, user->name);
}

void name_session_owner(const Context& context, const Client& client, Request& request) {
  if (request.lsid.empty()) return;
  const auto uid = session_owner(context, client);
  if (!uid) return;
  BsonWriter lsid;
  lsid.append_elements(request.lsid_document());
  lsid.append_binary("uid", 0, uid->view());
  request.owned_lsid = std::make_shared<const BsonDoc>(std::move(lsid).finish());
  request.lsid = auth::text_of(request.owned_lsid->view().bytes());
  request.strips_fields = true;  // so that it is forwarded so
}

Result<void> claim_session(Context& context, Client& client, std::string_view uuid) {
  Login& login = client.login;
  const SessionId session = session_id_of(uuid);
  const TimePoint now = Clock::now();
  if (login.session == session && now - login.session_claimed < session_believed_for) return {};
  const bool another_users =
      context.shared.session_owners.claim(session, client.user, now) == SessionOwners::Claim::another_users;
  // Shards that are told the user keep a session of each: a connection may log in as another user with the same id.
  if (another_users && !session_owner(context, client)) {
    context.shared.metrics.unauthorized_commands.add();
    return Error(ErrorCode::unauthorized, "the logical session is another user's");
  }
  login.session = session;
  login.session_claimed = now;
  return {};
}

Result<void> check_cursor_rights(const Client& client, ClusterCursor& cursor) {
  const auth::User* const user = client.login.user.get();
  if (user == nullptr || cursor.owner_then == nullptr || cursor.owner_then.get() == user) return {};
  const catalog::Namespace ns = catalog::split_namespace(cursor.ns);
  const bool watches = cursor.change_stream || cursor.changes;
  const auth::ActionSet needed = watches ? auth::Action::find | auth::ActionSet(auth::Action::change_stream)
                                         : auth::ActionSet(auth::Action::find);
  const bool of_command = ns.collection.starts_with("$cmd.");
  bool may = (of_command && !watches) ||
             user->privileges.allows(needed, ns.db, of_command ? std::string_view() : ns.collection);
  // That of a view's cursor reads what is below the view; one that was too long is not kept.
  if (!cursor.originating_command.empty() && cursor.below_view == nullptr) {
    const DocView command = DocView::trusted(cursor.originating_command.data());
    const std::string_view name = command.first().name;
    const CommandSpec* const spec = command_named(name);
    may = spec != nullptr && meets(spec->need, {user->privileges, name, ns.db, command, nullptr});
  }
  if (!may) return Error(ErrorCode::unauthorized, "not authorized any more for the command that opened the cursor");
  cursor.owner_then = client.login.user;
  return {};
}

Result<void> check_authorized(Context& context, Client& client, const CommandSpec& spec,
                              const Request& request) {
  if (spec.need.of == CommandNeed::Of::no_login) return {};
  refresh_login(context.shared.users, client);
  const auth::User* const user = client.login.user.get();
  if (user == nullptr) {
    if (is_localhost_exception(context, client, spec)) return {};
    context.shared.metrics.unauthenticated_commands.add();
    return Error(ErrorCode::unauthorized,
                 fmt::format("Command {} requires authentication", spec.name));
  }
  if (auto checked = check_sequences(spec, request.message); checked.has_error()) return checked.error();
  const Subject subject{user->privileges, spec.name, request.db, request.body, &request.message};
  if (meets(spec.need, subject)) return check_session(context, client, request);
  context.shared.metrics.unauthorized_commands.add();
  return refused(spec, request);
}

}  // namespace spillway::exec
