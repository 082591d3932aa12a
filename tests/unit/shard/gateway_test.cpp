// Calls that go well, and those that are mended.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "allocator/limits.h"
#include "proxy/shard/interrupt.h"
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

Task<void> wait_known(Gateway* gateway, TimePoint deadline, std::optional<bool>* known) {
  auto waiting = gateway->wait_until_known(deadline);
  known->emplace(co_await waiting);
}

// Its connection goes to the next in line before that one is interrupted, and hears of both afterwards.
Task<void> call_then_kill(World* world, std::shared_ptr<Call> call, Interrupt* next) {
  const BsonDoc command = json(ping);
  CallOptions options;
  options.budget = &world->budget;
  auto calling = world->gateway->call(0, Command::of_body(command.view()), options);
  call->result.emplace(co_await calling);
  next->request(Error(ErrorCode::interrupted, "killed"));
}

}  // namespace

TEST_CASE("a call to a standalone") {
  World world;
  ScriptedServer server(world.loop, world.network, "a", 1);
  world.connect("mongodb://a:1/");
  std::optional<bool> known;
  world.loop.spawn(wait_known(world.gateway.get(), Clock::now() + 5s, &known));
  world.loop.poll_until_idle();
  CHECK(known == true);
  const auto& state = world.gateway->states()[0];
  CHECK(state.name == "shard0");
  CHECK_FALSE(state.replica_set);
  CHECK(state.offers_sort_key);
  CHECK(state.max_wire_version == 21);
  REQUIRE(state.hosts.size() == 1);
  CHECK(state.hosts[0].primary);

  for (int i = 0; i < 10; ++i) {
    auto call = world.call(ping);
    REQUIRE(call->ok());
    CHECK((*call->result)->body()["ok"].truthy());
    CHECK_FALSE((*call->result)->lease);
  }
  CHECK(server.commands == 10);
  CHECK(server.connections == 2);  // the monitor's and one other
  REQUIRE_FALSE(server.first_hellos.empty());
  CHECK(server.first_hellos[0].view().find_path("client.driver.name").as_string() == "spillway");
  CHECK_FALSE(server.first_hellos[0].view()["internalClient"].exists());
  world.disconnect();
  CHECK(world.budget.usage().used_bytes == 0);
}

TEST_CASE("an error of another kind is a success here") {
  World world;
  ScriptedServer server(world.loop, world.network, "a", 1);
  server.answer = [](DocView) {
    return json(R"({"ok": 0, "code": 26, "errmsg": "ns not found"})");
  };
  world.connect("mongodb://a:1/");
  auto call = world.call(ping, with_retry(RetryPolicy::idempotent));
  REQUIRE(call->ok());
  CHECK((*call->result)->body()["code"].to_int64() == 26);
  CHECK(server.commands == 1);
}

TEST_CASE("a long reply streams through its lease") {
  World world;
  ScriptedServer server(world.loop, world.network, "a", 1);
  server.answer = [](DocView) {
    BsonWriter writer;
    writer.append("text", std::string_view(std::string(2'000'000, 'x'))).append("ok", 1.0);
    return std::move(writer).finish();
  };
  world.connect("mongodb://a:1/");
  CallOptions options;
  options.stream = true;
  auto call = world.call(ping, options);
  REQUIRE(call->ok());
  Reply& reply = **call->result;
  REQUIRE(reply.streaming());
  REQUIRE(reply.lease);
  std::vector<std::uint8_t> piece(limits::stream_piece_bytes);
  while (reply.lease->remaining() > 0) {
    reply.lease->try_read_rest(piece);
    world.loop.poll_until_idle();
  }
  CHECK(world.gateway->states()[0].hosts[0].in_use == 1);
  reply.lease.release();
  CHECK(world.gateway->states()[0].hosts[0].in_use == 0);
  CHECK(world.gateway->states()[0].hosts[0].available == 1);
  // One that is not read to its end closes its connection.
  call = world.call(ping, options);
  (*call->result)->lease.release();
  CHECK(world.gateway->states()[0].hosts[0].available == 0);
}

TEST_CASE("a lease may end while the gateway shuts down") {
  World world;
  ScriptedServer server(world.loop, world.network, "a", 1);
  server.answer = [](DocView) {
    BsonWriter writer;
    writer.append("text", std::string_view(std::string(2'000'000, 'x'))).append("ok", 1.0);
    return std::move(writer).finish();
  };
  world.connect("mongodb://a:1/");
  CallOptions options;
  options.stream = true;
  auto call = world.call(ping, options);
  struct Later {
    static Task<void> run(Loop* loop, Lease lease) {
      co_await loop->sleep_for(3s);
      lease.release();
    }
  };
  world.loop.spawn(Later::run(&world.loop, std::move((*call->result)->lease)));
  call->result.reset();
  const TimePoint start = Clock::now();
  world.disconnect();
  CHECK(Clock::now() - start >= 3s);
}

