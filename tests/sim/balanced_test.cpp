// Clients that come through a load balancer: their addresses, and what ends with their connections.
#include <fmt/format.h>

#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

const std::string header_v1 = "PROXY TCP4 192.0.2.7 198.51.100.2 4711 27016\r\n";
const std::string header_v2(
    "\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\xc6\x33\x64\x02\x12\x67\x69\x88", 28);

constexpr std::string_view lsid =
    R"("lsid": {"id": {"$binary": {"base64": "AAECAwQFBgcICQoLDA0ODw==", "subType": "04"}}})";
constexpr std::string_view sorted_find =
    R"({"find": "docs", "filter": {}, "sort": {"_id": -1}, "batchSize": 4, "$db": "app"})";

std::string hello(bool balanced) {
  return fmt::format(
      R"({{"hello": 1, "loadBalanced": {}, "client": {{"application": {{"name": "a"}},
         "driver": {{"name": "sim", "version": "1"}}, "os": {{"type": "Linux"}}}}, "$db": "admin"}})",
      balanced);
}

std::string address_of(SimWorld& world, SimClient& client) {
  return std::string(
      call(world, client, R"({"whatsmyuri": 1, "$db": "admin"})").view()["you"].as_string());
}

std::int64_t balanced_connections(SimWorld& world, SimClient& client) {
  const BsonDoc status = call(world, client, R"({"serverStatus": 1, "$db": "admin"})");
  return status.view().find_path("connections.loadBalanced").to_int64().value_or(-1);
}

Task<void> await_end(SimClient* client, std::shared_ptr<Pending> ended) {
  auto receiving = client->receive();
  ended->reply = co_await receiving;
  ended->done = true;
}

bool ends(SimWorld& world, SimClient& client, Duration limit) {
  const auto pending = start(world, client, json(R"({"ping": 1, "$db": "admin"})"));
  return world.run_until([&] { return pending->done; }, limit) && !pending->reply;
}

}  // namespace

