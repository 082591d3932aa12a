// Long work in turns: what others get done beside it. Time passes here when somebody looks at the clock.
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

// How many point finds another client gets answered until this command is.
int finds_beside(SimWorld& world, std::string_view command, std::size_t documents) {
  auto scanning = world.client(), other = world.client();
  call(world, *scanning, R"({"ping": 1, "$db": "admin"})");
  call(world, *other, R"({"find": "docs", "filter": {"_id": 5}, "limit": 1, "$db": "app"})");
  int found = 0;
  const auto pending = start(world, *scanning, json(command));
  world.spawn(find_until(other.get(), pending, &found));
  REQUIRE(world.run_until([&] { return pending->done; }, minutes(1)));
  REQUIRE(pending->reply.has_value());
  INFO(to_json(*pending->reply, 500));
  CHECK(batch_of(*pending->reply).size() == documents);
  world.run_for(seconds(1));
  return found;
}

void check_turns(std::string_view command, std::size_t documents, int slices) {
  constexpr int span = 3000;
  SimShardOptions like;
  like.sort_keys = SimShardOptions::SortKeys::object;
  SimWorld world(sharded_world(2, span, like));
  store_documents(world, span);
  const int in_no_time = finds_beside(world, command, documents);
  int in_time = 0;
  {
    const TimePasses passes;
    in_time = finds_beside(world, command, documents);
  }
  CAPTURE(command, in_no_time, in_time);
  // A find takes several turns, of which the other work has one at least in between.
  CHECK(in_time - in_no_time >= slices / 12);
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
                   {"$sort": {"n": 1, "_id": -1}}, {"$match": {"_id": 17}}], "cursor": {"batchSize": 10}, "$db": "app"})",
              1, 3 * 6000 / 16);
}

TEST_CASE("point finds pass an array of thousands that is unwound") {
  check_turns(R"({"aggregate": "docs", "pipeline": [{"$group": {"_id": null, "all": {"$push": "$_id"}}},
                   {"$unwind": "$all"}, {"$group": {"_id": {"$gt": ["$all", 4000]}, "n": {"$sum": 1}}}],
                   "cursor": {}, "$db": "app"})",
              2, 6000 / 16);
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
    reply = call(world, *client, R"({"find": "docs", "sort": {"k": 1}, "batchSize": 6000, "maxTimeMS": 20, "$db": "app"})");
  }
  CHECK(code_of(reply) == 50);
  world.run_for(seconds(1));
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

}  // namespace spillway::test
