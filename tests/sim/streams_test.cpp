// Replies that pass in pieces, and the peers that leave in the middle of them.
#include <set>

#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

constexpr std::size_t text_bytes = 1'000'000;
constexpr int documents_stored = 33;

constexpr std::string_view find_all =
    R"({"find": "docs", "filter": {}, "batchSize": 1000, "$db": "app"})";

struct StreamWorld : SimWorld {
  explicit StreamWorld(SimWorldOptions options = sharded_world(1, 1000))
      : SimWorld(std::move(options)) {
    for (int id = 0; id < documents_stored; ++id) {
      BsonWriter out;
      out.append("_id", id).append("text",
                                   std::string(text_bytes, static_cast<char>('a' + id % 26)));
      shard(0).store("app.docs", std::move(out).finish());
    }
  }
};

void check_same(const std::vector<BsonDoc>& returned, const std::vector<BsonDoc>& stored,
                std::size_t from) {
  REQUIRE(returned.size() + from <= stored.size());
  for (std::size_t i = 0; i < returned.size(); ++i) {
    const Bytes a = returned[i].view().bytes();
    const Bytes b = stored[from + i].view().bytes();
    CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
  }
}

}  // namespace

TEST_CASE("a batch of 16 MB passes in pieces") {
  const bool slow_client = GENERATE(false, true);
  SimWorldOptions options = sharded_world(1, 1000);
  options.faults.window_bytes = 256 * 1024;
  StreamWorld world(std::move(options));
  auto client = world.client();
  if (slow_client) {
    client->pace_bytes = 200'000;
    client->pace_pause = milliseconds(20);
  }
  BsonDoc reply = call(world, *client, find_all);
  REQUIRE(is_ok(reply));
  CHECK(reply.size() > 15 * limits::mib);
  std::size_t returned = 0;
  for (;;) {
    const std::vector<BsonDoc> batch = batch_of(reply);
    check_same(batch, world.shard(0).stored("app.docs"), returned);
    returned += batch.size();
    if (cursor_id(reply) == 0) break;
    reply = call(
        world, *client,
        fmt::format(R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "docs", "$db": "app"}})",
                    cursor_id(reply)));
    REQUIRE(is_ok(reply));
  }
  CHECK(returned == documents_stored);
  CHECK(world.shared().metrics.cursors_more_than_one_batch.value() == 1);
  CHECK(world.shared().metrics.streamed_replies.value() >= 2);
  CHECK(world.shared().memory.replies.usage().peak_bytes < limits::mib);
  CHECK(world.shared().memory.cursors.usage().peak_bytes < limits::mib);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("an unsorted scan over several shards holds next to nothing") {
  const bool batch_size_given = GENERATE(false, true);
  SimWorldOptions options = sharded_world(3, 1000);
  options.faults.window_bytes = 256 * 1024;
  options.memory_limit_bytes = 4 * limits::mib;
  SimWorld world(std::move(options));
  constexpr int stored = 100;
  std::set<std::int64_t> left;
  for (int id = 0; id < stored; ++id) {
    BsonWriter out;
    out.append("_id", std::int64_t{id}).append("text", std::string(id % 10 == 0 ? 900'000 : 90'000, 'x'));
    world.shard(static_cast<std::size_t>(id % 3)).store("app.docs", std::move(out).finish());
    left.insert(id);
  }
  auto client = world.client();
  const std::string size = batch_size_given ? R"("batchSize": 40,)" : "";
  BsonDoc reply = call(world, *client, fmt::format(R"({{"find": "docs", "filter": {{}}, {} "$db": "app"}})", size));
  for (;;) {
    INFO(to_json(reply).substr(0, 300));
    REQUIRE(is_ok(reply));
    for (const BsonDoc& document : batch_of(reply)) {
      CHECK(left.erase(*document.view()["_id"].to_int64()) == 1);
    }
    if (cursor_id(reply) == 0) break;
    reply = call(world, *client,
                 fmt::format(R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "docs", {} "$db": "app"}})",
                             cursor_id(reply), size));
  }
  CHECK(left.empty());
  CHECK(world.shared().metrics.cursors_more_than_one_batch.value() == 1);
  CHECK(world.shared().metrics.streamed_replies.value() >= 3);
  CHECK(world.shared().memory.process.usage().peak_bytes < limits::mib);
  CHECK(world.shared().memory.process.usage().refusals == 0);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("what is left of an unsorted first batch brings little more into memory") {
  SimWorldOptions options = sharded_world(3, 3000);
  options.faults.window_bytes = 256 * 1024;
  SimWorld world(std::move(options));
  store_documents(world, 3000, 1000);
  auto client = world.client();
  BsonDoc reply = call(world, *client, R"({"find": "docs", "filter": {}, "$db": "app"})");
  std::size_t returned = batch_of(reply).size();
  while (cursor_id(reply) != 0) {
    reply = call(world, *client, get_more(cursor_id(reply)));
    REQUIRE(is_ok(reply));
    returned += batch_of(reply).size();
  }
  CHECK(returned == 9000);
  CHECK(world.shared().metrics.streamed_replies.value() == 3);
  CHECK(world.shared().memory.cursors.usage().peak_bytes < 3 * limits::reply_complete_bytes_max * 3 / 2);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a stream passes through pipes while memory is tight, and not while it is critical") {
  const PressureLevel level = GENERATE(PressureLevel::tight, PressureLevel::critical);
  CAPTURE(level);
  StreamWorld world;
  set_level(world, level);
  auto client = world.client();
  const BsonDoc reply = call(world, *client, find_all);
  REQUIRE(is_ok(reply));
  check_same(batch_of(reply), world.shard(0).stored("app.docs"), 0);
  const std::uint64_t spliced = world.shared().metrics.spliced_bytes.value();
  CHECK((level == PressureLevel::tight ? spliced > 10 * limits::mib : spliced == 0));
}

