// The actions of the admin port's page: commands on a worker, as a user that has logged in.
#include "proxy/server/admin/admin_actions.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cursor/registry.h"
#include "proxy/exec/access/audit.h"
#include "proxy/exec/tables/failed_logins.h"
#include "tests/support/fake_gateway.h"

namespace spillway::server {
namespace {

constexpr const char* one_shard = "routing: {shards: [{name: s0, uri: \"mongodb://127.0.0.1:27018/\"}]}";

Result<BsonDoc> no_shard_is_asked(std::uint16_t, DocView) {
  return Error(ErrorCode::internal_error, "no shard is asked");
}

auth::UserSpec user_of(const std::string& name, auth::RoleGrant role, auth::Hash hash = auth::Hash::sha256) {
  auth::UserSpec spec{name, "admin", {std::move(role)}, {}, {}};
  const auto password = auth::scram_password(hash, name, "pencil");
  auto credentials = auth::make_credentials(hash, **password, auth::bytes_of("a salt of some bytes"), 4096);
  (hash == auth::Hash::sha256 ? spec.sha256 : spec.sha1) = std::move(credentials);
  return spec;
}

struct Desk {
  Desk() {
    worker.shared.authorization = true;
    worker.shared.audit = std::make_unique<exec::AuditLog>(exec::AuditLog::Options{.sink = [this](std::string line) {
      std::erase(line, ' ');
      audited += line;
      return true;
    }});
    use({user_of("ops", {"clusterAdmin", "admin"}), user_of("old", {"root", "admin"}, auth::Hash::sha1),
         user_of("ann", {"read", "app"})});
  }
  ~Desk() {
    actions.end();
    CHECK(worker.shared.memory.admin.usage().used_bytes == 0);
    CHECK(audited.find("pencil") == std::string::npos);
  }
  void use(std::vector<auth::UserSpec> users) { worker.shared.users.configure(std::move(users)); }

  // As the page sends it, with the session's keys.
  HttpRequest request(std::string_view path, std::string body = "{}") const {
    HttpRequest made;
    made.post = true;
    made.path = path;
    made.host = "localhost:9000";
    made.origin = "http://localhost:9000";
    made.site = "same-origin";
    made.content_type = "application/json";
    made.cookie = cookie;
    made.token = token;
    made.body = std::move(body);
    return made;
  }
  AdminActions::Answer ask(HttpRequest asked, std::string peer = "127.0.0.1:5000") {
    auto answer = worker.run(actions.answer(asked, {std::move(peer), "127.0.0.1:9216"}, &worker.context));
    CHECK(asked.body.empty());
    CHECK(BsonDoc::from_json(answer.json).has_value());
    return answer;
  }
  AdminActions::Answer ask(std::string_view path, std::string body = "{}") {
    return ask(request(path, std::move(body)));
  }
  AdminActions::Answer log_in(std::string_view name, std::string_view password = "pencil") {
    const auto answer = ask("/login", fmt::format(R"({{"user": "{}", "password": "{}"}})", name, password));
    if (answer.status != 200) return answer;
    token = std::string(BsonDoc::from_json(answer.json)->view()["token"].as_string());
    const std::size_t from = answer.head.find("spillway-9000=");
    REQUIRE(from != std::string::npos);
    cookie = answer.head.substr(from, answer.head.find(';') - from);
    return answer;
  }

