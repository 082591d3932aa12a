// The scripted cluster itself: its config servers and shards answer as recorded servers of 4.2 do, and as the sources
// of newer ones say. No router takes part.
#include <catch2/catch.hpp>

#include "tests/sim/sim_support.h"
#include "tests/support/sim_cluster.h"

namespace spillway::test {

namespace {

struct Bench {
  explicit Bench(const SimClusterOptions& options = {}) : cluster(options, log) {
    cluster.attach(network);
    cluster.create_database("rec", 0);
  }
  // rec.r on k: below 100 on sh0, from there on sh1; documents 50, 150, 250.
  void shard_r() {
    cluster.shard_collection("rec.r", json(R"({"k": 1})"), {json(R"({"k": 100})")});
    for (const int k : {50, 150, 250}) cluster.store("rec.r", json(fmt::format(R"({{"_id": {0}, "k": {0}}})", k)));
  }
  ~Bench() {
    for (SimShard* server : cluster.servers()) server->die();
    run_for(loop, seconds(1));
  }

  std::shared_ptr<Pending> start(SimShard& server, BsonDoc command) {
    auto& client = clients[&server];
    if (!client) {
      const SimShardOptions& at = server.options();
      client = std::make_unique<SimClient>([this, at] { return network.connect_client(at.host, at.port); });
    }
    auto pending = std::make_shared<Pending>();
    loop.spawn(run_pending(client.get(), std::move(command), pending));
    return pending;
  }
  BsonDoc ask(SimShard& server, const BsonDoc& command) {
    auto pending = start(server, command);
    REQUIRE(run_until(loop, [&] { return pending->done; }, minutes(10)));
    REQUIRE(pending->reply.has_value());
    return *std::move(pending->reply);
  }
  BsonDoc ask(SimShard& server, std::string_view command) { return ask(server, json(command)); }
  BsonDoc config(std::string_view command, std::size_t member = 0) {
    return ask(cluster.config_server(member), command);
  }
  const SimCollection& r() {
    held = cluster.config().collection("rec.r");
    return *held;
  }

