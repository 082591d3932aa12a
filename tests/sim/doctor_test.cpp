// `spillway doctor` over scripted servers: each step of a visit to a host fails once, and a cluster's shards are found.
#include "proxy/server/tools/doctor.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "proxy/server/life/server.h"
#include "tests/support/clock_manual.h"
#include "tests/unit/shard/scripted_server.h"

namespace spillway::server {
namespace {

using test::Role;
using test::ScriptedServer;

// A doctor, the network, and a configuration.
struct Practice {
  explicit Practice(const std::string& yaml) : loaded(load_config({.text = yaml, .file_name = "f"})) {
    INFO((loaded.errors.empty() ? std::string() : loaded.errors.front()));
    REQUIRE(loaded.ok());
  }

  // What it finds, and how long it takes.
  std::string examine() {
    auto routing = loaded.routing;
    if (loaded.config_servers) routing = table_of_config_servers(loaded);
    const Credentials::Ptr credentials = read_credentials(loaded.config, *routing).value();
    std::optional<Findings> found;
    const TimePoint begun = Clock::now();
    loop.spawn(run(*routing, *credentials, found));
    REQUIRE(test::run_until(loop, [&] { return found.has_value(); }, std::chrono::minutes(5)));
    took = Clock::now() - begun;
    findings = *std::move(found);
    return print_findings(findings);
  }
  Task<void> run(const catalog::RoutingSnapshot& routing, const Credentials& credentials,
                 std::optional<Findings>& found) {
    auto examining = examine_servers({loop, pump, network}, loaded.config, routing, credentials);
    found = co_await examining;
  }

