// Clients that another process has passed to this one.
#include <limits>

#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/tables/transaction_table.h"
#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

constexpr std::string_view probe = R"({"ping": 1, "$db": "admin"})";

// `more`: further fields.
BsonDoc passed_client(std::string_view more = "") {
  return json(fmt::format(R"({{"id": 77, "peer": "10.0.0.1:4000", "local": "10.0.0.2:27017", "balanced": false,
                              "internal": false, "greeted": true, "nextRequest": 9 {}}})",
                          more));
}

}  // namespace

TEST_CASE("a moved client that has spoken may be idle for as long as any other") {
  SimWorld world(sharded_world(1, 20));
  auto client = world.moved_client(passed_client(R"(, "heard": true)"));
  REQUIRE(world.run(client->send_part(json(probe), 0)));
  world.run_for(minutes(5));
  CHECK(world.shared().connections.current == 1);
}

TEST_CASE("a moved client that has never spoken must") {
  SimWorld world(sharded_world(1, 20));
  auto client = world.moved_client(passed_client());
  REQUIRE(world.run(client->send_part(json(probe), 0)));
  world.run_for(minutes(1));
  CHECK(world.shared().connections.current == 0);
  CHECK(world.shared().metrics.silent_clients_closed.value() == 1);
}

TEST_CASE("after the largest request id comes the first") {
  SimWorld world(sharded_world(1, 20));
  const BsonDoc state = passed_client(R"(, "heard": true)");
  BsonWriter largest;
  for (const Element& each : state.view()) {
    if (each.name == "nextRequest") {
      largest.append("nextRequest", std::numeric_limits<std::int32_t>::max());
    } else {
      largest.append_element(each);
    }
  }
  auto client = world.moved_client(std::move(largest).finish());
  for (int i = 0; i < 2; ++i) CHECK(is_ok(call(world, *client, probe)));
}

TEST_CASE("a way to the process before stays open while its client is busy elsewhere") {
  SimWorld world(sharded_world(1, 20));
  world.shared().parameters.idle_client_ms = 5'000;
  auto relayed = world.moved_client(passed_client(R"(, "heard": true)"), 0, true);
  auto idle = world.moved_client(passed_client(R"(, "heard": true)"));
  for (SimClient* each : {relayed.get(), idle.get()}) REQUIRE(is_ok(call(world, *each, probe)));
  world.run_for(minutes(5));
  CHECK(is_ok(call(world, *relayed, probe)));
  CHECK_FALSE(try_call(world, *idle, json(probe)));
}

TEST_CASE("a transaction ends with its load balancer's connection, which has moved to another process") {
  const bool committed = GENERATE(false, true);
  SimShardOptions like;
  like.set_name = "set";
  SimWorld world(sharded_world(1, 30, like));
  auto client = world.balanced_client("");
  constexpr std::string_view transaction = R"("lsid": {"id": {"$binary": {"base64": "AAECAwQFBgcICQoLDA0ODw==",
      "subType": "04"}}}, "txnNumber": {"$numberLong": "1"}, "autocommit": false)";
  REQUIRE(is_ok(call(world, *client,
                     fmt::format(R"({{"insert": "docs", "documents": [{{"_id": 40}}], {},
                                      "startTransaction": true, "$db": "app"}})",
                                 transaction))));
  if (committed) call(world, *client, fmt::format(R"({{"commitTransaction": 1, {}, "$db": "admin"}})", transaction));
  std::optional<BsonDoc> state;
  world.worker(0).let_leave([&](server::MovedClient moved) { state = moved.state; });
  REQUIRE(world.run_until([&] { return state.has_value(); }, seconds(1)));
  CHECK(world.shared().transactions->active() == (committed ? 0 : 1));
  auto relayed = world.moved_client(*state, 0, true);
  REQUIRE(world.run(relayed->send_part(json(probe), 0)));
  world.run_for(seconds(1));
  relayed->close();
  world.run_for(seconds(1));
  CHECK(world.shared().transactions->active() == 0);
  CHECK(world.shard(0).seen("abortTransaction") == (committed ? 0 : 1));
}