  SimLog log;
  Loop loop{Loop::Drive::manual};
  SimNetwork network{loop};
  SimCluster cluster;
  std::map<SimShard*, std::unique_ptr<SimClient>> clients;
  std::shared_ptr<const SimCollection> held;
};

void append_version(BsonWriter& out, const SimVersion& version, std::int32_t wire) {
  std::uint8_t epoch[12];
  std::copy(version.epoch.begin(), version.epoch.end(), epoch);
  if (wire >= wire_6_0) {
    out.begin_document("shardVersion").append_object_id("e", epoch);
    out.append_timestamp("t", version.timestamp).append_timestamp("v", version.lastmod).end();
    return;
  }
  out.begin_array("shardVersion").append_timestamp("0", version.lastmod).append_object_id("1", epoch);
  if (wire >= wire_5_0) out.append_timestamp("2", version.timestamp);
  out.end();
}

SimVersion ignored() {
  SimVersion version{0, {}, ~std::uint64_t{0}};
  std::fill(version.epoch.begin() + 4, version.epoch.end(), 0xff);
  return version;
}

BsonDoc versioned(std::string_view command, const SimVersion& version, std::int32_t wire) {
  const BsonDoc plain = json(command);
  BsonWriter out;
  out.append_elements(plain);
  append_version(out, version, wire);
  return std::move(out).finish();
}

constexpr std::string_view find_r = R"({"find": "r", "filter": {}, "$db": "rec"})";

// A document without the times that every reply has.
BsonDoc without_times(DocView reply) {
  BsonWriter out;
  for (const Element& field : reply) {
    if (field.name != "$clusterTime" && field.name != "operationTime" && field.name != "$configServerState" &&
        field.name != "lastCommittedOpTime") {
      out.append_element(field);
    }
  }
  return std::move(out).finish();
}

bool same(const BsonDoc& document, std::string_view expected) {
  return to_json(document.view()) == to_json(json(expected).view());
}

std::vector<std::string> names_of(DocView document) {
  std::vector<std::string> names;
  for (const Element& field : document) names.emplace_back(field.name);
  return names;
}

std::vector<int> keys_of(DocView reply) {
  std::vector<int> keys;
  for (const BsonDoc& each : batch_of(reply)) keys.push_back(each.view()["k"].as_int32());
  return keys;
}

using Names = std::vector<std::string>;
using Keys = std::vector<int>;

std::vector<std::string> lastmods(const std::vector<BsonDoc>& chunks) {
  std::vector<std::string> all;
  for (const BsonDoc& each : chunks) {
    const std::uint64_t lastmod = timestamp_of(each.view()["lastmod"]);
    all.push_back(fmt::format("{}|{} {}", lastmod >> 32, lastmod & 0xffffffff, each.view()["shard"].as_string()));
  }
  return all;
}

}  // namespace

TEST_CASE("config servers of 4.2 show a collection and its chunks as recorded", "[cluster]") {
  Bench bench;
  bench.shard_r();
  const BsonDoc collection = bench.config(R"({"find": "collections", "filter": {"_id": "rec.r"}, "limit": 1,
      "readConcern": {"level": "majority"}, "$db": "config"})");
  REQUIRE(batch_of(collection).size() == 1);
  CHECK(names_of(batch_of(collection)[0]) ==
        Names{"_id", "lastmodEpoch", "lastmod", "dropped", "key", "unique", "uuid"});
  const BsonDoc chunks = bench.config(R"({"find": "chunks", "filter": {"ns": "rec.r",
      "lastmod": {"$gte": {"$timestamp": {"t": 0, "i": 0}}}}, "sort": {"lastmod": 1}, "$db": "config"})");
  REQUIRE(batch_of(chunks).size() == 2);
  const BsonDoc first = batch_of(chunks)[0];
  CHECK(names_of(first) == Names{"_id", "ns", "min", "max", "shard", "lastmod", "lastmodEpoch", "history"});
  CHECK(first.view()["_id"].as_string() == "rec.r-k_MinKey");
  CHECK(batch_of(chunks)[1].view()["_id"].as_string() == "rec.r-k_100");
  CHECK(cluster_time_of(chunks) != 0);
  CHECK(timestamp_of(chunks.view()["operationTime"]) != 0);
  const BsonDoc database = bench.config(R"({"find": "databases", "filter": {"_id": "rec"}, "$db": "config"})");
  CHECK(names_of(batch_of(database).at(0)) == Names{"_id", "primary", "partitioned", "version"});
  CHECK(names_of(batch_of(database)[0].view()["version"].as_document()) == Names{"uuid", "lastMod"});
  const BsonDoc shards = bench.config(R"({"find": "shards", "$db": "config"})");
  CHECK(same(batch_of(shards).at(1), R"({"_id": "sh1", "host": "sh1/sh1-0:27110", "state": 1})"));
  CHECK(bench.config(R"({"hello": 1, "$db": "admin"})").view()["configsvr"].as_int32() == 2);
}

TEST_CASE("config servers from 5.0 name a collection's chunks by uuid, and read at a snapshot", "[cluster]") {
  Bench bench({.wire_version = GENERATE(wire_5_0, wire_6_0, wire_7_0, wire_8_0)});
  bench.shard_r();
  const BsonDoc reply = bench.config(
      R"({"find": "collections", "filter": {"_id": "rec.r"}, "readConcern": {"level": "snapshot"}, "$db": "config"})");
  const std::uint64_t time = timestamp_of(reply.view().find_path("cursor.atClusterTime"));
  REQUIRE(time != 0);
  const BsonDoc collection = batch_of(reply).at(0);
  CHECK(collection.view()["timestamp"].type == BsonType::timestamp);
  CHECK(!collection.view()["dropped"].exists());

  bench.cluster.move("rec.r", json(R"({"k": 150})"), 0);
  const auto chunks = [&](bool at_time) {
    BsonWriter out;
    out.append("find", "chunks").begin_document("filter").append("uuid", collection.view()["uuid"]).end();
    out.begin_document("sort").append("lastmod", 1).end().begin_document("readConcern").append("level", "snapshot");
    if (at_time) out.append_timestamp("atClusterTime", time);
    out.end().append("$db", "config");
    const BsonDoc command = std::move(out).finish();
    return batch_of(bench.ask(bench.cluster.config_server(0), command));
  };
  CHECK(lastmods(chunks(true)) == Names{"1|0 sh0", "1|1 sh1"});
  CHECK(lastmods(chunks(false)) == Names{"1|0 sh0", "2|0 sh0"});
  CHECK(chunks(false)[0].view()["_id"].type == BsonType::object_id);
  CHECK(!chunks(false)[0].view()["ns"].exists());
}

