// The router over a scripted cluster that changes behind its back: other routers, the balancer and administrators move
// chunks, drop and make collections; servers fail over, are upgraded, leave and come.
#include "tests/sim/cluster_world.h"

namespace spillway::test {

namespace {

constexpr std::string_view find_r = R"({"find": "r", "$db": "rec"})";
constexpr std::string_view find_12 = R"({"find": "r", "filter": {"k": 12}, "$db": "rec"})";
constexpr std::string_view count_up_12 =
    R"({"update": "r", "updates": [{"q": {"k": 12}, "u": {"$inc": {"n": 1}}}], "$db": "rec"})";

// How often the document with this k was counted up; -1: it is not there.
std::int64_t counted(ClusterWorld& sim, int k, const char* field = "n") {
  for (const BsonDoc& each : sim.cluster.owned("rec.r")) {
    if (each.view()["k"].to_int64() == k) return each.view()[field].to_int64().value_or(0);
  }
  return -1;
}

// Both workers know everything.
void know_all(ClusterWorld& sim) {
  REQUIRE(sim.read_all() == numbers(0, sim.total()));
  REQUIRE(is_ok(sim.ask_other(find_r)));
  REQUIRE(is_ok(sim.ask(R"({"find": "u", "$db": "rec"})")));
  sim.forget_asked();
}

std::size_t stale_refusals(ClusterWorld& sim) {
  std::size_t all = 0;
  for (std::size_t i = 0; i < sim.cluster.shard_count(); ++i) all += sim.cluster.role(i).stale();
  return all;
}

// Ten more documents of rec.u.
void store_long_texts(ClusterWorld& sim, std::size_t text_bytes) {
  for (int id = 2; id < 12; ++id) {
    BsonWriter out;
    out.append("_id", id).append("text", std::string(text_bytes, 'x'));
    sim.cluster.store("rec.u", std::move(out).finish());
  }
}

}  // namespace

TEST_CASE("after a chunk has moved a command runs as if the router had known", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire, .shards = 3});
  know_all(sim);
  const auto moved = [&sim] {
    // From its shard to the next one, with the orphans left behind.
    const auto r = sim.cluster.config().collection("rec.r");
    const std::string& owner = r->chunks[r->chunk_of(ClusterWorld::key(12))].shard;
    sim.cluster.move("rec.r", ClusterWorld::key(12), static_cast<std::size_t>(owner.back() - '0' + 1) % 3);
    sim.forget_asked();
  };
  // The donor refuses it, then the recipient does until it has looked.
  const auto is_bounded = [&sim](std::string_view name) {
    for (std::size_t i = 0; i < 3; ++i) {
      if (sim.times(i, name) > 3) return false;
    }
    return sim.config_reads("chunks") <= 2 && sim.without_version().empty();
  };
  moved();
  CHECK(sim.read(find_12) == std::vector{12});
  CHECK(is_bounded("find"));
  moved();
  CHECK(sim.read(R"({"find": "r", "sort": {"k": 1}, "$db": "rec"})") == numbers(0, 30));
  CHECK(is_bounded("find"));
  moved();
  CHECK(sim.ask(R"({"count": "r", "query": {"k": {"$gte": 0}}, "$db": "rec"})").view()["n"].to_int64() == 30);
  CHECK(is_bounded("count"));
  moved();
  CHECK(sim.ask(R"({"distinct": "r", "key": "k", "$db": "rec"})").view()["values"].as_document().count() == 30);
  CHECK(is_bounded("distinct"));
  moved();
  const BsonDoc sum = sim.ask(R"({"aggregate": "r", "pipeline": [{"$group": {"_id": null, "n": {"$sum": 1}}}],
      "cursor": {}, "$db": "rec"})");
  REQUIRE(batch_of(sum).size() == 1);
  CHECK(batch_of(sum)[0].view()["n"].to_int64() == 30);
  CHECK(is_bounded("aggregate"));
  moved();
  CHECK(sim.ask(count_up_12).view()["n"].to_int64() == 1);
  CHECK(counted(sim, 12) == 1);
  CHECK(is_bounded("update"));
  moved();
  // To 5.0 shards count orphans that they change.
  const std::int64_t n = sim.ask(R"({"update": "r", "updates": [{"q": {}, "u": {"$inc": {"m": 1}}, "multi": true}],
      "$db": "rec"})").view()["n"].to_int64().value_or(0);
  CHECK((wire >= wire_6_0 ? n == 30 : n >= 30));
  for (int k = 0; k < 30; ++k) CHECK(counted(sim, k, "m") == 1);
  CHECK(is_bounded("update"));
  moved();
  CHECK(sim.ask(R"({"findAndModify": "r", "query": {"k": 12}, "update": {"$inc": {"n": 1}}, "$db": "rec"})")
            .view()
            .find_path("value.n")
            .to_int64() == 1);
  CHECK(counted(sim, 12) == 2);
  CHECK(is_bounded("findAndModify"));
  moved();
  CHECK(sim.ask(R"({"insert": "r", "documents": [{"_id": 40, "k": 1}, {"_id": 41, "k": 12}, {"_id": 42, "k": 25},
      {"_id": 43, "k": 13}], "$db": "rec"})").view()["n"].to_int64() == 4);
  CHECK(is_bounded("insert"));
  CHECK(sim.stored().size() == 34);
  moved();
  CHECK(sim.ask(R"({"delete": "r", "deletes": [{"q": {"k": 12}, "limit": 0}, {"q": {"k": 25}, "limit": 1}],
      "$db": "rec"})").view()["n"].to_int64() == 3);
  CHECK(is_bounded("delete"));
  CHECK(sim.stored().size() == 31);
}

