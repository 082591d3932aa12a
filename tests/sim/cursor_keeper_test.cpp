// Idle cursors: they give way when memory is short, and end when their clients are gone.
#include <fmt/format.h>

#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

constexpr std::size_t text_bytes_each = 9'000;

// Each shard has sent four documents, of which the client has taken four in all.
constexpr std::string_view sorted_find =
    R"({"find": "docs", "filter": {}, "sort": {"_id": -1}, "batchSize": 4, "$db": "app"})";

std::string hello_of(std::string_view application) {
  return fmt::format(
      R"({{"hello": 1, "client": {{"application": {{"name": "{}"}},
         "driver": {{"name": "sim", "version": "1"}}, "os": {{"type": "Linux"}}}}, "$db": "admin"}})",
      application);
}

std::int64_t status_of(SimWorld& world, SimClient& client, std::string_view path) {
  const BsonDoc status = call(world, client, R"({"serverStatus": 1, "$db": "admin"})");
  return status.view().find_path(path).to_int64().value_or(-1);
}

}  // namespace

TEST_CASE("when memory is critical, what is idle for long and holds much ends, and says so") {
  SimWorld world(sharded_world(2, 30));
  store_documents(world, 30, text_bytes_each);
  auto client = world.client();
  const std::int64_t heavy = cursor_id(call(world, *client, sorted_find));
  const std::int64_t empty = cursor_id(call(
      world, *client, R"({"find": "docs", "filter": {}, "batchSize": 0, "$db": "app"})"));
  world.run_for(minutes(2));
  CHECK(world.shared().cursors.counts().open_total == 2);  // there is memory enough
  const std::int64_t fresh = cursor_id(call(world, *client, sorted_find));
  set_level(world, PressureLevel::tight);
  world.run_for(seconds(2));
  CHECK(world.shared().cursors.counts().open_total == 3);  // no command was refused
  set_level(world, PressureLevel::critical);
  world.run_for(seconds(1));
  CHECK(world.shared().cursors.counts().open_total == 2);
  CHECK(world.shared().cursors.counts().evicted == 1);
  const BsonDoc ended = call(world, *client, get_more(heavy, 3));
  CHECK(code_of(ended) == 43);
  CHECK(ended.view()["errmsg"].as_string().find("memory was short") != std::string_view::npos);
  CHECK(is_ok(call(world, *client, get_more(empty, 3))));
  CHECK(is_ok(call(world, *client, get_more(fresh, 3))));
  CHECK(status_of(world, *client, "metrics.cursor.evicted") == 1);
  CHECK(status_of(world, *client, "metrics.cursor.evictedBytes") > 9'000);
  set_level(world, PressureLevel::normal);
  world.run_for(seconds(1));
  client->close();
  world.run_for(seconds(60));
  CHECK(open_shard_cursors(world) == 0);
  require_quiet(world);
}

TEST_CASE("cursors are not ended for what other programs of the group hold") {
  SimWorld world(sharded_world(2, 30));
  store_documents(world, 30, text_bytes_each);
  auto client = world.client();
  REQUIRE(is_ok(call(world, *client, sorted_find)));
  world.run_for(minutes(2));
  PressureInputs inputs;
  inputs.cgroup.own_max_share = 0.96;
  const auto critical_with = [&](std::uint64_t usage_bytes) {
    inputs.cgroup.usage_bytes = usage_bytes;
    world.shared().pressure.publish(inputs, LevelChange{PressureLevel::normal, PressureLevel::critical});
    world.run_for(seconds(2));
  };
  critical_with(std::uint64_t{8} << 30);  // of which 500 MiB too many
  CHECK(world.shared().cursors.counts().evicted == 0);
  critical_with(std::uint64_t{1} << 20);
  CHECK(world.shared().cursors.counts().evicted == 1);
}

namespace {

SimWorldOptions limited_world(std::uint64_t limit_bytes) {
  SimWorldOptions options = sharded_world(2, 30);
  options.memory_limit_bytes = limit_bytes;
  return options;
}

// Two programs over two shards, one of which is about to take all memory.
struct Greedy {
  explicit Greedy(std::uint64_t limit_bytes) : world(limited_world(limit_bytes)) {
    store_documents(world, 30, text_bytes_each);
    REQUIRE(is_ok(call(world, *greedy, hello_of("export"))));
    REQUIRE(is_ok(call(world, *other, hello_of("web"))));
  }

  SimWorld world;
  std::unique_ptr<SimClient> greedy = world.client(), other = world.client();
};

}  // namespace

TEST_CASE("one client's idle cursors do not lock the others out") {
  Greedy setting(4 * limits::mib);
  auto& [world, greedy, other] = setting;
  while (world.shared().memory.process.usage().used_bytes < 5 * limits::mib / 2) {
    REQUIRE(is_ok(call(world, *greedy, sorted_find)));
  }
  const std::uint64_t before = world.shared().cursors.counts().open_total;
  world.run_for(seconds(2));
  const auto requests = world.shared().memory.requests.try_reserve(9 * limits::mib / 10);
  REQUIRE(requests);
  set_level(world, PressureLevel::critical);
  CHECK(code_of(call(world, *greedy, sorted_find)) == 462);  // not at its own cost
  CHECK(world.shared().cursors.counts().open_total == before);
  world.run_for(seconds(1));
  CHECK(is_ok(call(world, *other, sorted_find)));
  const CursorCounts counts = world.shared().cursors.counts();
  CHECK(counts.evicted > 0);
  CHECK(counts.open_total > before / 3);  // down to its share, no further
  CHECK(world.shared().memory.cursors.usage().used_bytes < 9 * limits::mib / 4);
  world.run_for(seconds(1));
  const auto more_requests = world.shared().memory.requests.try_reserve(limits::mib / 4);
  REQUIRE(more_requests);
  CHECK(code_of(call(world, *other, sorted_find)) == 462);  // no client holds over half any more
  CHECK(status_of(world, *other, "metrics.cursor.evictedBeyondShare") ==
        static_cast<std::int64_t>(counts.evicted));
  set_level(world, PressureLevel::normal);
}

TEST_CASE("one client's idle cursors give way before memory is critical, too") {
  Greedy setting(4 * limits::mib);
  auto& [world, greedy, other] = setting;
  std::size_t opened = 0;
  while (is_ok(call(world, *greedy, sorted_find))) REQUIRE(++opened < 500);
  CHECK(opened > 3);
  CHECK(world.shared().cursors.counts().evicted == 0);
  CHECK(is_ok(call(world, *other, sorted_find)));
  CHECK(world.shared().cursors.counts().evicted > 0);
}

TEST_CASE("what a merging aggregation holds gives way, too") {
  Greedy setting(8 * limits::mib);
  auto& [world, greedy, other] = setting;
  constexpr std::string_view group =
      R"({"aggregate": "docs", "pipeline": [{"$group": {"_id": "$_id", "text": {"$first": "$text"}}}],
          "cursor": {"batchSize": 2}, "$db": "app"})";
  // A later client waits until idle cursors give way, or is refused.
  std::size_t opened = 0;
  const auto evicted = [&] { return world.shared().cursors.counts().evicted; };
  while (evicted() == 0 && is_ok(call(world, *greedy, group))) REQUIRE(++opened < 50);
  CHECK(opened > 3);
  const std::uint64_t held = world.shared().cursors.counts().buffered_bytes;
  CHECK(held > 3 * 50 * text_bytes_each);
  CHECK(held <= world.shared().memory.cursors.usage().used_bytes);
  CHECK(world.shared().cursors.heaviest_idle(INT64_MAX, 1, 100).empty());  // no store has room for a stage
  world.run_for(minutes(1));
  call(world, *other, group);  // now what is idle gives way
  world.run_for(seconds(1));
  CHECK(world.shared().cursors.counts().evicted > 0);
  const BsonDoc reply = call(world, *other, group);
  CHECK(is_ok(reply));
  REQUIRE(is_ok(call(world, *other, get_more(cursor_id(reply), 100))));  // to its end
  greedy->close();
  other->close();
  world.run_for(minutes(2));
  CHECK(world.shared().cursors.counts().buffered_bytes == 0);
  require_quiet(world);
}