TEST_CASE("splits, moves and merges number the chunks as recorded", "[cluster]") {
  Bench bench({.shards = 3});
  SimConfig& config = bench.cluster.config();
  config.shard_collection("rec.r", json(R"({"k": 1})"), {}, {"sh1"});
  bench.cluster.split("rec.r", json(R"({"k": 100})"));
  bench.cluster.split("rec.r", json(R"({"k": 200})"));
  const auto shown = [&] {
    return lastmods(batch_of(bench.config(R"({"find": "chunks", "filter": {"ns": "rec.r"}, "$db": "config"})")));
  };
  CHECK(shown() == Names{"1|1 sh1", "1|3 sh1", "1|4 sh1"});
  bench.cluster.move("rec.r", json(R"({"k": 100})"), 0);
  CHECK(shown() == Names{"2|1 sh1", "2|0 sh0", "1|4 sh1"});
  bench.cluster.move("rec.r", json(R"({"k": 200})"), 2);
  CHECK(shown() == Names{"3|1 sh1", "2|0 sh0", "3|0 sh2"});
  const auto since = batch_of(bench.config(R"({"find": "chunks", "filter": {"ns": "rec.r",
      "lastmod": {"$gte": {"$timestamp": {"t": 2, "i": 1}}}}, "sort": {"lastmod": 1}, "$db": "config"})"));
  CHECK(lastmods(since) == Names{"3|0 sh2", "3|1 sh1"});
  bench.cluster.move("rec.r", json(R"({"k": 100})"), 1);
  config.merge("rec.r", 0);
  CHECK(shown() == Names{"4|1 sh1", "3|0 sh2"});

  bench.cluster.drop("rec.r");
  CHECK(shown().empty());
  const BsonDoc gone = bench.config(R"({"find": "collections", "filter": {"_id": "rec.r"}, "$db": "config"})");
  CHECK(batch_of(gone).at(0).view()["dropped"].truthy());
}

TEST_CASE("a config server that lags shows an older state, and waits when it is told a time", "[cluster]") {
  Bench bench({.config_members = 2});
  bench.shard_r();
  bench.cluster.config_role(1).lag();
  bench.cluster.move("rec.r", json(R"({"k": 150})"), 0);
  const std::string plain =
      R"({"find": "chunks", "filter": {}, "$readPreference": {"mode": "nearest"}, "$db": "config")";
  CHECK(lastmods(batch_of(bench.config(plain + "}", 0))) == Names{"1|0 sh0", "2|0 sh0"});
  CHECK(lastmods(batch_of(bench.config(plain + "}", 1))) == Names{"1|0 sh0", "1|1 sh1"});

  const auto at = [&](std::string_view more) {
    const std::uint64_t time = bench.cluster.config().time();
    return fmt::format(R"({}, "readConcern": {{"afterClusterTime": {{"$timestamp": {{"t": {}, "i": {}}}}}}} {}}})",
                       plain, time >> 32, time & 0xffffffff, more);
  };
  CHECK(code_of(bench.config(at(""), 1)) == 72);  // it has not heard of that time
  const std::uint64_t time = bench.cluster.config().time();
  const std::string gossip = fmt::format(
      R"(, "$clusterTime": {{"clusterTime": {{"$timestamp": {{"t": {}, "i": {}}}}}}})", time >> 32, time & 0xffffffff);
  CHECK(code_of(bench.config(at(gossip + R"(, "maxTimeMS": 50)"), 1)) == 50);
  auto waiting = bench.start(bench.cluster.config_server(1), json(at(gossip)));
  run_for(bench.loop, seconds(2));
  CHECK(!waiting->done);
  bench.cluster.config_role(1).catch_up();
  REQUIRE(run_until(bench.loop, [&] { return waiting->done; }, seconds(1)));
  CHECK(lastmods(batch_of(*waiting->reply)) == Names{"1|0 sh0", "2|0 sh0"});
}

