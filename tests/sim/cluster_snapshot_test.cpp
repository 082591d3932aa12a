// Reads at a snapshot outside transactions: all shards of a scripted cluster are told one time.
#include "tests/sim/cluster_world.h"

namespace spillway::test {

namespace {

constexpr std::string_view at_snapshot = R"("readConcern": {"level": "snapshot"}, "$db": "rec")";

std::string at_time(std::uint64_t time) {
  return fmt::format(R"("readConcern": {{"level": "snapshot", "atClusterTime": {{"$timestamp": {{"t": {}, "i": {}}}}}}},
      "$db": "rec")", time >> 32, time & 0xffffffff);
}

std::uint64_t cursor_time(const BsonDoc& reply) { return timestamp_of(reply.view().find_path("cursor.atClusterTime")); }

// The times that shards were told by commands of this name.
std::set<std::uint64_t> times_told(const ClusterWorld& sim, std::string_view name) {
  std::set<std::uint64_t> times;
  for (const ShardAsked& each : sim.asked) {
    if (each.name == name) times.insert(timestamp_of(each.command.view().find_path("readConcern.atClusterTime")));
  }
  return times;
}

// A document that is there from now on.
void store_now(ClusterWorld& sim, int k) {
  BsonWriter out;
  out.append("_id", k).append("k", k).append_timestamp("born", sim.cluster.config().tick());
  sim.cluster.store("rec.r", std::move(out).finish());
  sim.cluster.role(0).hear(sim.cluster.config().time());
}

}  // namespace

TEST_CASE("all shards of a snapshot read get one time, which the client hears", "[cluster][snapshot]") {
  const std::int32_t wire = GENERATE(wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire, .shards = 3});
  REQUIRE(sim.read_all().size() == 30);
  sim.forget_asked();
  const std::string command =
      GENERATE(R"("find": "r", "batchSize": 4)", R"("find": "r", "sort": {"k": 1}, "batchSize": 4)",
               R"("find": "r", "filter": {"k": 15})", R"("find": "u")",
               R"("aggregate": "r", "pipeline": [{"$sort": {"k": -1}}], "cursor": {"batchSize": 4})");
  CAPTURE(command);
  const std::string name(command.substr(1, command.find('"', 1) - 1));
  BsonDoc reply = sim.ask(fmt::format("{{{}, {}}}", command, at_snapshot));
  INFO(to_json(reply));
  REQUIRE(is_ok(reply));
  const std::uint64_t time = cursor_time(reply);
  CHECK(time != 0);
  CHECK(times_told(sim, name) == std::set<std::uint64_t>{time});
  CHECK(sim.without_version().empty());
  for (std::size_t batches = 0; cursor_id(reply) != 0; ++batches) {
    REQUIRE(batches < 20);
    reply = sim.ask(fmt::format(R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "r", "batchSize": 4,
        "$db": "rec"}})", cursor_id(reply)));
    REQUIRE(is_ok(reply));
  }
}

TEST_CASE("a client's time of a snapshot shows nothing later, to any command", "[cluster][snapshot]") {
  ClusterWorld sim({.wire_version = wire_7_0});
  const BsonDoc first = sim.ask(fmt::format(R"({{"find": "r", {}}})", at_snapshot));
  REQUIRE(batch_of(first).size() == 20);
  const std::uint64_t time = cursor_time(first);
  store_now(sim, 5000);
  const auto counted = [&](std::string_view concern) {
    const BsonDoc reply = sim.ask(fmt::format(R"({{"aggregate": "r", "pipeline": [{{"$count": "n"}}], "cursor": {{}},
        {}}})", concern));
    INFO(to_json(reply));
    CHECK(cursor_time(reply) != 0);
    return batch_of(reply).at(0).view()["n"].to_int64().value_or(-1);
  };
  const auto distinct = [&](std::string_view concern) {
    const BsonDoc reply = sim.ask(fmt::format(R"({{"distinct": "r", "key": "k", {}}})", concern));
    INFO(to_json(reply));
    CHECK(timestamp_of(reply.view()["atClusterTime"]) != 0);
    return reply.view()["values"].as_document().count();
  };
  CHECK(counted(at_time(time)) == 20);
  CHECK(distinct(at_time(time)) == 20);
  CHECK(sim.read_all().size() == 21);  // and the router hears of the later time
  CHECK(counted(at_snapshot) == 21);
  CHECK(distinct(at_snapshot) == 21);
  CHECK(batch_of(sim.ask(fmt::format(R"({{"find": "r", {}}})", at_time(time)))).size() == 20);
}