TEST_CASE("what cursors keep of their commands is paid for") {
  constexpr std::size_t large_bytes = 200'000;
  const std::string large(large_bytes, 'l');
  const std::string comment = fmt::format(R"("batchSize": 1, "comment": "{}")", large);
  const std::string command = GENERATE_COPY(
      fmt::format(R"({{"find": "docs", "filter": {{"_id": {{"$lt": 30}}}}, {}, "$db": "app"}})", comment),
      fmt::format(R"({{"find": "docs", "filter": {{}}, "sort": {{"_id": 1}}, {}, "$db": "app"}})", comment),
      fmt::format(R"({{"find": "docs", "filter": {{}}, "sort": {{"{}": 1}}, "batchSize": 1, "$db": "app"}})", large),
      fmt::format(R"({{"find": "shards", "filter": {{}}, {}, "$db": "config"}})", comment),
      fmt::format(R"({{"aggregate": "docs", "pipeline": [{{"$group": {{"_id": "$_id"}}}},
                       {{"$match": {{"z": {{"$ne": "{}"}}}}}}], "cursor": {{"batchSize": 1}}, "$db": "app"}})", large));
  SimWorldOptions options = sharded_world(2, 30);
  options.memory_limit_bytes = 8 * limits::mib;
  SimWorld world(std::move(options));
  store_documents(world, 30);
  auto client = world.client();
  std::size_t opened = 0;
  BsonDoc reply;
  do {
    REQUIRE(++opened < 60);  // 12 MB
    reply = call(world, *client, command);
  } while (is_ok(reply));
  --opened;
  INFO(to_json(reply));
  CHECK(code_of(reply) == 462);
  CHECK(opened > 5);
  const CursorCounts counts = world.shared().cursors.counts();
  CHECK(counts.open_total == opened);
  CHECK(counts.buffered_bytes >= opened * large_bytes);
  CHECK(world.shared().memory.cursors.usage().used_bytes >= opened * large_bytes);
  world.run_for(minutes(1));
  call(world, *client, command);  // now what is idle gives way: while it waits, or after it was refused
  world.run_for(seconds(1));
  CHECK(world.shared().cursors.counts().evicted > 0);
  CHECK(is_ok(call(world, *client, command)));
  client->close();
  world.run_for(minutes(2));
  CHECK(open_shard_cursors(world) == 0);
  require_quiet(world);
}

