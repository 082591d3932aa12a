// The router over a scripted cluster, whose shards enforce versions: what is asked of which shard, and what clients
// get, while nothing else changes the cluster.
#include "tests/sim/cluster_world.h"

namespace spillway::test {

TEST_CASE("a static table's router says no versions, which the shards of a cluster take", "[cluster]") {
  ClusterWorld sim({.members = 2, .config_members = 2}, false);
  CHECK(batch_of(sim.ask(R"({"find": "u", "$db": "rec"})")).size() == 1);
  CHECK(batch_of(sim.ask(R"({"find": "r", "$db": "rec"})")).size() == ClusterWorld::span);  // of the first shard
  CHECK(is_ok(sim.ask(R"({"insert": "u", "documents": [{"_id": 2}], "$db": "rec"})")));
  CHECK(sim.cluster.role(0).versioned() == 0);
  CHECK(sim.cluster.role(0).unversioned() >= 3);
  const BsonDoc reply = sim.ask(R"({"find": "u", "$db": "rec"})");
  for (const char* field : {"$clusterTime", "operationTime", "$configServerState", "lastCommittedOpTime"}) {
    CHECK(!reply.view()[field].exists());
  }
}

TEST_CASE("reads of every release's shards go to owners, with versions, and see each document once", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire, .shards = 3});
  CHECK(sim.read(R"({"find": "r", "filter": {"k": 12}, "$db": "rec"})") == numbers(12, 13));
  CHECK(sim.times(0, "find") + sim.times(2, "find") == 0);
  CHECK(sim.times(1, "find") <= 2);
  CHECK(sim.read_all() == numbers(0, 30));
  CHECK(sim.read(R"({"find": "r", "sort": {"k": -1}, "skip": 8, "limit": 4, "batchSize": 2, "$db": "rec"})") ==
        std::vector{21, 20, 19, 18});
  CHECK(sim.ask(R"({"count": "r", "$db": "rec"})").view()["n"].to_int64() == 30);
  CHECK(sim.ask(R"({"count": "r", "query": {"k": {"$gte": 8}}, "$db": "rec"})").view()["n"].to_int64() == 22);
  const BsonDoc distinct = sim.ask(R"({"distinct": "r", "key": "k", "query": {"k": {"$lt": 15}}, "$db": "rec"})");
  CHECK(distinct.view()["values"].as_document().count() == 15);
  CHECK(sim.times(2, "distinct") == 0);
  const BsonDoc sums = sim.ask(R"({"aggregate": "r", "pipeline": [{"$match": {"k": {"$gte": 5}}},
      {"$group": {"_id": null, "sum": {"$sum": "$k"}, "n": {"$sum": 1}}}], "cursor": {}, "$db": "rec"})");
  REQUIRE(batch_of(sums).size() == 1);
  CHECK(batch_of(sums)[0].view()["sum"].to_int64() == 425);
  CHECK(batch_of(sums)[0].view()["n"].to_int64() == 25);
  CHECK(batch_of(sim.ask(R"({"find": "u", "$db": "rec"})")).size() == 1);
  // The other worker learns what the first one knows, without a question to the config servers.
  sim.forget_asked();
  CHECK(is_ok(sim.ask_other(R"({"find": "r", "filter": {"k": 12}, "$db": "rec"})")));
  CHECK(sim.times(1, "find") == 1);
  CHECK(sim.config_asked.empty());
  CHECK(sim.without_version() == std::vector<std::string>());
}

