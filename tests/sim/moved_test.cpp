// Clients that another process has passed to this one.
#include "proxy/exec/core/metrics.h"
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