TEST_CASE("a set is discovered, and its hosts are told apart") {
  ReplicaSet set;
  const auto& state = set.gateway->states()[0];
  CHECK(state.replica_set);
  CHECK(state.set_name == "rs0");
  CHECK(set.gateway->capabilities(0).replica_set);
  REQUIRE(state.hosts.size() == 2);
  CHECK(state.hosts[0].primary);
  CHECK(state.hosts[1].secondary);
  CHECK(set.call(ping)->ok());
  CHECK(set.a.commands == 1);
  ReadPreference secondary;
  secondary.mode = ReadMode::secondary;
  CallOptions options;
  options.read_preference = &secondary;
  auto call = set.call(ping, options);
  REQUIRE(call->ok());
  CHECK((*call->result)->host == HostAddress{"b", 2});
  options.read_preference = nullptr;
  options.host = HostAddress{"b", 2};
  CHECK(set.call(ping, options)->ok());
  CHECK(set.b.commands == 2);
}

TEST_CASE("a command that a stepped-down primary did not begin is retried on the new one") {
  for (const RetryPolicy policy : {RetryPolicy::idempotent, RetryPolicy::not_idempotent}) {
    for (const int code : {10107, 13435, 13436}) {
      ReplicaSet set;
      REQUIRE(set.call(ping)->ok());
      set.step_down(code);
      auto call = set.start(ping, with_retry(policy));
      set.run(3s);
      CHECK_FALSE(call->done());
      set.elect_b();
      REQUIRE(set.run_until([&] { return call->done(); }, 1s));  // the expedited heartbeat
      REQUIRE(call->ok());
      CHECK((*call->result)->host == HostAddress{"b", 2});
      CHECK(set.a.commands == 2);
      CHECK(set.b.commands == 1);
    }
  }
}

TEST_CASE("what a step-down or a shutdown may have ended in the middle is sent again only if it may run twice") {
  for (const int code : {91, 189, 11600, 11602}) {
    ReplicaSet set;
    set.step_down(code);
    auto write = set.call(ping, with_retry(RetryPolicy::not_idempotent));
    CHECK(write->code() == 6);
    CHECK(write->message().find(fmt::format("code {}", code)) != std::string::npos);
    CHECK(write->message().find("in part") != std::string::npos);
    CHECK(set.a.commands == 1);
    auto read = set.start(ping, with_retry(RetryPolicy::idempotent));
    set.elect_b();
    REQUIRE(set.run_until([&] { return read->done(); }, 1s));
    CHECK(read->ok());
    CHECK(set.b.commands == 1);
  }
}

TEST_CASE("a state change inside writeErrors") {
  for (const int code : {91, 189, 10107, 11600, 11602, 13435, 13436}) {
    ReplicaSet set;
    REQUIRE(set.call(ping)->ok());
    const std::string reply = fmt::format(
        R"({{"n": 3, "writeErrors": [{{"index": 1, "code": 11000, "errmsg": "twice"}},
            {{"index": 3, "code": {}, "codeName": "X", "errmsg": "stepped down"}}], "ok": 1}})", code);
    set.a.answer = [&](DocView) { return json(reply); };
    set.a.role = Role::secondary;
    for (const RetryPolicy policy : {RetryPolicy::none, RetryPolicy::not_idempotent}) {
      // Relabelled: the statements before it were executed.
      set.a.commands = 0;
      auto write = set.call(ping, with_retry(policy));
      REQUIRE(write->ok());
      CHECK(set.a.commands == 1);
      const DocView body = (*write->result)->body();
      CHECK(body["n"].to_int64() == 3);
      REQUIRE(body["writeErrors"].is_array());
      const DocView errors = body["writeErrors"].as_document();
      REQUIRE(errors.count() == 2);
      CHECK(errors["0"].as_document()["code"].to_int64() == 11000);
      CHECK(errors["0"].as_document()["errmsg"].as_string() == "twice");
      CHECK(errors["1"].as_document()["index"].to_int64() == 3);
      CHECK(errors["1"].as_document()["code"].to_int64() == 6);
      CHECK(errors["1"].as_document()["codeName"].as_string() == "HostUnreachable");
      CHECK((*write->result)->bytes.size() == (*write->result)->message_bytes);
      // The monitor is to look at once.
      CHECK_FALSE(set.gateway->states()[0].hosts[0].primary);
      set.a.role = Role::primary;
      set.run(11s);
      REQUIRE(set.gateway->states()[0].hosts[0].primary);
      set.a.role = Role::secondary;
    }
    auto retryable = set.start(ping, with_retry(RetryPolicy::idempotent));
    set.elect_b();
    REQUIRE(set.run_until([&] { return retryable->done(); }, 2s));
    CHECK(retryable->ok());
    CHECK(set.b.commands == 1);
  }
}