TEST_CASE("a multi-write in whose middle a chunk moves changes no other document twice", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  const bool ordered = GENERATE(true, false);
  CAPTURE(wire, ordered);
  ClusterWorld sim({.wire_version = wire, .shards = 3});
  sim.cluster.move("rec.r", ClusterWorld::key(12), 0);  // two chunks are there
  know_all(sim);
  bool moved = false;
  sim.cluster.role(0).before_document = [&] {
    if (!std::exchange(moved, true)) sim.cluster.move("rec.r", ClusterWorld::key(12), 1);
  };
  const BsonDoc reply = sim.ask(fmt::format(
      R"({{"update": "r", "updates": [{{"q": {{}}, "u": {{"$inc": {{"m": 1}}}}, "multi": true}}], "ordered": {},
          "$db": "rec"}})", ordered));
  CHECK(moved);
  CHECK(is_ok(reply));
  CHECK_FALSE(reply.view()["writeErrors"].exists());
  for (int k = 0; k < 30; ++k) {
    CAPTURE(k);
    if (k < 10 || k >= 20) CHECK(counted(sim, k, "m") == 1);
    if (k >= 10 && k < 20) CHECK(counted(sim, k, "m") <= 2);  // on its way
  }
}

TEST_CASE("a split or a merge is not noticed: shards take the versions of before", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_5_0, wire_8_0);
  ClusterWorld sim({.wire_version = wire});
  know_all(sim);
  const std::size_t before = stale_refusals(sim);
  sim.cluster.split("rec.r", ClusterWorld::key(5));
  CHECK(sim.read_all() == numbers(0, 20));
  sim.cluster.config().merge("rec.r", 0);
  CHECK(is_ok(sim.ask(count_up_12)));
  CHECK(sim.read_all() == numbers(0, 20));
  CHECK(stale_refusals(sim) == before);
  CHECK(sim.config_asked.empty());
}

TEST_CASE("a collection that was dropped and made again, or only dropped, is read anew", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire, .shards = 3});
  know_all(sim);
  sim.cluster.drop("rec.r");
  sim.cluster.shard_collection("rec.r", json(R"({"k": 1})"), {ClusterWorld::key(5)});
  for (int k = 0; k < 8; ++k) sim.cluster.store("rec.r", json(fmt::format(R"({{"_id": {0}, "k": {0}}})", k)));
  CHECK(sim.read_all() == numbers(0, 8));
  CHECK(sim.times(0, "find") <= 3);
  CHECK(sim.ask(R"({"insert": "r", "documents": [{"_id": 9, "k": 9}, {"_id": -1, "k": -1}], "$db": "rec"})")
            .view()["n"].to_int64() == 2);
  CHECK(sim.read_all() == std::vector{-1, 0, 1, 2, 3, 4, 5, 6, 7, 9});
  // Without a table it lies on the database's primary shard.
  sim.cluster.drop("rec.r");
  CHECK(sim.read_all().empty());
  CHECK(sim.ask(R"({"insert": "r", "documents": [{"_id": 1, "k": 29}], "$db": "rec"})").view()["n"].to_int64() == 1);
  CHECK(sim.cluster.shard(0).stored("rec.r").size() == 1);
  CHECK(sim.read_all() == std::vector{29});
  CHECK(sim.without_version() == std::vector<std::string>());
}

