// Change streams: cursors that wait for events, and whose batches carry resume tokens.
#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

constexpr std::string_view watch = R"({"aggregate": "docs", "pipeline": [{"$changeStream": {}}],
                                       "cursor": {"batchSize": 5}, "$db": "app"})";

// A shard with one change stream: each batch is one event, and its token tells its number.
class Events {
 public:
  Events(SimShard& shard, std::size_t event_bytes) : event_bytes_(event_bytes) {
    shard.revise = [this](std::string_view command, BsonDoc reply) {
      if (command == "aggregate") return batch("firstBatch");
      if (command == "getMore") return batch("nextBatch");
      return reply;
    };
    shard.observe = [this](DocView command) {
      if (command.first().name == "getMore") awaited_ms.push_back(command["maxTimeMS"].to_int64());
    };
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  std::vector<std::optional<std::int64_t>> awaited_ms;  // of the getMores

 private:
  BsonDoc batch(std::string_view name) {
    ++sent_;
    BsonWriter event;
    event.append("_id", sent_).append("text", std::string(event_bytes_, 'x'));
    const BsonDoc document = std::move(event).finish();
    BsonWriter out;
    out.begin_document("cursor").begin_array(name).append_item(document).end();
    out.begin_document("postBatchResumeToken").append("_data", std::to_string(sent_)).end();
    out.append("id", std::int64_t{77}).append("ns", "app.docs").end().append("ok", 1.0);
    return std::move(out).finish();
  }

  std::size_t event_bytes_;
  std::int32_t sent_ = 0;
};

// One event, and the token that belongs to it.
void check_batch(DocView reply, int number) {
  REQUIRE(is_ok(reply));
  const std::vector<BsonDoc> batch = batch_of(reply);
  REQUIRE(batch.size() == 1);
  CHECK(batch[0].view()["_id"].as_int32() == number);
  const ValueView token = reply.find_path("cursor.postBatchResumeToken._data");
  REQUIRE(token.is_string());
  CHECK(token.as_string() == std::to_string(number));
}

}  // namespace

TEST_CASE("a change stream's getMore says how long to wait for events") {
  SimWorld world(sharded_world(1, 1000));
  Events events(world.shard(0), 10);
  auto client = world.client();
  const std::int64_t id = cursor_id(call(world, *client, watch));
  check_batch(call(world, *client, get_more(id, 5, R"("maxTimeMS": 500,)")), 2);
  check_batch(call(world, *client, get_more(id, 5)), 3);
  CHECK(events.awaited_ms == std::vector<std::optional<std::int64_t>>{500, std::nullopt});
  CHECK(world.shard(0).seen("killCursors") == 0);
}

TEST_CASE("change streams end, and other cursors stay, when another process serves the clients") {
  SimWorld world(sharded_world(1, 1000));
  store_documents(world, 30);
  auto client = world.client();
  const std::int64_t cursor = cursor_id(
      call(world, *client, R"({"find": "docs", "filter": {}, "batchSize": 4, "$db": "app"})"));
  Events events(world.shard(0), 10);
  const std::int64_t stream = cursor_id(call(world, *client, watch));
  world.run_for(seconds(3));
  CHECK(world.shared().cursors.counts().open_total == 2);
  const std::int64_t idle = cursor_id(call(world, *client, watch));
  world.shared().life.replaced = true;
  CHECK(code_of(call(world, *client, get_more(stream, 5))) == 43);  // drivers resume
  world.run_for(minutes(1));
  CHECK(world.shared().cursors.ns_of(idle).empty());
  CHECK_FALSE(world.shared().cursors.ns_of(cursor).empty());
}

TEST_CASE("every batch of a change stream has its token, and none is fetched ahead") {
  const std::size_t event_bytes =
      GENERATE(std::size_t{10}, std::size_t{400'000});  // the larger one would pass in pieces
  SimWorld world(sharded_world(1, 1000));
  Events events(world.shard(0), event_bytes);
  auto client = world.client();
  const BsonDoc first = call(world, *client, watch);
  check_batch(first, 1);
  for (int number = 2; number < 8; ++number) {
    world.run_for(milliseconds(50));
    check_batch(call(world, *client, get_more(cursor_id(first), 5)), number);
  }
  CHECK(world.shared().metrics.read_ahead_started.value() == 0);
  CHECK(world.shard(0).seen("getMore") == 6);
}

TEST_CASE("a change stream whose shard goes away is labelled, so that drivers open it again") {
  SimWorld world(sharded_world(1, 1000));
  Events events(world.shard(0), 10);
  auto client = world.client();
  const std::int64_t id = cursor_id(call(world, *client, watch));
  world.shard(0).revise = [](std::string_view command, BsonDoc reply) {
    return command == "getMore" ? json(R"({"ok": 0.0, "code": 11600, "errmsg": "interrupted at shutdown"})") : reply;
  };
  const BsonDoc failed = call(world, *client, get_more(id, 5));
  CHECK(code_of(failed) == 6);
  CHECK(to_json(failed.view()["errorLabels"]).find("ResumableChangeStreamError") != std::string::npos);
}

}  // namespace spillway::test