TEST_CASE("without a retry, a state change becomes HostUnreachable") {
  ReplicaSet set;
  set.step_down();
  auto call = set.call(ping);
  CHECK(call->code() == 6);
  CHECK(call->message().find("shard shard0 at a:1") == 0);
  CHECK(set.a.commands == 1);
}

TEST_CASE("no new primary: FailedToSatisfyReadPreference, in time") {
  ReplicaSet set;
  set.step_down();
  auto call = set.call(ping, with_retry(RetryPolicy::idempotent));
  CHECK(call->code() == 133);
  CHECK(call->took >= 20s);
  CHECK(call->took <= 21s);
  CHECK(call->message().find("mode: \"primary\"") != std::string::npos);
}

TEST_CASE("a request outlives the election after a primary's death") {
  ReplicaSet set;
  set.step_down();
  auto call = set.start(ping, with_retry(RetryPolicy::idempotent));
  set.run(12s);
  CHECK_FALSE(call->done());
  set.elect_b();
  REQUIRE(set.run_until([&] { return call->done(); }, 2s));
  CHECK(call->ok());
}

TEST_CASE("a write that was sent is not ended by what ends an unsent one") {
  World world;
  ScriptedServer server(world.loop, world.network, "a", 1);
  world.connect("mongodb://a:1/");
  server.delay = 3s;
  Interrupt interrupt;
  CallOptions options;
  options.until_sent = &interrupt;
  auto write = world.start(ping, options);
  world.run(1s);
  interrupt.request(Error(ErrorCode::client_disconnect, "gone"));
  REQUIRE(world.run_until([&] { return write->done(); }, 5s));
  CHECK(write->ok());
}

TEST_CASE("a standalone that keeps changing its state is tried four times") {
  World world;
  ScriptedServer server(world.loop, world.network, "a", 1);
  server.answer = [](DocView) { return json(R"({"ok": 0, "code": 189, "errmsg": "x"})"); };
  world.connect("mongodb://a:1/");
  CHECK(world.call(ping, with_retry(RetryPolicy::idempotent))->code() == 6);
  CHECK(server.commands == 4);
}

TEST_CASE("a state change inside writeConcernError") {
  ReplicaSet set;
  const char* const reply =
      R"({"n": 1, "writeConcernError": {"code": 11602, "codeName": "X", "errmsg": "stepped down"}, "ok": 1})";
  set.a.answer = [&](DocView) { return json(reply); };
  SECTION("is retried when the write has a txnNumber") {
    auto call = set.start(ping, with_retry(RetryPolicy::idempotent));
    set.run(50ms);
    CHECK_FALSE(call->done());
    set.a.role = Role::secondary;
    set.elect_b();
    REQUIRE(set.run_until([&] { return call->done(); }, 2s));
    CHECK(call->ok());
    CHECK(set.b.commands == 1);
  }
  SECTION("is relabelled otherwise: the write was executed") {
    auto call = set.call(ping);
    REQUIRE(call->ok());
    const DocView body = (*call->result)->body();
    CHECK(body["n"].to_int64() == 1);
    CHECK(body.find_path("writeConcernError.code").to_int64() == 6);
    CHECK(body.find_path("writeConcernError.codeName").as_string() == "HostUnreachable");
    CHECK((*call->result)->bytes.size() == (*call->result)->message_bytes);
    CHECK(set.a.commands == 1);
  }
}

TEST_CASE("other retriable errors are retried, and passed on when that does not help") {
  World world;
  ScriptedServer server(world.loop, world.network, "a", 1);
  server.answer = [&](DocView) {
    return json(server.commands < 3 ? R"({"ok": 0, "code": 262, "errmsg": "x"})" : R"({"ok": 1})");
  };
  world.connect("mongodb://a:1/");
  auto call = world.call(ping, with_retry(RetryPolicy::idempotent));
  REQUIRE(call->ok());
  CHECK((*call->result)->body()["ok"].truthy());
  server.answer = [](DocView) { return json(R"({"ok": 0, "code": 262, "errmsg": "x"})"); };
  call = world.call(ping, with_retry(RetryPolicy::idempotent));
  REQUIRE(call->ok());
  CHECK((*call->result)->body()["code"].to_int64() == 262);
  call = world.call(ping);
  CHECK(server.commands == 3 + 4 + 1);
}

