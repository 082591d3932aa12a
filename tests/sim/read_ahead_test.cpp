// Read-ahead: fetches that no client has asked for yet, and what clients see of them: nothing.
#include <fmt/format.h>

#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

std::vector<std::int64_t> ids_of(const BsonDoc& reply) {
  std::vector<std::int64_t> ids;
  for (const BsonDoc& document : batch_of(reply)) ids.push_back(document.view()["_id"].as_int32());
  return ids;
}

struct Scan {
  std::vector<std::vector<std::int64_t>> batches;
  std::uint64_t waited_ms = 0;
};

// Reads a cursor to its end; `sizes` in turn, a pause before each getMore.
Scan scan(SimWorld& world, SimClient& client, std::string_view find, const std::vector<int>& sizes,
          Duration pause) {
  Scan scan;
  BsonDoc reply = call(world, client, find);
  for (std::size_t i = 0;; ++i) {
    REQUIRE(is_ok(reply));
    scan.batches.push_back(ids_of(reply));
    if (cursor_id(reply) == 0) return scan;
    world.run_for(pause);
    const TimePoint asked = Clock::now();
    reply = call(world, client, get_more(cursor_id(reply), sizes[i % sizes.size()]));
    scan.waited_ms += static_cast<std::uint64_t>(
        std::chrono::duration_cast<milliseconds>(Clock::now() - asked).count());
  }
}

SimWorldOptions world_of(std::size_t shards) {
  SimShardOptions like;
  like.sort_keys = SimShardOptions::SortKeys::array;  // a mongod: sizes are its own
  return sharded_world(shards, 40, like);
}

constexpr std::string_view ascending_find =
    R"({"find": "docs", "filter": {}, "sort": {"_id": 1}, "batchSize": 5, "$db": "app"})";
constexpr std::string_view one_shard_find =
    R"({"find": "docs", "filter": {"_id": {"$lt": 35}}, "batchSize": 5, "$db": "app"})";

}  // namespace

TEST_CASE("with read-ahead a client gets the same batches, and sooner") {
  const std::string_view find = GENERATE(ascending_find, one_shard_find);
  const std::vector<int> sizes = GENERATE(std::vector{5}, std::vector{5, 5, 2, 9}, std::vector{0});
  Scan scans[2];
  for (const bool on : {false, true}) {
    SimWorld world(world_of(2));
    world.shared().parameters.read_ahead = on;
    store_documents(world, 40);
    for (std::size_t i = 0; i < 2; ++i) world.shard(i).delay = milliseconds(20);
    auto client = world.client();
    scans[on ? 1 : 0] = scan(world, *client, find, sizes, milliseconds(50));
    const exec::Metrics& metrics = world.shared().metrics;
    if (on && sizes == std::vector{5}) {
      CHECK(metrics.read_ahead_hits.value() > 3);
      CHECK(metrics.read_ahead_waits.value() == 0);
    }
    if (!on) CHECK(metrics.read_ahead_started.value() == 0);
    client->close();
    world.run_for(seconds(1));
    require_quiet(world);
  }
  std::vector<std::int64_t> all[2];
  for (const int on : {0, 1}) {
    for (const auto& batch : scans[on].batches) all[on].insert(all[on].end(), batch.begin(), batch.end());
  }
  CHECK(all[0] == all[1]);
  if (sizes == std::vector{5}) {
    CHECK(scans[0].batches == scans[1].batches);
    CHECK(scans[1].waited_ms < scans[0].waited_ms / 2);
  }
}

