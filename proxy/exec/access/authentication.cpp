#include "proxy/exec/access/authentication.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include "proxy/auth/users.h"
#include "proxy/base/ip_address.h"
#include "proxy/base/log.h"
#include "proxy/exec/access/audit.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/tables/failed_logins.h"
#include "proxy/exec/tables/limits.h"

namespace spillway::exec {

namespace {

// MongoDB's ids of these lines.
constexpr int authenticated_id = 5286306;
constexpr int not_authenticated_id = 5286307;
constexpr std::int32_t mechanism_unavailable = 334;
constexpr std::int32_t conversation_id = 1;
constexpr std::string_view x509_mechanism = "MONGODB-X509";

constexpr std::size_t log_json_bytes_max = 16 * limits::kib;  // the longest name, escaped

Error authentication_failed() {
  return Error(ErrorCode::authentication_failed, "Authentication failed.");
}

// One attempt to log in, for the log and the counters.
struct Attempt {
  std::string_view mechanism;
  std::string_view db;
  std::string_view user;
  bool speculative = false;
};

Metrics::Mechanism& counters(Metrics& metrics, std::string_view mechanism) {
  auto& all = metrics.mechanisms;
  if (mechanism == x509_mechanism) return all[Metrics::x509];
  return all[mechanism == auth::mechanism_name(auth::Hash::sha1) ? Metrics::scram_sha_1
                                                                 : Metrics::scram_sha_256];
}

void count_received(Context& context, const Attempt& attempt) {
  Metrics::Mechanism& mechanism = counters(context.shared.metrics, attempt.mechanism);
  mechanism.received.add();
  if (attempt.speculative) mechanism.speculative_received.add();
}

BsonWriter log_attributes(const Client& client, const Attempt& attempt) {
  BsonWriter out;
  out.append("client", client.peer).append("isSpeculative", attempt.speculative);
  out.append("isClusterMember", false).append("mechanism", attempt.mechanism);
  out.append("user", attempt.user).append("db", attempt.db);
  return out;
}

void audit(const Context& context, const Client& client, const Attempt& attempt, std::int32_t result) {
  AuditLog* const log = context.shared.audit.get();
  if (log != nullptr) log->authenticated(client, attempt.mechanism, attempt.db, attempt.user, result);
}

// An address as limits count it: failures at one address of a network count for its neighbours.
std::string address_of(const Client& client) {
  const std::string_view text = without_port(client.peer);
  const auto address = IpAddress::parse(text);
  return address ? Limits::address_name(*address) : std::string(text);
}

// Too many failed logins of this user from this address: nothing is checked for a while. Unknown users are refused in
// the same way.
std::optional<Error> refuse_for_failures(Context& context, const Client& client, const Attempt& attempt) {
  const TimePoint now = Clock::now();
  FailedLogins& failures = *context.shared.failed_logins;
  const Duration wait = failures.refused_for(address_of(client), auth::user_id(attempt.db, attempt.user), now);
  if (wait <= Duration::zero()) return std::nullopt;
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(wait).count();
  if (const auto unwritten = failures.log_pace.due(now)) {
    log::warning(
        "a login as {} from {} was refused unchecked: too many failed before, the next is looked at in {} s; {} more "
        "such refusals since the last such line",
        auth::user_id(attempt.db, attempt.user), client.peer, seconds, *unwritten);
  }
  audit(context, client, attempt, static_cast<std::int32_t>(ErrorCode::authentication_failed));
  return Error(
      ErrorCode::authentication_failed,
      fmt::format(
          "Authentication failed: too many logins of this user from this address have failed; try again in {} s",
          seconds));
}

// The reason of a failed login: for the log alone.
Error refuse(const Context& context, const Client& client, const Attempt& attempt, std::string_view why) {
  audit(context, client, attempt, static_cast<std::int32_t>(ErrorCode::authentication_failed));
  BsonWriter out = log_attributes(client, attempt);
  out.append("error", why);
  out.append("result", static_cast<std::int32_t>(ErrorCode::authentication_failed));
  log::write_event(log::Level::info, "ACCESS", not_authenticated_id, "Failed to authenticate",
                   to_json(std::move(out).finish(), log_json_bytes_max));
  return authentication_failed();
}

void use_login(Client& client, std::shared_ptr<const auth::User> user, std::uint64_t generation) {
  client.user = user->id;
  client.presence.set_user(client.user);
  client.login.session = {};
  client.login.user = std::move(user);
  client.login.suspended.reset();
  client.login.generation = generation;
}

void end_login(Client& client) {
  client.limits.leave(LimitKey::user);
  client.login.user.reset();
  client.login.suspended.reset();
  client.login.session = {};
  client.user.clear();
  client.presence.set_user({});
}

// Was a user dropped, and made again under its name?
bool is_another(const auth::User& before, const auth::User& now) noexcept {
  return before.uuid && now.uuid && *before.uuid != *now.uuid;
}

// Its user cannot be read. The connection keeps its place among those of the user.
void suspend_login(Client& client) {
  Login& login = client.login;
  if (login.user) login.suspended = std::move(login.user);
  login.user.reset();
  login.session = {};
  client.user.clear();
  client.presence.set_user({});
}

Result<void> log_in(Context& context, Client& client, const Attempt& attempt) {
  // The generation is read first: if the table is replaced meanwhile, the next command notices.
  const std::uint64_t generation = context.shared.users.generation();
  auto user = context.shared.users.table()->find(attempt.db, attempt.user);
  if (!user) return refuse(context, client, attempt, "UserNotFound");
  if (client.login.user && client.login.user->id != user->id) {
    return refuse(
        context, client, attempt,
        fmt::format("the connection is authenticated as {} already", client.login.user->id));
  }
  context.shared.failed_logins->succeeded(address_of(client), user->id);
  // Only an authenticated client learns that a limit is reached.
  if (auto full = client.limits.enter(context.shared.limits, LimitKey::user, user->id)) {
    audit(context, client, attempt, full->code);
    return *std::move(full);
  }
  Metrics::Mechanism& mechanism = counters(context.shared.metrics, attempt.mechanism);
  mechanism.successful.add();
  if (attempt.speculative) mechanism.speculative_successful.add();
  use_login(client, std::move(user), generation);
  audit(context, client, attempt, 0);
  BsonWriter out = log_attributes(client, attempt);
  out.append("result", std::int32_t{0});
  log::write_event(log::Level::info, "ACCESS", authenticated_id, "Successfully authenticated",
                   to_json(std::move(out).finish(), log_json_bytes_max));
  return {};
}

// --- SCRAM

// saslStart's and saslContinue's payload: binary, or base64.
std::optional<std::string> payload_of(DocView command) {
  const ValueView payload = command["payload"];
  if (payload.type == BsonType::binary) {
    const Bytes data = payload.as_binary().data;
    if (data.size() > auth::scram_message_bytes_max) return std::nullopt;
    return std::string(auth::text_of(data));
  }
  if (!payload.is_string() || payload.as_string().size() > 2 * auth::scram_message_bytes_max)
    return std::nullopt;
  const auto decoded = auth::from_base64(payload.as_string());
  if (!decoded) return std::nullopt;
  return std::string(auth::text_of(*decoded));
}

void append_step(BsonWriter& reply, std::string_view payload, bool done) {
  reply.append("conversationId", conversation_id).append("done", done);
  reply.append_binary("payload", 0, auth::bytes_of(payload));
}

// The first step; the reply's fields go to `reply`.
Result<void> start_scram(Context& context, Client& client, DocView command, std::string_view db,
                         bool speculative, BsonWriter& reply) {
  client.login.conversation.reset();
  const ValueView mechanism = command["mechanism"];
  const auto hash =
      mechanism.is_string() ? auth::scram_mechanism(mechanism.as_string()) : std::nullopt;
  if (!hash) {
    return Error(mechanism_unavailable,
                 fmt::format("Received authentication for mechanism {} which is not enabled",
                             mechanism.is_string() ? mechanism.as_string() : "unknown"));
  }
  Attempt attempt{auth::mechanism_name(*hash), db, "", speculative};
  count_received(context, attempt);
  const auto payload = payload_of(command);
  if (!payload) return refuse(context, client, attempt, "the payload is no SCRAM message");
  const auto first = auth::parse_client_first(*payload);
  if (first.has_error()) return refuse(context, client, attempt, first.error().message);
  attempt.user = first->user;
  if (auto waits = refuse_for_failures(context, client, attempt)) return *std::move(waits);
  auto check = context.shared.users.table()->credentials(*hash, db, first->user);
  auth::ScramServer server(*hash, *first, std::move(check.credentials), check.known);
  const ValueView options = command["options"];
  client.login.conversation = std::make_unique<Conversation>(
      Conversation{.server = std::move(server),
                   .hash = *hash,
                   .db = std::string(db),
                   .user = first->user,
                   .skip_empty_exchange =
                       options.is_document() && options.as_document()["skipEmptyExchange"].truthy(),
                   .speculative = speculative});
  append_step(reply, client.login.conversation->server.first_message(), false);
  return {};
}

Result<void> continue_scram(Context& context, Client& client, DocView command, BsonWriter& reply) {
  // Any error ends it.
  const std::unique_ptr<Conversation> conversation = std::move(client.login.conversation);
  const auto id = command["conversationId"].to_int64();
  if (!conversation || id != conversation_id) {
    return Error(ErrorCode::protocol_error,
                 conversation ? "sasl: Mismatched conversation id" : "No SASL session state found");
  }
  const Attempt attempt{auth::mechanism_name(conversation->hash), conversation->db,
                        conversation->user, conversation->speculative};
  const auto payload = payload_of(command);
  if (!payload) return refuse(context, client, attempt, "the payload is no SCRAM message");
  if (conversation->proven) {
    if (!payload->empty()) return refuse(context, client, attempt, "the last message should be empty");
    if (auto done = log_in(context, client, attempt); done.has_error()) return done.error();
    append_step(reply, "", true);
    return {};
  }
  // Other attempts may have failed since the first step.
  if (auto waits = refuse_for_failures(context, client, attempt)) return *std::move(waits);
  auto answer = conversation->server.finish(*payload);
  if (answer.has_error()) {
    const bool wrong_password = answer.error().is(ErrorCode::authentication_failed);
    if (wrong_password) {
      context.shared.failed_logins->failed(address_of(client), auth::user_id(attempt.db, attempt.user), Clock::now());
    }
    return refuse(context, client, attempt,
                  wrong_password ? "the user does not exist, or the password is wrong"
                                 : answer.error().message);
  }
  if (conversation->skip_empty_exchange) {
    if (auto done = log_in(context, client, attempt); done.has_error()) return done.error();
  } else {
    conversation->proven = true;
    client.login.conversation = std::make_unique<Conversation>(std::move(*conversation));
  }
  append_step(reply, *answer, !client.login.conversation);
  return {};
}

// Null: the user is known, or there is nothing to ask.
std::optional<UserToLearn> to_learn(Context& context, const Client& client, std::string_view db,
                                    std::string_view name) {
  auth::UserDirectory& users = context.shared.users;
  if (!context.shared.users_of_cluster || name.empty() || name.size() > auth::user_name_bytes_max ||
      db.size() > limits::database_name_bytes_max || users.table()->find(db, name) ||
      !users.may_ask_for(db, name, address_of(client), Clock::now())) {
    return std::nullopt;
  }
  return UserToLearn{std::string(db), std::string(name)};
}

// Of a saslStart, of its own or within a hello.
std::optional<UserToLearn> to_learn(Context& context, const Client& client, std::string_view db, DocView sasl_start) {
  const auto payload = payload_of(sasl_start);
  const auto first = payload ? auth::parse_client_first(*payload) : Result<auth::ScramClientFirst>(Error());
  return first.has_error() ? std::nullopt : to_learn(context, client, db, first->user);
}

Answer sasl_start(Context& context, Client& client, const Request& request) {
  if (auto user = to_learn(context, client, request.db, request.body)) {
    auto learning = learn_user(context, *std::move(user));
    co_await learning;
  }
  BsonWriter reply;
  auto started = start_scram(context, client, request.body, request.db, false, reply);
  if (started.has_error()) co_return started.error();
  co_return ok_response(std::move(reply));
}

Answer sasl_continue(Context& context, Client& client, const Request& request) {
  BsonWriter reply;
  auto continued = continue_scram(context, client, request.body, reply);
  if (continued.has_error()) co_return continued.error();
  co_return ok_response(std::move(reply));
}

// --- certificates

Result<void> check_certificate(Context& context, Client& client, DocView command, bool speculative,
                               BsonWriter& reply) {
  const PeerCertificate& certificate = client.login.certificate;
  const std::string_view subject = certificate.subject;
  const Attempt attempt{x509_mechanism, auth::external_db, subject, speculative};
  count_received(context, attempt);
  if (subject.empty()) {
    return refuse(context, client, attempt,
                  "the connection has no certificate that net.tls.CAFile vouches for");
  }
  const ValueView named = command["user"];
  if (named.exists() && (!named.is_string() || named.as_string() != subject)) {
    return refuse(context, client, attempt, "there is no x.509 client certificate matching the user");
  }
  // A server would grant these, and not the user's. They may be fewer.
  if (certificate.names_roles) {
    return refuse(context, client, attempt,
                  "the certificate holds roles (extension 1.3.6.1.4.1.34601.2.1.1), which are not read here: use one "
                  "without");
  }
  if (auto done = log_in(context, client, attempt); done.has_error()) return done.error();
  reply.append("dbname", auth::external_db).append("user", subject);
  return {};
}

bool is_x509(DocView command) {
  const ValueView mechanism = command["mechanism"];
  return mechanism.is_string() && mechanism.as_string() == x509_mechanism;
}

Answer authenticate(Context& context, Client& client, const Request& request) {
  if (!is_x509(request.body)) {
    const ValueView mechanism = request.body["mechanism"];
    co_return Error(mechanism_unavailable,
                    fmt::format("authenticate takes the mechanism {}; {} is not enabled",
                                x509_mechanism, to_json(mechanism)));
  }
  if (request.db != auth::external_db) {
    co_return Error(ErrorCode::protocol_error,
                    "X.509 authentication must always use the $external database.");
  }
  if (auto user = to_learn(context, client, auth::external_db, std::string_view(client.login.certificate.subject))) {
    auto learning = learn_user(context, *std::move(user));
    co_await learning;
  }
  BsonWriter reply;
  auto checked = check_certificate(context, client, request.body, false, reply);
  if (checked.has_error()) co_return checked.error();
  co_return ok_response(std::move(reply));
}

// Old drivers send it on every connection, for a mechanism that no longer exists.
Answer get_nonce(Context&, Client&, const Request&) {
  std::uint64_t nonce = 0;
  if (::getrandom(&nonce, sizeof nonce, 0) != static_cast<ssize_t>(sizeof nonce)) nonce = 0;
  BsonWriter reply;
  reply.append("nonce", fmt::format("{:016x}", nonce));
  co_return ok_response(std::move(reply));
}

Answer log_out(Context& context, Client& client, const Request& request) {
  Login& login = client.login;
  login.conversation.reset();
  const auth::User* const user = (login.user ? login.user : login.suspended).get();
  if (user != nullptr && user->db == request.db) {
    if (login.user && context.shared.audit) context.shared.audit->logged_out(client);
    end_login(client);
  }
  BsonWriter reply;
  co_return ok_response(std::move(reply));
}

// --- hello

// "<db>.<name>"
std::optional<std::pair<std::string_view, std::string_view>> split_user(std::string_view user) {
  const std::size_t dot = user.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  return std::pair(user.substr(0, dot), user.substr(dot + 1));
}

void append_mechanisms(BsonWriter& reply, const auth::UserDirectory& users, std::string_view user) {
  const auto parts = split_user(user);
  if (!parts) return;
  const auto& [db, name] = *parts;
  if (name.size() > auth::user_name_bytes_max || db == auth::external_db) return;
  const auto table = users.table();
  reply.begin_array("saslSupportedMechs");
  for (const auth::Hash hash : {auth::Hash::sha1, auth::Hash::sha256}) {
    if (table->offers(db, name, hash)) reply.append_item(auth::mechanism_name(hash));
  }
  reply.end();
}

void authenticate_speculatively(BsonWriter& reply, Context& context, Client& client,
                                DocView command) {
  const std::string_view name = command.first().name;
  BsonWriter step;
  if (name == "saslStart") {
    const ValueView db = command["db"];
    // A conversation keeps it, unpaid; a saslStart's own is checked as every request's.
    const bool sound = db.is_string() && db.as_string().size() <= limits::database_name_bytes_max &&
                       db.as_string().find('.') == std::string_view::npos;
    if (!sound) return;
    if (start_scram(context, client, command, db.as_string(), true, step).has_error()) return;
  } else if (name == "authenticate" && is_x509(command)) {
    if (check_certificate(context, client, command, true, step).has_error()) return;
  } else {
    return;
  }
  reply.append("speculativeAuthenticate", std::move(step).finish());
}

}  // namespace

std::optional<UserToLearn> user_to_learn(Context& context, const Client& client, const wire::HelloRequest& hello) {
  if (hello.sasl_supported_mechs) {
    if (const auto user = split_user(*hello.sasl_supported_mechs)) {
      return to_learn(context, client, user->first, user->second);
    }
  }
  if (!hello.speculative_authenticate || hello.topology_version) return std::nullopt;
  const DocView command = *hello.speculative_authenticate;
  const ValueView db = command["db"];
  return command.first().name == "saslStart" && db.is_string()
             ? to_learn(context, client, db.as_string(), command)
             : std::nullopt;
}

void append_authentication(BsonWriter& reply, Context& context, Client& client,
                           const wire::HelloRequest& hello) {
  if (hello.sasl_supported_mechs) append_mechanisms(reply, context.shared.users, *hello.sasl_supported_mechs);
  // A hello that waits is a monitor's, and is answered several times.
  if (hello.speculative_authenticate && !hello.topology_version) {
    authenticate_speculatively(reply, context, client, *hello.speculative_authenticate);
  }
}

bool restore_login(Context& context, Client& client, std::string_view db, std::string_view name) {
  const std::uint64_t generation = context.shared.users.generation();
  auto user = context.shared.users.table()->find(db, name);
  if (!user) return false;
  // A limit that is reached holds for new connections.
  static_cast<void>(client.limits.enter(context.shared.limits, LimitKey::user, user->id));
  use_login(client, std::move(user), generation);
  return true;
}

void refresh_login(const auth::UserDirectory& users, Client& client) {
  Login& login = client.login;
  if ((!login.user && !login.suspended) || login.generation == users.generation()) return;
  const std::shared_ptr<const auth::User> before = login.user ? login.user : login.suspended;
  login.generation = users.generation();
  const auth::UserTable::Ptr table = users.table();
  auto user = table->find(before->db, before->name);
  const bool is_gone = user ? is_another(*before, *user) : !table->lacks_fed();
  if (is_gone) {
    log::info("connection {} from {}: the user {} is no more", client.connection_id, client.peer, before->id);
    end_login(client);
  } else if (!user) {
    suspend_login(client);
  } else if (login.user) {
    login.user = std::move(user);
  } else {
    use_login(client, std::move(user), login.generation);
  }
}

bool is_sensitive(std::string_view command) noexcept {
  constexpr std::array<std::string_view, 8> names = {"saslStart", "saslContinue", "authenticate", "createUser",
                                                     "updateUser", "copydbsaslstart",
                                                     "compactStructuredEncryptionData",
                                                     "cleanupStructuredEncryptionData"};
  return std::find(names.begin(), names.end(), command) != names.end();
}

bool is_sensitive(DocView command) noexcept {
  constexpr std::string_view encryption = "encryptionInformation";
  const DocView explained = command.first().to_document();
  if (is_sensitive(command.first().name) || command.find(encryption).exists() || explained.find(encryption).exists()) {
    return true;
  }
  for (const Element& each : command["nsInfo"].to_array()) {
    if (each.to_document().find(encryption).exists()) return true;
  }
  return false;
}

std::span<const CommandSpec> authentication_commands() {
  using enum Trait;
  static constexpr CommandSpec specs[] = {
      {"saslStart", "begin to log in", sasl_start, no_login, secondary_ok | drains | stable},
      {"saslContinue", "go on logging in", sasl_continue, no_login, secondary_ok | drains | stable},
      {"authenticate", "log in by certificate", authenticate, no_login, secondary_ok | drains | stable},
      {"getnonce", "random bytes, of no use", get_nonce, no_login, secondary_ok | drains},
      {"logout", "log out", log_out, no_login, secondary_ok | drains},
  };
  return specs;
}

}  // namespace spillway::exec
