// The audit log's lines, as documents.
#include "proxy/exec/access/audit.h"

#include <catch2/catch.hpp>

#include <vector>

#include "proxy/exec/commands/command_table.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/context.h"
#include "tests/support/fake_gateway.h"

namespace spillway::exec {
namespace {

BsonDoc json(std::string_view text) { return BsonDoc::from_json(text).value(); }

struct Lines {
  std::vector<std::string> all;
  std::size_t room = 1'000;
  AuditLog::Options options() {
    return {.sink = [this](std::string line) {
      if (all.size() >= room) return false;
      all.push_back(std::move(line));
      return true;
    }};
  }
  BsonDoc last() const {
    REQUIRE_FALSE(all.empty());
    INFO(all.back());
    // Without time and connection, which are checked on their own.
    const std::string& line = all.back();
    return json(line.substr(0, line.find("\"ts\"")) + line.substr(line.find("\"local\"")));
  }
};

Client& make(Client& client) {
  client.connection_id = 7;
  client.peer = "[2001:db8::1]:5000";
  client.local = "127.0.0.1:27017";
  return client;
}

void log_in(Client& client) {
  auth::UserSpec spec;
  spec.name = "ann";
  spec.db = "admin";
  spec.roles = {{"readWrite", "app"}};
  client.login.user = std::make_shared<const auth::User>(spec);
  client.user = client.login.user->id;
}

Request request_of(DocView command) {
  Request request;
  request.body = request.message.body = command;
  request.db = command["$db"].as_string();
  request.name = command.first().name;
  return request;
}

void run(AuditLog& audit, const Client& client, const BsonDoc& command, std::int32_t result = 0) {
  const Request request = request_of(command.view());
  const CommandSpec* spec = command_named(request.name);
  REQUIRE(spec != nullptr);
  REQUIRE(spec->is(Trait::audited));
  audit.done(client, *spec, request, result);
}

TEST_CASE("a login's line names the user, the address and the result", "[audit]") {
  Lines lines;
  AuditLog audit(lines.options());
  Client client;
  audit.authenticated(make(client), "SCRAM-SHA-256", "admin", "ann", 18);
  CHECK(to_json(lines.last()) ==
        to_json(json(R"({"atype": "authenticate", "local": {"ip": "127.0.0.1", "port": 27017},
                         "remote": {"ip": "2001:db8::1", "port": 5000}, "users": [], "roles": [],
                         "param": {"user": "ann", "db": "admin", "mechanism": "SCRAM-SHA-256"}, "result": 18})")));
  log_in(client);
  audit.logged_out(client);
  const BsonDoc out = lines.last();
  CHECK(out.view()["atype"].as_string() == "logout");
  CHECK(to_json(out.view()["users"]) == to_json(json(R"({"a": [{"user": "ann", "db": "admin"}]})").view()["a"]));
  CHECK(to_json(out.view()["roles"]) == to_json(json(R"({"a": [{"role": "readWrite", "db": "app"}]})").view()["a"]));
}

TEST_CASE("a line is one document with time and connection", "[audit]") {
  Lines lines;
  AuditLog audit(lines.options());
  Client client;
  audit.logged_out(make(client));
  audit.logged_out(client);
  const std::string& line = lines.all[0];
  CHECK(line.find('\n') == std::string::npos);
  CHECK(line.starts_with("{\"atype\":\"logout\",\"ts\":{\"$date\":\"20"));
  CHECK(line.find("+00:00\"},\"uuid\":{\"$binary\":\"") != std::string::npos);
  const std::string uuid = "\"uuid\":{\"$binary\":\"";
  const auto id_of = [&](const std::string& text) { return text.substr(text.find(uuid), uuid.size() + 24); };
  CHECK(id_of(lines.all[0]) == id_of(lines.all[1]));
  client.connection_id = 8;
  audit.logged_out(client);
  CHECK(id_of(lines.all[0]) != id_of(lines.all[2]));
}

TEST_CASE("of a refused command its documents are not written", "[audit]") {
  Lines lines;
  AuditLog audit(lines.options());
  Client client;
  make(client);
  for (const char* text :
       {R"({"insert": "people", "documents": [{"ssn": "078-05-1120"}], "$db": "app"})",
        R"({"find": "people", "filter": {"ssn": "078-05-1120"}, "comment": "078-05-1120", "$db": "app"})"}) {
    const BsonDoc command = json(text);
    const Request request = request_of(command.view());
    audit.refused(client, *command_named(request.name), request);
    CHECK(lines.all.back().find("078") == std::string::npos);
    const BsonDoc line = lines.last();
    CHECK(line.view()["atype"].as_string() == "authCheck");
    CHECK(line.view()["result"].to_int64() == 13);
    CHECK(line.view().find_path("param.command").as_string() == request.name);
    CHECK(line.view().find_path("param.ns").as_string() == "app.people");
    CHECK(line.view().find_path("param.args.$db").as_string() == "app");
  }
}

TEST_CASE("administrative commands have MongoDB's names and fields", "[audit]") {
  Lines lines;
  AuditLog audit(lines.options());
  Client client;
  make(client);
  const auto line_of = [&](std::string_view command, std::int32_t result = 0) {
    run(audit, client, json(command), result);
    const BsonDoc line = lines.last();
    CHECK(line.view()["result"].to_int64() == result);
    return std::string(line.view()["atype"].as_string()) + " " + to_json(line.view()["param"]);
  };
  CHECK(line_of(R"({"create": "c", "validator": {"x": 1}, "$db": "app"})") == R"(createCollection { "ns" : "app.c" })");
  CHECK(line_of(R"({"drop": "c", "$db": "app"})", 26) == R"(dropCollection { "ns" : "app.c" })");
  CHECK(line_of(R"({"dropDatabase": 1, "$db": "app"})") == R"(dropDatabase { "ns" : "app" })");
  CHECK(line_of(R"({"dropIndexes": "c", "index": "a_1", "$db": "app"})") ==
        R"(dropIndex { "ns" : "app.c", "indexName" : "a_1" })");
  CHECK(line_of(R"({"dropIndexes": "c", "index": {"a": 1}, "$db": "app"})") ==
        R"(dropIndex { "ns" : "app.c", "indexName" : "{ \"a\" : 1 }" })");
  CHECK(line_of(R"({"createIndexes": "c", "indexes": 1, "$db": "app"})", 14).starts_with("authCheck "));
  CHECK(line_of(R"({"createUser": "bob", "pwd": "sesame", "roles": [], "$db": "app"})") ==
        R"(authCheck { "command" : "createUser", "args" : { "createUser" : "bob", "$db" : "app" } })");
  CHECK(line_of(R"({"shardCollection": "app.c", "key": {"a": 1}, "$db": "admin"})").find(R"("app.c")") !=
        std::string::npos);
  CHECK(line_of(R"({"renameCollection": "app.a", "to": "app.b", "$db": "admin"})") ==
        R"(renameCollection { "old" : "app.a", "new" : "app.b" })");
  CHECK(
      line_of(R"({"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1",
                    "partialFilterExpression": {"secret": 1}}], "$db": "app"})") ==
      R"(createIndex { "ns" : "app.c", "indexName" : "a_1", "indexSpec" : { "key" : { "a" : 1 }, "name" : "a_1" } })");
  const std::string set = line_of(R"({"setParameter": 1, "cursorTimeoutMillis": 5, "$db": "admin"})");
  CHECK(set.starts_with("authCheck "));
  CHECK(set.find(R"("cursorTimeoutMillis" : 5)") != std::string::npos);
  CHECK(line_of(R"({"shutdown": 1, "$db": "admin"})").starts_with("shutdown "));
}