TEST_CASE("a time that the router chose is chosen again when a shard cannot read at it", "[cluster][snapshot]") {
  ClusterWorld sim({.wire_version = wire_6_0});
  REQUIRE(sim.read_all().size() == 20);
  const std::string filter = GENERATE(R"({})", R"({"k": 12})");
  CAPTURE(filter);
  const auto find = [&](std::string_view concern) {
    return sim.ask(fmt::format(R"({{"find": "r", "filter": {}, {}}})", filter, concern));
  };
  const std::uint64_t time = cursor_time(find(at_snapshot));
  sim.forget_asked();
  sim.cluster.role(1).lose_snapshots(2);
  CHECK(is_ok(find(at_snapshot)));
  CHECK(sim.times(1, "find") == 3);
  sim.cluster.role(1).lose_snapshots(1);
  const BsonDoc refused = find(at_time(time));
  CHECK(code_of(refused) == 246);
  CHECK(refused.view()["codeName"].as_string() == "SnapshotUnavailable");
  sim.cluster.role(1).lose_snapshots(1000);
  CHECK(code_of(find(at_snapshot)) == 246);
}

TEST_CASE("a snapshot from before a chunk's move is not read where its documents are now", "[cluster][snapshot]") {
  ClusterWorld sim({.wire_version = wire_5_0});
  const std::uint64_t time = cursor_time(sim.ask(fmt::format(R"({{"find": "r", {}}})", at_snapshot)));
  sim.cluster.move("rec.r", ClusterWorld::key(12), 0);
  CHECK(code_of(sim.ask(fmt::format(R"({{"find": "r", {}}})", at_time(time)))) == 246);
  // The same try meets the move, learns of it, and is at a time after it.
  sim.cluster.move("rec.r", ClusterWorld::key(2), 1);
  const BsonDoc later = sim.ask(fmt::format(R"({{"find": "r", {}}})", at_snapshot));
  INFO(to_json(later));
  CHECK(batch_of(later).size() == 20);
  // What was learned after a time, but is older, is no hindrance.
  const std::uint64_t at = cursor_time(later);
  REQUIRE(is_ok(sim.ask(R"({"flushRouterConfig": 1, "$db": "admin"})")));
  CHECK(batch_of(sim.ask(fmt::format(R"({{"find": "r", {}}})", at_time(at)))).size() == 20);
}

TEST_CASE("what cannot be read at a snapshot is refused", "[cluster][snapshot]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire});
  REQUIRE(sim.read_all().size() == 20);
  if (wire < wire_5_0) {
    CHECK(code_of(sim.ask(fmt::format(R"({{"find": "r", {}}})", at_snapshot))) == 72);
    return;
  }
  for (const char* const command :
       {R"("count": "r")", R"("aggregate": 1, "pipeline": [{"$currentOp": {}}], "cursor": {})",
        R"("aggregate": "r", "pipeline": [{"$changeStream": {}}], "cursor": {})"}) {
    CAPTURE(command);
    CHECK(code_of(sim.ask(fmt::format("{{{}, {}}}", command, at_snapshot))) == 72);
  }
  const auto code = [&](const std::string& more) {
    return code_of(sim.ask(fmt::format(R"({{"find": "r", "readConcern": {{"level": "snapshot", {}}}, "$db": "rec"}})",
                                       more)));
  };
  CHECK(code(R"("atClusterTime": 5)") == 14);
  CHECK(code(R"("atClusterTime": {"$timestamp": {"t": 0, "i": 0}})") == 72);
  const std::string time = R"({"$timestamp": {"t": 5, "i": 1}})";
  CHECK(code(R"("atClusterTime": )" + time + R"(, "afterClusterTime": )" + time) == 72);
  CHECK(code(R"("afterClusterTime": )" + time) == 0);
}

TEST_CASE("a reply that passes in pieces tells the time of its snapshot", "[cluster][snapshot]") {
  ClusterWorld sim({.wire_version = wire_8_0});
  for (int i = 2; i < 42; ++i) {
    BsonWriter out;
    out.append("_id", i).append("text", std::string(16'000, 'x'));
    sim.cluster.store("rec.u", std::move(out).finish());
  }
  const BsonDoc reply = sim.ask(fmt::format(R"({{"find": "u", "batchSize": 40, {}}})", at_snapshot));
  REQUIRE(batch_of(reply).size() == 40);
  CHECK(sim.world->shared().metrics.streamed_replies.value() == 1);
  CHECK(times_told(sim, "find").contains(cursor_time(reply)));
  CHECK(cursor_time(reply) != 0);
}

}  // namespace spillway::test
