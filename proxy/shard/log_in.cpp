#include "proxy/shard/log_in.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "proxy/auth/users.h"
#include "proxy/shard/topology.h"

namespace spillway::shard {

namespace {

using auth::ServiceMechanism;

// One connection's login.
struct Attempt {
  Connection& connection;
  const auth::ServiceLogin& login;
  LinkBudgets budgets;
  TimePoint deadline;
  bool was_refused = false;  // by the server's word, not by the network's
  std::int64_t code = 0;     // of that word
};

Error refused(Attempt& attempt, std::string_view why, std::int64_t code = 0) {
  attempt.was_refused = true;
  attempt.code = code;
  const auth::ServiceLogin& login = attempt.login;
  const std::string who = login.user().empty()
                              ? "by certificate"
                              : fmt::format("as {} of {}", login.user(), login.db());
  return Error(ErrorCode::host_unreachable, fmt::format("{} does not let the router log in {}: {}",
                                                        attempt.connection.address().text(), who, why));
}

// Sends one command; its reply must be ok.
Task<Result<Reply>> ask(Attempt& attempt, DocView command) {
  auto answered = co_await exchange(attempt.connection, command, attempt.budgets, attempt.deadline);
  if (answered.has_error()) co_return answered.error();
  const DocView body = answered->body();
  if (body["ok"].truthy()) co_return *std::move(answered);
  const ValueView message = body["errmsg"];
  const std::int64_t code = body["code"].to_int64().value_or(0);
  const std::string why = fmt::format("{} (code {})", message.is_string() ? message.as_string() : "no reason", code);
  // It shuts down or has no primary, which is no word about the login.
  if (std::in_range<std::int32_t>(code) && is_state_change(static_cast<std::int32_t>(code))) {
    co_return Error(ErrorCode::host_unreachable,
                    fmt::format("{} was asked for a login: {}", attempt.connection.address().text(), why));
  }
  co_return refused(attempt, why, code);
}

BsonDoc start_command(auth::Hash hash, std::string_view payload, std::string_view db) {
  BsonWriter out;
  out.append("saslStart", std::int32_t{1}).append("mechanism", auth::mechanism_name(hash));
  out.append_binary("payload", 0, auth::bytes_of(payload));
  out.begin_document("options").append("skipEmptyExchange", true).end();
  out.append("$db", db);
  return std::move(out).finish();
}

BsonDoc continue_command(ValueView conversation, std::string_view payload, std::string_view db) {
  BsonWriter out;
  out.append("saslContinue", std::int32_t{1}).append("conversationId", conversation);
  out.append_binary("payload", 0, auth::bytes_of(payload)).append("$db", db);
  return std::move(out).finish();
}

std::string payload_of(const Reply& reply) {
  const ValueView payload = reply.body()["payload"];
  if (payload.type == BsonType::binary) return std::string(auth::text_of(payload.as_binary().data));
  return {};
}

Task<Result<void>> run_scram(Attempt& attempt, auth::Hash hash, std::size_t password) {
  const std::string& db = attempt.login.db();
  auth::ScramClient client = attempt.login.begin(hash, password);
  BsonDoc command = start_command(hash, client.first_message(), db);
  auto started = co_await ask(attempt, command.view());
  if (started.has_error()) co_return started.error();
  const auto answer = client.answer(payload_of(*started));
  if (answer.has_error()) co_return refused(attempt, answer.error().message);
  command = continue_command(started->body()["conversationId"], *answer, db);
  auto continued = co_await ask(attempt, command.view());
  if (continued.has_error()) co_return continued.error();
  if (auto verified = client.verify(payload_of(*continued)); verified.has_error()) {
    co_return refused(attempt, verified.error().message);
  }
  if (continued->body()["done"].truthy()) co_return Result<void>();
  command = continue_command(continued->body()["conversationId"], {}, db);
  auto ended = co_await ask(attempt, command.view());
  if (ended.has_error()) co_return ended.error();
  if (!ended->body()["done"].truthy())
    co_return refused(attempt, "the conversation does not end");
  co_return Result<void>();
}

// SCRAM-SHA-256 if the user has it; SCRAM-SHA-1 where the server does not say.
Task<Result<auth::Hash>> negotiate(Attempt& attempt) {
  BsonWriter out;
  out.append("isMaster", std::int32_t{1});
  out.append("saslSupportedMechs", auth::user_id(attempt.login.db(), attempt.login.user())).append("$db", "admin");
  const BsonDoc command = std::move(out).finish();
  auto answered = co_await ask(attempt, command.view());
  if (answered.has_error()) co_return answered.error();
  const ValueView mechanisms = answered->body()["saslSupportedMechs"];
  if (!mechanisms.is_array()) co_return auth::Hash::sha1;
  for (const Element& mechanism : mechanisms.as_document()) {
    if (mechanism.is_string() &&
        mechanism.as_string() == auth::mechanism_name(auth::Hash::sha256)) {
      co_return auth::Hash::sha256;
    }
  }
  co_return auth::Hash::sha1;
}

Task<Result<void>> show_certificate(Attempt& attempt) {
  BsonWriter out;
  out.append("authenticate", std::int32_t{1}).append("mechanism", "MONGODB-X509");
  if (!attempt.login.user().empty()) out.append("user", attempt.login.user());
  out.append("$db", auth::external_db);
  const BsonDoc command = std::move(out).finish();
  auto answered = co_await ask(attempt, command.view());
  if (answered.has_error()) co_return answered.error();
  co_return Result<void>();
}

Task<Result<void>> run(Attempt& attempt) {
  const ServiceMechanism mechanism = attempt.login.mechanism();
  if (mechanism == ServiceMechanism::x509) {
    co_return co_await show_certificate(attempt);
  }
  auth::Hash hash = mechanism == ServiceMechanism::scram_sha_1 ? auth::Hash::sha1 : auth::Hash::sha256;
  if (mechanism == ServiceMechanism::negotiated) {
    const auto negotiated = co_await negotiate(attempt);
    if (negotiated.has_error()) co_return negotiated.error();
    hash = *negotiated;
  }
  for (std::size_t password = 0;; ++password) {
    attempt.was_refused = false;
    Result<void> ran = co_await run_scram(attempt, hash, password);
    const bool wrong_password =
        ran.has_error() && attempt.was_refused && attempt.code == static_cast<int>(ErrorCode::authentication_failed);
    if (!wrong_password || password + 1 == attempt.login.passwords()) co_return ran;
  }
}

}  // namespace

Task<Result<void>> log_in(Connection& connection, const auth::ServiceLogin& login,
                          LinkBudgets budgets, TimePoint deadline, bool* refused) {
  Attempt attempt{connection, login, budgets, deadline};
  Result<void> ran = co_await run(attempt);
  if (ran.has_error() && attempt.was_refused && login.optional()) co_return Result<void>();
  if (refused != nullptr) *refused = ran.has_error() && attempt.was_refused;
  co_return ran;
}

}  // namespace spillway::shard
