// $near over several shards: the nearest first, of all of them together.
#include <fmt/format.h>

#include <vector>

#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

using SortKeys = SimShardOptions::SortKeys;

// Two shards of points on a line: the first has those at 1, 50 and 90, the other those at 2, 3, 4.
SimWorld& fill(SimWorld& world) {
  const std::vector<std::vector<int>> points = {{50, 90, 1}, {3, 4, 2}};
  for (std::size_t shard = 0; shard < points.size(); ++shard) {
    int id = static_cast<int>(shard) * 100;
    for (const int x : points[shard]) {
      BsonWriter out;
      out.append("_id", id++).append("x", x);
      out.begin_array("loc").append_item(x).append_item(0).end();
      world.shard(shard).store("app.docs", std::move(out).finish());
    }
  }
  return world;
}

SimWorldOptions near_world(SortKeys keys) {
  SimShardOptions shard;
  shard.sort_keys = keys;
  return sharded_world(2, 100, shard);
}

// The field x of what a find near the origin returns, batch by batch.
std::vector<int> found(SimWorld& world, SimClient& client, std::string_view more) {
  BsonDoc reply = call(world, client, fmt::format(
      R"({{"find": "docs", "filter": {{"loc": {{"$near": [0, 0]}}}}, "$db": "app", {}}})", more));
  std::vector<int> xs;
  for (;;) {
    INFO(to_json(reply));
    REQUIRE(is_ok(reply));
    for (const BsonDoc& document : batch_of(reply)) {
      CHECK_FALSE(document.view()["$sortKey"].exists());
      xs.push_back(document.view()["x"].as_int32());
    }
    const std::int64_t id = cursor_id(reply);
    if (id == 0) return xs;
    reply = call(world, client, fmt::format(
        R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "docs", "batchSize": 2, "$db": "app"}})",
        id));
  }
}

}  // namespace

TEST_CASE("a $near over several shards finds the nearest of all") {
  SimWorld world(near_world(GENERATE(SortKeys::object, SortKeys::array)));
  auto client = fill(world).client();
  CHECK(found(world, *client, R"("limit": 3)") == std::vector{1, 2, 3});
  CHECK(found(world, *client, R"("batchSize": 2)") == std::vector{1, 2, 3, 4, 50, 90});
  CHECK(found(world, *client, R"("skip": 2, "limit": 3)") == std::vector{3, 4, 50});
  CHECK(found(world, *client, R"("projection": {"x": 1, "_id": 0}, "limit": 2)") ==
        std::vector{1, 2});
  CHECK(found(world, *client, R"("projection": {"loc": 0}, "limit": 2)") == std::vector{1, 2});
  client->close();
  world.run_for(minutes(20));
  require_quiet(world);
}

TEST_CASE("an explicit sort counts, and not the distance") {
  SimWorld world(near_world(GENERATE(SortKeys::none, SortKeys::array)));
  auto client = fill(world).client();
  CHECK(found(world, *client, R"("sort": {"x": -1}, "limit": 4)") == std::vector{90, 50, 4, 3});
  client->close();
  world.run_for(minutes(20));
  require_quiet(world);
}

TEST_CASE("shards that say no distances get no $near of several") {
  SimWorld world(near_world(SortKeys::none));
  auto client = fill(world).client();
  const BsonDoc refused = call(
      world, *client,
      R"({"find": "docs", "filter": {"loc": {"$near": [0, 0]}}, "limit": 3, "$db": "app"})");
  CHECK(code_of(refused) == 115);
  CHECK(world.shard(0).seen("find") == 0);
}

TEST_CASE("a distance that is none is a shard's mistake") {
  SimWorld world(near_world(SortKeys::array));
  auto client = fill(world).client();
  world.shard(1).revise = [](std::string_view name, BsonDoc reply) {
    if (name != "find") return reply;
    return json(R"({"cursor": {"id": {"$numberLong": "0"}, "ns": "app.docs",
                               "firstBatch": [{"_id": 100, "$sortKey": [2]}]}, "ok": 1})");
  };
  const BsonDoc refused = call(
      world, *client,
      R"({"find": "docs", "filter": {"loc": {"$near": [0, 0]}}, "limit": 3, "$db": "app"})");
  CHECK(code_of(refused) == 1);
}

}  // namespace spillway::test