TEST_CASE("a load balancer may name its client") {
  SimWorld world(sharded_world(1, 10));
  auto plain = world.client();
  for (const std::string& header : {header_v1, header_v2}) {
    auto client = world.balanced_client(header);
    CHECK(address_of(world, *client) == "192.0.2.7:4711");
    CHECK(balanced_connections(world, *plain) == 1);
    client->close();
    world.run_for(seconds(1));
  }
  // Without a header, or with one that names no client, the connection's own address counts.
  auto silent = world.balanced_client("");
  auto check = world.balanced_client("PROXY UNKNOWN\r\n");
  const std::string own = address_of(world, *plain);
  CHECK(address_of(world, *silent).substr(0, 4) == own.substr(0, 4));
  CHECK(address_of(world, *check).substr(0, 4) == own.substr(0, 4));
  silent->close();
  check->close();
  plain->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a header comes in pieces, with the first request right behind it") {
  FaultOptions faults;
  faults.seed = GENERATE(1, 2, 3);
  faults.read_bytes_max = 5;
  SimWorldOptions options = sharded_world(1, 10);
  SimWorld world(std::move(options));
  world.set_faults(faults);
  for (const std::string& header : {header_v1, header_v2}) {
    auto client = world.balanced_client(header);
    CHECK(address_of(world, *client) == "192.0.2.7:4711");
    client->close();
  }
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a header that is wrong, cut or missing ends its connection in time") {
  SimWorld world(sharded_world(1, 10));
  auto wrong = world.balanced_client("PROXY TCP9 192.0.2.7 198.51.100.2 4711 27016\r\n");
  CHECK(ends(world, *wrong, seconds(1)));
  auto endless = world.balanced_client("PROXY " + std::string(200, 'x'));
  CHECK(ends(world, *endless, seconds(1)));
  for (const std::string& start_of_it :
       {header_v2.substr(0, 20), header_v1.substr(0, 3), std::string()}) {
    auto client = world.balanced_client(start_of_it);
    REQUIRE(world.run(client->send_part(json(R"({"ping": 1, "$db": "admin"})"), 0)));
    const auto ended = std::make_shared<Pending>();
    world.spawn(await_end(client.get(), ended));
    world.run_for(seconds(29));
    CHECK_FALSE(ended->done);
    world.run_for(seconds(2));
    CHECK(ended->done);
    CHECK_FALSE(ended->reply);
    client->close();
  }
  world.shared().parameters.handshake_ms = 2'000;
  auto impatient = world.balanced_client("PROXY ");
  REQUIRE(world.run(impatient->send_part(json(R"({"ping": 1, "$db": "admin"})"), 0)));
  const std::int64_t before = world.shared().connections.current;
  world.run_for(milliseconds(1'900));
  CHECK(world.shared().connections.current == before);
  world.run_for(milliseconds(200));
  CHECK(world.shared().connections.current == before - 1);
  CHECK(world.shared().metrics.silent_clients_closed.value() == 4);
  for (SimClient* client : {wrong.get(), endless.get(), impatient.get()}) client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

// While the world is there: its network goes with it.
Task<void> leave_at_end(SimClient* client, std::shared_ptr<Pending> ended) {
  auto waiting = await_end(client, ended);
  co_await waiting;
  client->close();
}

TEST_CASE("a shutdown does not wait for a header that does not come") {
  SimWorld world(sharded_world(1, 10));
  auto client = world.balanced_client("PROXY ");
  REQUIRE(world.run(client->send_part(json(R"({"ping": 1, "$db": "admin"})"), 0)));
  world.run_for(seconds(1));
  const auto ended = std::make_shared<Pending>();
  world.spawn(leave_at_end(client.get(), ended));
  CHECK(world.shut_down(seconds(1)));
  CHECK(ended->done);
}

TEST_CASE("hello must say loadBalanced on the load balancers' port, and nowhere else") {
  SimWorld world(sharded_world(1, 10));
  auto plain = world.client();
  const BsonDoc refused = call(world, *plain, hello(true));
  CHECK(code_of(refused) == 354);
  const BsonDoc accepted = call(world, *plain, hello(false));  // the connection lives on
  CHECK(is_ok(accepted));
  CHECK_FALSE(accepted.view()["serviceId"].exists());
  auto unaware = world.balanced_client(header_v1);
  CHECK(code_of(call(world, *unaware, hello(false))) == 354);
  CHECK(ends(world, *unaware, seconds(1)));
  auto one = world.balanced_client(header_v1), two = world.balanced_client(header_v2);
  const BsonDoc first = call(world, *one, hello(true)), second = call(world, *two, hello(true));
  CHECK(is_ok(first));
  REQUIRE(first.view()["serviceId"].exists());
  CHECK(first.view()["serviceId"].type == BsonType::object_id);
  CHECK(to_json(first.view()["serviceId"]) == to_json(second.view()["serviceId"]));
  CHECK(is_ok(call(world, *one, R"({"hello": 1, "$db": "admin"})")));  // said once is enough
  for (SimClient* client : {plain.get(), unaware.get(), one.get(), two.get()}) client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a cursor ends with its connection, though its client has others") {
  const bool balanced = GENERATE(true, false);
  const bool reset = GENERATE(true, false);
  SimWorldOptions options = two_workers(2, 30);
  options.orphan_grace_ms = GENERATE(-1, 30'000);
  SimWorld world(std::move(options));
  store_documents(world, 30, 1'000);
  const auto make = [&](std::size_t worker) {
    return balanced ? world.balanced_client(header_v1, worker) : world.client(worker);
  };
  auto client = make(0), twin = make(1);
  REQUIRE(is_ok(call(world, *client, hello(balanced))));
  REQUIRE(is_ok(call(world, *twin, hello(balanced))));
  const std::int64_t read = cursor_id(call(world, *client, sorted_find));
  const std::int64_t others = cursor_id(call(world, *twin, sorted_find));
  cursor_id(
      call(world, *client,
           R"({"find": "docs", "filter": {"_id": {"$lt": 30}}, "batchSize": 4, "$db": "app"})"));
  CHECK(is_ok(call(world, *client, get_more(read, 3))));  // what follows is read ahead
  reset ? client->reset() : client->close();
  world.run_for(seconds(1));
  CHECK(world.shared().cursors.counts().open_total == (balanced ? 1 : 3));
  CHECK(world.shared().cursors.counts().orphaned == (balanced ? 2 : 0));
  CHECK(open_shard_cursors(world) == (balanced ? 2 : 5));
  const BsonDoc next = call(world, *twin, get_more(read, 3));
  CHECK(code_of(next) == (balanced ? 43 : 0));
  CHECK(is_ok(call(world, *twin, get_more(others, 3))));
  twin->close();
  world.run_for(minutes(20));
  require_quiet(world);
}

TEST_CASE("a cursor ends when its connection ends in the middle of a getMore") {
  const bool reset = GENERATE(true, false);
  SimWorld world(sharded_world(2, 30));
  store_documents(world, 30);
  auto client = world.balanced_client(header_v1);
  const std::int64_t id = cursor_id(call(world, *client, sorted_find));
  for (std::size_t i = 0; i < 2; ++i) world.shard(i).delay = minutes(1);
  const auto pending = start(
      world, *client,
      json(fmt::format(
          R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "docs", "batchSize": 50, "$db": "app"}})",
          id)));
  world.run_for(seconds(1));
  CHECK_FALSE(pending->done);
  reset ? client->reset() : client->close();
  world.run_for(seconds(2));
  CHECK(world.shared().cursors.counts().open_total == 0);
  world.run_for(minutes(3));
  CHECK(open_shard_cursors(world) == 0);
  require_quiet(world);
}

TEST_CASE("a transaction is aborted with its connection") {
  const bool balanced = GENERATE(true, false);
  const bool committed = GENERATE(false, true);
  SimShardOptions like;
  like.set_name = "set";
  SimWorld world(sharded_world(2, 30, like));
  auto client = balanced ? world.balanced_client(header_v1) : world.client();
  auto twin = balanced ? world.balanced_client(header_v1) : world.client();
  const std::string transaction =
      fmt::format(R"({}, "txnNumber": {{"$numberLong": "1"}}, "autocommit": false)", lsid);
  REQUIRE(is_ok(call(world, *client,
                     fmt::format(R"({{"insert": "docs", "documents": [{{"_id": 40}}], {},
                                      "startTransaction": true, "$db": "app"}})",
                                 transaction))));
  if (committed) {
    call(world, *client,
         fmt::format(R"({{"commitTransaction": 1, {}, "$db": "admin"}})", transaction));
  }
  client->close();
  world.run_for(seconds(1));
  const bool aborted = balanced && !committed;
  CHECK(world.shard(0).seen("abortTransaction") == 0);
  CHECK(world.shard(1).seen("abortTransaction") == (aborted ? 1 : 0));
  if (!committed) {
    const BsonDoc next =
        call(world, *twin,
             fmt::format(R"({{"insert": "docs", "documents": [{{"_id": 41}}], {}, "$db": "app"}})",
                         transaction));
    CHECK(code_of(next) == (aborted ? 251 : 0));
  }
  twin->close();
  world.run_for(minutes(1));
  require_quiet(world);
}

}  // namespace spillway::test