TEST_CASE("how long a client takes is counted from its last batch, whichever way that came") {
  SimShardOptions like;
  like.sort_keys = SimShardOptions::SortKeys::array;
  SimWorld world(sharded_world(1, 40, like));
  store_documents(world, 40, 100'000);
  world.shared().parameters.read_ahead = false;
  auto client = world.client();
  const std::int64_t id = cursor_id(call(
      world, *client, R"({"find": "docs", "filter": {}, "batchSize": 1, "$db": "app"})"));
  REQUIRE(is_ok(call(world, *client, get_more(id, 1))));
  for (int i = 0; i < 3; ++i) {
    world.run_for(milliseconds(600));
    REQUIRE(is_ok(call(world, *client, get_more(id, 8))));  // in pieces
  }
  CHECK(world.shared().metrics.streamed_replies.value() == 3);
  CHECK(world.shared().metrics.cursors_more_than_one_batch.value() == 1);
  world.shared().parameters.read_ahead = true;
  world.run_for(milliseconds(600));
  REQUIRE(is_ok(call(world, *client, get_more(id, 1))));
  CHECK(world.shared().metrics.read_ahead_started.value() == 1);
  client->close();
  world.run_for(seconds(1));
}

TEST_CASE("a getMore that comes too early waits for what is being fetched, on any worker") {
  SimWorldOptions options = world_of(2);
  options.workers = 2;
  SimWorld world(std::move(options));
  store_documents(world, 40);
  auto first = world.client(0), second = world.client(1);
  const std::int64_t id = cursor_id(call(world, *first, ascending_find));
  REQUIRE(is_ok(call(world, *first, get_more(id, 5))));
  for (std::size_t i = 0; i < 2; ++i) world.shard(i).delay = seconds(2);
  std::size_t documents = 0;
  BsonDoc reply = call(world, *first, get_more(id, 5));
  REQUIRE(is_ok(reply));
  world.run_for(milliseconds(100));
  if (world.shared().cursors.counts().filling == 1) {
    const auto waiting = start(world, *second, json(get_more(id, 5)));
    world.run_for(milliseconds(100));
    CHECK_FALSE(waiting->done);
    CHECK(code_of(call(world, *first, get_more(id, 5))) == 143);  // one waits already
    REQUIRE(world.run_until([&] { return waiting->done; }, seconds(10)));
    CHECK(is_ok(*waiting->reply));
    documents = batch_of(*waiting->reply).size();
    CHECK(documents == 5);
    CHECK(world.shared().metrics.read_ahead_waits.value() >= 1);
  } else {
    FAIL_CHECK("nothing was fetched ahead");
  }
  first->close();
  second->close();
  world.run_for(minutes(1));
  require_quiet(world);
}

TEST_CASE("a client that waits for a fetch and leaves, or is killed, leaves nothing behind") {
  SimWorld world(world_of(2));
  store_documents(world, 40);
  auto client = world.client(), other = world.client();
  const std::int64_t id = cursor_id(call(world, *client, ascending_find));
  for (std::size_t i = 0; i < 2; ++i) world.shard(i).delay = seconds(2);
  REQUIRE(is_ok(call(world, *client, get_more(id, 5))));
  REQUIRE(world.run_until([&] { return world.shared().cursors.counts().filling == 1; }, seconds(20)));
  const auto waiting = start(world, *client, json(get_more(id, 5)));
  world.run_for(milliseconds(50));
  SECTION("it is killed") {
    const BsonDoc killed = call(world, *other, fmt::format(
        R"({{"killCursors": "docs", "cursors": [{{"$numberLong": "{}"}}], "$db": "app"}})", id));
    CHECK(killed.view().find_path("cursorsKilled").as_document().count() == 1);
    REQUIRE(world.run_until([&] { return waiting->done; }, seconds(1)));
    CHECK(code_of(*waiting->reply) == 237);
    client->close();
  }
  SECTION("it leaves") {
    client->reset();
    world.run_for(seconds(1));
  }
  other->close();
  world.run_for(minutes(2));
  CHECK(world.shared().cursors.counts().open_total == 0);
  CHECK(world.shard(0).cursors().open() + world.shard(1).cursors().open() == 0);
  require_quiet(world);
}

TEST_CASE("what is fetched ahead from a shard that hangs ends with the find's maxTimeMS") {
  SimWorld world(world_of(2));
  store_documents(world, 40);
  auto client = world.client();
  BsonDoc reply = call(world, *client, R"({"find": "docs", "filter": {}, "sort": {"_id": 1}, "batchSize": 5,
      "maxTimeMS": 1000, "$db": "app"})");
  reply = call(world, *client, get_more(cursor_id(reply), 5));
  world.shard(0).delay = minutes(5);
  const std::uint64_t before = world.shared().metrics.read_ahead_started.value();
  for (int i = 0; i < 4 && world.shared().metrics.read_ahead_started.value() == before; ++i) {
    reply = call(world, *client, get_more(cursor_id(reply), 5));
    if (!is_ok(reply)) break;
  }
  const TimePoint asked = Clock::now();
  for (int i = 0; i < 4 && is_ok(reply); ++i) reply = call(world, *client, get_more(cursor_id(reply), 5));
  CHECK(code_of(reply) == 50);
  CHECK(Clock::now() - asked < seconds(3));
  world.shard(0).delay = {};
  client->close();
  world.run_for(minutes(6));
  require_quiet(world);
}

TEST_CASE("an error waits for the getMore that asks") {
  SimWorld world(world_of(2));
  store_documents(world, 40);
  auto client = world.client();
  const std::int64_t id = cursor_id(call(world, *client, ascending_find));
  for (std::size_t i = 0; i < 2; ++i) world.shard(i).delay = milliseconds(200);
  REQUIRE(is_ok(call(world, *client, get_more(id, 5))));
  REQUIRE(world.shared().cursors.counts().filling == 1);
  world.shard(0).forget_cursors();
  world.shard(1).forget_cursors();
  world.run_for(seconds(1));
  CHECK(world.shared().cursors.counts().open_total == 1);
  CHECK(code_of(call(world, *client, get_more(id, 5))) == 43);
  CHECK(world.shared().cursors.counts().open_total == 0);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("nothing is fetched ahead where it is of no use, or where memory is short") {
  SimWorld world(world_of(2));
  store_documents(world, 40);
  auto client = world.client();
  const exec::Metrics& metrics = world.shared().metrics;
  SECTION("for the first batch alone") {
    REQUIRE(cursor_id(call(world, *client, ascending_find)) > 0);
  }
  SECTION("for a client that stops") {
    scan(world, *client, ascending_find, {5}, seconds(5));
    CHECK(metrics.read_ahead_started.value() <= 1);  // the first getMore shows no pace yet
    return;
  }
  SECTION("when memory is tight") {
    set_level(world, PressureLevel::tight);
    scan(world, *client, ascending_find, {5}, milliseconds(10));
  }
  SECTION("where it is switched off") {
    world.shared().parameters.read_ahead = false;
    scan(world, *client, ascending_find, {5}, milliseconds(10));
  }
  world.run_for(seconds(1));
  CHECK(metrics.read_ahead_started.value() == 0);
}

}  // namespace spillway::test