TEST_CASE("logRotate rotates the log it names, or both", "[audit]") {
  Lines lines;
  test::FakeWorker worker(test::routing_of("routing: {shards: [{name: s0, uri: \"mongodb://127.0.0.1:1/\"}]}"),
                          [](std::uint16_t, DocView) { return BsonDoc(); });
  int reopened = 0;
  AuditLog::Options options = lines.options();
  options.reopen = [&] { ++reopened; };
  worker.shared.audit = std::make_unique<AuditLog>(std::move(options));
  const auto code_of = [&](const char* which) {
    test::FakeRequest command(std::string("{'logRotate': ") + which + ", '$db': 'admin'}");
    Client client;
    const BsonDoc reply = test::reply_of(worker.run(run_command(worker.context, client, command.request)));
    return reply.view()["code"].to_int64().value_or(0);
  };
  CHECK(code_of("1") == 0);
  CHECK(reopened == 1);
  CHECK(code_of("'audit'") == 0);
  CHECK(reopened == 2);
  CHECK(code_of("'server'") == 0);
  CHECK(reopened == 2);
  CHECK(code_of("'x'") == 4);
  CHECK(code_of("''") == 4);
  CHECK(reopened == 2);
}

TEST_CASE("what was lost is counted, and what was written", "[audit]") {
  Lines lines;
  AuditLog::Options options = lines.options();
  std::uint64_t failed = 0;
  options.failed = [&] { return failed; };
  AuditLog audit(std::move(options));
  Client client;
  make(client);
  lines.room = 1;
  for (int i = 0; i < 4; ++i) audit.logged_out(client);
  CHECK(audit.written() == 1);
  CHECK(audit.lost() == 3);
  lines.room = 100;
  audit.logged_out(client);
  CHECK(lines.all.size() == 2);
  failed = 1;
  CHECK(audit.written() == 1);
  CHECK(audit.lost() == 4);
  lines.all.push_back(events_lost_line(3));
  CHECK(lines.last().view()["atype"].as_string() == "eventsLost");
  CHECK(lines.last().view().find_path("param.count").to_int64() == 3);
}

TEST_CASE("a name that is no text, and a param of any size, make lines all the same", "[audit]") {
  Lines lines;
  AuditLog audit(lines.options());
  Client client;
  make(client);
  audit.authenticated(client, "SCRAM-SHA-256", "admin", "a\xff\"\n", 18);
  audit.authenticated(client, "SCRAM-SHA-256", "admin", std::string(100'000, 'a'), 18);
  REQUIRE(lines.all.size() == 2);
  for (const std::string& line : lines.all) {
    CHECK(line.size() < 2'000);
    CHECK(line.find('\n') == std::string::npos);
    CHECK(line.ends_with("}"));
  }
  CHECK(lines.all[0].find("\"unprintable\" : true") != std::string::npos);
  CHECK(lines.all[0].find("2001:db8::1") != std::string::npos);
  CHECK(lines.last().view().find_path("param.omittedBytes").to_int64() > 100'000);
}

}  // namespace
}  // namespace spillway::exec
