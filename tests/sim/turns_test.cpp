// Long work in turns: what others get done beside it. Time passes here with each look at the clock.
#include <array>
#include <cstring>
#include <functional>

#include "proxy/base/time_slice.h"
#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

constexpr auto look = std::chrono::microseconds(50);

// While it lives, time goes by at every look at the clock.
class TimePasses {
 public:
  explicit TimePasses(Duration at_each_look = look) { advance_time_at_each_look(at_each_look); }
  TimePasses(const TimePasses&) = delete;
  TimePasses& operator=(const TimePasses&) = delete;
  ~TimePasses() { advance_time_at_each_look({}); }
};

Task<void> find_until(SimClient* client, std::shared_ptr<Pending> other, int* found) {
  while (!other->done) {
    auto finding = client->call(json(R"({"find": "docs", "filter": {"_id": 5}, "limit": 1, "$db": "app"})"));
    const auto reply = co_await finding;
    if (!reply || batch_of(*reply).size() != 1) co_return;
    ++*found;
  }
}

struct LongWork {
  BsonDoc command;
  std::optional<wire::Compressor> compressor{};  // of its client
};

// How many point finds another client gets answered until this command is.
int finds_beside(SimWorld& world, const LongWork& work, const std::function<void(DocView)>& check) {
  auto working = world.client(), other = world.client();
  call(world, *working, R"({"ping": 1, "$db": "admin"})");
  working->compressor = work.compressor;
  call(world, *other, R"({"find": "docs", "filter": {"_id": 5}, "limit": 1, "$db": "app"})");
  int found = 0;
  const auto pending = start(world, *working, work.command);
  world.spawn(find_until(other.get(), pending, &found));
  REQUIRE(world.run_until([&] { return pending->done; }, minutes(10)));
  REQUIRE(pending->reply.has_value());
  INFO(to_json(*pending->reply, 500));
  check(*pending->reply);
  world.run_for(seconds(1));
  return found;
}

// The more time passes, the more often others have their turn.
void check_turns(SimWorld& world, const LongWork& work, int slices, const std::function<void(DocView)>& check) {
  const int in_no_time = finds_beside(world, work, check);
  int in_time = 0;
  {
    const TimePasses passes;
    in_time = finds_beside(world, work, check);
  }
  CAPTURE(to_json(work.command, 200), in_no_time, in_time);
  // A find takes several turns, of which the other work has one at least in between.
  CHECK(in_time - in_no_time >= slices / 12);
}

void check_turns(std::string_view command, std::size_t documents, int slices) {
  constexpr int span = 3000;
  SimShardOptions like;
  like.sort_keys = SimShardOptions::SortKeys::object;
  SimWorld world(sharded_world(2, span, like));
  store_documents(world, span);
  check_turns(world, {json(command)}, slices,
              [&](DocView reply) { CHECK(batch_of(reply).size() == documents); });
}

// Beside the documents an empty collection on both shards, divided here.
SimWorldOptions with_other(int divided_at) {
  SimWorldOptions options = sharded_world(2, 100);
  options.routing += ranged_collection("app.other", 2, divided_at);
  return options;
}

// A write whose operations `append` makes.
BsonDoc write_of(std::string_view name, std::string_view list, int operations,
                 const std::function<void(BsonWriter&, int)>& append) {
  BsonWriter out;
  out.append(name, "other").begin_array(list);
  for (int i = 0; i < operations; ++i) {
    out.begin_document_item();
    append(out, i);
    out.end();
  }
  out.end().append("ordered", false).append("$db", "app");
  return std::move(out).finish();
}

}  // namespace

TEST_CASE("a slice is over when its time is, and the next one begins after a turn") {
  Loop loop(Loop::Drive::manual);
  Pump pump(loop);
  const auto steps_of_a_slice = [](TimeSlice& slice, std::size_t bytes) {
    int steps = 1;
    while (!slice.is_over(bytes)) ++steps;
    return steps;
  };
  const TimePasses passes;
  TimeSlice slice(pump);
  CHECK(steps_of_a_slice(slice, 100'000) == TimeSlice::quantum / look);
  slice.renew();
  CHECK(steps_of_a_slice(slice, 0) == 4 * (TimeSlice::quantum / look));  // the clock is not looked at for each
  const auto next = slice.next();
  CHECK_FALSE(next.await_ready());
  next.await_resume();
  CHECK_FALSE(slice.is_over(100'000));
}

TEST_CASE("point finds pass a long sorted merge") {
  check_turns(R"({"find": "docs", "sort": {"text": 1}, "batchSize": 6000, "$db": "app"})", 6000, 6000 / 16);
}

TEST_CASE("point finds pass a long merge without an order") {
  check_turns(R"({"find": "docs", "skip": 1, "batchSize": 6000, "$db": "app"})", 5999, 6000 / 16);
}

TEST_CASE("point finds pass groups that are gathered, sorted and let through") {
  check_turns(R"({"aggregate": "docs", "pipeline": [{"$group": {"_id": "$_id", "n": {"$sum": 1}}},
                   {"$sort": {"n": 1, "_id": -1}}, {"$match": {"_id": 17}}],
                   "cursor": {"batchSize": 10}, "$db": "app"})",
              1, 3 * 6000 / 16);
}

TEST_CASE("point finds pass an array of thousands that is unwound") {
  check_turns(R"({"aggregate": "docs", "pipeline": [{"$group": {"_id": null, "all": {"$push": "$_id"}}},
                   {"$unwind": "$all"}, {"$group": {"_id": {"$gt": ["$all", 4000]}, "n": {"$sum": 1}}}],
                   "cursor": {}, "$db": "app"})",
              2, 6000 / 16);
}

