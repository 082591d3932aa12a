// Shards that refuse, break, stay silent and come back; networks that misbehave.
#include <algorithm>
#include <catch2/catch.hpp>

#include "allocator/budget_denial.h"
#include "tests/unit/shard/shard_support.h"

using namespace spillway;
using namespace spillway::shard;
using namespace spillway::test;
using namespace std::chrono_literals;

namespace {


CallOptions with_retry(RetryPolicy policy) {
  CallOptions options;
  options.retry = policy;
  return options;
}

struct Standalone : World {
  explicit Standalone(GatewayOptions options = {}, const FaultOptions& faults = {})
      : World(faults), server(loop, network, "a", 1) {
    connect("mongodb://a:1/", options);
    run(100ms);
  }
  ~Standalone() { disconnect(); }
  ScriptedServer server;
};

}  // namespace

TEST_CASE("a shard that refuses: the error comes at once") {
  World world;
  world.connect("mongodb://a:1/");
  auto call = world.call(ping, with_retry(RetryPolicy::idempotent));
  CHECK(call->code() == 6);
  CHECK(call->took < 100ms);
  CHECK(call->message().find("shard shard0: Error connecting to a:1") == 0);
}

TEST_CASE("an unreachable replica set: the error comes when a new primary might have been elected") {
  World world;
  world.connect("mongodb://a:1,b:2/?replicaSet=rs0&connectTimeoutMS=2000");
  auto call = world.call(ping, with_retry(RetryPolicy::idempotent));
  CHECK(call->code() == 133);
  CHECK(call->took >= 20s);
  CHECK(call->took <= 20'100ms);
  CHECK(call->message().find("Connection refused") != std::string::npos);
}

TEST_CASE("a vanished machine: the error comes within the connect timeout") {
  World world;
  ScriptedServer server(world.loop, world.network, "a", 1);
  world.network.vanish("a", 1);
  world.connect("mongodb://a:1/");
  auto call = world.call(ping);
  CHECK((call->code() == 89 || call->code() == 6));
  CHECK(call->took <= 10'100ms);
  // Used again within a second of its return.
  world.run(60s);
  world.network.reappear("a", 1);
  world.run(1s);
  CHECK(world.gateway->states()[0].hosts[0].known);
}

TEST_CASE("memory that is short here says nothing of a host") {
  const bool own_room = GENERATE(true, false);
  Standalone world;
  REQUIRE(world.call(ping)->ok());
  const MemoryBudget& left = own_room ? world.budget : world.everything;
  deny_charges(&left, 1, true);
  const int asked = world.server.hellos;
  for (int i = 0; i < 120; ++i) {
    world.run(500ms);
    CHECK(world.gateway->states()[0].hosts[0].known);
  }
  CHECK(world.server.hellos > asked);
  if (!own_room) CHECK(denied_charges() > 0);
  deny_charges(nullptr, 0, false);
  CHECK(world.call(ping)->ok());
}

TEST_CASE("a reply that memory refuses leaves no cursor at its shard") {
  const auto read_bytes_max = GENERATE(std::size_t{0}, std::size_t{7}, std::size_t{50}, std::size_t{5'000});
  const auto text_bytes = GENERATE(std::size_t{100}, std::size_t{900}, std::size_t{40'000});
  const std::int64_t id = GENERATE(77, 0);
  CAPTURE(read_bytes_max, text_bytes, id);
  FaultOptions faults;
  faults.read_bytes_max = read_bytes_max;
  Standalone world({}, faults);
  std::vector<BsonDoc> kills;
  world.server.answer = [&](DocView command) {
    if (command["killCursors"].exists()) kills.push_back(BsonDoc(command));
    if (!command["find"].exists()) return json(R"({"ok": 1})");
    return json(fmt::format(
        R"({{"cursor": {{"firstBatch": [{{"text": "{}"}}], "id": {{"$numberLong": "{}"}}, "ns": "app.a.b"}},
             "ok": 1}})",
        std::string(text_bytes, 'x'), id));
  };
  REQUIRE(world.call(ping)->ok());
  world.budget.set_limit(10);
  CallOptions options;
  SECTION("its connection stays, and ends the cursor") {
    CHECK_FALSE(world.call(R"({"find": "a.b", "$db": "app"})", options)->ok());
    world.run(1s);
    REQUIRE(kills.size() == (id == 0 ? 0 : 1));
    if (id != 0) CHECK(to_json(kills[0]) == R"({ "killCursors" : "a.b", "cursors" : [ 77 ], "$db" : "app" })");
    const int connections = world.server.connections;
    world.budget.set_limit(0);
    CHECK(world.call(ping)->ok());
    CHECK(world.server.connections == connections);
  }
  SECTION("a getMore's cursor is its caller's") {
    options.host = HostAddress{HostName("a"), 1};
    CHECK_FALSE(world.call(R"({"find": "a.b", "$db": "app"})", options)->ok());
    world.run(1s);
    CHECK(kills.empty());
  }
}

TEST_CASE("a router is refused as a shard") {
  World world;
  ScriptedServer server(world.loop, world.network, "a", 1);
  server.role = Role::router;
  world.connect("mongodb://a:1/");
  auto call = world.call(ping);
  CHECK(call->code() == 20);
  CHECK(call->message().find("router") != std::string::npos);
  CHECK(server.commands == 0);
}

TEST_CASE("a connection that breaks inside a reply") {
  Standalone world;
  REQUIRE(world.call(ping)->ok());
  world.server.cut_after = 20;
  SECTION("is an error when the command may have been executed") {
    CHECK(world.call(ping, with_retry(RetryPolicy::not_idempotent))->code() == 6);
    CHECK(world.server.commands == 2);
  }
  SECTION("is mended for an idempotent one") {
    world.server.answer = [&](DocView) {
      if (world.server.commands > 2) world.server.cut_after = 0;
      return json(R"({"ok": 1})");
    };
    CHECK(world.call(ping, with_retry(RetryPolicy::idempotent))->ok());
    CHECK(world.server.commands == 3);
  }
}

TEST_CASE("a peer that breaks the protocol is not asked again") {
  Standalone world;
  world.server.mangle = [](std::vector<std::uint8_t>& message) {
    store_le(message.data() + 8, 99);
  };
  auto call = world.call(ping, with_retry(RetryPolicy::idempotent));
  CHECK(call->code() == 6);
  CHECK(call->message().find("answers another request") != std::string::npos);
  CHECK(world.server.commands == 1);
  CHECK(world.gateway->states()[0].hosts[0].in_use == 0);
}

TEST_CASE("calls as a router have connections of their own, which say so") {
  Standalone world;
  REQUIRE(world.call(ping)->ok());
  const std::size_t before = world.server.first_hellos.size();
  CallOptions options;
  options.as_router = true;
  REQUIRE(world.call(ping, options)->ok());
  REQUIRE(world.call(ping, options)->ok());
  REQUIRE(world.server.first_hellos.size() == before + 1);
  CHECK(world.server.first_hellos.back().view()["internalClient"].is_document());
  REQUIRE(world.call(ping)->ok());
  CHECK(world.server.first_hellos.size() == before + 1);
  CHECK(world.gateway->states()[0].hosts[0].available == 2);
  world.server.kill();
  world.server.restart();
  CHECK(world.call(ping, options)->ok());
}

TEST_CASE("a restart between two commands goes unnoticed") {
  Standalone world;
  REQUIRE(world.call(ping)->ok());
  world.server.kill();
  world.server.restart();
  CHECK(world.call(ping)->ok());  // a command that did not leave is sent again, whatever the policy
}

TEST_CASE("a deadline: MaxTimeMSExpired, and the connection is closed") {
  Standalone world;
  world.server.delay = 5s;
  CallOptions options =
      with_retry(GENERATE(RetryPolicy::idempotent, RetryPolicy::not_idempotent, RetryPolicy::none));
  options.deadline = Clock::now() + 1s;
  auto call = world.call(ping, options);
  CHECK(call->code() == 50);
  CHECK(call->took == 1s);
  const auto& host = world.gateway->states()[0].hosts[0];
  CHECK(host.in_use == 0);
  CHECK(host.known);
  CHECK(world.server.commands == 1);
}

TEST_CASE("a command is not sent once its deadline has passed, in the pause before an attempt neither") {
  ReplicaSet set;
  TimePoint last_seen;
  set.a.answer = [&](DocView) {  // it is about to step down: its hello says that it is the primary
    last_seen = Clock::now();
    return json(R"({"ok": 0, "code": 10107, "errmsg": "not primary"})");
  };
  int late = 0;
  for (Duration patience = 10ms; patience < 1s; patience += 30ms) {
    CallOptions options = with_retry(RetryPolicy::not_idempotent);
    options.deadline = Clock::now() + patience;
    auto call = set.call(ping, options);
    CHECK(last_seen < options.deadline);
    late += call->code() == 50;
    set.run(2s);
  }
  CHECK(late > 0);
}

TEST_CASE("a deadline while no connection is free") {
  Standalone world(pool_of(1));
  world.server.delay = 5s;
  auto first = world.start(ping);
  CallOptions options;
  options.deadline = Clock::now() + 1s;
  auto second = world.start(ping, options);
  auto third = world.start(ping);
  world.run(1s);
  CHECK(second->code() == 50);
  world.run(30s);
  CHECK(first->ok());
  CHECK(third->ok());
}

TEST_CASE("a place in the pool is waited for beyond the connect timeout, until the deadline") {
  Standalone world(pool_of(1));
  world.server.delay = 1min;
  auto first = world.start(ping);
  auto second = world.start(ping);
  CallOptions options;
  options.deadline = Clock::now() + 30s;
  auto hasty = world.start(ping, options);
  world.run(29s);
  CHECK_FALSE(hasty->done());
  world.run(1s);
  CHECK(hasty->code() == 50);
  world.run(30s);
  CHECK(first->ok());
  CHECK_FALSE(second->done());
  world.run(1min);
  CHECK(second->ok());
  CHECK(world.gateway->states()[0].hosts[0].known);
}

TEST_CASE("what this process lacks for a connection is not blamed on the host") {
  Standalone world;
  REQUIRE(world.call(ping)->ok());
  world.server.delay = 1s;
  world.network.set_faults({.lacks_files = true});
  auto first = world.start(ping);
  auto second = world.start(ping);  // would need another connection
  world.run(3s);
  CHECK(first->ok());
  CHECK(second->ok());
  CHECK(world.gateway->states()[0].hosts[0].known);
  CHECK(world.gateway->states()[0].hosts[0].available == 1);
}

TEST_CASE("a turn to connect is waited for while others have theirs") {
  // A handshake takes 600 ms, two at a time: the last of a hundred calls has its turn after 30 s.
  FaultOptions slow;
  slow.latency_min = slow.latency_max = 300ms;
  Standalone world({}, slow);
  REQUIRE(world.run_until([&] { return world.gateway->states()[0].hosts[0].known; }, 5s));
  world.server.delay = 1min;  // none goes back to the pool meanwhile
  std::vector<std::shared_ptr<Call>> calls;
  for (int i = 0; i < 100; ++i) calls.push_back(world.start(ping));
  REQUIRE(world.run_until([&] { return world.gateway->states()[0].hosts[0].waiting == 0; }, 1min));
  const auto failed = std::count_if(calls.begin(), calls.end(), [](const auto& call) { return call->done(); });
  CHECK(failed == 0);
  CHECK(world.run_until(
      [&] { return std::all_of(calls.begin(), calls.end(), [](const auto& call) { return call->ok(); }); }, 2min));
}

TEST_CASE("a machine that vanishes fails requests that wait for a turn to connect within the connect timeout") {
  FaultOptions slow;
  slow.latency_min = slow.latency_max = 300ms;
  Standalone world({}, slow);
  REQUIRE(world.run_until([&] { return world.gateway->states()[0].hosts[0].known; }, 5s));
  world.server.delay = 1min;
  std::vector<std::shared_ptr<Call>> calls;
  for (int i = 0; i < 100; ++i) calls.push_back(world.start(ping));
  world.run(15s);
  world.network.vanish("a", 1);
  const auto all_done = [&] {
    return std::all_of(calls.begin(), calls.end(), [](const auto& call) { return call->done(); });
  };
  world.run(10'600ms);  // and what was opened last may have been so when it vanished
  CHECK(world.gateway->states()[0].hosts[0].waiting == 0);
  CHECK(world.run_until(all_done, 30s));
  world.network.reappear("a", 1);
}

TEST_CASE("a frozen shard: what is in flight fails when the monitor's hello stays unanswered") {
  Standalone world;
  REQUIRE(world.call(ping)->ok());
  world.server.freeze();
  const TimePoint frozen = Clock::now();
  auto call = world.start(ping, with_retry(RetryPolicy::idempotent));
  REQUIRE(world.run_until([&] { return call->done(); }, 1min));
  CHECK(call->code() == 89);
  CHECK(Clock::now() - frozen >= 10s);
  CHECK(Clock::now() - frozen <= 12s);
  CHECK(call->message().find("no sign of life") != std::string::npos);
  // Meanwhile new calls fail in bounded time too.
  auto meanwhile = world.call(ping);
  CHECK((meanwhile->code() == 89 || meanwhile->code() == 6));
  CHECK(meanwhile->took <= 10'100ms);
  world.run(20s);
  world.server.thaw();
  const TimePoint thawed = Clock::now();
  REQUIRE(world.run_until([&] { return world.gateway->states()[0].hosts[0].known; }, 5s));
  CHECK(Clock::now() - thawed <= 1s);
  CHECK(world.call(ping)->ok());
}

TEST_CASE("calls that are aborted end at once, and are not sent again") {
  Standalone world;
  world.server.delay = 1min;
  auto call = world.start(ping, with_retry(RetryPolicy::idempotent));
  world.run(1s);
  world.gateway->abort_calls();
  world.run(0s);
  CHECK(call->code() == 6);
  CHECK(world.server.commands == 1);
  world.server.delay = 0s;
  CHECK(world.call(ping)->ok());
}

TEST_CASE("calls in a pool's line are not sent after an abort") {
  for (const char* uri : {"mongodb://a:1/", "mongodb://a:1/?replicaSet=rs0"}) {
    CAPTURE(uri);
    World world;
    ScriptedServer server(world.loop, world.network, "a", 1);
    server.members = {"a:1"};
    server.role = Role::primary;
    world.connect(uri, pool_of(1));
    world.run(100ms);
    server.delay = 1min;
    auto first = world.start(ping);
    auto second = world.start(ping);
    world.run(1s);
    world.gateway->abort_calls();
    world.run(5s);
    CHECK(first->code() == 6);
    CHECK(second->code() == 6);
    CHECK(server.commands == 1);
    world.disconnect();
  }
}

namespace {

// Aborts all calls on the stack on which its own has ended: the next in line has the connection, and has not run yet.
Task<void> call_then_abort(shard::Gateway* gateway, MemoryBudget* budget, BsonDoc command) {
  shard::CallOptions options;
  options.budget = budget;
  auto calling = gateway->call(0, shard::Command::of_body(command), options);
  const auto result = co_await calling;
  CHECK(result.has_value());
  gateway->abort_calls();
}

}  // namespace

TEST_CASE("a connection that fails between a call and the next in line fails that one") {
  World world;
  ScriptedServer server(world.loop, world.network, "a", 1);
  world.connect("mongodb://a:1/", pool_of(1));
  world.run(100ms);
  server.delay = 1s;
  world.loop.spawn(call_then_abort(world.gateway.get(), &world.budget, json(ping)));
  auto second = world.start(ping);
  world.run(10s);
  CHECK(second->done());
  CHECK(second->code() == 6);
  CHECK(server.commands == 1);
  world.disconnect();
}

TEST_CASE("a long query alone is never cut") {
  Standalone world;
  world.server.delay = 10min;
  auto call = world.call(ping, {}, 20min);
  CHECK(call->ok());
  CHECK(call->took >= 10min);
}

TEST_CASE("a shard that is killed is used again within a second of its return") {
  for (const char* uri : {"mongodb://a:1/", "mongodb://a:1/?replicaSet=rs0"}) {
    World world;
    ScriptedServer server(world.loop, world.network, "a", 1);
    server.members = {"a:1"};
    if (std::string_view(uri).find("replicaSet") != std::string_view::npos)
      server.role = Role::primary;
    world.connect(uri);
    REQUIRE(world.call(ping)->ok());
    server.kill();
    world.run(30s);
    CHECK_FALSE(world.gateway->states()[0].hosts[0].known);
    server.restart();
    const TimePoint back = Clock::now();
    REQUIRE(world.run_until([&] { return world.gateway->states()[0].hosts[0].known; }, 5s));
    CHECK(Clock::now() - back <= 1s);
    CHECK(world.call(ping)->ok());
    world.disconnect();
  }
}

TEST_CASE("the primary dies: reads go on when another one is elected") {
  ReplicaSet world;
  world.a.delay = world.b.delay = 10ms;
  auto read = world.start(ping, with_retry(RetryPolicy::idempotent));
  auto write = world.start(ping, with_retry(RetryPolicy::not_idempotent));
  world.run(5ms);
  world.a.kill();
  world.run(2s);
  CHECK(write->code() == 6);
  CHECK_FALSE(read->done());
  world.elect_b();
  REQUIRE(world.run_until([&] { return read->done(); }, 1s));
  CHECK(read->ok());
}

TEST_CASE("no new primary, after one that may have executed the command: a missing answer is no refusal") {
  ReplicaSet world;
  world.a.delay = 10ms;
  auto retryable = world.start(ping, with_retry(RetryPolicy::idempotent));
  world.run(5ms);
  world.a.kill();
  REQUIRE(world.run_until([&] { return retryable->done(); }, 22s));
  CHECK(retryable->code() == 6);
  CHECK(retryable->message().find("mode: \"primary\"") != std::string::npos);
  CHECK(world.call(ping, with_retry(RetryPolicy::idempotent))->code() == 133);  // it was not sent
}

TEST_CASE(
    "a host that hangs while connecting does not hang its requests for longer than the timeout") {
  Standalone world;
  REQUIRE(world.call(ping)->ok());
  world.network.vanish("a", 1);
  std::vector<std::shared_ptr<Call>> calls;
  for (int i = 0; i < 20; ++i) calls.push_back(world.start(ping));
  REQUIRE(world.run_until(
      [&] {
        return std::all_of(calls.begin(), calls.end(), [](const auto& c) { return c->done(); });
      },
      21s));
  for (const auto& call : calls) CHECK((call->code() == 89 || call->code() == 6));
  world.network.reappear("a", 1);
  world.run(1s);
  CHECK(world.call(ping)->ok());
}

TEST_CASE("whatever the network does, calls end, answers are right, nothing leaks") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    FaultOptions faults = FaultOptions::swarm(seed);
    World world(faults);
    ScriptedServer server(world.loop, world.network, "a", 1);
    server.answer = [](DocView command) {
      BsonWriter writer;
      const std::int64_t n = command["ping"].to_int64().value_or(0);
      writer.append("n", n);
      if (n % 3 == 0)
        writer.append("text",
                      std::string_view(std::string(static_cast<std::size_t>(n) * 997, 'x')));
      writer.append("ok", 1.0);
      return std::move(writer).finish();
    };
    world.connect("mongodb://a:1/", pool_of(4));
    std::vector<std::shared_ptr<Call>> calls;
    for (int i = 0; i < 40; ++i) {
      CallOptions options = with_retry(i % 2 == 0 ? RetryPolicy::idempotent : RetryPolicy::none);
      if (i % 5 == 0) options.use = Use::bulk;
      calls.push_back(world.start(R"({"ping": )" + std::to_string(i) + "}", options));
      world.run(std::chrono::milliseconds(i % 7));
    }
    REQUIRE(world.run_until(
        [&] {
          return std::all_of(calls.begin(), calls.end(), [](const auto& c) { return c->done(); });
        },
        10min));
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (calls[i]->ok()) {
        CHECK((*calls[i]->result)->body()["n"].to_int64() == static_cast<std::int64_t>(i));
      } else {
        CHECK((calls[i]->code() == 6 || calls[i]->code() == 89 || calls[i]->code() == 202));
      }
    }
    calls.clear();
    world.disconnect();
    CHECK(world.budget.usage().used_bytes == 0);
  }
}