TEST_CASE("a config set has one primary, which may change", "[cluster]") {
  Bench bench({.config_members = 3});
  SimCluster& cluster = bench.cluster;
  CHECK(cluster.config_db() == "config/config-0:27019,config-1:27019,config-2:27019");
  const BsonDoc before = bench.config(R"({"hello": 1, "$db": "admin"})", 1);
  CHECK(!before.view()["isWritablePrimary"].truthy());
  CHECK(before.view()["secondary"].truthy());
  CHECK(before.view()["primary"].as_string() == "config-0:27019");
  CHECK(before.view()["hosts"].as_document().count() == 3);
  cluster.config_set().elect(cluster.config_server(1));
  CHECK(bench.config(R"({"hello": 1, "$db": "admin"})", 1).view()["isWritablePrimary"].truthy());
  CHECK(!bench.config(R"({"hello": 1, "$db": "admin"})", 0).view()["isWritablePrimary"].truthy());
}

TEST_CASE("a shard compares epoch and major version, and takes commands without versions", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  Bench bench({.wire_version = wire});
  bench.shard_r();
  SimShard& shard = bench.cluster.shard(1);
  const SimVersion right = bench.r().version_of("sh1");
  CHECK(keys_of(bench.ask(shard, versioned(find_r, right, wire))) == Keys{150, 250});
  CHECK(keys_of(bench.ask(shard, find_r)) == Keys{150, 250});
  SimVersion other = right;
  other.lastmod += 7;
  CHECK(keys_of(bench.ask(shard, versioned(find_r, other, wire))) == Keys{150, 250});
  CHECK(keys_of(bench.ask(shard, versioned(find_r, ignored(), wire))) == Keys{150, 250});
  other = right;
  other.lastmod += sim_version(1, 0);
  CHECK(code_of(bench.ask(shard, versioned(find_r, other, wire))) == 13388);
  other = right;
  other.epoch[11] ^= 1;
  CHECK(code_of(bench.ask(shard, versioned(find_r, other, wire))) == 13388);
  CHECK(code_of(bench.ask(shard, versioned(find_r, SimVersion(), wire))) == 13388);
  // A collection that is not sharded.
  const std::string_view find_u = R"({"find": "u", "filter": {}, "$db": "rec"})";
  if (wire > wire_4_2) CHECK(code_of(bench.ask(shard, versioned(find_u, SimVersion(), wire))) == 13388);
  CHECK(is_ok(bench.ask(shard, versioned(find_u, SimVersion(), wire))));
  CHECK(code_of(bench.ask(shard, versioned(find_u, right, wire))) == 13388);
  // The form of another release.
  CHECK(code_of(bench.ask(shard, versioned(find_r, right, wire < wire_6_0 ? wire_6_0 : wire_4_2))) ==
        (wire == wire_6_0 ? 13388 : 14));
}

TEST_CASE("a stale error says both versions in the form of the shard's release", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  Bench bench({.wire_version = wire});
  bench.shard_r();
  const SimVersion old = bench.r().version_of("sh1");
  bench.cluster.move("rec.r", json(R"({"k": 150})"), 0);
  const BsonDoc reply = bench.ask(bench.cluster.shard(1), versioned(find_r, old, wire));
  INFO(to_json(reply.view()));
  CHECK(!is_ok(reply));
  CHECK(reply.view()["code"].as_int32() == 13388);
  CHECK(reply.view()["codeName"].as_string() == "StaleConfig");
  CHECK(reply.view()["ns"].as_string() == "rec.r");
  CHECK(reply.view()["shardId"].exists() == (wire >= wire_4_4));
  if (wire >= wire_6_0) {
    CHECK(names_of(reply.view()["vReceived"].as_document()) == Names{"e", "t", "v"});
    CHECK(timestamp_of(reply.view().find_path("vReceived.v")) == old.lastmod);
    CHECK(timestamp_of(reply.view().find_path("vWanted.v")) == 0);  // no chunk is left
    CHECK(timestamp_of(reply.view().find_path("vWanted.t")) == old.timestamp);
  } else {
    CHECK(timestamp_of(reply.view()["vReceived"]) == old.lastmod);
    CHECK(timestamp_of(reply.view()["vWanted"]) == 0);
    CHECK(reply.view()["vWantedEpoch"] == reply.view()["vReceivedEpoch"]);
    CHECK(reply.view()["vReceivedTimestamp"].exists() == (wire >= wire_5_0));
  }
  // The donor has heard of the time of the move.
  CHECK(cluster_time_of(reply) >= bench.cluster.config().newest().time);
}