TEST_CASE("a batch that its shard did not cap is capped for the client") {
  SimShardOptions like;
  like.batch_bytes_max = 17 * limits::mib;
  StreamWorld world(sharded_world(1, 1000, like));
  auto client = world.client();
  BsonDoc reply = call(world, *client, find_all);
  std::size_t returned = 0;
  for (;;) {
    REQUIRE(is_ok(reply));
    const std::vector<BsonDoc> batch = batch_of(reply);
    std::size_t bytes = 0;
    for (const BsonDoc& document : batch) bytes += document.size();
    CHECK(bytes <= 16 * limits::mib);
    check_same(batch, world.shard(0).stored("app.docs"), returned);
    returned += batch.size();
    if (cursor_id(reply) == 0) break;
    reply = call(
        world, *client,
        fmt::format(
            R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "docs", "batchSize": 17, "$db": "app"}})",
            cursor_id(reply)));
  }
  CHECK(returned == documents_stored);
  CHECK(world.shared().metrics.cursors_more_than_one_batch.value() == 1);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("maxTimeMS ends the reading of a batch that is to be capped, as what it is") {
  SimShardOptions like;
  like.batch_bytes_max = 17 * limits::mib;
  StreamWorld world(sharded_world(1, 1000, like));
  world.shard(0).pause_at_bytes = 5'000'000;
  auto client = world.client();
  auto pending = start(world, *client, json(R"({"find": "docs", "filter": {}, "batchSize": 1000,
                                                "maxTimeMS": 500, "$db": "app"})"));
  CHECK(world.run_until([&] { return pending->done; }, milliseconds(800)));
  REQUIRE(pending->reply.has_value());
  CHECK(code_of(*pending->reply) == 50);
  world.shard(0).pause_at_bytes = SIZE_MAX;
  client->close();
  world.run_for(seconds(20));
  require_quiet(world);
}

TEST_CASE("what is left of a capped batch is not forgotten because it is damaged") {
  SimShardOptions like;
  like.batch_bytes_max = 17 * limits::mib;
  StreamWorld world(sharded_world(1, 1000, like));
  damage_replies(world.shard(0), "find", "cursor.firstBatch", 4);
  auto client = world.client();
  // All there is, in one batch of the shard.
  BsonDoc reply = call(world, *client,
                       R"({"find": "docs", "filter": {"_id": {"$lt": 17}}, "batchSize": 1000, "$db": "app"})");
  REQUIRE(is_ok(reply));
  CHECK(batch_of(reply).size() == 4);
  REQUIRE(cursor_id(reply) != 0);
  reply = call(world, *client,
               fmt::format(R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "docs", "$db": "app"}})",
                           cursor_id(reply)));
  CHECK(code_of(reply) == 1);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE(
    "a shard that dies in mid-stream takes the client's connection with it, and nothing else") {
  StreamWorld world;
  auto client = world.client();
  auto other = world.client();
  world.shard(0).cut_at_bytes = 5'000'000;
  world.shard(0).misbehave(SimShard::Fault::cut_within, "find");
  CHECK(!try_call(world, *client, json(find_all)).has_value());
  CHECK(!client->connected());
  CHECK(client->violations().empty());
  CHECK(is_ok(call(world, *other, R"({"ping": 1, "$db": "admin"})")));
  world.run_for(seconds(2));
  CHECK(is_ok(call(world, *client, R"({"find": "docs", "filter": {"_id": 1}, "$db": "app"})")));
  client->close();
  other->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a client that leaves in mid-stream leaves no cursor and no connection behind") {
  const bool polite = GENERATE(false, true);
  StreamWorld world;
  auto client = world.client();
  REQUIRE(world.run(client->send(json(find_all))));
  REQUIRE(world.run(client->read_bytes(1'000'000)));
  CHECK(world.shared().cursors.counts().pinned == 1);
  polite ? client->close() : client->reset();
  world.run_for(seconds(20));
  CHECK(world.shard(0).cursors().opened == 1);
  CHECK(world.shard(0).cursors().open() == 0);
  require_quiet(world);
}