TEST_CASE("point finds pass a large reply that is compressed") {
  constexpr int span = 100;
  SimWorld world(sharded_world(2, span));
  store_documents(world, span, 30'000);
  const auto compressor = GENERATE(wire::Compressor::zlib, wire::Compressor::zstd, wire::Compressor::snappy);
  const BsonDoc find = json(R"({"find": "docs", "sort": {"_id": 1}, "batchSize": 200, "$db": "app"})");
  const auto check = [](DocView reply) { CHECK(batch_of(reply).size() == 200); };
  const TimePasses passes;
  const int plain = finds_beside(world, {find}, check);
  const int compressed = finds_beside(world, {find, compressor}, check);
  CAPTURE(plain, compressed);
  CHECK(compressed - plain >= 6'000'000 / 4096 / 4 / 12);
}

TEST_CASE("point finds pass a large request that is unpacked") {
  SimWorld world(sharded_world(2, 100));
  store_documents(world, 100);
  const auto compressor = GENERATE(wire::Compressor::zlib, wire::Compressor::zstd, wire::Compressor::snappy);
  const BsonDoc insert = write_of("insert", "documents", 3, [](BsonWriter& out, int) {
    out.append("text", std::string(5'000'000, 'x'));
  });
  check_turns(world, {insert, compressor}, 15'000'000 / (32 * 1024) / 4, [](DocView reply) { CHECK(is_ok(reply)); });
}

namespace {

// Shards that agree to compress, each with `span` documents.
SimWorldOptions compressing_shards(wire::Compressor compressor, int span) {
  SimShardOptions like;
  like.compressors = {compressor};
  SimWorldOptions options = sharded_world(2, span, like);
  options.gateway.compressors = wire::compressor_name(compressor);
  return options;
}

}  // namespace

TEST_CASE("point finds pass a large write that is compressed for its shard") {
  const auto compressor = GENERATE(wire::Compressor::zlib, wire::Compressor::zstd, wire::Compressor::snappy);
  SimWorld world(compressing_shards(compressor, 100));
  store_documents(world, 100);
  const BsonDoc insert = write_of("insert", "documents", 1, [](BsonWriter& out, int) {
    out.append("text", std::string(12'000'000, 'x'));
  });
  check_turns(world, {insert}, 12'000'000 / 4096 / 4, [](DocView reply) { CHECK(is_ok(reply)); });
}

TEST_CASE("point finds pass a request of many values that is checked") {
  SimWorld world(sharded_world(2, 100));
  store_documents(world, 100);
  const BsonDoc insert = write_of("insert", "documents", 2, [](BsonWriter& out, int) {
    out.begin_array("values");
    for (int i = 0; i < 300'000; ++i) out.append_item(i);
    out.end();
  });
  check_turns(world, {insert}, 2 * 300'000 / 256 / 4, [](DocView reply) { CHECK(is_ok(reply)); });
}

TEST_CASE("point finds pass a killCursors of very many ids") {
  constexpr int ids = 20'000;
  SimWorld world(sharded_world(2, 100));
  store_documents(world, 100);
  BsonWriter kill;
  kill.append("killCursors", "docs").begin_array("cursors");
  for (std::int64_t id = 1; id <= ids; ++id) kill.append_item(id);
  kill.end().append("$db", "app");
  // Each is looked up twice; 16 of them pass between two readings of the clock.
  check_turns(world, {std::move(kill).finish()}, 2 * ids / 16 / 4, [](DocView reply) {
    CHECK((reply["cursorsNotFound"].is_array() && reply["cursorsNotFound"].as_document().count() == ids));
  });
}

TEST_CASE("point finds pass an endSessions of very many sessions") {
  constexpr int sessions = 9'000;
  SimWorld world(sharded_world(2, 100));
  store_documents(world, 100);
  BsonWriter end;
  end.begin_array("endSessions");
  for (int i = 0; i < sessions; ++i) {
    std::array<std::uint8_t, 16> id{};
    std::memcpy(id.data(), &i, sizeof i);
    end.begin_document_item().append_binary("id", 4, id).end();
  }
  end.end().append("$db", "admin");
  // 16 are read between two readings of the clock; 64 are ended.
  check_turns(world, {std::move(end).finish()}, sessions / 16 / 4, [](DocView reply) { CHECK(is_ok(reply)); });
}

TEST_CASE("point finds pass a bulkWrite of many operations whose results are put in order") {
  constexpr int operations = 8'000;
  SimWorld world(with_other(operations / 2));
  store_documents(world, 100);
  int first = 0;
  const auto bulk = [&] {
    first += 1'000'000;
    BsonWriter out;
    out.append("bulkWrite", 1).begin_array("ops");
    for (int i = 0; i < operations; ++i) {
      out.begin_document_item().append("insert", i % 2).begin_document("document");
      out.append("_id", i % 4 < 2 ? first + i : -first - i).end().end();
    }
    out.end().begin_array("nsInfo");
    for (const char* const ns : {"app.other", "app.unsharded"}) out.begin_document_item().append("ns", ns).end();
    out.end().begin_document("cursor").append("batchSize", operations).end();
    out.append("ordered", false).append("$db", "admin");
    return std::move(out).finish();
  };
  const auto check = [&](DocView reply) {
    CHECK(reply["nInserted"].to_int64() == operations);
    std::int32_t index = 0;
    for (const Element& result : reply.find_path("cursor.firstBatch").as_document()) {
      if (result.as_document()["idx"].as_int32() != index++) FAIL("out of order at " << index);
    }
    CHECK(index == operations);
  };
  const int in_no_time = finds_beside(world, {bulk()}, check);
  int in_time = 0;
  {
    const TimePasses passes;
    in_time = finds_beside(world, {bulk()}, check);
  }
  CAPTURE(in_no_time, in_time);
  CHECK(in_time - in_no_time >= 4 * operations / 64 / 12);
}

TEST_CASE("point finds pass a write of many operations that is planned and divided") {
  constexpr int operations = 20'000;
  SimWorld world(with_other(operations / 2));
  store_documents(world, 100);
  int first = 0;
  const std::string name = GENERATE("insert", "update", "delete");
  const auto write = [&] {
    first += 1'000'000;
    if (name == "insert") {
      return write_of(name, "documents", operations,
                      [&](BsonWriter& out, int i) { out.append("_id", i % 2 == 0 ? first + i : -first - i); });
    }
    return write_of(name, name + "s", operations, [&](BsonWriter& out, int i) {
      out.begin_document("q").append("_id", i).end();
      if (name == "delete") {
        out.append("limit", 1);
      } else {
        out.begin_document("u").begin_document("$set").append("a", 1).end().end();
      }
    });
  };
  const auto check = [](DocView reply) { CHECK(is_ok(reply)); };
  const int in_no_time = finds_beside(world, {write()}, check);
  int in_time = 0;
  {
    const TimePasses passes;
    in_time = finds_beside(world, {write()}, check);
  }
  CAPTURE(name, in_no_time, in_time);
  // Each is parsed, targeted, gathered, copied. Of inserts, whose steps are shorter, more pass between two readings.
  const int operations_a_reading = name == "insert" ? 64 : 16;
  CHECK(in_time - in_no_time >= 4 * operations / operations_a_reading / 12);
}

TEST_CASE("point finds pass a write of many operations that fail") {
  constexpr int operations = 20'000;
  SimWorldOptions options = sharded_world(2, 100);
  std::string routing = ranged_collection("app.other", 2, operations / 2);
  for (std::size_t at = routing.find("_id"); at != std::string::npos; at = routing.find("_id"))
    routing.replace(at, 3, "k");
  options.routing += routing;
  SimWorld world(std::move(options));
  store_documents(world, 100);
  const BsonDoc insert = write_of("insert", "documents", operations, [](BsonWriter& out, int i) {
    out.append("_id", i).begin_array("k").append_item(i).end();  // no key that a shard could own
  });
  check_turns(world, {insert}, 2 * operations / 16, [&](DocView reply) {
    CHECK(is_ok(reply));
    CHECK(reply["n"].to_int64() == 0);
    CHECK((reply["writeErrors"].is_array() && reply["writeErrors"].as_document().count() == operations));
  });
}

TEST_CASE("a merge that yields to others ends at its deadline") {
  constexpr int span = 3000;
  SimWorld world(sharded_world(2, span));
  store_documents(world, span);
  auto client = world.client();
  call(world, *client, R"({"ping": 1, "$db": "admin"})");
  BsonDoc reply;
  {
    const TimePasses passes(milliseconds(1));
    reply =
        call(world, *client, R"({"find": "docs", "sort": {"k": 1}, "batchSize": 6000, "maxTimeMS": 20, "$db": "app"})");
  }
  CHECK(code_of(reply) == 50);
  world.run_for(seconds(1));
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

}  // namespace spillway::test