TEST_CASE("a database whose primary shard has changed is found there", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire});
  know_all(sim);
  sim.cluster.move_primary("rec", 1);
  CHECK(batch_of(sim.ask(R"({"find": "u", "$db": "rec"})")).size() == 1);
  CHECK(sim.times(0, "find") == 1);
  CHECK(sim.times(1, "find") <= 3);  // it looks for the database, then for the collection
  sim.cluster.move_primary("rec", 0);
  CHECK(is_ok(sim.ask(R"({"update": "u", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}], "$db": "rec"})")));
  REQUIRE(sim.cluster.owned("rec.u").size() == 1);
  CHECK(sim.cluster.owned("rec.u")[0].view()["n"].to_int64() == 1);
  sim.cluster.move_primary("rec", 1);
  CHECK(is_ok(sim.ask(R"({"insert": "u", "documents": [{"_id": 2}], "$db": "rec"})")));
  CHECK(sim.cluster.shard(1).stored("rec.u").size() == 2);
}

TEST_CASE("a collection sharded before its database moved is not taken for one of the new primary", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire});
  know_all(sim);
  sim.cluster.shard_collection("rec.u", json(R"({"_id": 1})"), {});
  sim.cluster.role(1).forget();  // it had no part in that
  sim.cluster.move_primary("rec", 1);
  REQUIRE(sim.cluster.owned("rec.u").size() == 1);
  SECTION("by a read") { CHECK(batch_of(sim.ask(R"({"find": "u", "$db": "rec"})")).size() == 1); }
  SECTION("by a write") {
    CHECK(is_ok(sim.ask(R"({"insert": "u", "documents": [{"_id": 2}], "$db": "rec"})")));
    CHECK(sim.cluster.owned("rec.u").size() == 2);
  }
  SECTION("by another worker, after one has read the database") {
    CHECK(batch_of(sim.ask(R"({"find": "u", "$db": "rec"})")).size() == 1);
    CHECK(batch_of(sim.ask_other(R"({"find": "u", "$db": "rec"})")).size() == 1);
  }
}

TEST_CASE("a command waits for a chunk's critical section, and runs once where the chunk is then", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire});
  know_all(sim);
  const auto move_slowly = [&sim](std::size_t to) {
    Loop& loop = sim.world->worker(0).loop();
    sim.world->spawn(sim.cluster.move_slowly(loop, "rec.r", ClusterWorld::key(12), to, milliseconds(700)));
    sim.world->run_for(milliseconds(10));
    sim.forget_asked();
  };
  move_slowly(0);
  const TimePoint begun = Clock::now();
  CHECK(sim.read(find_12) == std::vector{12});
  CHECK(Clock::now() - begun >= milliseconds(600));
  CHECK(Clock::now() - begun <= milliseconds(1000));
  CHECK(sim.times(0, "find") + sim.times(1, "find") <= 4);
  move_slowly(1);
  CHECK(sim.ask(count_up_12).view()["n"].to_int64() == 1);
  CHECK(counted(sim, 12) == 1);
  CHECK(sim.times(0, "update") + sim.times(1, "update") <= 4);
  // As long as it may wait, and no longer.
  move_slowly(0);
  const BsonDoc late = sim.ask(R"({"find": "r", "filter": {"k": 12}, "maxTimeMS": 200, "$db": "rec"})");
  CHECK(code_of(late) == 50);
}

TEST_CASE("a config server that lags tells no table of before a refusal", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire, .config_members = 2});
  know_all(sim);
  sim.cluster.config_role(1).lag();
  sim.cluster.move("rec.r", ClusterWorld::key(12), 0);
  sim.cluster.config_server(0).die();  // only the one that lags is left
  auto pending = sim.begin(find_12);
  sim.world->run_for(seconds(5));
  CHECK_FALSE(pending->done);
  CHECK(sim.times(0, "find") == 0);
  CHECK(sim.times(1, "find") <= 2);
  sim.cluster.config_role(1).catch_up();
  const BsonDoc reply = sim.end(*pending);
  CHECK(batch_of(reply).size() == 1);
  CHECK(sim.read_all() == numbers(0, 20));
}

