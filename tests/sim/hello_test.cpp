// What the router says of itself, and of the shards behind it.
#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

// What clients learn of versions: hello's, and buildInfo's.
std::string versions(SimWorld& world, SimClient& client) {
  const BsonDoc hello = call(world, client, R"({"hello": 1, "$db": "admin"})");
  const BsonDoc build = call(world, client, R"({"buildInfo": 1, "$db": "admin"})");
  return fmt::format("{} {}", hello.view()["maxWireVersion"].to_int64().value_or(-1),
                     build.view()["version"].as_string());
}

}  // namespace

TEST_CASE("the versions that clients learn stay as they are while shards are down") {
  SimWorldOptions options = sharded_world(3, 20);
  options.shards[1].max_wire_version = 17;
  SimWorld world(std::move(options));
  auto client = world.client();
  REQUIRE(versions(world, *client) == "17 6.0.0");
  world.shard(1).die();
  world.run_for(minutes(1));
  CHECK(versions(world, *client) == "17 6.0.0");
  for (const std::size_t shard : {0U, 2U}) world.shard(shard).die();
  world.run_for(minutes(1));
  CHECK(versions(world, *client) == "17 6.0.0");
  CHECK(versions(world, *world.client()) == "17 6.0.0");
  for (std::size_t shard = 0; shard < 3; ++shard) world.shard(shard).restart();
  world.run_for(minutes(1));
  CHECK(versions(world, *client) == "17 6.0.0");
}

TEST_CASE("before a shard has answered, clients learn of the oldest version that shards may have") {
  SimWorldOptions options = sharded_world(1, 20);
  options.faults.refuse_percent = 100;
  SimWorld world(std::move(options));
  auto client = world.client();
  CHECK(versions(world, *client) == "8 4.2.0");
  world.set_faults({});
  world.run_for(minutes(1));
  CHECK(versions(world, *client) == "21 7.0.0");
}

}  // namespace spillway::test
