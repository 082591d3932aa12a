// What a traced operation's calls leave behind. On virtual time.
#include "proxy/shard/call_trace.h"

#include <catch2/catch.hpp>

#include "proxy/shard/shard_time.h"
#include "tests/unit/shard/shard_support.h"

using namespace spillway;
using namespace spillway::shard;
using namespace spillway::test;
using namespace std::chrono_literals;

namespace {

constexpr const char* find = R"({"find": "c", "filter": {"a": 1}, "$db": "app"})";

struct Traced {
  explicit Traced(World& world, std::uint64_t bytes = 1 << 20)
      : memory("traces", bytes), trace(*memory.try_reserve(1)) {
    options.budget = &world.budget;
    options.time = &time;
    time.set_trace(&trace);
  }
  MemoryBudget memory;
  CallTrace trace;
  ShardTime time;
  CallOptions options;
};

}  // namespace

TEST_CASE("a call's span has its host, its command and its time on the shard") {
  World world;
  ScriptedServer server(world.loop, world.network, "a", 1);
  server.delay = 40ms;
  world.connect("mongodb://a:1/");
  Traced traced(world);
  REQUIRE(world.call(find, traced.options)->ok());
  REQUIRE(traced.trace.calls().size() == 1);
  const TracedCall& call = traced.trace.calls().front();
  CHECK(call.shard == "shard0");
  CHECK(call.command == "find");
  CHECK(call.host == HostAddress{"a", 1});
  CHECK(call.attempt == 1);
  CHECK(call.error == 0);
  CHECK(call.ended - call.began >= 40ms);
  CHECK(call.ended - call.began < 60ms);
  // Another operation's calls leave nothing.
  REQUIRE(world.call(find)->ok());
  CHECK(traced.trace.calls().size() == 1);
  world.disconnect();
}

TEST_CASE("each attempt has a span, with the host and the error of its own") {
  World world;
  ScriptedServer one(world.loop, world.network, "a", 1), two(world.loop, world.network, "b", 2);
  for (ScriptedServer* server : {&one, &two}) server->members = {"a:1", "b:2"};
  one.role = Role::primary;
  two.role = Role::secondary;
  world.connect("mongodb://a:1,b:2/?replicaSet=rs0");
  world.run(1s);
  // It steps down with the first command, and the other takes over.
  one.answer = [&](DocView) {
    one.role = Role::secondary;
    two.role = Role::primary;
    two.election = 2;
    return json(R"({"ok": 0, "code": 10107, "codeName": "NotWritablePrimary", "errmsg": "not primary"})");
  };
  Traced traced(world);
  traced.options.retry = RetryPolicy::idempotent;
  REQUIRE(world.call(find, traced.options)->ok());
  REQUIRE(traced.trace.calls().size() == 2);
  const TracedCall& first = traced.trace.calls()[0];
  const TracedCall& second = traced.trace.calls()[1];
  CHECK(first.host == HostAddress{"a", 1});
  CHECK(first.attempt == 1);
  CHECK(first.error == 6);  // as a client may see it
  CHECK(second.host == HostAddress{"b", 2});
  CHECK(second.attempt == 2);
  CHECK(second.error == 0);
  CHECK(second.began >= first.ended);
  world.disconnect();
}

TEST_CASE("a call without a host has a span without one, a refused call its code") {
  {
    World world;
    world.connect("mongodb://a:1/");
    Traced traced(world);
    REQUIRE_FALSE(world.call(find, traced.options)->ok());
    REQUIRE(traced.trace.calls().size() == 1);
    CHECK(traced.trace.calls().front().host.port == 0);
    CHECK(traced.trace.calls().front().error == 6);
    world.disconnect();
  }
  World world;
  ScriptedServer server(world.loop, world.network, "a", 1);
  server.answer = [](DocView) { return json(R"({"ok": 0, "code": 11000, "errmsg": "E11000 {ssn: 1}"})"); };
  world.connect("mongodb://a:1/");
  Traced traced(world);
  REQUIRE(world.call(find, traced.options)->ok());  // the caller reads the answer
  REQUIRE(traced.trace.calls().size() == 1);
  CHECK(traced.trace.calls().front().error == 11000);
  world.disconnect();
}

TEST_CASE("calls without room are counted, and take no memory") {
  World world;
  ScriptedServer server(world.loop, world.network, "a", 1);
  world.connect("mongodb://a:1/");
  Traced traced(world, 2 * CallTrace::call_bytes);
  for (int i = 0; i < 3; ++i) REQUIRE(world.call(find, traced.options)->ok());
  CHECK(traced.trace.calls().size() == 1);
  CHECK(traced.trace.unrecorded() == 2);
  world.disconnect();
}

TEST_CASE("a command's name is found in any piece, and cut") {
  const BsonDoc body = json(find);
  CHECK(Command::of_body(body).name(64) == "find");
  CHECK(Command::of_body(body).name(2) == "fi");
  const BsonDoc empty = json("{}");
  CHECK(Command::of_body(empty).name(64).empty());
  CHECK(Command().name(64).empty());
}