TEST_CASE("config servers may change their primary", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_5_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire, .config_members = 3});
  know_all(sim);
  sim.cluster.config_set().elect(sim.cluster.config_server(1));
  sim.cluster.move("rec.r", ClusterWorld::key(12), 0);
  CHECK(sim.read(find_12) == std::vector{12});
  CHECK(is_ok(sim.ask(R"({"insert": "c", "documents": [{"_id": 1}], "$db": "fresh"})")));
  sim.cluster.config_set().elect(sim.cluster.config_server(2));
  CHECK(is_ok(sim.ask(R"({"insert": "c", "documents": [{"_id": 1}], "$db": "fresher"})")));
  CHECK(sim.cluster.owned("fresher.c").size() == 1);
  // While there is none, what must be read is read from another member.
  sim.cluster.config_server(2).step_down_now(seconds(3));
  sim.cluster.move("rec.r", ClusterWorld::key(12), 1);
  CHECK(sim.read(find_12) == std::vector{12});
}

TEST_CASE("while config servers are away what is known serves, and what is too old fails", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_5_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire, .config_members = 2});
  know_all(sim);
  for (std::size_t i = 0; i < 2; ++i) sim.cluster.config_server(i).die();
  CHECK(sim.read_all() == numbers(0, 20));
  CHECK(is_ok(sim.ask(count_up_12)));
  const auto is_away = [](std::int64_t code) { return code == 133 || code == 6; };
  CHECK(is_away(code_of(sim.ask(R"({"find": "unknown", "$db": "rec"})"))));
  CHECK(is_away(code_of(sim.ask(R"({"insert": "c", "documents": [{"_id": 1}], "$db": "unknown"})"))));
  sim.cluster.move("rec.r", ClusterWorld::key(12), 0);
  CHECK(is_away(code_of(sim.ask(find_12))));
  CHECK(is_away(code_of(sim.ask(count_up_12))));
  CHECK(counted(sim, 12) == 1);
  for (std::size_t i = 0; i < 2; ++i) sim.cluster.config_server(i).restart();
  sim.world->run_for(seconds(15));
  CHECK(sim.read(find_12) == std::vector{12});
  CHECK(is_ok(sim.ask(count_up_12)));
  CHECK(counted(sim, 12) == 2);
}

TEST_CASE("killOp, maxTimeMS and leaving end a command that waits for the table", "[cluster]") {
  ClusterWorld sim;
  know_all(sim);
  sim.cluster.config_server(0).delay = minutes(5);
  const std::string command = GENERATE(
      std::string(R"({"find": "unknown", "$db": "rec")"), std::string(R"({"count": "r", "$db": "new")"),
      std::string(R"({"insert": "unknown", "documents": [{"_id": 1}], "$db": "rec")"),
      std::string(R"({"create": "c", "$db": "new")"));
  CAPTURE(command);
  const auto pending = sim.begin(command + "}");
  sim.world->run_for(seconds(1));
  REQUIRE_FALSE(pending->done);
  const BsonDoc ops = sim.ask_other(R"({"aggregate": 1, "cursor": {}, "$db": "admin",
      "pipeline": [{"$currentOp": {"localOps": true}}]})");
  std::int64_t op = 0;
  for (const BsonDoc& row : batch_of(ops)) {
    const ValueView of = row.view()["command"];
    if (of.is_document() && of.as_document()["$db"].is_string() && of.as_document()["$db"].as_string() != "admin") {
      op = row.view()["opid"].to_int64().value_or(0);
    }
  }
  INFO(to_json(ops));
  REQUIRE(op != 0);
  CHECK(is_ok(sim.ask_other(fmt::format(R"({{"killOp": 1, "op": {}, "$db": "admin"}})", op))));
  CHECK(sim.world->run_until([&] { return pending->done; }, seconds(1)));
  CHECK(code_of(sim.end(*pending)) == 11601);
  const TimePoint began = Clock::now();
  CHECK(code_of(sim.ask(command + R"(, "maxTimeMS": 500})")) == 50);
  CHECK(Clock::now() - began <= seconds(1));
  const auto left = sim.begin(command + "}");
  sim.world->run_for(seconds(1));
  sim.client->close();
  sim.other->close();
  sim.cluster.config_server(0).delay = {};
  sim.world->run_for(minutes(10));
  require_quiet(*sim.world);
  sim.client = sim.world->client();
  CHECK(sim.read_all() == numbers(0, sim.total()));
}

