// Aggregations that one of a scripted cluster's shards merges: the owner of each cursor, whatever happens.
#include "tests/sim/cluster_world.h"

namespace spillway::test {

namespace {

// {_id: <ten of k>, n} of all documents. What may need a disk is merged by a shard.
constexpr const char* counts =
    R"({"aggregate": "r", "pipeline": [{"$group": {"_id": {"$mod": ["$k", 3]}, "n": {"$sum": 1}}}],
        "allowDiskUse": true, "cursor": {"batchSize": 2}, "$db": "rec"})";

std::int64_t sum_of(ClusterWorld& sim, BsonDoc reply) {
  std::int64_t sum = 0;
  for (;;) {
    INFO(to_json(reply));
    REQUIRE(is_ok(reply));
    for (const BsonDoc& each : batch_of(reply)) sum += each.view()["n"].to_int64().value_or(0);
    const std::int64_t id = cursor_id(reply);
    if (id == 0) return sum;
    reply = sim.ask(fmt::format(R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "r", "$db": "rec"}})", id));
  }
}

bool has_open_cursors(ClusterWorld& sim) {
  for (std::size_t i = 0; i < sim.cluster.shard_count(); ++i) {
    if (sim.cluster.shard(i).cursors().forgotten() != 0) return true;
  }
  return false;
}

std::size_t mergers_asked(const ClusterWorld& sim) {
  return static_cast<std::size_t>(std::count_if(sim.asked.begin(), sim.asked.end(), [](const ShardAsked& each) {
    return each.name == "aggregate" && to_json(each.command).find("$mergeCursors") != std::string::npos;
  }));
}

}  // namespace

TEST_CASE("one shard merges for all of them, of every release, and no cursor stays", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire, .shards = 3});
  CHECK(sum_of(sim, sim.ask(counts)) == sim.total());
  CHECK(mergers_asked(sim) == 1);
  CHECK(sim.world->run_until([&] { return !has_open_cursors(sim); }, seconds(30)));
}

TEST_CASE("a chunk that moved meanwhile is merged once", "[cluster]") {
  ClusterWorld sim({.shards = 3});
  CHECK(sum_of(sim, sim.ask(counts)) == sim.total());
  for (int turn = 0; turn < 6; ++turn) {
    sim.cluster.move("rec.r", ClusterWorld::key(turn * 5), static_cast<std::size_t>(turn + 1) % 3);
    CHECK(sum_of(sim, sim.ask(counts)) == sim.total());
    CHECK(sum_of(sim, sim.ask_other(counts)) == sim.total());
  }
  CHECK(sim.world->run_until([&] { return !has_open_cursors(sim); }, seconds(30)));
}

TEST_CASE("cursors that a merger did not take are killed, and those of a client that left", "[cluster]") {
  ClusterWorld sim({.shards = 3});
  for (std::size_t i = 0; i < 3; ++i) sim.cluster.shard(i).refused_stage = "$mergeCursors";
  CHECK_FALSE(is_ok(sim.ask(counts)));
  CHECK(sim.world->run_until([&] { return !has_open_cursors(sim); }, seconds(30)));
  for (std::size_t i = 0; i < 3; ++i) sim.cluster.shard(i).refused_stage.clear();
  const BsonDoc reply = sim.ask(counts);
  REQUIRE(cursor_id(reply) != 0);
  CHECK(has_open_cursors(sim));
  CHECK(is_ok(sim.ask(fmt::format(R"({{"killCursors": "r", "cursors": [{{"$numberLong": "{}"}}], "$db": "rec"}})",
                                  cursor_id(reply)))));
  CHECK(sim.world->run_until([&] { return !has_open_cursors(sim); }, seconds(30)));
}

TEST_CASE("a merger is never asked twice to merge the same cursors", "[cluster]") {
  ClusterWorld sim({.shards = 3});
  CHECK(sum_of(sim, sim.ask(counts)) == sim.total());
  sim.forget_asked();
  // Each shard's second aggregate is its merge, if it is the merger: what it has taken then is gone.
  for (std::size_t i = 0; i < 3; ++i) {
    SimShard& shard = sim.cluster.shard(i);
    shard.revise = [&shard, cut = false](std::string_view command, BsonDoc reply) mutable {
      if (command == "aggregate" && !std::exchange(cut, true)) {
        shard.misbehave(SimShard::Fault::cut_after, "aggregate", 1);
      }
      return reply;
    };
  }
  const BsonDoc lost = sim.ask(counts);
  CHECK_FALSE(is_ok(lost));
  CHECK(mergers_asked(sim) == 1);
  CHECK(sim.world->run_until([&] { return !has_open_cursors(sim); }, seconds(30)));
}

}  // namespace spillway::test