TEST_CASE("a client that leaves while its shard has stopped in mid-stream") {
  StreamWorld world;
  auto client = world.client();
  REQUIRE(world.run(client->send(json(find_all))));
  REQUIRE(world.run(client->read_bytes(1'000'000)));
  world.shard(0).freeze();
  client->reset();
  world.run_for(minutes(2));
  require_quiet(world);
  world.shard(0).thaw();
}

TEST_CASE("a client that leaves while its shard stands still in mid-stream is noticed") {
  const bool polite = GENERATE(false, true);
  const bool splices = GENERATE(false, true);
  const bool stalls = GENERATE(false, true);  // so that the rest was moving into memory
  CAPTURE(polite, splices, stalls);
  SimWorldOptions options = sharded_world(1, 1000);
  options.faults.splices = splices;
  options.faults.window_bytes = 256 * 1024;
  StreamWorld world(std::move(options));
  world.shard(0).pause_at_bytes = 5'000'000;
  auto client = world.client();
  client->pace_bytes = 50'000;
  client->holds = stalls;  // after its first read
  const auto pending = start(world, *client, json(find_all));
  world.run_for(seconds(1));
  REQUIRE_FALSE(pending->done);
  CHECK(world.shared().cursors.counts().pinned == 1);
  CHECK(world.shared().metrics.streams_moved.value() == (stalls ? 1 : 0));
  polite ? client->close() : client->reset();
  world.run_for(seconds(6));
  CHECK(pending->done);
  require_quiet(world);
  world.shard(0).pause_at_bytes = SIZE_MAX;
}

TEST_CASE("a stream begins behind a reply that its client has not taken yet") {
  const std::size_t room = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{21}, std::size_t{30},
                                    std::size_t{60}, std::size_t{100}, std::size_t{1000});
  CAPTURE(room);
  constexpr std::string_view find_small = R"({"find": "small", "filter": {"_id": 1}, "$db": "app"})";
  StreamWorld world;
  BsonWriter small;
  small.append("_id", 1).append("text", std::string(10'000, 'x'));
  world.shard(0).store("app.small", std::move(small).finish());
  auto client = world.client();
  const std::size_t small_bytes = wire::op_msg_prefix_bytes + call(world, *client, find_small).size();
  FaultOptions narrow;
  narrow.window_bytes = small_bytes + room;
  world.set_faults(narrow);
  REQUIRE(world.run(client->send(json(find_small))));
  REQUIRE(world.run(
      client->send(json(R"({"find": "docs", "filter": {}, "batchSize": 5, "singleBatch": true, "$db": "app"})"))));
  world.run_for(seconds(1));
  world.set_faults({});
  CHECK(world.run(client->receive()).has_value());
  const std::optional<BsonDoc> reply = world.run(client->receive());
  REQUIRE(reply.has_value());
  CHECK(client->violations().empty());
  REQUIRE(is_ok(*reply));
  CHECK(batch_of(*reply).size() == 5);
  check_same(batch_of(*reply), world.shard(0).stored("app.docs"), 0);
  CHECK(world.shared().metrics.streamed_replies.value() == 1);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("point reads overtake a stream to a slow client") {
  StreamWorld world;
  auto slow = world.client();
  auto quick = world.client();
  slow->pace_bytes = 10'000;
  slow->pace_pause = milliseconds(100);
  auto pending = start(world, *slow, json(find_all));
  world.run_for(seconds(1));
  const TimePoint before = Clock::now();
  for (int i = 0; i < 10; ++i) {
    CHECK(is_ok(call(world, *quick, R"({"find": "small", "filter": {"_id": 1}, "$db": "app"})")));
  }
  CHECK(Clock::now() - before < seconds(1));
  CHECK(!pending->done);
  slow->pace_bytes = 0;
  CHECK(world.run_until([&] { return pending->done; }, minutes(5)));
  CHECK(pending->reply.has_value());
}

}  // namespace spillway::test