TEST_CASE("while config servers hang, repeated requests add no questions", "[cluster]") {
  ClusterWorld sim;
  know_all(sim);
  sim.cluster.config_server(0).delay = minutes(5);
  const TaskGroup& questions = sim.world->worker(0).context().background;
  const std::size_t before = questions.running();
  for (int i = 0; i < 20; ++i) {
    CHECK(code_of(sim.ask(R"({"find": "unknown", "maxTimeMS": 200, "$db": "rec"})")) == 50);
  }
  CHECK(questions.running() - before <= 5);  // those of the first second
  std::vector<std::unique_ptr<SimClient>> clients;
  std::vector<std::shared_ptr<Pending>> pending;
  for (int i = 0; i < 300; ++i) {
    clients.push_back(sim.world->client());
    pending.push_back(start(*sim.world, *clients.back(), json(R"({"find": "other", "maxTimeMS": 500, "$db": "rec"})")));
  }
  REQUIRE(sim.world->run_until([&] { return pending.back()->done; }, seconds(10)));
  CHECK(questions.running() - before <= 2 * 70);  // of two workers
  sim.cluster.config_server(0).delay = {};
  sim.world->run_for(minutes(10));
  CHECK(questions.running() == 0);
  CHECK(is_ok(sim.ask(R"({"find": "unknown", "$db": "rec"})")));
}

TEST_CASE("a shard's new primary learns its versions, and each write is executed once", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire, .members = 2});
  know_all(sim);
  sim.cluster.elect(1, 1);
  CHECK(sim.read(find_12) == std::vector{12});
  sim.cluster.elect(1, 0);
  CHECK(is_ok(sim.ask(R"({"update": "r", "updates": [{"q": {"k": 12}, "u": {"$inc": {"n": 1}}}],
      "lsid": {"id": {"$binary": {"base64": "AAAAAAAAAAAAAAAAAAAAAA==", "subType": "04"}}},
      "txnNumber": {"$numberLong": "1"}, "$db": "rec"})")));
  CHECK(counted(sim, 12) == 1);
  sim.cluster.elect(0, 1);
  CHECK(batch_of(sim.ask(R"({"find": "u", "$db": "rec"})")).size() == 1);
  CHECK(sim.read_all() == numbers(0, 20));
}

TEST_CASE("a shard that left the cluster is asked nothing, and one that comes is found", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_5_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire, .shards = 3});
  know_all(sim);
  sim.cluster.move("rec.r", ClusterWorld::key(22), 0);
  sim.cluster.config().remove_shard("sh2");
  sim.world->run_for(seconds(40));
  sim.forget_asked();
  CHECK(sim.read_all() == numbers(0, 30));
  CHECK(sim.times(2, "find") == 0);
  sim.cluster.config().add_shard("sh2", "sh2/sh2-0:27120");
  sim.cluster.move("rec.r", ClusterWorld::key(12), 2);
  CHECK(sim.read_all() == numbers(0, 30));
  CHECK(sim.times(2, "find") >= 1);
  CHECK(is_ok(sim.ask_other(find_12)));
}

TEST_CASE("a view over a sharded collection is run by the router, with versions, after its chunks moved", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_5_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire});
  know_all(sim);
  for (std::size_t i = 0; i < 2; ++i) {
    SimShard& shard = sim.cluster.shard(i);
    shard.revise = [&sim](std::string_view, BsonDoc reply) {
      const bool of_view = sim.asked.back().command.view().first() == json(R"({"v": "v"})").view()["v"];
      return of_view ? json(R"({"ok": 0, "code": 169, "errmsg": "a view", "resolvedView": {"ns": "rec.r",
          "pipeline": [{"$match": {"k": {"$gte": 8}}}]}})")
                     : std::move(reply);
    };
  }
  sim.cluster.move("rec.r", ClusterWorld::key(12), 0);
  std::vector<int> values = sim.read(R"({"find": "v", "filter": {"k": {"$lt": 13}}, "$db": "rec"})");
  std::sort(values.begin(), values.end());
  CHECK(values == numbers(8, 13));
  CHECK(sim.ask(R"({"count": "v", "$db": "rec"})").view()["n"].to_int64() == 12);
  const BsonDoc distinct = sim.ask(R"({"distinct": "v", "key": "k", "$db": "rec"})");
  INFO(to_json(distinct));
  REQUIRE(is_ok(distinct));
  CHECK(distinct.view()["values"].as_document().count() == 12);
}