TEST_CASE("a process before that hangs does not hold up its clients for ever") {
  auto older = std::make_shared<server::OlderProcess>();
  std::vector<server::MovedClient> relays;  // that nothing answers
  older->serve = [&](server::MovedClient relay) { relays.push_back(std::move(relay)); };
  SimWorldOptions options = sharded_world(1, 20);
  options.older = older;
  SimWorld world(std::move(options));
  auto client = world.moved_client(passed_client(R"(, "heard": true)"));
  constexpr std::string_view session = R"({"id": {"$binary": {"base64": "AAECAwQFBgcICQoLDA0ODw==",
      "subType": "04"}}})";
  const auto [command, most, code] = GENERATE_COPY(table<std::string, Duration, int>(
      {{R"({"killCursors": "docs", "cursors": [{"$numberLong": "77"}], "$db": "app"})", seconds(11), 0},
       {fmt::format(R"({{"endSessions": [{}], "$db": "admin"}})", session), seconds(11), 0},
       {fmt::format(R"({{"abortTransaction": 1, "lsid": {}, "txnNumber": {{"$numberLong": "1"}}, "autocommit": false,
                         "$db": "admin"}})",
                    session),
        seconds(11), 251},
       {fmt::format(R"({{"find": "docs", "lsid": {}, "txnNumber": {{"$numberLong": "1"}}, "autocommit": false,
                         "maxTimeMS": 2000, "$db": "app"}})",
                    session),
        seconds(4), 50}}));
  CAPTURE(command);
  const auto running = start(world, *client, json(command));
  const bool in_time = world.run_until([&] { return running->done; }, most);
  CHECK(in_time);
  CHECK(relays.size() == 1);
  if (!in_time) {
    relays.clear();
    world.run_for(seconds(1));
    return;
  }
  REQUIRE(running->reply);
  CHECK(running->reply->view()["code"].to_int64().value_or(0) == code);
  // What comes next does not get the late answer.
  const auto next = start(world, *client, json(command));
  CHECK(world.run_until([&] { return next->done; }, most));
  CHECK(relays.size() == 2);
}

TEST_CASE("a relayed request keeps its process while it is under way") {
  SimWorld world(sharded_world(1, 20));
  store_documents(world, 20);
  auto relayed = world.moved_client(passed_client(R"(, "heard": true)"), 0, true);
  REQUIRE(is_ok(call(world, *relayed, probe)));
  world.run_for(milliseconds(1));
  CHECK(world.worker(0).own_connections() == 0);
  world.shard(0).delay = seconds(5);
  const auto running = start(world, *relayed, json(R"({"find": "docs", "filter": {"_id": 1}, "$db": "app"})"));
  world.run_for(seconds(1));
  CHECK(world.worker(0).own_connections() == 1);
  REQUIRE(world.run_until([&] { return running->done; }, minutes(1)));
  world.run_for(milliseconds(1));
  CHECK(world.worker(0).own_connections() == 0);
}

TEST_CASE("a moved client that has sent requests is told of a shutdown") {
  const bool busy = GENERATE(false, true);
  SimWorld world(sharded_world(1, 20));
  auto client = world.moved_client(passed_client(busy ? R"(, "heard": true, "busy": true)" : R"(, "heard": true)"));
  REQUIRE(world.run(client->send_part(json(probe), 0)));
  world.shutdown().begin(seconds(15));
  world.run_for(seconds(5));
  CHECK(world.shutdown().done() != busy);
}

TEST_CASE("a moved client goes on compressing as it began, others may not") {
  SimWorldOptions options = sharded_world(1, 20);
  options.compressors.clear();
  SimWorld world(std::move(options));
  auto client = world.moved_client(passed_client(R"(, "heard": true, "compressors": [1, 9, -1])"));  // 1: snappy
  auto other = world.moved_client(passed_client(R"(, "heard": true)"));
  for (SimClient* each : {client.get(), other.get()}) each->compressor = wire::Compressor::snappy;
  CHECK(is_ok(call(world, *client, probe)));
  CHECK_FALSE(try_call(world, *other, json(probe)));
}

}  // namespace spillway::test