  LoadResult loaded;
  Loop loop{Loop::Drive::manual};
  Pump pump{loop};
  test::SimNetwork network{loop};
  Findings findings;
  Duration took{};
};

constexpr const char* two_shards = R"(
security: {authorization: disabled}
routing:
  shards:
    - {name: s0, uri: "mongodb://a:1/"}
    - {name: s1, uri: "mongodb://b:2,c:3/?replicaSet=rs0"}
)";

// What a mongod answers to the doctor's questions.
BsonDoc mongod(DocView command) {
  const std::string_view name = command.first().name;
  if (name == "connectionStatus") {
    return BsonDoc::from_json(R"({"authInfo": {"authenticatedUsers": []}, "ok": 1})").value();
  }
  if (name == "getParameter") {
    return BsonDoc::from_json(R"({"featureCompatibilityVersion": {"version": "8.0"}, "ok": 1})").value();
  }
  if (name == "find") {
    return BsonDoc::from_json(R"({"cursor": {"id": 0, "ns": "admin.x", "firstBatch": []}, "ok": 1})").value();
  }
  return BsonDoc::from_json(R"({"ok": 1})").value();
}

bool says(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

struct TwoShards : Practice {
  TwoShards() : Practice(two_shards), a(loop, network, "a", 1), b(loop, network, "b", 2), c(loop, network, "c", 3) {
    b.role = Role::primary;
    c.role = Role::secondary;
    b.members = c.members = {"b:2", "c:3"};
    for (ScriptedServer* server : {&a, &b, &c}) server->answer = mongod;
  }
  ScriptedServer a, b, c;
};

TEST_CASE("servers that answer well have nothing to mend", "[doctor]") {
  TwoShards all;
  const std::string text = all.examine();
  CAPTURE(text);
  CHECK(count(all.findings, Severity::ok) == 3);
  CHECK(all.findings.size() == 3);
  CHECK(says(text, "s1 b:2: primary of rs0"));
}

TEST_CASE("hosts that refuse, hang and vanish are told within the patience", "[doctor]") {
  TwoShards all;
  SECTION("refused") {
    all.a.kill();
    const std::string text = all.examine();
    CAPTURE(text);
    CHECK(says(text, "error    s0 a:1: "));
    CHECK(says(text, "ss -ltn"));
    CHECK(all.took < std::chrono::seconds(1));
  }
  SECTION("it accepts, and answers nothing") {
    all.a.freeze();
    const std::string text = all.examine();
    CAPTURE(text);
    CHECK(says(text, "error    s0 a:1: "));
    CHECK(says(text, "did not answer in time"));
  }
  SECTION("packets are dropped") {
    all.network.vanish("a", 1);
    const std::string text = all.examine();
    CAPTURE(text);
    CHECK(says(text, "nc -vz a 1"));
    all.network.reappear("a", 1);
  }
  CHECK(count(all.findings, Severity::error) == 1);
  CHECK(all.took <= std::chrono::seconds(15));
}

TEST_CASE("what servers are is compared with the table", "[doctor]") {
  TwoShards all;
  SECTION("a mongos") {
    all.a.role = Role::router;
    CHECK(says(all.examine(), "name the shards, or use sharding.configDB"));
  }
  SECTION("another set") {
    all.b.set_name = all.c.set_name = "rs9";
    CHECK(says(all.examine(), "write replicaSet=rs9"));
  }
  SECTION("no primary") {
    all.b.role = Role::secondary;
    CHECK(says(all.examine(), "s1: none of its hosts is a primary"));
  }
  SECTION("too old") {
    all.a.max_wire_version = 5;
    CHECK(says(all.examine(), "at least 6 is needed"));
  }
  SECTION("it wants a login") {
    all.a.answer = [](DocView command) {
      if (command.first().name != "find") return mongod(command);
      return BsonDoc::from_json(R"({"ok": 0, "code": 13, "errmsg": "requires authentication"})").value();
    };
    CHECK(says(all.examine(), "s0 a:1: it wants a login: requires authentication"));
  }
  SECTION("a shard of a cluster") {
    all.a.answer = [](DocView command) {
      if (command.first().name != "find") return mongod(command);
      return BsonDoc::from_json(
                 R"({"cursor": {"id": 0, "ns": "admin.x", "firstBatch": [{"_id": "shardIdentity"}]}, "ok": 1})")
          .value();
    };
    CHECK(says(all.examine(), "it belongs to a sharded cluster"));
  }
  CHECK(count(all.findings, Severity::error) >= 1);
}

TEST_CASE("a member that only its primary names is visited, too", "[doctor]") {
  TwoShards all;
  all.b.members = {"b:2", "c:3", "d:4"};
  const std::string text = all.examine();
  CAPTURE(text);
  CHECK(says(text, "warning  s1 d:4: "));
  CHECK(count(all.findings, Severity::error) == 0);
}

// --- a cluster

constexpr const char* cluster = R"(
security: {authorization: disabled}
sharding: {configDB: "cfg/k:9"}
)";

// Answers the finds of a cluster's router: config.version and config.shards.
BsonDoc config_server(DocView command) {
  const std::string_view name = command.first().name;
  if (name != "find") return mongod(command);
  const std::string of(command.first().as_string());
  std::string batch;
  if (of == "version") batch = R"({"_id": 1, "clusterId": {"$oid": "0123456789abcdef01234567"}})";
  if (of == "shards") batch = R"({"_id": "sh0", "host": "rs0/b:2", "state": 1})";
  return BsonDoc::from_json(R"({"cursor": {"id": 0, "ns": "config.)" + of + R"(", "firstBatch": [)" + batch +
                            R"(]}, "ok": 1})")
      .value();
}

TEST_CASE("the shards that the config servers know are examined", "[doctor]") {
  Practice practice(cluster);
  ScriptedServer k(practice.loop, practice.network, "k", 9);
  k.role = Role::primary;
  k.set_name = "cfg";
  k.members = {"k:9"};
  k.answer = config_server;
  SECTION("they are a shard") {
    k.answer = [](DocView command) {
      if (command.first().name != "find" || command.first().as_string() != "system.version") {
        return config_server(command);
      }
      return BsonDoc::from_json(R"({"cursor": {"id": 0, "ns": "admin.system.version", "firstBatch": [
                                   {"_id": "shardIdentity", "configsvrConnectionString": "cfg/real:1"}]}, "ok": 1})")
          .value();
    };
    CHECK(says(practice.examine(), "write sharding.configDB: cfg/real:1"));
  }
  SECTION("they cannot be reached") {
    const std::string text = practice.examine();
    CAPTURE(text);
    CHECK(says(text, "ok       config servers k:9: primary of cfg"));
    CHECK(says(text, "error    sh0 b:2: "));
  }
  SECTION("they are no shards") {
    ScriptedServer b(practice.loop, practice.network, "b", 2);
    b.role = Role::primary;
    b.members = {"b:2"};
    b.answer = mongod;
    const std::string text = practice.examine();
    CAPTURE(text);
    CHECK(says(text, "sh0 b:2: it is no shard of a cluster"));
  }
  SECTION("their table cannot be read") {
    k.answer = [](DocView command) {
      if (command.first().name != "find") return mongod(command);
      return BsonDoc::from_json(R"({"ok": 0, "code": 26, "errmsg": "no cluster"})").value();
    };
    const std::string text = practice.examine();
    CAPTURE(text);
    CHECK(says(text, "config.shards cannot be read"));
  }
  SECTION("none is there") {
    k.kill();
    const std::string text = practice.examine();
    CAPTURE(text);
    CHECK(says(text, "error    config servers k:9: "));
    CHECK(practice.took < std::chrono::seconds(1));
  }
}

}  // namespace
}  // namespace spillway::server