TEST_CASE("a shard that cannot look for locks is asked again, ten times at most", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire});
  know_all(sim);
  sim.cluster.role(1).hold_locks(3);
  CHECK(sim.read(find_12) == std::vector{12});
  CHECK(sim.times(1, "find") == 4);
  sim.forget_asked();
  sim.cluster.role(1).hold_locks(100);
  CHECK(code_of(sim.ask(find_12)) == 343);
  CHECK(sim.times(1, "find") == 10);
  sim.forget_asked();
  const BsonDoc refused = sim.ask(count_up_12);
  REQUIRE(item_of(refused, "writeErrors", 0).is_document());
  CHECK(code_of(item_of(refused, "writeErrors", 0).as_document()) == 82);
  CHECK(sim.times(1, "update") <= 10);
  sim.cluster.role(1).hold_locks(0);
  CHECK(counted(sim, 12) == 0);
  CHECK(is_ok(sim.ask(count_up_12)));
}

TEST_CASE("a shard that stays behind the table has a command asked ten times at most, and not executed", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire});
  know_all(sim);
  sim.cluster.move("rec.r", ClusterWorld::key(12), 0);
  sim.cluster.role(0).forget();
  sim.cluster.role(0).stay_behind(100);
  CHECK(code_of(sim.ask(find_12)) == 13388);
  CHECK(sim.times(0, "find") <= 10);
  const BsonDoc refused = sim.ask(count_up_12);
  REQUIRE(item_of(refused, "writeErrors", 0).is_document());
  CHECK(code_of(item_of(refused, "writeErrors", 0).as_document()) == 82);
  CHECK(sim.times(0, "update") <= 10);
  sim.cluster.role(0).stay_behind(0);
  CHECK(is_ok(sim.ask(count_up_12)));
  CHECK(counted(sim, 12) == 1);
  CHECK(sim.read(find_12) == std::vector{12});
}