TEST_CASE("a stale write is an error of its first statement, or of all from there on, as recorded", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  Bench bench({.wire_version = wire});
  bench.shard_r();
  const SimVersion old = bench.r().version_of("sh1");
  const bool ordered = GENERATE(true, false);
  bench.cluster.role(1).before_statement = [&](std::size_t index) {
    if (index == 1) bench.cluster.move("rec.r", json(R"({"k": 150})"), 0);
  };
  const std::string insert = fmt::format(R"({{"insert": "r", "documents": [{{"_id": 1, "k": 301}},
      {{"_id": 2, "k": 302}}, {{"_id": 3, "k": 303}}], "ordered": {}, "$db": "rec"}})", ordered);
  const BsonDoc reply = bench.ask(bench.cluster.shard(1), versioned(insert, old, wire));
  INFO(to_json(reply.view()));
  CHECK(is_ok(reply));
  CHECK(reply.view()["n"].as_int32() == 1);
  REQUIRE(reply.view()["writeErrors"].is_array());
  CHECK(reply.view()["writeErrors"].as_document().count() == (ordered ? 1u : 2u));
  const DocView error = item_of(reply, "writeErrors", 0).as_document();
  CHECK(error["index"].as_int32() == 1);
  if (wire <= wire_6_0) {
    CHECK(error["code"].as_int32() == 63);
    CHECK(names_of(error) == Names{"index", "code", "errInfo", "errmsg"});
    if (wire == wire_4_2) {
      CHECK(names_of(error["errInfo"].as_document()) ==
            Names{"ns", "vReceived", "vReceivedEpoch", "vWanted", "vWantedEpoch"});
    }
  } else {
    CHECK(error["code"].as_int32() == 13388);
    CHECK(error["vReceived"].is_document());
    CHECK(error["shardId"].exists());
  }
  CHECK(bench.cluster.orphans("rec.r") == 3);
}

TEST_CASE("a recipient is stale once, until it has looked, as recorded", "[cluster]") {
  Bench bench;
  bench.shard_r();
  bench.cluster.role(0).learn("rec.r");
  bench.cluster.move("rec.r", json(R"({"k": 150})"), 0);
  const SimVersion now = bench.r().version_of("sh0");
  CHECK(now.lastmod == sim_version(2, 0));
  const BsonDoc first = bench.ask(bench.cluster.shard(0), versioned(find_r, now, wire_4_2));
  CHECK(code_of(first) == 13388);
  CHECK(timestamp_of(first.view()["vWanted"]) == sim_version(1, 0));
  CHECK(keys_of(bench.ask(bench.cluster.shard(0), versioned(find_r, now, wire_4_2))) == Keys{50, 150, 250});

  bench.cluster.role(0).forget();
  bench.cluster.role(0).stay_behind(2);
  for (int i = 0; i < 3; ++i) {
    CHECK(code_of(bench.ask(bench.cluster.shard(0), versioned(find_r, now, wire_4_2))) == 13388);
  }
  CHECK(is_ok(bench.ask(bench.cluster.shard(0), versioned(find_r, now, wire_4_2))));
}

