// Clients that stop reading in the middle of a reply.
#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

constexpr std::size_t document_text_bytes = 1'000'000;
constexpr int documents_stored = 12;

constexpr std::string_view find_all =
    R"({"find": "docs", "filter": {}, "batchSize": 1000, "$db": "app"})";

SimWorldOptions slow_world() {
  SimWorldOptions options = sharded_world(1, 1000);
  options.faults.window_bytes = 256 * 1024;
  return options;
}

void store_large(SimWorld& world) {
  for (int id = 0; id < documents_stored; ++id) {
    BsonWriter out;
    out.append("_id", id).append("text",
                                 std::string(document_text_bytes, static_cast<char>('a' + id % 26)));
    world.shard(0).store("app.docs", std::move(out).finish());
  }
}

void check_whole(SimWorld& world, const std::optional<BsonDoc>& reply) {
  REQUIRE(reply.has_value());
  INFO(to_json(*reply).substr(0, 300));
  REQUIRE(is_ok(*reply));
  const std::vector<BsonDoc> batch = batch_of(*reply);
  const std::vector<BsonDoc>& stored = world.shard(0).stored("app.docs");
  REQUIRE(batch.size() == stored.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const Bytes a = batch[i].view().bytes();
    const Bytes b = stored[i].view().bytes();
    CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
  }
}

Reservation take_all_but(SimWorld& world, std::uint64_t left_bytes) {
  MemoryBudget& memory = world.shared().memory;
  const BudgetUsage usage = memory.usage();
  auto taken = memory.try_reserve(usage.limit_bytes - usage.used_bytes - left_bytes);
  REQUIRE(taken);
  return *std::move(taken);
}

}  // namespace

TEST_CASE("a client that stops reading while memory is short is not cut in mid-reply") {
  SimWorldOptions options = slow_world();
  options.memory_limit_bytes = 4 * limits::mib;
  options.large_reserve_bytes = 64 * limits::kib;
  options.faults.window_bytes = 4 * limits::mib;  // so far the client takes all at once
  const bool reserve_is_free = GENERATE(true, false);
  SimWorld world(std::move(options));
  store_large(world);
  auto client = world.client();
  client->pace_bytes = 1'000'000;
  world.shard(0).pause_at_bytes = 3'000'000;
  const auto pending = start(world, *client, json(find_all));
  world.run_for(seconds(1));
  REQUIRE_FALSE(pending->done);
  REQUIRE(world.shared().metrics.streamed_replies.value() == 1);
  // The relay waits for its shard and holds nothing; now there is nothing left.
  CHECK(world.shared().reply_memory.usage().used_bytes == 0);
  Reservation others = take_all_but(world, 0);
  exec::Shared& shared = world.shared();
  auto small = shared.work_queue.small()->try_reserve(shared.work_queue.small()->usage().limit_bytes);
  REQUIRE(small);
  std::optional<Reservation> large;
  if (!reserve_is_free) {
    large = shared.work_queue.large()->try_reserve(shared.work_queue.large()->usage().limit_bytes);
    REQUIRE(large);
  }
  client->holds = true;
  FaultOptions narrow;
  narrow.window_bytes = 256 * 1024;
  world.set_faults(narrow);
  world.shard(0).pause_at_bytes = SIZE_MAX;
  world.run_for(seconds(5));
  CHECK_FALSE(pending->done);
  CHECK(shared.metrics.stream_refusals.value() == 0);
  if (large) large->release();
  client->holds = false;
  REQUIRE(world.run_until([&] { return pending->done; }, minutes(1)));
  check_whole(world, pending->reply);
  CHECK(shared.metrics.stream_refusals.value() == 0);
  CHECK(shared.metrics.stream_failures.value() == 0);
  others.release();
  small->release();
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

}  // namespace spillway::test
