// What a client that compresses gets: batches that are worth compressing whole.
#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

constexpr std::size_t text_bytes = 50'000;
constexpr int span = 60;  // documents on each shard

std::unique_ptr<SimClient> compressing_client(SimWorld& world) {
  auto client = world.client();
  client->compressor = wire::Compressor::snappy;
  return client;
}

struct Seen {
  std::size_t documents = 0, replies = 0, compressed = 0, largest_bytes = 0;
};

// A whole scan.
Seen scan(SimWorld& world, SimClient& client, std::string_view find) {
  Seen seen;
  BsonDoc reply = call(world, client, find);
  for (;;) {
    INFO(to_json(reply).substr(0, 300));
    REQUIRE(is_ok(reply));
    seen.documents += batch_of(reply).size();
    ++seen.replies;
    if (client.last_was_compressed()) ++seen.compressed;
    seen.largest_bytes = std::max(seen.largest_bytes, reply.size());
    if (cursor_id(reply) == 0) return seen;
    reply = call(world, client, get_more(cursor_id(reply)));
  }
}

}  // namespace

TEST_CASE("batches for a client that compresses are cut to what is compressed whole") {
  const std::size_t shards = GENERATE(1U, 3U);
  const std::string sort = GENERATE("", R"("sort": {"_id": 1}, )");
  SimWorld world(sharded_world(shards, span));
  store_documents(world, span, text_bytes);
  auto client = compressing_client(world);
  const std::string find = R"({"find": "docs", "filter": {}, )" + sort + R"("$db": "app"})";
  scan(world, *client, find);  // the size of the documents is learnt
  const std::uint64_t before = world.shared().metrics.uncompressed_replies.value();
  const Seen seen = scan(world, *client, find);
  CHECK(seen.documents == shards * span);
  CHECK(seen.compressed == seen.replies);
  CHECK(seen.largest_bytes <= limits::mib + 2 * text_bytes);
  CHECK(seen.replies >= shards * span * text_bytes / limits::mib);
  CHECK(world.shared().metrics.uncompressed_replies.value() == before);
  client->close();
  world.run_for(seconds(1));
  CHECK(world.shared().memory.replies.usage().used_bytes == 0);
  require_quiet(world);
}

TEST_CASE("a client that compresses gets the batches that it names") {
  SimWorld world(sharded_world(1, span));
  store_documents(world, span, text_bytes);
  auto client = compressing_client(world);
  scan(world, *client, R"({"find": "docs", "filter": {}, "$db": "app"})");
  const std::uint64_t before = world.shared().metrics.uncompressed_replies.value();
  SECTION("by batchSize") {
    const Seen seen =
        scan(world, *client, R"({"find": "docs", "filter": {}, "batchSize": 50, "$db": "app"})");
    CHECK(seen.documents == span);
    CHECK(seen.largest_bytes > 50 * text_bytes);  // passed in pieces, as it came
    CHECK(world.shared().metrics.uncompressed_replies.value() == before + 1);
  }
  SECTION("by singleBatch") {
    const Seen seen = scan(world, *client,
                           R"({"find": "docs", "filter": {}, "singleBatch": true, "$db": "app"})");
    CHECK(seen.replies == 1);
    CHECK(seen.documents == span);
  }
  SECTION("by a limit below that") {
    const Seen seen =
        scan(world, *client, R"({"find": "docs", "filter": {}, "limit": 10, "$db": "app"})");
    CHECK(seen.replies == 1);
    CHECK(seen.documents == 10);
    CHECK(seen.compressed == 1);  // over 256 KiB: read whole for it
  }
  SECTION("by a limit above it") {
    const Seen seen =
        scan(world, *client, R"({"find": "docs", "filter": {}, "limit": 50, "$db": "app"})");
    CHECK(seen.documents == 50);
    CHECK(seen.replies > 1);
    CHECK(seen.compressed == seen.replies);
  }
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("while memory is short, large replies leave uncompressed rather than be read whole") {
  SimWorldOptions options = sharded_world(1, span);
  options.memory_limit_bytes = 16 * limits::mib;
  SimWorld world(std::move(options));
  store_documents(world, span, text_bytes);
  auto client = compressing_client(world);
  scan(world, *client, R"({"find": "docs", "filter": {}, "$db": "app"})");
  const BudgetUsage usage = world.shared().memory.process.usage();
  auto others =
      world.shared().memory.process.try_reserve(usage.limit_bytes - usage.used_bytes - limits::mib);
  REQUIRE(others);
  const Seen seen =
      scan(world, *client, R"({"find": "docs", "filter": {}, "limit": 10, "$db": "app"})");
  CHECK(seen.documents == 10);
  CHECK(seen.compressed == 0);
  others->release();
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a request in a compressor that is not enabled ends its connection") {
  SimWorldOptions options = sharded_world(1, span);
  options.compressors = GENERATE(std::vector<wire::Compressor>{}, std::vector{wire::Compressor::zstd});
  const bool some = !options.compressors.empty();
  SimWorld world(std::move(options));
  const auto answers = [&](wire::Compressor compressor) {
    auto client = world.client();
    client->compressor = compressor;
    return try_call(world, *client, json(R"({"ping": 1, "$db": "admin"})")).has_value();
  };
  CHECK_FALSE(answers(wire::Compressor::snappy));
  CHECK_FALSE(answers(wire::Compressor::zlib));
  CHECK(answers(wire::Compressor::zstd) == some);
  CHECK(answers(wire::Compressor::noop));
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a reply that is read whole for its client ends with the client's operation") {
  SimWorld world(sharded_world(1, span));
  store_documents(world, span, text_bytes);
  auto client = compressing_client(world);
  const std::string_view asked = R"({"find": "docs", "filter": {}, "limit": 10, "$db": "app"})";
  world.shard(0).pause_at_bytes = 400'000;
  auto pending = std::make_shared<Pending>();
  SECTION("which is killed") {
    pending = start(world, *client, json(asked));
    world.run_for(seconds(1));
    REQUIRE_FALSE(pending->done);
    auto second = world.client();
    const BsonDoc ops = call(world, *second, R"({"aggregate": 1, "cursor": {}, "$db": "admin",
        "pipeline": [{"$currentOp": {"localOps": true}}, {"$match": {"ns": "app.docs"}}]})");
    REQUIRE(batch_of(ops).size() == 1);
    const auto op = batch_of(ops)[0].view()["opid"].to_int64();
    CHECK(is_ok(call(world, *second, fmt::format(R"({{"killOp": 1, "op": {}, "$db": "admin"}})", *op))));
    CHECK(world.run_until([&] { return pending->done; }, seconds(1)));
    REQUIRE(pending->reply.has_value());
    CHECK(code_of(*pending->reply) == 11601);
    second->close();
    client->close();
  }
  SECTION("whose client leaves") {
    REQUIRE(world.run(client->send(json(asked))));
    world.run_for(seconds(1));
    client->reset();
    world.run_for(seconds(1));
    CHECK(world.shared().metrics.killed_due_to_client_disconnect.value() == 1);
  }
  world.run_for(seconds(1));
  CHECK(world.worker(0).context().gateway.states()[0].hosts[0].in_use == 0);
  CHECK(world.shared().connections.current.load() == 0);
  world.shard(0).pause_at_bytes = SIZE_MAX;
  world.run_for(minutes(1));
  require_quiet(world);
}

}  // namespace spillway::test