TEST_CASE("writes of every release's shards go to owners, with versions", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire, .shards = 3});
  const auto count_of = [](DocView reply) { return reply["n"].to_int64().value_or(-1); };
  CHECK(count_of(sim.ask(R"({"insert": "r", "documents": [{"_id": 30, "k": 100}, {"_id": 31, "k": -1},
      {"_id": 32, "k": 15}], "$db": "rec"})")) == 3);
  CHECK(count_of(sim.ask(R"({"update": "r", "updates": [{"q": {"k": 15}, "u": {"$inc": {"n": 1}}}],
      "$db": "rec"})")) == 1);
  CHECK(count_of(sim.ask(R"({"update": "r", "updates": [{"q": {}, "u": {"$inc": {"m": 1}}, "multi": true}],
      "$db": "rec"})")) == 33);
  CHECK(count_of(sim.ask(R"({"delete": "r", "deletes": [{"q": {"k": 100}, "limit": 1}, {"q": {"k": 3}, "limit": 0}],
      "$db": "rec"})")) == 2);
  const BsonDoc found = sim.ask(R"({"findAndModify": "r", "query": {"k": -1}, "update": {"$inc": {"n": 1}},
      "$db": "rec"})");
  CHECK(found.view().find_path("value._id").to_int64() == 31);
  CHECK(sim.stored().size() == 31);
  for (const BsonDoc& each : sim.cluster.owned("rec.r")) CHECK(each.view()["m"].to_int64() == 1);
  CHECK(sim.cluster.orphans("rec.r") == 0);
  // A collection and a database that do not exist are made.
  CHECK(count_of(sim.ask(R"({"insert": "new", "documents": [{"_id": 1}], "$db": "rec"})")) == 1);
  CHECK(count_of(sim.ask(R"({"insert": "new", "documents": [{"_id": 1}], "$db": "other"})")) == 1);
  CHECK(sim.cluster.owned("rec.new").size() == 1);
  CHECK(sim.cluster.owned("other.new").size() == 1);
  CHECK(sim.without_version() == std::vector<std::string>());
}

TEST_CASE("a cursor reads each document once while its chunks move", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  const std::string sort = GENERATE("", R"("sort": {"k": 1}, )");
  CAPTURE(wire, sort);
  ClusterWorld sim({.wire_version = wire, .shards = 3});
  const BsonDoc first = sim.ask(fmt::format(R"({{"find": "r", {}"batchSize": 2, "$db": "rec"}})", sort));
  REQUIRE(cursor_id(first) != 0);
  std::vector<int> values;
  const auto add = [&](DocView reply) {
    for (const BsonDoc& each : batch_of(reply)) values.push_back(each.view()["k"].as_int32());
  };
  add(first);
  sim.cluster.move("rec.r", ClusterWorld::key(25), 0);
  sim.cluster.move("rec.r", ClusterWorld::key(5), 1);
  CHECK(sim.read_all() == numbers(0, 30));  // of another command, which hears of it
  for (std::int64_t id = cursor_id(first); id != 0;) {
    const BsonDoc more = sim.ask(fmt::format(
        R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "r", "batchSize": 7, "$db": "rec"}})", id));
    REQUIRE(is_ok(more));
    add(more);
    id = cursor_id(more);
  }
  std::sort(values.begin(), values.end());
  CHECK(values == numbers(0, 30));
}

