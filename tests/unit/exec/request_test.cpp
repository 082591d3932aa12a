// The envelope of commands: what parse_request takes, and what it refuses with which code.
#include "proxy/exec/core/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "cursor/bson_writer.h"

using namespace spillway;

namespace {

struct Parsed {
  std::vector<std::uint8_t> message;
  Result<exec::Request> request = Error();
};

Parsed parse(const std::string& json) {
  Parsed parsed;
  wire::begin_op_msg(parsed.message, 1, 0, 0);
  wire::append_body(parsed.message, BsonDoc::from_json(json).value());
  wire::finish_op_msg(parsed.message);
  auto op = wire::parse_op_msg(parsed.message);
  REQUIRE(op.has_value());
  parsed.request = exec::parse_request(*op, Bytes(parsed.message).subspan(20), TimePoint());
  return parsed;
}

int code_of(const std::string& json) {
  const Parsed parsed = parse(json);
  return parsed.request.has_error() ? parsed.request.error().code : 0;
}

}  // namespace

TEST_CASE("the envelope's fields are read") {
  const Parsed parsed = parse(
      R"({"find": "c", "$db": "app", "maxTimeMS": 500, "comment": "x",
          "lsid": {"id": {"$binary": {"base64": "AAAAAAAAAAAAAAAAAAAAAA==", "subType": "04"}}},
          "txnNumber": {"$numberLong": "7"}})");
  REQUIRE(parsed.request.has_value());
  CHECK(parsed.request->name == "find");
  CHECK(parsed.request->db == "app");
  CHECK(parsed.request->ns() == "app.c");
  CHECK(parsed.request->max_time_ms == 500);
  CHECK(parsed.request->txn_number == 7);
  CHECK(parsed.request->retryable_write());
  CHECK_FALSE(parsed.request->lsid.empty());
  CHECK_FALSE(parsed.request->strips_fields);
}

TEST_CASE("a command's namespace is the one that its row says it is about") {
  const std::pair<std::string, std::string> commands[] = {
      {"'find': 'c'", "app.c"},
      {"'getMore': {'$numberLong': '5'}, 'collection': 'd'", "app.d"},
      {"'killCursors': 'd', 'cursors': []", "app.d"},
      {"'findandmodify': 'c'", "app.c"},
      {"'explain': {'find': 'e'}", "app.e"},
      {"'drop': 'c'", "app.c"},
      {"'compact': 'c'", "app.c"},
      {"'renameCollection': 'x.y.z', 'to': 'x.a'", "x.y.z"},
      {"'moveChunk': 'x.y'", "x.y"},
      {"'aggregate': 1", "app.$cmd.aggregate"},
      {"'createUser': 'ann'", "app.$cmd.createUser"},
      {"'getLog': 'global'", "app.$cmd.getLog"},
      {"'dropDatabase': 1", "app.$cmd.dropDatabase"},
      {"'noSuchCommand': 'c'", "app.$cmd.noSuchCommand"},
  };
  for (const auto& [command, ns] : commands) {
    CAPTURE(command);
    std::string json = "{" + command + ", '$db': 'app'}";
    std::replace(json.begin(), json.end(), '\'', '"');
    const Parsed parsed = parse(json);
    REQUIRE(parsed.request.has_value());
    CHECK(parsed.request->ns() == ns);
  }
}

TEST_CASE("a session's id has the server's fields and no others: it is kept with cursors") {
  const std::string uuid = R"({"$binary": {"base64": "AAAAAAAAAAAAAAAAAAAAAA==", "subType": "04"}})";
  const std::string digest =
      R"({"$binary": {"base64": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "subType": "00"}})";
  const auto code_with = [&](const std::string& more) {
    return code_of(R"({"find": "c", "$db": "a", "lsid": {"id": )" + uuid + more + "}}");
  };
  CHECK(code_with("") == 0);
  CHECK(code_with(R"(, "uid": )" + digest + R"(, "txnNumber": {"$numberLong": "1"}, "txnUUID": )" + uuid) == 0);
  CHECK(code_with(R"(, "x": 1)") == 40415);
  CHECK(code_with(R"(, "id": )" + uuid) == 40413);
  CHECK(code_with(R"(, "uid": )" + uuid) == 14);
  CHECK(code_with(R"(, "uid": ")" + std::string(100'000, 'x') + R"(")") == 14);
  CHECK(code_with(R"(, "txnNumber": 1.5)") == 14);
  CHECK(code_with(R"(, "txnUUID": )" + digest) == 14);
}

TEST_CASE("fields that must not reach a shard are noticed") {
  CHECK(parse(R"({"ping": 1, "$db": "a", "apiVersion": "1"})").request->strips_fields);
  CHECK(parse(R"({"ping": 1, "$db": "a", "$clusterTime": {}})").request->strips_fields);
}

TEST_CASE("the Stable API's parameters are read") {
  const ApiParameters none = parse(R"({"ping": 1, "$db": "a"})").request->api;
  CHECK_FALSE(none.version);
  CHECK_FALSE(none.is_strict());
  const ApiParameters some =
      parse(R"({"ping": 1, "$db": "a", "apiStrict": true, "apiVersion": "1"})").request->api;
  CHECK(some.version);
  CHECK(some.is_strict());
  CHECK_FALSE(some.deprecation_errors.has_value());
  CHECK_FALSE(parse(R"({"ping": 1, "$db": "a", "apiStrict": false, "apiVersion": "1"})").request->api.is_strict());
}

