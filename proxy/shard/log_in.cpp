#include "proxy/shard/log_in.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "proxy/auth/users.h"

namespace spillway::shard {

namespace {

using auth::ServiceMechanism;

Error refused(const Connection& connection, const auth::ServiceLogin& login, std::string_view why) {
  const std::string who = login.user().empty()
                              ? "by certificate"
                              : fmt::format("as {} of {}", login.user(), login.db());
  return Error(ErrorCode::host_unreachable, fmt::format("{} does not let the router log in {}: {}",
                                                        connection.address().text(), who, why));
}

// Sends one command; its reply must be ok.
Task<Result<Reply>> ask(Connection& connection, const auth::ServiceLogin& login, DocView command,
                        LinkBudgets budgets, TimePoint deadline) {
  auto exchanging = exchange(connection, command, budgets, deadline);
  auto answered = co_await exchanging;
  if (answered.has_error()) co_return answered.error();
  const DocView body = answered->body();
  if (body["ok"].truthy()) co_return *std::move(answered);
  const ValueView message = body["errmsg"];
  co_return refused(
      connection, login,
      fmt::format("{} (code {})", message.is_string() ? message.as_string() : "no reason",
                  body["code"].to_int64().value_or(0)));
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

Task<Result<void>> run_scram(Connection& connection, const auth::ServiceLogin& login,
                             auth::Hash hash, LinkBudgets budgets, TimePoint deadline) {
  auth::ScramClient client = login.begin(hash);
  BsonDoc command = start_command(hash, client.first_message(), login.db());
  auto starting = ask(connection, login, command.view(), budgets, deadline);
  auto started = co_await starting;
  if (started.has_error()) co_return started.error();
  const auto answer = client.answer(payload_of(*started));
  if (answer.has_error()) co_return refused(connection, login, answer.error().message);
  command = continue_command(started->body()["conversationId"], *answer, login.db());
  auto continuing = ask(connection, login, command.view(), budgets, deadline);
  auto continued = co_await continuing;
  if (continued.has_error()) co_return continued.error();
  if (auto verified = client.verify(payload_of(*continued)); verified.has_error()) {
    co_return refused(connection, login, verified.error().message);
  }
  if (continued->body()["done"].truthy()) co_return Result<void>();
  command = continue_command(continued->body()["conversationId"], {}, login.db());
  auto ending = ask(connection, login, command.view(), budgets, deadline);
  auto ended = co_await ending;
  if (ended.has_error()) co_return ended.error();
  if (!ended->body()["done"].truthy())
    co_return refused(connection, login, "the conversation does not end");
  co_return Result<void>();
}

// SCRAM-SHA-256 if the user has it; SCRAM-SHA-1 where the server does not say.
Task<Result<auth::Hash>> negotiate(Connection& connection, const auth::ServiceLogin& login,
                                   LinkBudgets budgets, TimePoint deadline) {
  BsonWriter out;
  out.append("isMaster", std::int32_t{1});
  out.append("saslSupportedMechs", auth::user_id(login.db(), login.user())).append("$db", "admin");
  const BsonDoc command = std::move(out).finish();
  auto asking = ask(connection, login, command.view(), budgets, deadline);
  auto answered = co_await asking;
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

Task<Result<void>> show_certificate(Connection& connection, const auth::ServiceLogin& login,
                                    LinkBudgets budgets, TimePoint deadline) {
  BsonWriter out;
  out.append("authenticate", std::int32_t{1}).append("mechanism", "MONGODB-X509");
  if (!login.user().empty()) out.append("user", login.user());
  out.append("$db", auth::external_db);
  const BsonDoc command = std::move(out).finish();
  auto asking = ask(connection, login, command.view(), budgets, deadline);
  auto answered = co_await asking;
  if (answered.has_error()) co_return answered.error();
  co_return Result<void>();
}

}  // namespace

Task<Result<void>> log_in(Connection& connection, const auth::ServiceLogin& login,
                          LinkBudgets budgets, TimePoint deadline) {
  if (login.mechanism() == ServiceMechanism::x509) {
    auto showing = show_certificate(connection, login, budgets, deadline);
    co_return co_await showing;
  }
  auth::Hash hash =
      login.mechanism() == ServiceMechanism::scram_sha_1 ? auth::Hash::sha1 : auth::Hash::sha256;
  if (login.mechanism() == ServiceMechanism::negotiated) {
    auto negotiating = negotiate(connection, login, budgets, deadline);
    const auto negotiated = co_await negotiating;
    if (negotiated.has_error()) co_return negotiated.error();
    hash = *negotiated;
  }
  auto running = run_scram(connection, login, hash, budgets, deadline);
  co_return co_await running;
}

}  // namespace spillway::shard