// The tables and the versions of a recorded conversation with a router of 4.2.
TEST_CASE("from a recorded table shards hear the versions that a router of 4.2 sent them", "[cluster]") {
  SimLog log;
  SimCluster cluster({.shards = 4}, log);  // the recording's are sh1, sh2 and sh3
  cluster.config().put("config.databases", json(R"({"_id": "rec", "primary": "sh2", "partitioned": true, "version":
      {"uuid": {"$binary": {"base64": "g4xBP0OkS3aWfIzItC4yNw==", "subType": "04"}}, "lastMod": 1}})"));
  const auto collection = [&](std::string_view ns, std::string_view epoch, std::string_view key) {
    cluster.config().put("config.collections",
                         json(fmt::format(R"({{"_id": "{}", "lastmodEpoch": {{"$oid": "{}"}}, "lastmod":
                             {{"$date": "1970-02-19T17:02:47.296Z"}}, "dropped": false, "key": {}, "unique": false,
                             "uuid": {{"$binary": {{"base64": "KcFAibfySMmiN08XnUpZVg==", "subType": "04"}}}}}})",
                                          ns, epoch, key)));
  };
  const auto chunk = [&](std::string_view ns, std::string_view epoch, std::string_view field, std::string_view min,
                         std::string_view max, std::string_view shard, int major, int minor) {
    cluster.config().put("config.chunks",
                         json(fmt::format(R"({{"_id": "{0}-{2}_{3}", "ns": "{0}", "min": {{"{2}": {4}}},
                             "max": {{"{2}": {5}}}, "shard": "{6}", "lastmod": {{"$timestamp": {{"t": {7}, "i": {8}}}}},
                             "lastmodEpoch": {{"$oid": "{1}"}}, "history": []}})",
                                          ns, epoch, field, minor + 100 * major, min, max, shard, major, minor)));
  };
  constexpr std::string_view r = "6b00fd5563155124ad7bdb82", h = "6b00fd5563155124ad7bdb60";
  constexpr std::string_view least = R"({"$minKey": 1})", most = R"({"$maxKey": 1})";
  collection("rec.r", r, R"({"k": 1})");
  chunk("rec.r", r, "k", "100", "200", "sh1", 2, 0);
  chunk("rec.r", r, "k", "200", most, "sh3", 3, 0);
  chunk("rec.r", r, "k", least, "100", "sh2", 3, 1);
  collection("rec.h", h, R"({"_id": "hashed"})");
  const std::string points[] = {std::string(least), "-6148914691236517204", "-3074457345618258602", "0",
                                "3074457345618258602", "6148914691236517204", std::string(most)};
  for (int i = 0; i < 6; ++i) {
    const auto long_of = [](const std::string& text) {
      return text[0] == '{' ? text : fmt::format(R"({{"$numberLong": "{}"}})", text);
    };
    chunk("rec.h", h, "_id", long_of(points[i]), long_of(points[i + 1]), fmt::format("sh{}", i / 2 + 1), 1, i);
  }
  std::map<std::string, std::string> sent;  // by shard and command
  std::vector<std::string> asked;           // of the config servers, for chunks
  for (std::size_t i = 1; i < 4; ++i) {
    cluster.shard(i).observe = [&sent, i](DocView command) {
      std::string text;
      for (const Element& item : command["shardVersion"].as_document()) {
        text += (text.empty() ? "" : " ") + to_json(item);
      }
      sent[fmt::format("sh{} {} {}", i, command.first().name, command.first().as_string())] = text;
    };
    cluster.shard(i).revise = [](std::string_view, const BsonDoc&) {
      return json(R"({"cursor": {"firstBatch": [], "id": {"$numberLong": "0"}, "ns": "rec.r"}, "n": 1, "ok": 1})");
    };
  }
  cluster.config_server(0).observe = [&asked](DocView command) {
    if (command.first().is_string() && command.first().as_string() == "chunks") {
      asked.push_back(to_json(command["filter"].as_document()) + to_json(command["sort"].as_document()));
    }
  };
  SimWorldOptions options;
  options.cluster = &cluster;
  options.config_db = true;
  SimWorld world(std::move(options));
  const auto client = world.client();
  CHECK(is_ok(call(world, *client, R"({"find": "r", "sort": {"k": 1}, "$db": "rec"})")));
  CHECK(is_ok(call(world, *client, R"({"update": "r", "updates": [{"q": {"k": 150}, "u": {"$inc": {"n": 1}}}],
      "$db": "rec"})")));
  CHECK(is_ok(call(world, *client, R"({"aggregate": "h", "pipeline": [], "cursor": {}, "$db": "rec"})")));
  CHECK(is_ok(call(world, *client, R"({"find": "u", "$db": "rec"})")));
  const auto version = [](int major, int minor, std::string_view epoch) {
    BsonWriter out;
    out.append_timestamp("t", sim_version(static_cast<std::uint32_t>(major), static_cast<std::uint32_t>(minor)));
    const BsonDoc time = std::move(out).finish();
    const BsonDoc id = json(fmt::format(R"({{"e": {{"$oid": "{}"}}}})", epoch));
    return to_json(time.view()["t"]) + " " + to_json(id.view()["e"]);
  };
  CHECK(sent == std::map<std::string, std::string>{{"sh1 find r", version(2, 0, r)},
                                                   {"sh2 find r", version(3, 1, r)},
                                                   {"sh3 find r", version(3, 0, r)},
                                                   {"sh1 update r", version(2, 0, r)},
                                                   {"sh1 aggregate h", version(1, 1, h)},
                                                   {"sh2 aggregate h", version(1, 3, h)},
                                                   {"sh3 aggregate h", version(1, 5, h)},
                                                   {"sh2 find u", version(0, 0, "000000000000000000000000")}});
  const auto asked_for = [](std::string_view ns, int major, int minor) {
    return to_json(json(fmt::format(R"({{"ns": "{}", "lastmod": {{"$gte": {{"$timestamp": {{"t": {}, "i": {}}}}}}}}})",
                                    ns, major, minor))) + to_json(json(R"({"lastmod": 1})"));
  };
  CHECK(asked == std::vector{asked_for("rec.r", 0, 0), asked_for("rec.h", 0, 0)});
}

