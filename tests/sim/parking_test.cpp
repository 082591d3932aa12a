// Idle cursors whose documents are parked, in the whole proxy: what clients see of it is nothing,
// but when a disk fails.
#include <random>

#include "tests/sim/sim_support.h"
#include "tests/unit/allocator/spill_support.h"

namespace spillway::test {

namespace {

constexpr std::size_t text_bytes_each = 9'000;

SimWorldOptions parking_world(FakeDisk* disk, std::size_t shards = 2, int span = 30) {
  SimWorldOptions options = sharded_world(shards, span);
  options.spill_file = [disk]() -> std::unique_ptr<SpillFile> {
    if (disk == nullptr) return nullptr;
    return std::make_unique<FakeFile>(*disk);
  };
  return options;
}

// Over two shards whose documents wait in the proxy when it is idle: each has sent four.
constexpr std::string_view sorted_find =
    R"({"find": "docs", "filter": {}, "sort": {"_id": -1}, "batchSize": 4, "$db": "app"})";

void append_ids(std::vector<std::int64_t>& ids, const BsonDoc& reply) {
  for (const BsonDoc& document : batch_of(reply)) {
    ids.push_back(document.view()["_id"].as_int32());
    CHECK(document.view()["text"].as_string().size() == text_bytes_each);
  }
}

}  // namespace

TEST_CASE("an idle cursor's documents are spilled, and a getMore reads them back") {
  FakeDisk disk;
  SimWorld world(parking_world(&disk));
  store_documents(world, 30, text_bytes_each);
  auto client = world.client();
  BsonDoc reply = call(world, *client, sorted_find);
  std::vector<std::int64_t> ids;
  append_ids(ids, reply);
  const std::uint64_t held = world.shared().memory.cursors.usage().used_bytes;
  CHECK(held > 16 * limits::kib);
  world.run_for(seconds(9));
  CHECK(world.shared().memory.cursors.usage().used_bytes == held);
  while (cursor_id(reply) != 0) {
    world.run_for(seconds(12));
    // A document alone is not worth it; of more nothing is in memory.
    CHECK(world.shared().memory.process.usage().used_bytes < 2 * text_bytes_each);
    CHECK(world.shared().spill->stats().queued == 0);
    reply = call(world, *client, get_more(cursor_id(reply), 3));
    REQUIRE(is_ok(reply));
    append_ids(ids, reply);
  }
  std::vector<std::int64_t> expected;
  for (int id = 59; id >= 0; --id) expected.push_back(id);
  CHECK(ids == expected);
  const SpillStats stats = world.shared().spill->stats();
  CHECK(stats.parks > 10);
  CHECK(stats.fetches > 10);
  CHECK(stats.parked_bytes == 0);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
  CHECK(disk.bytes.empty());
}

TEST_CASE("a batch that was read ahead and spilled is a batch still") {
  FakeDisk disk;
  SimWorld world(parking_world(&disk, 1, 1'000));
  store_documents(world, 100, text_bytes_each);
  auto client = world.client();
  BsonDoc reply = call(world, *client, R"({"find": "docs", "filter": {}, "batchSize": 10, "$db": "app"})");
  std::vector<std::int64_t> ids;
  append_ids(ids, reply);
  for (int n = 0; cursor_id(reply) != 0; ++n) {
    world.run_for(n % 3 == 2 ? seconds(12) : milliseconds(50));
    reply = call(world, *client, get_more(cursor_id(reply), 10));
    REQUIRE(is_ok(reply));
    CHECK(batch_of(reply).size() == (ids.size() < 100 ? 10 : 0));
    append_ids(ids, reply);
  }
  CHECK(ids.size() == 100);
  CHECK(world.shared().spill->stats().fetches > 1);
}

TEST_CASE("a file that fails ends the cursor with an error, and no document is left out") {
  FakeDisk disk;
  SimWorld world(parking_world(&disk));
  store_documents(world, 30, text_bytes_each);
  auto client = world.client();
  const std::int64_t id = cursor_id(call(world, *client, sorted_find));
  world.run_for(seconds(12));
  REQUIRE(world.shared().spill->stats().disk_bytes > 0);
  SECTION("reads fail") { disk.read_error = EIO; }
  SECTION("it gives other bytes") {
    for (std::uint8_t& byte : disk.bytes) byte ^= 0x10;
  }
  SECTION("it does not answer") { world.set_disk_stuck(true); }
  const BsonDoc reply = call(world, *client, get_more(id, 3));
  CHECK_FALSE(is_ok(reply));
  CHECK(code_of(reply) == 96);
  CHECK(code_of(call(world, *client, get_more(id, 3))) == 43);
  world.set_disk_stuck(false);
  world.run_for(seconds(1));
  CHECK(world.shard(0).cursors().open() + world.shard(1).cursors().open() == 0);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a disk that cannot be written changes nothing for clients") {
  FakeDisk disk;
  disk.write_error = ENOSPC;
  SimWorld world(parking_world(&disk));
  store_documents(world, 30, text_bytes_each);
  auto client = world.client();
  BsonDoc reply = call(world, *client, sorted_find);
  std::vector<std::int64_t> ids;
  append_ids(ids, reply);
  while (cursor_id(reply) != 0) {
    world.run_for(seconds(12));
    reply = call(world, *client, get_more(cursor_id(reply), 7));
    append_ids(ids, reply);
  }
  CHECK(ids.size() == 60);
  CHECK(world.shared().spill->stats().write_errors > 0);
  CHECK(world.shared().spill->stats().disk_bytes == 0);
}

TEST_CASE("others are served while a getMore waits for the disk") {
  FakeDisk disk;
  SimWorld world(parking_world(&disk));
  store_documents(world, 30, text_bytes_each);
  auto client = world.client(), other = world.client();
  const std::int64_t id = cursor_id(call(world, *client, sorted_find));
  world.run_for(seconds(12));
  world.set_disk_stuck(true);
  const auto waiting = start(world, *client, json(get_more(id, 3)));
  world.run_for(seconds(2));
  CHECK_FALSE(waiting->done);
  CHECK(is_ok(call(world, *other, R"({"find": "docs", "filter": {"_id": 1}, "$db": "app"})")));
  world.set_disk_stuck(false);
  REQUIRE(world.run_until([&] { return waiting->done; }, seconds(1)));
  CHECK(batch_of(*waiting->reply).size() == 3);
}

TEST_CASE("without a file documents are compressed, and only when memory is tight") {
  SimWorld world(parking_world(nullptr));
  store_documents(world, 30, text_bytes_each);
  auto client = world.client();
  BsonDoc reply = call(world, *client, sorted_find);
  std::vector<std::int64_t> ids;
  append_ids(ids, reply);
  const std::uint64_t held = world.shared().memory.process.usage().used_bytes;
  world.run_for(minutes(2));
  CHECK(world.shared().memory.process.usage().used_bytes == held);
  set_level(world, PressureLevel::tight);
  world.run_for(seconds(2));
  const std::uint64_t compressed = world.shared().memory.spill.usage().used_bytes;
  CHECK(world.shared().memory.cursors.usage().used_bytes == 0);
  CHECK(compressed > 0);
  CHECK(compressed < held / 4);
  CHECK(world.shared().cursors.counts().buffered_bytes == compressed);
  while (cursor_id(reply) != 0) {
    reply = call(world, *client, get_more(cursor_id(reply), 5));
    append_ids(ids, reply);
    world.run_for(seconds(2));
  }
  CHECK(ids.size() == 60);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a parked cursor that is killed or times out leaves nothing behind") {
  FakeDisk disk;
  SimWorldOptions options = parking_world(&disk);
  options.cursor_timeout_ms = 60'000;
  SimWorld world(std::move(options));
  store_documents(world, 30, text_bytes_each);
  auto client = world.client();
  const std::int64_t id = cursor_id(call(world, *client, sorted_find));
  world.run_for(seconds(12));
  REQUIRE(world.shared().spill->stats().disk_bytes > 0);
  SECTION("killed") {
    const std::string kill = fmt::format(
        R"({{"killCursors": "docs", "cursors": [{{"$numberLong": "{}"}}], "$db": "app"}})", id);
    CHECK(is_ok(call(world, *client, kill)));
  }
  SECTION("timed out") { world.run_for(seconds(70)); }
  SECTION("with its getMore under way: the store has to be told twice") {
    world.set_disk_stuck(true);
    const auto waiting = start(world, *client, json(get_more(id, 3)));
    world.run_for(seconds(40));
    CHECK(waiting->done);
    world.set_disk_stuck(false);
  }
  client->close();
  world.run_for(seconds(2));
  CHECK(world.shared().spill->stats().disk_bytes == 0);
  CHECK(world.shared().spill->stats().parked_bytes == 0);
  require_quiet(world);
}

TEST_CASE("without room in the budget a getMore waits, then says so") {
  FakeDisk disk;
  SimWorldOptions options = parking_world(&disk);
  options.memory_limit_bytes = 4 * limits::mib;
  SimWorld world(std::move(options));
  store_documents(world, 30, 40'000);
  auto client = world.client();
  const std::int64_t id = cursor_id(call(world, *client, sorted_find));
  CHECK(is_ok(call(world, *client, get_more(id, 1))));  // both shards' documents wait now
  world.run_for(seconds(12));
  const std::uint64_t used = world.shared().memory.process.usage().used_bytes;
  auto others = world.shared().memory.cursors.try_reserve(4 * limits::mib - used - 4'000);
  REQUIRE(others);
  const auto waiting = start(world, *client, json(get_more(id, 3)));
  world.run_for(seconds(5));
  CHECK_FALSE(waiting->done);
  bool room_comes = false;
  SECTION("room comes") { room_comes = true; }
  SECTION("none comes") { world.run_for(seconds(30)); }
  others->release();
  REQUIRE(world.run_until([&] { return waiting->done; }, seconds(1)));
  REQUIRE(waiting->reply);
  INFO(to_json(*waiting->reply).substr(0, 300));
  if (room_comes) {
    CHECK(batch_of(*waiting->reply).size() == 3);
  } else {
    CHECK(code_of(*waiting->reply) == 462);
  }
}

TEST_CASE("a refusal of memory does not hide that another piece of the cursor is lost") {
  FakeDisk disk;
  SimWorld world(parking_world(&disk));
  store_documents(world, 30, 40'000);
  auto client = world.client();
  const std::int64_t id = cursor_id(call(world, *client, sorted_find));
  CHECK(is_ok(call(world, *client, get_more(id, 1))));  // both shards' documents wait now
  world.run_for(seconds(12));
  REQUIRE(world.shared().spill->stats().disk_bytes > 0);
  // One shard's piece finds room, and its read hangs; the other's finds none, though little memory is used at first.
  MemoryBudget& cursors = world.shared().memory.cursors;
  cursors.set_limit(cursors.usage().used_bytes + 60'000);  // a piece is a document
  world.set_disk_stuck(true);
  const BsonDoc reply = call(world, *client, get_more(id, 3));
  INFO(to_json(reply).substr(0, 300));
  CHECK(code_of(reply) == 96);
  CHECK(world.shared().spill->stats().fetches > 2);
  CHECK(code_of(call(world, *client, get_more(id, 3))) == 43);
  world.set_disk_stuck(false);
  cursors.set_limit(0);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("cursors with random pauses over a disk that comes and goes return every document once") {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    std::mt19937 dice(seed);
    FakeDisk disk;
    disk.step_max = seed % 3 == 0 ? 1'000 : SIZE_MAX;
    SimWorldOptions options = parking_world(&disk, 3, 20);
    options.workers = 2;
    SimWorld world(std::move(options));
    store_documents(world, 20, text_bytes_each);
    auto client = world.client(seed % 2);
    const bool sorted = dice() % 2 == 0;
    BsonDoc reply =
        call(world, *client,
             fmt::format(R"({{"find": "docs", "filter": {{}}, {} "batchSize": {}, "$db": "app"}})",
                         sorted ? R"("sort": {"_id": 1},)" : "", 3 + dice() % 5));
    std::vector<std::int64_t> ids;
    append_ids(ids, reply);
    while (cursor_id(reply) != 0) {
      disk.write_error = dice() % 4 == 0 ? ENOSPC : 0;
      set_level(world, static_cast<PressureLevel>(dice() % 3));
      world.run_for(milliseconds(dice() % 15'000));
      reply = call(world, *client, get_more(cursor_id(reply), 1 + static_cast<int>(dice() % 9)));
      REQUIRE(is_ok(reply));
      append_ids(ids, reply);
    }
    CHECK((!sorted || std::is_sorted(ids.begin(), ids.end())));
    std::sort(ids.begin(), ids.end());
    std::vector<std::int64_t> expected;
    for (int id = 0; id < 60; ++id) expected.push_back(id);
    CHECK(ids == expected);
    client->close();
    world.run_for(seconds(1));
    require_quiet(world);
  }
}

}  // namespace spillway::test