  test::FakeWorker worker{test::routing_of(one_shard), no_shard_is_asked};
  AdminActions actions{worker.shared, worker.loop};
  std::string audited;
  std::string cookie, token;
};

// A client in the middle of a find.
struct Running {
  explicit Running(Desk& desk) {
    client.running = &find.request;
    client.operation_id = 41;
    desk.worker.context.clients = {&client};
  }
  bool told_to_end() const { return client.interrupt.requested() != nullptr; }
  test::FakeRequest find{"{'find': 'people', 'filter': {'a': 1}, '$db': 'town'}"};
  exec::Client client;
};

std::int64_t open_cursor(Desk& desk) {
  auto cursor = std::make_unique<ClusterCursor>();
  cursor->ns = "town.people";
  cursor->owner = "admin.ann";
  return desk.worker.shared.cursors.insert(std::move(cursor), 0);
}

TEST_CASE("a cluster admin logs in, acts, and logs out", "[admin]") {
  for (const char* name : {"ops", "old"}) {  // SCRAM-SHA-256 and SCRAM-SHA-1
    Desk desk;
    Running running(desk);
    const auto answer = desk.log_in(name);
    REQUIRE(answer.status == 200);
    CHECK(answer.head.find("; Path=/; HttpOnly; SameSite=Strict\r\n") != std::string::npos);
    CHECK(desk.audited.find(R"("atype":"authenticate")") != std::string::npos);
    CHECK(desk.ask("/session").status == 200);
    desk.audited.clear();
    CHECK(desk.ask("/kill-operation", R"({"opid": 41})").status == 200);
    CHECK(running.told_to_end());
    CHECK(desk.audited.find(R"("command":"killOp")") != std::string::npos);
    CHECK(desk.audited.find(fmt::format(R"("user":"{}")", name)) != std::string::npos);
    CHECK(desk.audited.find(R"("ip":"127.0.0.1","port":5000)") != std::string::npos);
    const auto left = desk.ask("/logout");
    CHECK(left.status == 200);
    CHECK(left.head.find("spillway-9000=; ") != std::string::npos);
    CHECK(left.head.find("Max-Age=0") != std::string::npos);
    CHECK(desk.audited.find(R"("atype":"logout")") != std::string::npos);
    CHECK(desk.ask("/session").status == 401);
  }
}

TEST_CASE("a cursor is killed by its id alone, whosever it is", "[admin]") {
  Desk desk;
  const std::int64_t id = open_cursor(desk);
  REQUIRE(desk.log_in("ops").status == 200);
  const std::string body = fmt::format(R"({{"id": "{}"}})", id);
  CHECK(desk.ask("/kill-cursor", body).status == 200);
  CHECK(desk.worker.shared.cursors.ns_of(id).empty());
  CHECK(desk.audited.find(R"("command":"killCursors")") != std::string::npos);
  CHECK(desk.ask("/kill-cursor", body).status == 404);
  for (const char* wrong : {R"({})", R"({"id": 7})", R"({"id": "7x"})", R"({"id": ""})"}) {
    CHECK(desk.ask("/kill-cursor", wrong).status == 400);
  }
  CHECK(desk.ask("/kill-operation", R"({"opid": "s0:7"})").status == 400);
}

TEST_CASE("a drain asks for the shutdown that the command asks for", "[admin]") {
  Desk desk;
  std::optional<std::chrono::milliseconds> announced;
  REQUIRE(desk.log_in("ops").status == 200);
  CHECK(desk.ask("/drain").status == 409);  // this process has no shutdown
  desk.worker.shared.life.request_shutdown = [&](std::chrono::milliseconds announce) {
    announced = announce;
    desk.worker.shared.life.quiescing = true;
    desk.worker.shared.life.stopping = true;
  };
  CHECK(desk.ask("/drain", R"({"timeoutSecs": -1})").status == 409);
  CHECK_FALSE(announced);
  CHECK(desk.ask("/drain", R"({"timeoutSecs": 3})").status == 200);
  CHECK(announced == std::chrono::seconds(3));
  CHECK(desk.audited.find(R"("atype":"shutdown")") != std::string::npos);
}

TEST_CASE("memory is released as the command does", "[admin]") {
  Desk desk;
  REQUIRE(desk.log_in("ops").status == 200);
  const auto answer = desk.ask("/release-memory");
  CHECK(answer.status == 409);
  CHECK(answer.json.find("memory is not released") != std::string::npos);  // no releaser runs here
  CHECK(desk.audited.find(R"("command":"releaseMemory")") != std::string::npos);
}

TEST_CASE("nothing tells a wrong password from an unknown user", "[admin]") {
  Desk desk;
  const auto wrong = desk.log_in("ops", "pen");
  CHECK(wrong.status == 401);
  CHECK(wrong.head.empty());
  CHECK(desk.log_in("nobody").json == wrong.json);
  CHECK(desk.log_in("nobody", "\\u0007").status == 401);
  CHECK(desk.ask("/session").status == 401);
  for (const char* body : {"", "[", "{}", R"({"user": "ops"})", R"({"user": "ops", "password": 1})",
                           R"({"user": "", "password": "pencil"})",
                           R"({"user": "ops", "password": "pencil", "db": 1})"}) {
    CHECK(desk.ask("/login", body).status == 400);
  }
}

TEST_CASE("a user without the role may not log in here", "[admin]") {
  Desk desk;
  const auto answer = desk.log_in("ann");
  CHECK(answer.status == 403);
  CHECK(answer.head.empty());
  CHECK(answer.json.find("clusterAdmin") != std::string::npos);
}

TEST_CASE("failed logins are limited as those of other clients are", "[admin]") {
  Desk desk;
  desk.worker.shared.failed_logins->allowed = 3;
  for (int i = 0; i < 4; ++i) CHECK(desk.log_in("ops", "pen").status == 401);
  const auto refused = desk.log_in("ops");
  CHECK(refused.status == 401);
  CHECK(refused.json.find("try again in") != std::string::npos);
  CHECK(desk.worker.shared.failed_logins->refused() > 0);
  CHECK(desk.log_in("old").status == 200);
}

TEST_CASE("an action needs the cookie, the token, and the page of this port", "[admin]") {
  Desk desk;
  Running running(desk);
  CHECK(desk.ask("/kill-operation", R"({"opid": 41})").status == 401);
  REQUIRE(desk.log_in("ops").status == 200);
  const auto without = [&](const auto& change, std::string peer = "127.0.0.1:5000") {
    HttpRequest asked = desk.request("/kill-operation", R"({"opid": 41})");
    change(asked);
    auto answering = desk.actions.answer(asked, {std::move(peer), "127.0.0.1:9216"}, &desk.worker.context);
    return desk.worker.run(std::move(answering)).status;
  };
  CHECK(without([](HttpRequest& asked) { asked.cookie.clear(); }) == 401);
  CHECK(without([](HttpRequest& asked) { asked.cookie = "spillway-9001" + asked.cookie.substr(13); }) == 401);
  CHECK(without([](HttpRequest& asked) { asked.token.clear(); }) == 403);
  CHECK(without([](HttpRequest& asked) { asked.token.back() ^= 1; }) == 403);
  CHECK(without([](HttpRequest& asked) { asked.origin.clear(); }) == 403);
  CHECK(without([](HttpRequest& asked) { asked.origin = "http://localhost:8080"; }) == 403);
  CHECK(without([](HttpRequest& asked) { asked.site = "cross-site"; }) == 403);
  CHECK(without([](HttpRequest& asked) { asked.site = "same-site"; }) == 403);
  CHECK(without([](HttpRequest& asked) { asked.content_type = "text/plain"; }) == 415);
  CHECK(without([](HttpRequest& asked) { asked.body = "opid=41"; }) == 400);
  CHECK(without([](HttpRequest& asked) { asked.forwarded = true; }) == 403);
  CHECK(without([](HttpRequest&) {}, "10.0.0.9:5000") == 403);
  CHECK(without([](HttpRequest& asked) {  // a name that was made to lead here
          asked.host = "evil.example:9000";
          asked.origin = "http://evil.example:9000";
        }) == 403);
  CHECK_FALSE(running.told_to_end());
  CHECK(without([](HttpRequest&) {}) == 200);
  CHECK(running.told_to_end());
}

TEST_CASE("without authorization there are no actions", "[admin]") {
  Desk desk;
  Running running(desk);
  desk.worker.shared.authorization = false;
  const auto answer = desk.log_in("ops");
  CHECK(answer.status == 403);
  CHECK(answer.json.find("security.authorization is disabled") != std::string::npos);
  CHECK(desk.ask("/kill-operation", R"({"opid": 41})").status == 403);
  CHECK_FALSE(running.told_to_end());
}

TEST_CASE("a user who is removed, or loses the role, loses access with the next action", "[admin]") {
  Desk desk;
  Running running(desk);
  REQUIRE(desk.log_in("ops").status == 200);
  desk.use({user_of("ops", {"read", "app"})});
  CHECK(desk.ask("/release-memory").status == 403);
  CHECK(desk.audited.find(R"("result":13)") != std::string::npos);
  CHECK(desk.ask("/session").status == 200);
  desk.use({});
  CHECK(desk.ask("/kill-operation", R"({"opid": 41})").status == 401);
  CHECK(desk.ask("/session").status == 401);
  CHECK_FALSE(running.told_to_end());
}

TEST_CASE("without memory for sessions a login fails", "[admin]") {
  Desk desk;
  desk.worker.shared.memory.admin.set_limit(AdminSessions::memory_bytes - 1);
  CHECK(desk.log_in("ops").status == 503);
  desk.worker.shared.memory.admin.set_limit(AdminSessions::memory_bytes);
  CHECK(desk.log_in("ops").status == 200);
}

}  // namespace
}  // namespace spillway::server