TEST_CASE("an orphan is seen without a version, and by a secondary without a read concern", "[cluster]") {
  Bench bench({.members = 2});
  bench.shard_r();
  bench.cluster.split("rec.r", json(R"({"k": 200})"));
  bench.cluster.move("rec.r", json(R"({"k": 250})"), 0);
  const SimVersion donor = bench.r().version_of("sh1");
  const auto secondary = [&](std::string_view concern) {
    const std::string command = fmt::format(R"({{"find": "r", "filter": {{}}, {}
        "$readPreference": {{"mode": "secondary"}}, "$db": "rec"}})", concern);
    return bench.ask(bench.cluster.shard(1, 1), versioned(command, donor, wire_4_2));
  };
  const auto ask = [&](std::string_view command) {
    return bench.ask(bench.cluster.shard(1), versioned(command, donor, wire_4_2));
  };
  CHECK(bench.cluster.orphans("rec.r") == 1);
  CHECK(keys_of(bench.ask(bench.cluster.shard(1), versioned(find_r, donor, wire_4_2))) == Keys{150});
  CHECK(keys_of(bench.ask(bench.cluster.shard(1), find_r)) == Keys{150, 250});
  CHECK(keys_of(secondary("")) == Keys{150, 250});
  CHECK(keys_of(secondary(R"("readConcern": {"level": "available"},)")) == Keys{150, 250});
  CHECK(code_of(secondary(R"("readConcern": {"level": "local"},)")) == 13388);  // it had not looked before
  CHECK(keys_of(secondary(R"("readConcern": {"level": "local"},)")) == Keys{150});
  SimVersion stale = donor;
  stale.lastmod -= sim_version(1, 0);
  const std::string_view on_secondary =
      R"({"find": "r", "filter": {}, "$readPreference": {"mode": "secondary"}, "$db": "rec"})";
  CHECK(is_ok(bench.ask(bench.cluster.shard(1, 1), versioned(on_secondary, stale, wire_4_2))));
  // Tried on 4.2.
  CHECK(keys_of(bench.ask(bench.cluster.shard(1), versioned(find_r, ignored(), wire_4_2))) == Keys{150});
  CHECK(ask(R"({"count": "r", "query": {}, "$db": "rec"})").view()["n"].as_int32() == 2);
  CHECK(ask(R"({"count": "r", "query": {"k": {"$gt": 0}}, "$db": "rec"})").view()["n"].as_int32() == 1);
  CHECK(ask(R"({"update": "r", "updates": [{"q": {}, "u": {"$inc": {"n": 1}}, "multi": true}], "$db": "rec"})")
            .view()["n"].as_int32() == 2);
  bench.cluster.delete_orphans("rec.r");
  CHECK(bench.cluster.orphans("rec.r") == 0);
}

TEST_CASE("a new primary knows no versions until it has looked", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_7_0);
  Bench bench({.wire_version = wire, .members = 2});
  bench.shard_r();
  bench.cluster.elect(1, 1);
  const SimVersion right = bench.r().version_of("sh1");
  const BsonDoc reply = bench.ask(bench.cluster.shard(1, 1), versioned(find_r, right, wire));
  CHECK(code_of(reply) == 13388);
  CHECK(reply.view()["vWanted"].exists() == (wire == wire_4_2));
  CHECK(keys_of(bench.ask(bench.cluster.shard(1, 1), versioned(find_r, right, wire))) == Keys{150, 250});
  CHECK(code_of(bench.ask(bench.cluster.shard(1, 0), versioned(find_r, right, wire))) == 13435);
}

TEST_CASE("a cursor keeps the documents that its shard owned when it was opened", "[cluster]") {
  Bench bench;
  bench.shard_r();
  const SimVersion old = bench.r().version_of("sh1");
  const BsonDoc first = bench.ask(bench.cluster.shard(1),
      versioned(R"({"find": "r", "filter": {}, "batchSize": 1, "$db": "rec"})", old, wire_4_2));
  CHECK(keys_of(first) == Keys{150});
  bench.cluster.move("rec.r", json(R"({"k": 150})"), 0);
  bench.cluster.delete_orphans("rec.r");
  const BsonDoc rest = bench.ask(bench.cluster.shard(1), fmt::format(
      R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "r", "$db": "rec"}})", cursor_id(first)));
  CHECK(keys_of(rest) == Keys{250});
}