TEST_CASE("each shard of a cluster that is being upgraded hears versions in its own form", "[cluster]") {
  struct Releases {
    std::int32_t config, first, second;
  };
  const auto releases =
      GENERATE(Releases{wire_4_4, wire_4_2, wire_4_4}, Releases{wire_4_4, wire_4_4, wire_5_0},
               Releases{wire_5_0, wire_5_0, wire_6_0}, Releases{wire_6_0, wire_5_0, wire_6_0},
               Releases{wire_7_0, wire_6_0, wire_7_0}, Releases{wire_8_0, wire_7_0, wire_8_0});
  CAPTURE(releases.config, releases.first, releases.second);
  ClusterWorld sim({.wire_version = releases.config, .shard_wire_versions = {releases.first, releases.second}});
  know_all(sim);
  sim.cluster.move("rec.r", ClusterWorld::key(12), 0);
  CHECK(sim.read_all() == numbers(0, 20));
  sim.cluster.move("rec.r", ClusterWorld::key(2), 1);
  CHECK(sim.read(R"({"find": "r", "sort": {"k": 1}, "$db": "rec"})") == numbers(0, 20));
  CHECK(is_ok(sim.ask(count_up_12)));
  CHECK(is_ok(sim.ask(R"({"update": "r", "updates": [{"q": {}, "u": {"$inc": {"n": 1}}, "multi": true}],
      "$db": "rec"})")));
  CHECK(counted(sim, 12) == 2);
  CHECK(counted(sim, 2) == 1);
  sim.cluster.move_primary("rec", 1);
  CHECK(is_ok(sim.ask(R"({"insert": "u", "documents": [{"_id": 2}], "$db": "rec"})")));
  CHECK(sim.cluster.owned("rec.u").size() == 2);
  CHECK(is_ok(sim.ask(R"({"insert": "fresh", "documents": [{"_id": 2}], "$db": "rec"})")));
  CHECK(sim.cluster.owned("rec.fresh").size() == 1);
}

TEST_CASE("a write that names no shard key changes the document, not what its chunk left behind", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire, .shards = 3});
  know_all(sim);
  sim.cluster.move("rec.r", ClusterWorld::key(5), 2);
  REQUIRE(sim.cluster.orphans("rec.r") == 10);  // on the first shard
  CHECK(sim.ask(R"({"update": "r", "updates": [{"q": {"_id": 5}, "u": {"$inc": {"n": 1}}}], "$db": "rec"})")
            .view()["n"].to_int64() == 1);
  CHECK(counted(sim, 5) == 1);
  CHECK(sim.ask(R"({"update": "r", "updates": [{"q": {"_id": 5}, "u": {"$inc": {"n": 1}}}],
      "lsid": {"id": {"$binary": {"base64": "AAAAAAAAAAAAAAAAAAAAAA==", "subType": "04"}}},
      "txnNumber": {"$numberLong": "1"}, "$db": "rec"})").view()["n"].to_int64() == 1);
  CHECK(counted(sim, 5) == 2);
  CHECK(sim.ask(R"({"findAndModify": "r", "query": {"_id": 5}, "update": {"$inc": {"n": 1}}, "$db": "rec"})")
            .view().find_path("value.n").to_int64() == 2);
  CHECK(counted(sim, 5) == 3);
  CHECK(sim.ask(R"({"delete": "r", "deletes": [{"q": {"_id": 6}, "limit": 1}], "$db": "rec"})")
            .view()["n"].to_int64() == 1);
  CHECK(counted(sim, 6) == -1);
  // It is deleted, but its orphan is not.
  CHECK(is_ok(sim.ask(R"({"delete": "r", "deletes": [{"q": {"k": 7}, "limit": 1}], "$db": "rec"})")));
  CHECK(counted(sim, 7) == -1);
  CHECK(sim.ask(R"({"update": "r", "updates": [{"q": {"_id": 7}, "u": {"$inc": {"n": 1}}}], "$db": "rec"})")
            .view()["n"].to_int64() == 0);
  CHECK(sim.ask(R"({"findAndModify": "r", "query": {"_id": 7}, "update": {"$inc": {"n": 1}}, "$db": "rec"})")
            .view()["value"].is_null());
}

// The scripted shards insert nothing.
TEST_CASE("an upsert that matches no document is not lost in what a chunk left behind", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire, .shards = 3});
  know_all(sim);
  sim.cluster.move("rec.r", ClusterWorld::key(5), 2);
  sim.cluster.move("rec.r", ClusterWorld::key(15), 0);  // where the orphans of the other chunk are
  CHECK(is_ok(sim.ask(R"({"delete": "r", "deletes": [{"q": {"k": 7}, "limit": 1}], "$db": "rec"})")));
  REQUIRE(counted(sim, 7) == -1);
  int writes = 0;
  sim.cluster.shard(0).observe = [&writes](DocView command) {
    writes += command.first().name == "update" || command["upsert"].truthy();
  };
  constexpr std::string_view update = R"({"$inc": {"n": 4}, "$setOnInsert": {"k": 15}})";
  const char* const multi = GENERATE("false", "true");
  CAPTURE(multi);
  const BsonDoc updated = sim.ask(fmt::format(R"({{"update": "r", "updates": [{{"q": {{"_id": 7}}, "u": {},
      "upsert": true, "multi": {}}}], "$db": "rec"}})", update, multi));
  CHECK(updated.view()["n"].to_int64() == 0);
  CHECK(std::exchange(writes, 0) > 0);
  const BsonDoc modified = sim.ask(fmt::format(R"({{"findAndModify": "r", "query": {{"_id": 7}}, "upsert": true,
      "update": {}, "$db": "rec"}})", update));
  CHECK(modified.view()["value"].is_null());
  CHECK(writes > 0);
}

