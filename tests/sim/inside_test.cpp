// What counts as time inside the proxy: on virtual time, where nothing takes any but what a test makes take it.
#include "proxy/exec/admin/status_facts.h"
#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

using exec::OperationClass;

constexpr std::string_view find_one = R"({"find": "docs", "filter": {"_id": 5}, "limit": 1, "$db": "app"})";
constexpr std::string_view find_all = R"({"find": "docs", "filter": {}, "$db": "app"})";

struct Seen {
  std::uint64_t count = 0;
  Duration sum{};
  bool operator==(const Seen&) const = default;
};
Seen seen(SimWorld& world, OperationClass of) {
  const FineReading times = exec::inside_time(world.shared(), of);
  return {times.total(), Duration(static_cast<std::int64_t>(times.sum_ns))};
}
Seen points(SimWorld& world) { return seen(world, OperationClass::point); }
Seen bulk(SimWorld& world) { return seen(world, OperationClass::bulk); }
Seen others(SimWorld& world) { return seen(world, OperationClass::other); }

SimWorldOptions with_connections(std::size_t shards, std::size_t pool_max) {
  SimWorldOptions options = sharded_world(shards, 100);
  options.gateway.pool_max = pool_max;
  return options;
}

void delay_shards(SimWorld& world, std::initializer_list<Duration> delays) {
  std::size_t i = 0;
  for (const Duration delay : delays) world.shard(i++).delay = delay;
}

}  // namespace

TEST_CASE("a shard's time is not inside, waiting for a connection to it is") {
  SimWorld world(with_connections(1, 1));
  store_documents(world, 100);
  delay_shards(world, {milliseconds(40)});
  auto first = world.client(), second = world.client(), third = world.client();
  REQUIRE(is_ok(call(world, *first, find_one)));
  CHECK(points(world) == Seen{1, Duration{}});
  const TimePoint began = Clock::now();
  const auto served = start(world, *first, json(find_one));
  world.run_for(milliseconds(10));
  const auto waits = start(world, *second, json(find_one));
  const auto waits_longer = start(world, *third, json(find_one));
  REQUIRE(world.run_until([&] { return served->done && waits->done && waits_longer->done; }, minutes(1)));
  REQUIRE(Clock::now() - began == milliseconds(3 * 40));
  CHECK(points(world) == Seen{4, milliseconds(30 + 70)});
  CHECK(bulk(world) == Seen{});
}

TEST_CASE("of shards that are asked at once the slowest counts, of calls in a row all") {
  SimWorld world(with_connections(3, 100));
  store_documents(world, 100);
  delay_shards(world, {milliseconds(50), milliseconds(80), milliseconds(20)});
  auto client = world.client();
  SECTION("a find on three shards") {
    const TimePoint began = Clock::now();
    REQUIRE(batch_of(call(world, *client, R"({"find": "docs", "filter": {}, "limit": 90, "$db": "app"})")).size() ==
            90);
    REQUIRE(Clock::now() - began >= milliseconds(80));
    CHECK(points(world) == Seen{});
    CHECK((bulk(world).count + others(world).count == 1));
    CHECK((bulk(world).sum + others(world).sum) == Duration{});
  }
  SECTION("ordered inserts, shard after shard") {
    const TimePoint began = Clock::now();
    const BsonDoc inserted = call(world, *client, R"({"insert": "docs", "documents":
        [{"_id": 1000}, {"_id": -1}, {"_id": 2000}, {"_id": 100.5}], "$db": "app"})");
    REQUIRE(inserted.view()["n"].to_int64() == 4);
    REQUIRE(Clock::now() - began == milliseconds(20 + 50 + 20 + 80));
    CHECK(others(world) == Seen{1, Duration{}});
  }
  SECTION("a whole scan: batches are waited for by the shards' time alone, also those read ahead") {
    BsonDoc reply = call(world, *client, R"({"find": "docs", "filter": {}, "batchSize": 20, "$db": "app"})");
    std::size_t documents = batch_of(reply).size();
    std::uint64_t replies = 1;
    while (const std::int64_t id = cursor_id(reply)) {
      reply = call(world, *client, fmt::format(
          R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "docs", "batchSize": 20, "$db": "app"}})", id));
      documents += batch_of(reply).size();
      ++replies;
    }
    CHECK(documents == 300);
    CHECK(world.shared().metrics.read_ahead_waits.value() > 0);
    CHECK(bulk(world).count >= replies - 1);
    CHECK(bulk(world).count + others(world).count == replies);
    CHECK((bulk(world).sum + others(world).sum) == Duration{});
  }
}

TEST_CASE("operations are points, bulk or others by what they asked for") {
  SimWorld world(with_connections(1, 100));
  store_documents(world, 100, 10'000);
  delay_shards(world, {milliseconds(5)});
  auto client = world.client();
  REQUIRE(is_ok(call(world, *client, R"({"ping": 1, "$db": "admin"})")));
  CHECK(others(world) == Seen{1, Duration{}});
  REQUIRE(is_ok(call(world, *client, find_one)));
  REQUIRE(is_ok(call(world, *client,
                     R"({"update": "docs", "updates": [{"q": {"_id": 3}, "u": {"$set": {"k": 1}}}], "$db": "app"})")));
  CHECK(points(world) == Seen{2, Duration{}});
  // A large reply streams; its first byte leaves when the shard's has come.
  REQUIRE(batch_of(call(world, *client, find_all)).size() > 50);
  CHECK(world.shared().metrics.streamed_replies.value() == 1);
  CHECK(bulk(world) == Seen{1, Duration{}});
  // A failure is a reply; a command without an answer has none.
  REQUIRE(code_of(call(world, *client, R"({"nothing": 1, "$db": "app"})")) == 59);
  CHECK(others(world).count == 2);
  REQUIRE(world.run(client->tell(json(R"({"insert": "docs", "documents": [{"_id": 7000}], "$db": "app"})"))));
  REQUIRE(is_ok(call(world, *client, R"({"ping": 1, "$db": "admin"})")));
  CHECK(points(world).count == 2);
  CHECK(others(world).count == 3);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a request that is there and waits for memory is inside") {
  constexpr std::uint64_t limit_bytes = 4 * limits::mib;
  SimWorldOptions options = with_connections(1, 100);
  options.memory_limit_bytes = limit_bytes;
  SimWorld world(std::move(options));
  auto client = world.client();
  client->compressor = wire::Compressor::snappy;
  auto others_memory = world.shared().memory.process.try_reserve(limit_bytes - 600'000 -
                                                                 world.shared().memory.process.usage().used_bytes);
  REQUIRE(others_memory);
  BsonWriter insert;
  insert.append("insert", "docs").begin_array("documents");
  insert.begin_document_item().append("_id", 1).append("text", std::string(1'000'000, 'x')).end().end();
  insert.append("$db", "app");
  delay_shards(world, {milliseconds(40)});
  const auto waiting = start(world, *client, std::move(insert).finish());
  world.run_for(seconds(3));
  CHECK_FALSE(waiting->done);
  others_memory->release();
  REQUIRE(world.run_until([&] { return waiting->done; }, seconds(1)));
  REQUIRE((waiting->reply && is_ok(*waiting->reply)));
  CHECK(bulk(world).count == 1);
  CHECK(bulk(world).sum >= milliseconds(2'900));
  CHECK(bulk(world).sum < milliseconds(3'010));
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

}  // namespace spillway::test