TEST_CASE("a versioned command waits for the critical section, and is answered stale", "[cluster]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_7_0);
  Bench bench({.wire_version = wire});
  bench.shard_r();
  const SimVersion old = bench.r().version_of("sh1");
  bench.loop.spawn(bench.cluster.move_slowly(bench.loop, "rec.r", json(R"({"k": 150})"), 0, seconds(3)));
  const std::string_view insert = R"({"insert": "r", "documents": [{"_id": 1, "k": 300}], "$db": "rec"})";
  auto reading = bench.start(bench.cluster.shard(1), versioned(find_r, old, wire));
  run_for(bench.loop, seconds(1));
  CHECK(!reading->done);
  REQUIRE(run_until(bench.loop, [&] { return reading->done; }, seconds(5)));
  CHECK(code_of(*reading->reply) == 13388);
  CHECK(bench.cluster.orphans("rec.r") == 2);

  const SimVersion now = bench.r().version_of("sh0");
  bench.cluster.role(0).learn("rec.r");
  bench.cluster.role(0).enter_critical_section("rec.r");
  CHECK(code_of(bench.ask(bench.cluster.shard(0), versioned(
      R"({"find": "r", "filter": {}, "maxTimeMS": 20, "$db": "rec"})", now, wire))) == 50);
  auto writing = bench.start(bench.cluster.shard(0), versioned(insert, now, wire));
  run_for(bench.loop, seconds(1));
  CHECK(!writing->done);
  bench.cluster.role(0).leave_critical_section("rec.r");  // the move was given up
  REQUIRE(run_until(bench.loop, [&] { return writing->done; }, seconds(5)));
  CHECK(writing->reply->view()["n"].as_int32() == 0);
  CHECK(is_ok(bench.ask(bench.cluster.shard(0), versioned(insert, now, wire))));
}

TEST_CASE("a database's version is checked, and is not known at first, as recorded", "[cluster]") {
  Bench bench;
  bench.cluster.store("rec.u", json(R"({"_id": 1, "k": 1})"));
  const auto find_u = [&](int last_mod) {
    BsonWriter out;
    out.append("find", "u").append("$db", "rec").begin_document("databaseVersion");
    out.append_binary("uuid", 4, bench.cluster.config().database("rec")->uuid).append("lastMod", last_mod).end();
    append_version(out, SimVersion(), wire_4_2);
    return std::move(out).finish();
  };
  const BsonDoc unknown = bench.ask(bench.cluster.shard(0), find_u(1));
  CHECK(code_of(unknown) == 249);
  CHECK(unknown.view()["errmsg"].as_string() == "don't know dbVersion");
  CHECK(unknown.view()["db"].as_string() == "rec");
  CHECK(unknown.view()["vReceived"].is_document());
  CHECK(!unknown.view()["vWanted"].exists());
  CHECK(keys_of(bench.ask(bench.cluster.shard(0), find_u(1))) == Keys{1});
  bench.cluster.move_primary("rec", 1);
  BsonWriter write;
  write.append("insert", "u").begin_array("documents").begin_document_item().append("_id", 2).end();
  write.begin_document_item().append("_id", 3).end().end().append("ordered", false).append("$db", "rec");
  write.append("databaseVersion", find_u(1).view()["databaseVersion"]);
  const BsonDoc refused = bench.ask(bench.cluster.shard(0), std::move(write).finish());
  CHECK(refused.view()["n"].as_int32() == 0);
  for (std::size_t i : {0u, 1u}) {  // tried on 4.2
    const DocView error = item_of(refused, "writeErrors", i).as_document();
    CHECK(names_of(error) == Names{"index", "code", "db", "vReceived", "vWanted", "errmsg"});
    CHECK(error["code"].as_int32() == 249);
  }
  const BsonDoc stale = bench.ask(bench.cluster.shard(0), find_u(1));
  CHECK(code_of(stale) == 249);
  CHECK(stale.view().find_path("vWanted.lastMod").as_int32() == 2);
  CHECK(code_of(bench.ask(bench.cluster.shard(1), find_u(2))) == 249);
  CHECK(keys_of(bench.ask(bench.cluster.shard(1), find_u(2))) == Keys{1});
}