TEST_CASE("commands that do not name a database that there is are refused", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  const auto [command, code] = GENERATE(table<std::string, int>(
      {{R"({"aggregate": "x", "pipeline": [{"$documents": [{"a": 1}]}], "cursor": {}, "$db": "none"})", 26},
       {R"({"aggregate": "x", "pipeline": [{"$documents": [{"a": 1}]}], "explain": true, "$db": "none"})", 26},
       {R"({"explain": {"aggregate": "x", "pipeline": [{"$documents": [{"a": 1}]}], "cursor": {}},
            "$db": "none"})", 26},
       {R"({"aggregate": "r", "pipeline": [{"$merge": {"into": {"db": "", "coll": "x"}, "on": "_id"}}], "cursor": {},
            "$db": "rec"})", 73},
       {R"({"aggregate": "u", "pipeline": [{"$lookup": {"from": {"db": "", "coll": "x"}, "pipeline": [], "as": "a"}}],
            "cursor": {}, "$db": "rec"})", 73},
       {R"({"getShardVersion": "", "$db": "admin"})", 73},
       {R"({"getShardVersion": ".", "$db": "admin"})", 73},
       {R"({"getShardVersion": "rec.", "$db": "admin"})", 73},
       {R"({"getShardVersion": ".r", "$db": "admin"})", 73},
       {R"({"renameCollection": ".a", "to": ".b", "$db": "admin"})", 73},
       {R"({"renameCollection": "rec.u", "to": ".b", "$db": "admin"})", 73}}));
  CAPTURE(wire, command);
  ClusterWorld sim({.wire_version = wire});
  CHECK(code_of(sim.ask(command)) == code);
}

TEST_CASE("what looks like a change stream and is none is run where its database lies", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  const std::string command = GENERATE(
      R"({"aggregate": "u", "pipeline": [{"$changeStream": {}}], "explain": true, "$db": "rec"})",
      R"({"aggregate": 1, "pipeline": [{"$changeStream": {}}], "explain": true, "$db": "rec"})",
      R"({"mapReduce": "u", "map": "m", "reduce": "r", "out": {"inline": 1}, "pipeline": [{"$changeStream": {}}],
          "$db": "rec"})",
      R"({"create": "x", "pipeline": [{"$changeStream": {}}], "$db": "rec"})");
  CAPTURE(wire, command);
  ClusterWorld sim({.wire_version = wire});
  const BsonDoc answer = sim.ask(command);
  INFO(to_json(answer));
  CHECK(code_of(answer) != 73);
  CHECK(sim.times(1, "aggregate") + sim.times(1, "mapReduce") + sim.times(1, "create") == 0);
}

TEST_CASE("getShardVersion tells of a database before anything else was asked of it", "[cluster]") {
  ClusterWorld sim({.wire_version = wire_4_2});
  CHECK(sim.ask(R"({"getShardVersion": "rec", "$db": "admin"})").view()["primaryShard"].as_string() == "sh0");
}

TEST_CASE("a collection is renamed once, whatever becomes of the answer", "[cluster]") {
  ClusterWorld sim({.wire_version = GENERATE(wire_5_0, wire_8_0), .members = 2});
  const std::string_view name = "_shardsvrRenameCollection";
  const std::string_view rename =
      R"({"renameCollection": "rec.u", "to": "rec.v", "dropTarget": true, "$db": "admin"})";
  SimShard& shard = sim.cluster.shard(0);
  SECTION("the connection breaks") {
    shard.misbehave(SimShard::Fault::cut_after, std::string(name), 1);
    CHECK(code_of(sim.ask(rename)) == 6);
  }
  SECTION("the shard was interrupted while it waited for others") {
    shard.revise = [&](std::string_view command, BsonDoc reply) {
      if (command != name) return reply;
      return json(R"({"ok": 1.0, "writeConcernError": {"code": 11602, "errmsg": "interrupted"}})");
    };
    sim.ask(rename);
  }
  SECTION("the shard was interrupted") {
    const int code = GENERATE(91, 189, 11600, 11602);
    shard.revise = [&, code](std::string_view command, BsonDoc reply) {
      if (command != name) return reply;
      return json(fmt::format(R"({{"ok": 0.0, "code": {}, "errmsg": "interrupted"}})", code));
    };
    CHECK(!is_ok(sim.ask(rename)));
  }
  CHECK(sim.times(0, name) == 1);
}

}  // namespace spillway::test