TEST_CASE("bytes are told by cursor, namespace and application") {
  SimWorld world(sharded_world(2, 30));
  store_documents(world, 30, text_bytes_each);
  auto client = world.client();
  REQUIRE(is_ok(call(world, *client, hello_of("export"))));
  REQUIRE(is_ok(call(world, *client, sorted_find)));
  const BsonDoc listed = call(world, *client, R"({"aggregate": 1, "pipeline": [
      {"$currentOp": {"idleCursors": true, "localOps": true}}, {"$match": {"type": "idleCursor"}}],
      "cursor": {}, "$db": "admin"})");
  const std::vector<BsonDoc> rows = batch_of(listed);
  REQUIRE(rows.size() == 1);
  const std::int64_t bytes = rows[0].view().find_path("cursor.bufferedBytes").to_int64().value_or(0);
  CHECK(bytes > 0);
  CHECK(rows[0].view()["appName"].as_string() == "export");
  const BsonDoc status = call(world, *client, R"({"serverStatus": 1, "$db": "admin"})");
  for (const auto& [path, name] : {std::pair("memory.idleCursors.byNamespace", "app.docs"),
                                   std::pair("memory.idleCursors.byApplication", "export"),
                                   std::pair("memory.idleCursors.byUser", "")}) {
    const ValueView rows_of = status.view().find_path(path);
    REQUIRE(rows_of.is_array());
    const Element row = rows_of.as_document().first();
    REQUIRE(row.is_document());
    CHECK(row.as_document()["name"].as_string() == name);
    CHECK(row.as_document()["bytes"].to_int64() == bytes);
    CHECK(row.as_document()["cursors"].to_int64() == 1);
  }
}

TEST_CASE("a cursor ends some time after its client's last connection closed") {
  const bool reset = GENERATE(false, true);  // a clean end, or a process that was killed
  SimWorld world(sharded_world(2, 30));
  store_documents(world, 30, text_bytes_each);
  auto client = world.client(), pooled = world.client(), other = world.client();
  REQUIRE(is_ok(call(world, *client, hello_of("export"))));
  REQUIRE(is_ok(call(world, *pooled, hello_of("export"))));
  REQUIRE(is_ok(call(world, *other, hello_of("web"))));
  const std::int64_t id = cursor_id(call(world, *client, sorted_find));
  const std::int64_t others = cursor_id(call(world, *other, sorted_find));
  client->close();
  world.run_for(minutes(2));  // its pool has shrunk, that is all
  CHECK(is_ok(call(world, *pooled, get_more(id, 3))));
  CHECK(world.shared().cursors.counts().clientless == 0);
  reset ? pooled->reset() : pooled->close();
  world.run_for(seconds(25));
  CHECK(world.shared().cursors.counts().open_total == 2);
  CHECK(world.shared().cursors.counts().clientless == 1);
  world.run_for(seconds(10));
  CHECK(world.shared().cursors.counts().open_total == 1);
  CHECK(world.shared().cursors.counts().orphaned == 1);
  CHECK(open_shard_cursors(world) == 2);
  const BsonDoc ended = call(world, *other, get_more(id, 3));
  CHECK(code_of(ended) == 43);
  CHECK(ended.view()["errmsg"].as_string().find("had gone") != std::string_view::npos);
  CHECK(is_ok(call(world, *other, get_more(others, 3))));
  CHECK(status_of(world, *other, "metrics.cursor.orphaned") == 1);
}

