#include "proxy/server/admin/admin_actions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cursor/bson_writer.h"
#include "cursor/registry.h"
#include "proxy/auth/scram.h"
#include "proxy/auth/users.h"
#include "proxy/base/log.h"
#include "proxy/base/number.h"
#include "proxy/catalog/routing.h"
#include "proxy/exec/access/authentication.h"
#include "proxy/exec/access/authorization.h"
#include "proxy/exec/commands/command_table.h"
#include "proxy/exec/commands/op_query_commands.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/life_cycle.h"
#include "proxy/exec/core/process_memory.h"

namespace spillway::server {

namespace {

using auth::Action;

constexpr std::array<std::string_view, 7> action_paths = {
    "/login", "/session", "/logout", "/kill-operation", "/kill-cursor", "/release-memory", "/drain"};
// What the page's actions need, beside what each command checks.
constexpr auth::ActionSet cluster_admin{Action::kill_op, Action::kill_any_cursor, Action::set_parameter,
                                        Action::shutdown};
constexpr std::int64_t release_patience_ms = 10'000;
constexpr Duration action_patience = std::chrono::milliseconds(release_patience_ms + 2'000);
constexpr Duration action_look_pause = std::chrono::milliseconds(20);
constexpr std::string_view no_worker = "no worker answers";

// --- answers

AdminActions::Answer said(unsigned status, std::string_view why, std::int32_t code = 0) {
  BsonWriter out;
  out.append("error", why);
  if (code != 0) out.append("code", code);
  return {status, to_json(std::move(out).finish())};
}

bool succeeded(DocView reply) { return reply["ok"].truthy(); }

AdminActions::Answer answer_of(DocView reply) {
  if (succeeded(reply)) return {200, to_json(reply)};
  const auto code = static_cast<std::int32_t>(reply["code"].to_int64().value_or(0));
  const auto is = [code](ErrorCode one) { return code == static_cast<std::int32_t>(one); };
  const unsigned status = is(ErrorCode::authentication_failed)                ? 401
                          : is(ErrorCode::unauthorized)                       ? 403
                          : is(ErrorCode::ingress_request_rate_limit_exceeded) ? 429
                          : is(ErrorCode::max_time_ms_expired)                ? 504
                                                                              : 409;
  const ValueView why = reply["errmsg"];
  return said(status, why.is_string() ? why.as_string() : "the command failed", code);
}

std::string_view text_field(DocView fields, std::string_view name) {
  const ValueView value = fields[name];
  return value.is_string() ? value.as_string() : std::string_view();
}

std::string cookie_name(const HttpRequest& request) { return fmt::format("spillway-{}", named_port(request)); }

std::string set_cookie(const HttpRequest& request, std::string_view value, std::string_view more = {}) {
  return fmt::format("Set-Cookie: {}={}; Path=/; HttpOnly; SameSite=Strict{}\r\n", cookie_name(request), value, more);
}

// Before anything of the request is looked at. A 403 says what an operator can do.
std::optional<AdminActions::Answer> refuse_at_the_door(const HttpRequest& request, std::string_view peer,
                                                       bool authorization) {
  if (!is_local(request, peer)) {
    return said(403, "actions are for the router's own machine, by a loopback address (ssh -L): this port has no TLS");
  }
  if (!authorization) {
    return said(403, "security.authorization is disabled: no user can log in, and this port only shows");
  }
  if (!is_of_own_page(request)) return said(403, "the request does not come from the page of this port");
  if (!request.content_type.starts_with("application/json")) return said(415, "the body must be application/json");
  return std::nullopt;
}

// --- commands on a worker

// The user of one action. On one thread at a time.
using Person = std::shared_ptr<exec::Client>;

struct Order {
  Person person;
  std::optional<AdminSessions::User> as;  // is logged in before; none: the command itself logs in
  std::string db;
  BsonDoc command;
};

struct Outcome {
  BsonDoc reply;
  bool user_is_gone = false;
  bool is_cluster_admin = false;  // after the command
};

// Lives until the outcome has come, even if the page waits no more.
struct Errand final : Timer {
  Event woken;
  std::optional<Outcome> outcome;
  void on_timer() override { woken.set(); }
};

Person person_of(const AdminActions::From& from) {
  auto person = std::make_shared<exec::Client>();
  person->peer = from.peer;
  person->local = from.local;
  person->application_name = "the admin port's page";
  return person;
}

Task<Outcome> carry_out(exec::Context& worker, Order order) {
  exec::Client& person = *order.person;
  Outcome outcome;
  if (order.as && !exec::restore_login(worker, person, order.as->db, order.as->name)) {
    outcome.user_is_gone = true;
    co_return outcome;
  }
  std::vector<std::uint8_t> sections;
  auto request = exec::parse_query_command(order.command, order.db, Clock::now(), sections);
  if (request.has_error()) {
    outcome.reply = exec::error_document(request.error());
    co_return outcome;
  }
  request->interrupt = &person.interrupt;
  request->user = person.user;
  const exec::Response response = co_await exec::run_command(worker, person, *request);
  if (!response.closes) outcome.reply = response.copy();
  outcome.is_cluster_admin = exec::may_on_cluster(worker, person, cluster_admin);
  co_return outcome;
}

// On the worker's thread.
Task<void> carry_out_and_tell(exec::Context* worker, Loop* home, Order order, std::shared_ptr<Errand> errand) {
  auto carrying_out = carry_out(*worker, std::move(order));
  Outcome outcome = co_await carrying_out;
  home->post([errand = std::move(errand), outcome = std::move(outcome)]() mutable {
    errand->outcome = std::move(outcome);
    errand->woken.set();
  });
}

}  // namespace

bool AdminActions::knows(std::string_view path) noexcept {
  return std::find(action_paths.begin(), action_paths.end(), path) != action_paths.end();
}

void AdminActions::end() {
  ended_ = true;
  sessions_.end_all();
  memory_ = {};
}

namespace {

// The outcome, or none: the worker does not answer, or `enough` says that the page waits no more.
template <class Enough>
Task<std::optional<Outcome>> run_on(Loop& home, exec::Context& worker, Order order, Enough enough) {
  auto errand = std::make_shared<Errand>();
  worker.loop.post([&worker, &home, order = std::move(order), errand]() mutable {
    worker.background.start(carry_out_and_tell(&worker, &home, std::move(order), std::move(errand)));
  });
  const TimePoint until = Clock::now() + action_patience;
  while (!errand->outcome && !enough() && Clock::now() < until) {
    errand->woken.clear();
    home.arm(*errand, Clock::now() + action_look_pause);
    co_await errand->woken;
    home.disarm(*errand);
  }
  co_return std::move(errand->outcome);
}

}  // namespace

Task<AdminActions::Answer> AdminActions::answer(HttpRequest& request, From from, exec::Context* worker) {
  if (auto refused = refuse_at_the_door(request, from.peer, shared_.authorization)) {
    auth::wipe(request.body);
    co_return *std::move(refused);
  }
  auto parsed = BsonDoc::from_json(request.body.empty() ? "{}" : std::string_view(request.body));
  auth::wipe(request.body);
  if (parsed.has_error()) co_return said(400, "the body is no JSON document");
  if (worker == nullptr) co_return said(503, no_worker);
  if (request.path == "/login") {
    Answer answered = co_await log_in(*parsed, request, from, *worker);
    RecycledBytes bytes = (*std::move(parsed)).take();
    auth::wipe(bytes.data(), bytes.size());
    co_return answered;
  }
  const std::string cookie(cookie_of(request, cookie_name(request)));
  const AdminSessions::Found found = sessions_.use(cookie, request.token, Clock::now());
  if (found.access == AdminSessions::Access::none) co_return said(401, "not logged in, or not active for too long");
  if (found.access == AdminSessions::Access::wrong_token) {
    co_return said(403, fmt::format("the session's {} is missing or wrong", http_token_field));
  }
  auto acting = act(*parsed, request, std::move(from), found.user, *worker);
  Answer answered = co_await acting;
  if (answered.status == 401 || request.path == "/logout") {
    sessions_.end(cookie);
    answered.head = set_cookie(request, "", "; Max-Age=0");
  }
  co_return answered;
}

Task<AdminActions::Answer> AdminActions::log_in(DocView fields, const HttpRequest& request, From from,
                                                exec::Context& worker) {
  const std::string user(text_field(fields, "user"));
  const std::string db(fields["db"].exists() ? text_field(fields, "db") : "admin");
  if (user.empty() || db.empty() || !fields["password"].is_string()) {
    co_return said(400, "user, db and password are texts");
  }
  if (memory_.bytes() == 0 && !take_memory()) co_return said(503, "there is no memory for a session now");
  using auth::Hash;
  const Hash hash = shared_.users.table()->offers(db, user, Hash::sha256) ? Hash::sha256 : Hash::sha1;
  const auto password = auth::scram_password(hash, user, text_field(fields, "password"));
  if (password.has_error()) co_return said(401, "Authentication failed.");
  auth::ScramClient scram(hash, user, *password);
  const Person person = person_of(from);
  const auto enough = [this] { return ended_; };

  BsonWriter first;
  first.append("saslStart", std::int32_t{1}).append("mechanism", auth::mechanism_name(hash));
  first.append_binary("payload", 0, auth::bytes_of(scram.first_message()));
  first.begin_document("options").append("skipEmptyExchange", true).end();
  auto starting = run_on(home_, worker, Order{person, std::nullopt, db, std::move(first).finish()}, enough);
  const auto started = co_await starting;
  if (!started) co_return said(503, no_worker);
  if (!succeeded(started->reply)) co_return answer_of(started->reply);

  const auto proof = scram.answer(auth::text_of(started->reply.view()["payload"].as_binary().data));
  if (proof.has_error()) co_return said(409, proof.error().message);
  BsonWriter last;
  last.append("saslContinue", std::int32_t{1}).append("conversationId", started->reply.view()["conversationId"]);
  last.append_binary("payload", 0, auth::bytes_of(*proof));
  auto continuing = run_on(home_, worker, Order{person, std::nullopt, db, std::move(last).finish()}, enough);
  const auto done = co_await continuing;
  if (!done) co_return said(503, no_worker);
  if (!succeeded(done->reply)) co_return answer_of(done->reply);
  const std::string id = auth::user_id(db, user);
  if (!done->is_cluster_admin) {
    log::info("the admin port's page: {} from {} has not the role clusterAdmin", id, from.peer);
    co_return said(403, fmt::format("{} has not the role clusterAdmin", id));
  }
  const AdminSessions::Keys keys = sessions_.begin({db, user}, Clock::now());
  log::info("the admin port's page: {} from {} has logged in", id, from.peer);
  BsonWriter out;
  out.append("user", user).append("db", db).append("token", keys.token);
  out.append("idleSeconds", std::chrono::duration_cast<std::chrono::seconds>(AdminSessions::idle_max).count());
  co_return Answer{200, to_json(std::move(out).finish()), set_cookie(request, keys.cookie)};
}

bool AdminActions::take_memory() {
  auto memory = shared_.memory.admin.try_reserve(AdminSessions::memory_bytes);
  if (memory) memory_ = *std::move(memory);
  return memory.has_value();
}

namespace {

struct Command {
  std::string db = "admin";
  BsonDoc body;
};

// An error is the answer.
boost::system::result<Command, AdminActions::Answer> command_for(std::string_view path, DocView fields,
                                                                 const CursorRegistry& cursors) {
  Command command;
  BsonWriter out;
  if (path == "/logout") {
    out.append("logout", std::int32_t{1});
  } else if (path == "/release-memory") {
    out.append("releaseMemory", std::int32_t{1}).append("maxTimeMS", release_patience_ms);
  } else if (path == "/drain") {
    out.append("shutdown", std::int32_t{1});
    if (fields["timeoutSecs"].exists()) out.append("timeoutSecs", fields["timeoutSecs"]);
  } else if (path == "/kill-operation") {
    const auto id = fields["opid"].to_int64();
    if (!id) return said(400, "opid is a number");
    out.append("killOp", std::int32_t{1}).append("op", *id);
  } else {
    const auto id = parse_number<std::int64_t>(text_field(fields, "id"));
    if (!id) return said(400, "id is a number, as a text");
    const std::string ns = cursors.ns_of(*id);
    if (ns.empty()) return said(404, "there is no such cursor any more");
    const catalog::Namespace names = catalog::split_namespace(ns);
    command.db = std::string(names.db);
    out.append("killCursors", names.collection).begin_array("cursors").append_item(*id).end();
  }
  command.body = std::move(out).finish();
  return command;
}

}  // namespace

Task<AdminActions::Answer> AdminActions::act(DocView fields, const HttpRequest& request, From from,
                                             AdminSessions::User user, exec::Context& worker) {
  if (request.path == "/session") {
    BsonWriter out;
    out.append("user", user.name).append("db", user.db);
    co_return Answer{200, to_json(std::move(out).finish())};
  }
  auto command = command_for(request.path, fields, shared_.cursors);
  if (command.has_error()) co_return command.error();
  if (request.path == "/logout") command->db = user.db;
  log::info("the admin port's page: {} from {} asks for {}", auth::user_id(user.db, user.name), from.peer,
            to_json(command->body));
  const bool drains = request.path == "/drain";
  // That command answers when the announcement is over, and then by closing the connection.
  const auto enough = [this, drains] { return ended_ || (drains && shared_.life.quiescing); };
  auto running = run_on(home_, worker,
                        Order{person_of(from), std::move(user), std::move(command->db), std::move(command->body)},
                        enough);
  const auto outcome = co_await running;
  if (drains && shared_.life.quiescing) co_return Answer{200, "{\"draining\": true}"};
  if (!outcome) co_return said(503, no_worker);
  if (outcome->user_is_gone) co_return said(401, "the user is no more");
  co_return answer_of(outcome->reply);
}

}  // namespace spillway::server
