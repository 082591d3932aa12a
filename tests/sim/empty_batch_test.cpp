// Shards whose last batch is empty (FerretDB): a full batch with an id, then nothing with id 0.
#include <algorithm>

#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

constexpr int span_each = 20;

SimWorldOptions late_world(std::size_t shards) {
  SimShardOptions like;
  like.ends_with_empty_batch = true;
  return sharded_world(shards, span_each, like);
}

struct Scan {
  std::vector<std::int64_t> ids;
  std::size_t batches = 0, empty_batches = 0;
};

Scan scan(SimWorld& world, SimClient& client, const std::string& find, int batch_size,
          Duration pause) {
  Scan scan;
  BsonDoc reply = call(world, client, find);
  for (;;) {
    REQUIRE(is_ok(reply));
    const std::vector<BsonDoc> batch = batch_of(reply);
    for (const BsonDoc& document : batch) scan.ids.push_back(document.view()["_id"].as_int32());
    ++scan.batches;
    if (batch.empty()) ++scan.empty_batches;
    if (cursor_id(reply) == 0) return scan;
    world.run_for(pause);
    const std::string size = batch_size > 0 ? fmt::format("\"batchSize\": {},", batch_size) : "";
    reply = call(
        world, client,
        fmt::format(
            R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "docs", {} "$db": "app"}})",
            cursor_id(reply), size));
  }
}

void finish(SimWorld& world, SimClient& client) {
  client.close();
  world.run_for(seconds(1));
  for (std::size_t i = 0; i < world.shard_count(); ++i) {
    CHECK(world.shard(i).cursors().opened > 0);
    CHECK(world.shard(i).cursors().open() == 0);
  }
  CHECK(world.shared().cursors.counts().open_total == 0);
  require_quiet(world);
}

}  // namespace

TEST_CASE("a scan ends where its shards' last batches are empty") {
  const std::size_t shards = GENERATE(1u, 3u);
  const std::string_view sort = GENERATE("", R"("sort": {"_id": 1},)", R"("sort": {"k": -1, "_id": 1},)");
  const int batch_size = GENERATE(0, 1, 5, 7, 20);
  const bool read_ahead = GENERATE(false, true);
  CAPTURE(shards, sort, batch_size, read_ahead);
  SimWorld world(late_world(shards));
  world.shared().parameters.read_ahead = read_ahead;
  store_documents(world, span_each);
  for (std::size_t i = 0; i < shards; ++i) world.shard(i).delay = milliseconds(5);
  auto client = world.client();
  const std::string size = batch_size > 0 ? fmt::format("\"batchSize\": {},", batch_size) : "";
  Scan all = scan(world, *client,
                  fmt::format(R"({{"find": "docs", "filter": {{}}, {} {} "$db": "app"}})", sort, size),
                  batch_size, milliseconds(20));
  if (sort == R"("sort": {"_id": 1},)") CHECK(std::is_sorted(all.ids.begin(), all.ids.end()));
  std::sort(all.ids.begin(), all.ids.end());
  std::vector<std::int64_t> expected;
  for (int id = 0; id < static_cast<int>(shards) * span_each; ++id) expected.push_back(id);
  CHECK(all.ids == expected);
  // A client may see an empty batch, as from its shard alone, but no more of them than there are shards.
  CHECK(all.empty_batches <= shards);
  finish(world, *client);
}

TEST_CASE("an empty last batch that was read ahead ends the cursor") {
  const std::string_view find =
      GENERATE(R"({"find": "docs", "filter": {"_id": {"$lt": 20}}, "batchSize": 5, "$db": "app"})",
               R"({"find": "docs", "filter": {}, "sort": {"_id": 1}, "batchSize": 10, "$db": "app"})");
  SimWorld world(late_world(2));
  store_documents(world, span_each);
  auto client = world.client();
  const bool one_shard = find.find("$lt") != std::string_view::npos;
  const int batch_size = one_shard ? 5 : 10;
  const Scan all = scan(world, *client, std::string(find), batch_size, milliseconds(50));
  CHECK(all.ids.size() == static_cast<std::size_t>(one_shard ? span_each : 2 * span_each));
  CHECK(world.shared().metrics.read_ahead_hits.value() > 0);
  client->close();
  world.run_for(seconds(1));
  CHECK(world.shard(0).cursors().open() + world.shard(1).cursors().open() == 0);
  CHECK(world.shared().cursors.counts().open_total == 0);
  require_quiet(world);
}

}  // namespace spillway::test