TEST_CASE("a client that comes back within the grace keeps its cursor") {
  SimWorld world(sharded_world(2, 30));
  store_documents(world, 30, text_bytes_each);
  auto client = world.client();
  REQUIRE(is_ok(call(world, *client, hello_of("export"))));
  const std::int64_t id = cursor_id(call(world, *client, sorted_find));
  client->close();
  world.run_for(seconds(20));
  auto again = world.client();
  REQUIRE(is_ok(call(world, *again, hello_of("export"))));
  world.run_for(minutes(2));
  CHECK(is_ok(call(world, *again, get_more(id, 3))));
}

TEST_CASE("while memory is short, a client that has gone has little grace") {
  const bool has_copy = GENERATE(false, true);
  SimWorld world(sharded_world(2, 30));
  store_documents(world, 30, text_bytes_each);
  auto client = world.client();
  REQUIRE(is_ok(call(world, *client, hello_of("export"))));
  auto copy = world.client();
  if (has_copy) REQUIRE(is_ok(call(world, *copy, hello_of("export"))));
  cursor_id(call(world, *client, sorted_find));
  set_level(world, PressureLevel::critical);
  world.run_for(seconds(5));
  CHECK(world.shared().cursors.counts().open_total == 1);
  client->close();
  world.run_for(seconds(1));
  CHECK(world.shared().cursors.counts().open_total == 1);
  world.run_for(seconds(4));
  CHECK(world.shared().cursors.counts().orphaned == 1);
  CHECK(open_shard_cursors(world) == 0);
}

TEST_CASE("a connection of the cursor's session keeps it, whatever it calls itself") {
  SimWorld world(sharded_world(2, 30));
  store_documents(world, 30, text_bytes_each);
  auto client = world.client(), tied = world.client();
  REQUIRE(is_ok(call(world, *client, hello_of("export"))));
  REQUIRE(is_ok(call(world, *tied, hello_of("export, from elsewhere"))));
  const std::string lsid =
      R"("lsid": {"id": {"$binary": {"base64": "AAECAwQFBgcICQoLDA0ODw==", "subType": "04"}}})";
  const std::int64_t id = cursor_id(
      call(world, *client, fmt::format(R"({{"find": "docs", "filter": {{}}, "batchSize": 4, {},
                                           "$db": "app"}})", lsid)));
  REQUIRE(is_ok(call(world, *tied, fmt::format(R"({{"ping": 1, {}, "$db": "app"}})", lsid))));
  client->close();
  world.run_for(minutes(2));
  CHECK(world.shared().cursors.counts().open_total == 1);
  CHECK(is_ok(call(world, *tied, fmt::format(R"({{"getMore": {{"$numberLong": "{}"}}, {},
                                                  "collection": "docs", "batchSize": 2, "$db": "app"}})", id, lsid))));
  tied->close();
  world.run_for(seconds(40));
  CHECK(world.shared().cursors.counts().open_total == 0);
  CHECK(open_shard_cursors(world) == 0);
}

TEST_CASE("orphans can be left to time out, and end at once where that is wanted") {
  SimWorldOptions options = sharded_world(2, 30);
  options.orphan_grace_ms = GENERATE(-1, 0);
  const bool off = options.orphan_grace_ms < 0;
  options.cursor_timeout_ms = 300'000;
  SimWorld world(std::move(options));
  store_documents(world, 30, text_bytes_each);
  auto client = world.client();
  cursor_id(call(world, *client, sorted_find));
  client->close();
  world.run_for(seconds(3));
  CHECK(world.shared().cursors.counts().open_total == (off ? 1 : 0));
  world.run_for(seconds(240));
  CHECK(world.shared().cursors.counts().open_total == (off ? 1 : 0));
  world.run_for(seconds(120));
  CHECK(world.shared().cursors.counts().open_total == 0);
  CHECK(world.shared().cursors.counts().timed_out == (off ? 1 : 0));
}

TEST_CASE("many cursors that end together are killed with a command for each host") {
  SimWorldOptions options = sharded_world(2, 30);
  options.cursor_timeout_ms = 30'000;
  SimWorld world(std::move(options));
  store_documents(world, 30);
  auto client = world.client();
  for (int i = 0; i < 50; ++i) REQUIRE(cursor_id(call(world, *client, sorted_find)) > 0);
  const std::uint64_t before = world.shard(0).seen("killCursors");
  world.run_for(seconds(40));
  CHECK(open_shard_cursors(world) == 0);
  CHECK(world.shard(0).seen("killCursors") - before <= 2);
  CHECK(world.shard(0).cursors().killed == 50);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

}  // namespace spillway::test