TEST_CASE("a read at a time of several shards is refused where they have none in common") {
  struct Case {
    const char* concern;
    bool is_static, in_cluster;  // allowed?
  };
  const Case cases[] = {
      {R"({"level": "majority"})", true, true},
      {R"({"level": "snapshot"})", false, true},
      {R"({"level": "snapshot", "atClusterTime": {"$timestamp": {"t": 1, "i": 1}}})", false, true},
      {R"({"level": "majority", "afterClusterTime": {"$timestamp": {"t": 1, "i": 1}}})", false, true},
      {R"({"level": "local", "atClusterTime": {"$timestamp": {"t": 1, "i": 1}}})", false, false},
  };
  for (const Case& at : cases) {
    INFO(at.concern);
    const Parsed parsed = parse(fmt::format(R"({{"find": "c", "$db": "a", "readConcern": {}}})", at.concern));
    REQUIRE(parsed.request.has_value());
    const auto code = [&](bool in_cluster) {
      const auto checked = check_read_time(*parsed.request, in_cluster);
      return checked.has_error() ? checked.error().code : 0;
    };
    CHECK(code(false) == (at.is_static ? 0 : 72));
    CHECK(code(true) == (at.in_cluster ? 0 : 72));
  }
  for (const char* const command : {R"("count": "c")", R"("listIndexes": "c")", R"("insert": "c")"}) {
    const Parsed parsed = parse(fmt::format(R"({{{}, "$db": "a", "readConcern": {{"level": "snapshot"}}}})", command));
    REQUIRE(parsed.request.has_value());
    CHECK(check_read_time(*parsed.request, true).error().code == 72);
  }
}

TEST_CASE("a command's envelope is refused with the server's codes") {
  const std::pair<const char*, int> cases[] = {
      {R"({"ping": 1})", 40571},
      {R"({"ping": 1, "$db": ""})", 73},
      {R"({"ping": 1, "$db": "a b"})", 73},
      {R"({"ping": 1, "$db": "local"})", 20},
      {R"({"ping": 1, "$db": 5})", 14},
      {R"({"find": "c", "$db": "a", "maxTimeMS": -1})", 2},
      {R"({"find": "c", "$db": "a", "maxTimeMS": "1"})", 14},
      {R"({"find": "c", "$db": "a", "maxTimeMS": 1.5})", 2},
      {R"({"find": "c", "$db": "a", "$maxTimeMs": 1})", 72},
      {R"({"find": "c", "$db": "a", "txnNumber": {"$numberLong": "1"}})", 72},
      {R"({"find": "c", "$db": "a", "autocommit": false})", 72},
      {R"({"find": "c", "$db": "a", "autocommit": true})", 72},
      {R"({"find": "c", "$db": "a", "startTransaction": false})", 72},
      {R"({"find": "c", "$db": "a", "lsid": {}})", 14},
      {R"({"find": "c", "$db": "a", "lsid": {"id": {"$binary": {"base64": "AAAA", "subType": "04"}}}})", 14},
      {R"({"find": "c", "$db": "a", "apiVersion": "2"})", 322},
      {R"({"find": "c", "$db": "a", "apiVersion": 1})", 14},
      {R"({"find": "c", "$db": "a", "apiVersion": "1", "apiStrict": 1})", 14},
      {R"({"find": "c", "$db": "a", "apiVersion": "1", "apiDeprecationErrors": "true"})", 14},
      {R"({"find": "c", "$db": "a", "apiStrict": true})", 4886600},
      {R"({"find": "c", "$db": "a", "apiStrict": false})", 4886600},
      {R"({"find": "c", "$db": "a", "apiDeprecationErrors": true})", 4886600},
      {R"({"find": "c", "$db": "a", "apiStrict": true, "apiDeprecationErrors": true, "apiVersion": "1"})", 0},
      {R"({"find": "c", "$db": "a", "readConcern": 1})", 14},
      {R"({"find": "c", "$db": "a", "$readPreference": {"mode": "fastest"}})", 9},
      {R"({"find": "c", "$db": "a", "readConcern": {"level": "majority"}})", 0},
      {R"({"find": "c", "$db": "a", "maxTimeMS": 0})", 0},
  };
  for (const auto& [json, code] : cases) {
    INFO(json);
    CHECK(code_of(json) == code);
  }
}

TEST_CASE("a database's name has what servers on Linux allow in it") {
  const auto code_with = [](const std::string& name) { return code_of(R"({"ping": 1, "$db": ")" + name + "\"}"); };
  for (const char* name : {"tenant:42", "a*b", "a<b", "a>b", "a|b", "a?b", "$external"}) {
    CAPTURE(name);
    CHECK(code_with(name) == 0);
  }
  for (const char* name : {"", "a.b", "a b", "a/b", R"(a\\b)", R"(a\"b)"}) {
    CAPTURE(name);
    CHECK(code_with(name) == 73);
  }
}