TEST_CASE("reads from secondaries see no orphans, and no document twice or not at all", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire, .members = 2});
  know_all(sim);
  constexpr std::string_view read = R"({"find": "r", "$readPreference": {"mode": "secondaryPreferred"},
      "$db": "rec"})";
  sim.cluster.move("rec.r", ClusterWorld::key(12), 0);
  REQUIRE(sim.cluster.orphans("rec.r") == 10);
  for (int i = 0; i < 3; ++i) {
    std::vector<int> values = sim.read(read);
    std::sort(values.begin(), values.end());
    CHECK(values == numbers(0, 20));
  }
  CHECK(sim.ask(R"({"count": "r", "query": {"k": {"$gte": 0}}, "$readPreference": {"mode": "secondaryPreferred"},
      "$db": "rec"})").view()["n"].to_int64() == 20);
  const auto by_secondary = [&](const ShardAsked& each) { return each.name == "find" && each.host.ends_with("-1"); };
  CHECK(std::count_if(sim.asked.begin(), sim.asked.end(), by_secondary) >= 3);
  CHECK(sim.without_version() == std::vector<std::string>());
}

TEST_CASE("a reply that passes in pieces tells the times that the shard has said at its end", "[cluster]") {
  ClusterWorld sim({.shards = 1});
  store_long_texts(sim, 200'000);
  const auto read = [&sim] { return sim.ask(R"({"find": "u", "batchSize": 100, "$db": "rec"})"); };
  const auto times = [](const BsonDoc& reply) {
    const auto of = [](ValueView value) { return catalog::read_timestamp(value).value_or(0); };
    return std::pair(of(reply.view()["operationTime"]), of(reply.view().find_path("$clusterTime.clusterTime")));
  };
  const BsonDoc first = read();
  REQUIRE(is_ok(first));
  CHECK(times(first).first != 0);
  CHECK(times(first).second != 0);
  // The shard has heard of a later time from others; the router hears of it at this reply's end.
  const std::uint64_t later = times(first).second + (std::uint64_t{100} << 32);
  sim.cluster.role(0).hear(later);
  const BsonDoc second = read();
  CHECK(times(second).second == later);
  CHECK(times(second).first >= times(first).first);
  CHECK(sim.world->shared().metrics.streamed_replies.value() == 2);
  CHECK(sim.world->shared().clock.now() >= later);
  CHECK_FALSE(second.view()["recoveryToken"].exists());
  const BsonDoc within = sim.ask(R"({"find": "u", "batchSize": 100, "lsid": {"id": {"$binary":
      {"base64": "AAAAAAAAAAAAAAAAAAAAAA==", "subType": "04"}}}, "txnNumber": {"$numberLong": "1"},
      "startTransaction": true, "autocommit": false, "$db": "rec"})");
  CHECK(sim.world->shared().metrics.streamed_replies.value() == 3);
  CHECK(within.view()["recoveryToken"].is_document());
  CHECK(times(within).second >= later);
  CHECK(times(within).first != 0);
}

TEST_CASE("a reply that is read whole for a client that compresses tells the times at its end", "[cluster]") {
  ClusterWorld sim({.shards = 1});
  store_long_texts(sim, 50'000);
  sim.client->compressor = wire::Compressor::snappy;
  const auto read = [&sim] { return sim.ask(R"({"find": "u", "batchSize": 100, "$db": "rec"})"); };
  const auto time_of = [](const BsonDoc& reply) {
    return catalog::read_timestamp(reply.view().find_path("$clusterTime.clusterTime")).value_or(0);
  };
  const BsonDoc first = read();
  REQUIRE(is_ok(first));
  const std::uint64_t later = time_of(first) + (std::uint64_t{100} << 32);
  sim.cluster.role(0).hear(later);
  const BsonDoc second = read();
  CHECK(sim.client->last_was_compressed());
  CHECK(sim.world->shared().metrics.streamed_replies.value() == 0);  // read whole
  CHECK(time_of(second) == later);
  CHECK(sim.world->shared().clock.now() >= later);
}

TEST_CASE("a hello tells the time as other answers do", "[cluster]") {
  ClusterWorld sim({.shards = 1});
  const BsonDoc hello = sim.ask(R"({"hello": 1, "$db": "admin"})");
  REQUIRE(is_ok(hello));
  const auto told = catalog::read_timestamp(hello.view().find_path("$clusterTime.clusterTime"));
  CHECK(told == sim.world->shared().clock.now());
  CHECK(catalog::read_timestamp(hello.view()["operationTime"]) == told);
}

}  // namespace spillway::test