TEST_CASE("an insert into a new collection is refused once by 4.2, by 8.0 until the router made it", "[cluster]") {
  const std::string_view insert =
      R"({"insert": "n", "documents": [{"_id": 1, "k": 1}], "allowImplicitCollectionCreation": false, "$db": "rec"})";
  {
    Bench bench;
    const BsonDoc refused = bench.ask(bench.cluster.shard(0), versioned(insert, SimVersion(), wire_4_2));
    // As recorded.
    CHECK(same(without_times(refused), R"({"n": 0, "writeErrors": [{"index": 0, "code": 227, "ns": "rec.n",
        "errmsg": "request doesn't allow collection to be created implicitly"}], "ok": 1.0})"));
    CHECK(bench.ask(bench.cluster.shard(0), versioned(insert, SimVersion(), wire_4_2)).view()["n"].as_int32() == 1);
  }
  Bench bench({.wire_version = wire_8_0});
  bench.cluster.role(0).learn("rec.n");
  for (int i = 0; i < 2; ++i) {
    const BsonDoc refused = bench.ask(bench.cluster.shard(0), versioned(insert, SimVersion(), wire_8_0));
    CHECK(item_of(refused, "writeErrors", 0).as_document()["code"].as_int32() == 227);
  }
  const std::string_view create = R"({"_shardsvrCreateCollection": "n", "unsplittable": true, "$db": "rec"})";
  CHECK(is_ok(bench.ask(bench.cluster.shard(0), create)));
  CHECK(bench.ask(bench.cluster.shard(0), versioned(insert, SimVersion(), wire_8_0)).view()["n"].as_int32() == 1);
}

TEST_CASE("a shard from 5.0 that cannot look says 343", "[cluster]") {
  Bench bench({.wire_version = wire_5_0});
  bench.shard_r();
  bench.cluster.role(1).hold_locks(1);
  const SimVersion right = bench.r().version_of("sh1");
  CHECK(code_of(bench.ask(bench.cluster.shard(1), versioned(find_r, right, wire_5_0))) == 343);
  CHECK(is_ok(bench.ask(bench.cluster.shard(1), versioned(find_r, right, wire_5_0))));
}

TEST_CASE("a write that was executed before its chunk moved is not executed again", "[cluster]") {
  Bench bench;
  bench.shard_r();
  const std::string_view insert = R"({"insert": "r", "documents": [{"_id": 1, "k": 301}],
      "txnNumber": {"$numberLong": "1"}, "$db": "rec",
      "lsid": {"id": {"$binary": {"base64": "AAECAwQFBgcICQoLDA0ODw==", "subType": "04"}}}})";
  CHECK(is_ok(bench.ask(bench.cluster.shard(1), versioned(insert, bench.r().version_of("sh1"), wire_4_2))));
  bench.cluster.move("rec.r", json(R"({"k": 301})"), 0);
  bench.cluster.role(0).learn("rec.r");
  const BsonDoc again = bench.ask(bench.cluster.shard(0), versioned(insert, bench.r().version_of("sh0"), wire_4_2));
  CHECK(again.view()["n"].as_int32() == 1);
  CHECK(!again.view()["writeErrors"].exists());
  CHECK(bench.cluster.owned("rec.r").size() == 4);
}

TEST_CASE("churn loses and doubles no document of a scripted cluster", "[cluster]") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SimLog log;
    SimCluster cluster({.wire_version = seed % 2 == 0 ? wire_4_2 : wire_7_0, .shards = 3}, log);
    cluster.create_database("rec", 0);
    cluster.shard_collection("rec.r", json(R"({"k": 1})"), {});
    cluster.shard_collection("rec.h", json(R"({"_id": "hashed"})"), {});
    for (int id = 0; id < 20; ++id) {
      for (const char* ns : {"rec.r", "rec.h", "rec.u"}) {
        cluster.store(ns, json(fmt::format(R"({{"_id": {}, "k": {}}})", id, id % 7)));
      }
    }
    std::mt19937_64 random(seed);
    for (int i = 0; i < 60; ++i) cluster.churn(random);
    for (const char* ns : {"rec.r", "rec.h", "rec.u"}) {
      std::set<int> ids;
      const auto owned = cluster.owned(ns);
      for (const BsonDoc& each : owned) ids.insert(each.view()["_id"].as_int32());
      INFO("seed " << seed << ", " << ns);
      CHECK(owned.size() == 20);
      CHECK(ids.size() == 20);
    }
  }
}

}  // namespace spillway::test