TEST_CASE("a host that no worker has heard of is no member, at once") {
  ReplicaSet set;
  CallOptions options;
  options.host = HostAddress{"d", 4};
  const auto refused = [&] {
    const auto call = set.call(ping, options);
    CHECK(call->code() == 6);
    CHECK(call->message().find("no member") != std::string::npos);
    CHECK(call->took == 0s);
  };
  const int hellos = set.a.hellos;
  refused();
  CHECK(set.a.hellos == hellos);
  // So it is while the members do not answer.
  set.a.freeze();
  set.b.freeze();
  set.run(5s);
  refused();
  set.a.thaw();
  set.b.thaw();
}

TEST_CASE("a removed member's connections end with their requests") {
  ReplicaSet set;
  set.b.delay = 15s;
  CallOptions options;
  options.host = HostAddress{"b", 2};
  auto call = set.start(ping, options);
  set.run(100ms);
  set.a.members = {"a:1"};
  const auto created = [&] { return set.gateway->call_counts(0)->opened.value(); };
  std::size_t created_with_b = 0;
  for (const HostState& host : set.gateway->states()[0].hosts) created_with_b += host.created;
  CHECK(created() == created_with_b);
  set.run(11s);
  CHECK(set.gateway->states()[0].hosts.size() == 1);
  CHECK(created() >= created_with_b);  // a counter never falls
  CHECK_FALSE(call->done());
  CHECK(set.call(ping, options)->code() == 6);  // no member any more
  set.run(5s);
  CHECK(call->ok());
}

TEST_CASE("compressors are offered only if configured") {
  World world;
  ScriptedServer server(world.loop, world.network, "a", 1);
  server.compression = {"zstd"};
  GatewayOptions options;
  SECTION("none") {}
  SECTION("zstd") { options.compressors = "snappy,zstd"; }
  world.connect("mongodb://a:1/", options);
  const std::string command = R"({"insert": "c", "text": ")" + std::string(4000, 'x') + R"("})";
  CHECK(world.call(command)->ok());
  CHECK(server.compressed_messages == (options.compressors.empty() ? 0 : 1));
}

TEST_CASE("a call that waits for a connection ends with its interrupt, and is not sent") {
  const bool write = GENERATE(false, true);
  World world;
  ScriptedServer server(world.loop, world.network, "a", 1);
  world.connect("mongodb://a:1/", pool_of(1));
  REQUIRE(world.call(ping)->ok());
  server.delay = 3s;
  Interrupt interrupt;
  auto first = std::make_shared<Call>();
  world.loop.spawn(call_then_kill(&world, first, &interrupt));
  CallOptions options = with_retry(RetryPolicy::idempotent);
  (write ? options.until_sent : options.interrupt) = &interrupt;
  auto second = world.start(ping, options);
  world.run(1s);
  CHECK(world.gateway->states()[0].hosts[0].waiting == 1);
  SECTION("while it is in line") {
    interrupt.request(Error(ErrorCode::interrupted, "killed"));
    REQUIRE(world.run_until([&] { return second->done(); }, 100ms));
    CHECK(world.gateway->states()[0].hosts[0].waiting == 0);
    REQUIRE(world.run_until([&] { return first->done(); }, 3s));
  }
  SECTION("when the connection has been given to it already") {
    REQUIRE(world.run_until([&] { return second->done(); }, 3s));
  }
  SECTION("before it begins to wait") {
    interrupt.request(Error(ErrorCode::interrupted, "killed"));
    REQUIRE(world.run_until([&] { return second->done(); }, 100ms));
    second = world.call(ping, options, 100ms);
    REQUIRE(first->done() == false);
  }
  CHECK(second->code() == 11601);
  // The connection serves others.
  server.delay = {};
  CHECK(world.call(ping, {}, 5s)->ok());
  CHECK(server.commands == 3);
  CHECK(server.connections == 2);  // the monitor's and one other
}

TEST_CASE("a call that waits for a primary ends with its interrupt") {
  ReplicaSet set;
  set.step_down();
  set.run(11s);
  const int sent = set.a.commands + set.b.commands;
  Interrupt interrupt;
  CallOptions options = with_retry(RetryPolicy::idempotent);
  options.interrupt = &interrupt;
  auto call = set.start(ping, options);
  set.run(1s);
  CHECK_FALSE(call->done());
  interrupt.request(Error(ErrorCode::interrupted, "killed"));
  REQUIRE(set.run_until([&] { return call->done(); }, 100ms));
  CHECK(call->code() == 11601);
  CHECK(set.a.commands + set.b.commands == sent);
}
