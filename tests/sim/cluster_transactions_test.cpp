// Transactions over the shards of a scripted cluster: what each shard is told, and that all of a transaction is
// committed or nothing.
#include "tests/sim/cluster_world.h"

namespace spillway::test {

namespace {

constexpr std::string_view session_fields = R"("lsid": {"id": {"$binary": {"base64": "AAAAAAAAAAAAAAAAAAAAAA==",
    "subType": "04"}}})";

// A session's transactions, one after the other, each on both shards of rec.r (k: 0 to 9, 10 to 19).
struct Session {
  ClusterWorld& sim;
  int number = 0;
  bool begun = false;
  std::vector<std::string> commands{};  // "sh1 update startTransaction"

  explicit Session(ClusterWorld& world) : sim(world) {
    REQUIRE(sim.read_all() == numbers(0, sim.total()));
    for (std::size_t i = 0; i < sim.cluster.shard_count(); ++i) {
      sim.cluster.shard(i).observe = [this, i](DocView command) {
        if (!command["autocommit"].exists()) return;
        std::string text = fmt::format("sh{} {}", i, command.first().name);
        for (const char* field : {"startTransaction", "coordinator"}) {
          if (command[field].truthy()) text += std::string(" ") + field;
        }
        commands.push_back(std::move(text));
      };
    }
  }
  void start() {
    ++number;
    begun = false;
    commands.clear();
  }
  // From a document on sh0 to one on sh1.
  void start_transfer() {
    start();
    CHECK(is_ok(add(5, -1)));
    CHECK(is_ok(add(15, 1)));
  }
  BsonDoc run(std::string_view command) {
    const bool begins = !std::exchange(begun, true);
    return sim.ask(fmt::format(R"({{{}, {}, "txnNumber": {{"$numberLong": "{}"}}, "autocommit": false{}}})", command,
                               session_fields, number, begins ? R"(, "startTransaction": true)" : ""));
  }
  BsonDoc add(int k, int n) {
    return run(fmt::format(R"("update": "r", "updates": [{{"q": {{"k": {}}}, "u": {{"$inc": {{"n": {}}}}}}}],
        "$db": "rec")", k, n));
  }
  BsonDoc commit() { return run(R"("commitTransaction": 1, "$db": "admin")"); }
  std::int64_t of(int k) {
    for (const BsonDoc& each : sim.cluster.owned("rec.r")) {
      if (each.view()["k"].to_int64() == k) return each.view()["n"].to_int64().value_or(0);
    }
    return -1;
  }
  std::size_t open() {
    std::size_t all = 0;
    for (std::size_t i = 0; i < sim.cluster.shard_count(); ++i) all += sim.cluster.shard(i).open_transactions();
    return all;
  }
};

using Commands = std::vector<std::string>;

bool is_transient(const BsonDoc& reply) {
  const ValueView labels = reply.view()["errorLabels"];
  return labels.is_array() && to_json(reply).find("TransientTransactionError") != std::string::npos;
}

}  // namespace

TEST_CASE("a transaction over two shards is committed by one of them, at once", "[cluster][transactions]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire});
  Session session(sim);
  session.start();
  CHECK(is_ok(session.add(5, -1)));
  const BsonDoc second = session.add(15, 1);
  CHECK(to_json(second).find(R"("recoveryShardId" : "sh0")") != std::string::npos);
  CHECK_FALSE(second.view()["readOnly"].exists());
  CHECK(session.of(5) == 0);
  CHECK(session.of(15) == 0);
  CHECK(is_ok(session.commit()));
  CHECK(session.of(5) == -1);
  CHECK(session.of(15) == 1);
  CHECK(session.commands == Commands{"sh0 update startTransaction coordinator", "sh1 update startTransaction",
                                     "sh0 coordinateCommitTransaction coordinator"});
  CHECK(is_ok(session.commit()));  // the driver has not heard of the first
  CHECK(session.of(15) == 1);
  CHECK(session.open() == 0);
}

TEST_CASE("readers commit for themselves, before the one that writes up to 4.4", "[cluster][transactions]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_5_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire});
  Session session(sim);
  session.start();
  CHECK(batch_of(session.run(R"("find": "r", "$db": "rec")")).size() == 20);
  CHECK(is_ok(session.commit()));
  CHECK(session.commands.size() == 4);
  CHECK(session.commands[2].starts_with("sh0 commitTransaction"));
  CHECK(session.commands[3].starts_with("sh1 commitTransaction"));
  session.start();
  CHECK(is_ok(session.add(15, 1)));
  CHECK(batch_of(session.run(R"("find": "r", "$db": "rec")")).size() == 20);
  CHECK(is_ok(session.commit()));
  CHECK(session.of(15) == 1);
  CHECK(session.open() == 0);
  if (wire == wire_4_2) {
    REQUIRE(session.commands.size() == 5);
    CHECK(session.commands[3] == "sh0 commitTransaction");
    CHECK(session.commands[4] == "sh1 commitTransaction coordinator");
  } else {
    REQUIRE(session.commands.size() == 4);
    CHECK(session.commands[3] == "sh1 coordinateCommitTransaction coordinator");
  }
}

TEST_CASE("a transaction's cursor over several shards is read to its end", "[cluster][transactions]") {
  ClusterWorld sim;
  Session session(sim);
  session.start();
  BsonDoc reply = session.run(R"("find": "r", "sort": {"k": 1}, "batchSize": 3, "$db": "rec")");
  std::size_t seen = batch_of(reply).size();
  while (cursor_id(reply) != 0) {
    reply = session.run(fmt::format(R"("getMore": {{"$numberLong": "{}"}}, "collection": "r", "batchSize": 3,
        "$db": "rec")", cursor_id(reply)));
    REQUIRE(is_ok(reply));
    seen += batch_of(reply).size();
  }
  CHECK(seen == 20);
  CHECK(is_ok(session.commit()));
  CHECK(session.open() == 0);
}

TEST_CASE("statements of one transaction that are sent at once take turns", "[cluster][transactions]") {
  ClusterWorld sim;
  Session session(sim);
  session.start();
  sim.cluster.shard(0).delay = milliseconds(200);
  const auto add = [&](int k, bool begins) {
    return fmt::format(R"({{"update": "r", "updates": [{{"q": {{"k": {}}}, "u": {{"$inc": {{"n": 1}}}}}}], {},
        "txnNumber": {{"$numberLong": "1"}}, "autocommit": false{}, "$db": "rec"}})", k, session_fields,
                       begins ? R"(, "startTransaction": true)" : "");
  };
  const auto first = sim.begin(add(5, true));
  const auto later = start(*sim.world, *sim.other, json(add(6, false)));
  auto third = sim.world->client();
  const auto last = start(*sim.world, *third, json(add(15, false)));
  for (const auto& each : {first, later, last}) CHECK(is_ok(sim.end(*each)));
  REQUIRE(session.commands.size() == 3);
  CHECK(session.commands.front() == "sh0 update startTransaction coordinator");
  std::sort(session.commands.begin(), session.commands.end());
  CHECK(session.commands == Commands{"sh0 update coordinator", "sh0 update startTransaction coordinator",
                                     "sh1 update startTransaction"});
  session.begun = true;
  CHECK(is_ok(session.commit()));
  CHECK(session.of(5) + session.of(6) + session.of(15) == 3);
  third->close();
}

TEST_CASE("a statement that looks for what has moved since the transaction began is begun again with it",
          "[cluster][transactions]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_6_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire});
  Session session(sim);
  session.start();
  CHECK(is_ok(session.run(R"("find": "r", "filter": {"k": 5}, "$db": "rec")")));
  sim.cluster.move("rec.r", ClusterWorld::key(15), 0);
  sim.world->run_for(seconds(1));
  CHECK(is_ok(sim.ask(R"({"find": "r", "filter": {"k": 15}, "$db": "rec"})")));  // the router learns of it
  const BsonDoc moved = session.run(R"("find": "r", "filter": {"k": 15}, "$db": "rec")");
  CHECK(code_of(moved) == (wire == wire_6_0 ? 272 : 0));
  CHECK(is_transient(moved) == (wire == wire_6_0));
  sim.world->run_for(seconds(1));
  session.start();
  CHECK(is_ok(session.run(R"("find": "r", "filter": {"k": 15}, "$db": "rec")")));
  CHECK(is_ok(session.run(R"("find": "r", "filter": {"k": 5}, "$db": "rec")")));
  CHECK(is_ok(session.commit()));
}

TEST_CASE("a statement waits for its turn as long as it may", "[cluster][transactions]") {
  ClusterWorld sim;
  Session session(sim);
  session.start();
  sim.cluster.shard(0).delay = seconds(5);
  const auto first = sim.begin(fmt::format(R"({{"find": "r", "filter": {{"k": 5}}, {},
      "txnNumber": {{"$numberLong": "1"}}, "autocommit": false, "startTransaction": true, "$db": "rec"}})",
                                           session_fields));
  const BsonDoc second = sim.ask_other(fmt::format(R"({{"find": "r", "filter": {{"k": 15}}, {}, "maxTimeMS": 500,
      "txnNumber": {{"$numberLong": "1"}}, "autocommit": false, "$db": "rec"}})", session_fields));
  CHECK(code_of(second) == 50);
  CHECK(is_ok(sim.end(*first)));
  session.begun = true;
  CHECK(is_ok(session.commit()));
}

TEST_CASE("a first statement that meets a moved chunk is begun again, a later one ends the transaction",
          "[cluster][transactions]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_8_0);
  CAPTURE(wire);
  ClusterWorld sim({.wire_version = wire});
  Session session(sim);
  sim.cluster.move("rec.r", ClusterWorld::key(12), 0);
  session.start();
  CHECK(is_ok(session.add(12, 1)));
  CHECK(is_ok(session.commit()));
  CHECK(session.of(12) == 1);
  sim.cluster.split("rec.r", ClusterWorld::key(5));
  session.start();
  CHECK(is_ok(session.add(12, 1)));
  sim.cluster.move("rec.r", ClusterWorld::key(2), 1);  // ends it on sh0
  const BsonDoc failed = session.add(2, 1);
  CHECK_FALSE(is_ok(failed));
  CHECK(is_transient(failed));
  CHECK(code_of(session.commit()) == 251);
  CHECK(session.of(12) == 1);
  CHECK(session.of(2) == 0);
  CHECK(session.open() == 0);
}

TEST_CASE("an update that gives a document a key of another shard moves it there", "[cluster][transactions]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  const bool retryable = GENERATE(true, false);
  const bool moves_meanwhile = GENERATE(false, true);
  CAPTURE(wire, retryable, moves_meanwhile);
  ClusterWorld sim({.wire_version = wire, .shards = 3});
  Session session(sim);
  session.start();
  // The shard that the document comes from does not notice.
  if (moves_meanwhile) sim.cluster.move("rec.r", ClusterWorld::key(12), 2);
  const std::string update = R"("update": "r", "updates": [{"q": {"k": 5}, "u": {"$inc": {"k": 10}}}], "$db": "rec")";
  const BsonDoc reply =
      retryable ? sim.ask(fmt::format(R"({{{}, {}, "txnNumber": {{"$numberLong": "1"}}}})", update, session_fields))
                : session.run(update);
  INFO(to_json(reply));
  CHECK(is_ok(reply));
  CHECK(reply.view()["n"].to_int64() == 1);
  CHECK(reply.view()["nModified"].to_int64() == 1);
  if (!retryable) {
    CHECK(session.open() == 2);
    CHECK(sim.stored() == numbers(0, 30));
    CHECK(is_ok(session.commit()));
  }
  CHECK(session.open() == 0);
  std::vector<int> expected = numbers(0, 30);
  expected[5] = 15;
  std::sort(expected.begin(), expected.end());
  CHECK(sim.stored() == expected);
  CHECK(sim.read_all() == expected);
}

TEST_CASE("a transaction makes collections on the primary shard, from 4.4 on", "[cluster][transactions]") {
  const std::int32_t wire = GENERATE(wire_4_2, wire_4_4, wire_5_0, wire_6_0, wire_7_0, wire_8_0);
  const std::string statement = GENERATE(R"("insert": "n", "documents": [{"_id": 1, "k": 1}])", R"("create": "n")");
  CAPTURE(wire, statement);
  ClusterWorld sim({.wire_version = wire});
  Session session(sim);
  CHECK(batch_of(sim.ask(R"({"find": "n", "$db": "rec"})")).empty());  // and its shard looks what it knows of the name
  session.start();
  CHECK(is_ok(session.add(15, 1)));
  const BsonDoc made = session.run(statement + R"(, "$db": "rec")");
  INFO(to_json(made));
  if (wire == wire_4_2) {
    CHECK(code_of(made) == 263);
    CHECK(code_of(session.commit()) == 251);
    CHECK(session.of(15) == 0);
    return;
  }
  CHECK(is_ok(made));
  CHECK(to_json(made).find("recoveryShardId") != std::string::npos);
  CHECK(is_ok(session.run(R"("insert": "n", "documents": [{"_id": 2, "k": 2}], "$db": "rec")")));
  CHECK(sim.times(1, "insert") + sim.times(1, "create") == 0);
  CHECK(is_ok(session.commit()));
  CHECK(sim.cluster.role(0).exists("rec.n"));
  CHECK_FALSE(sim.cluster.role(1).exists("rec.n"));
  CHECK(session.of(15) == 1);
  CHECK(batch_of(sim.ask(R"({"find": "n", "$db": "rec"})")).size() == (statement.starts_with(R"("create)") ? 1 : 2));
  CHECK(session.open() == 0);
  // A collection that is sharded is there already, as its primary shard says.
  session.start();
  CHECK(code_of(session.run(R"("create": "r", "$db": "rec")")) == 48);
  CHECK(session.open() == 0);
}

TEST_CASE("a shard that has lost its part lets nothing of the transaction be committed", "[cluster][transactions]") {
  ClusterWorld sim;
  Session session(sim);
  const std::size_t which = GENERATE(0, 1);
  session.start_transfer();
  sim.cluster.shard(which).abort_transactions();
  const BsonDoc failed = session.commit();
  CHECK(code_of(failed) == 251);
  CHECK(is_transient(failed));
  CHECK(session.of(5) == 0);
  CHECK(session.of(15) == 0);
  CHECK(session.open() == 0);
}

TEST_CASE("whatever ends a transaction ends it on all shards", "[cluster][transactions]") {
  ClusterWorld sim;
  Session session(sim);
  session.start_transfer();
  REQUIRE(session.open() == 2);
  SECTION("abortTransaction") {
    CHECK(is_ok(session.run(R"("abortTransaction": 1, "$db": "admin")")));
    CHECK(code_of(session.commit()) == 251);
  }
  SECTION("killSessions") {
    CHECK(is_ok(sim.ask(R"({"killSessions": [{"id": {"$binary": {"base64": "AAAAAAAAAAAAAAAAAAAAAA==",
        "subType": "04"}}}], "$db": "admin"})")));
  }
  SECTION("a statement that fails") {
    CHECK_FALSE(is_ok(session.run(R"("insert": "r", "documents": [{"_id": 3, "k": 3}], "$db": "rec")")));
    CHECK(code_of(session.add(15, 1)) == 251);
  }
  SECTION("the next transaction") {
    session.start();
    CHECK(is_ok(session.add(16, 1)));
    CHECK(sim.world->run_until([&] { return session.open() == 1; }, minutes(1)));
    CHECK(is_ok(session.commit()));
    CHECK(session.of(16) == 1);
  }
  CHECK(session.open() == 0);
  CHECK(session.of(5) == 0);
  CHECK(session.of(15) == 0);
}

TEST_CASE("a shard that a long reply says was brought in is ended with the transaction", "[cluster][transactions]") {
  ClusterWorld sim({.wire_version = wire_8_0});
  const bool compresses = GENERATE(false, true);  // then a shorter one is read whole
  if (compresses) sim.client->compressor = wire::Compressor::snappy;
  sim.cluster.store("rec.u", json(fmt::format(R"({{"_id": 2, "text": "{}"}})",
                                              std::string((compresses ? 1 : 3) * limits::mib, 'x'))));
  Session session(sim);
  sim.cluster.shard(0).revise = [](std::string_view command, BsonDoc reply) {
    if (command != "find" || !reply.view()["ok"].truthy()) return reply;
    BsonWriter out;
    out.append_elements(reply);
    out.begin_array("additionalParticipants").begin_document_item();
    out.append("shardId", "sh1").append("readOnly", true).end().end();
    return std::move(out).finish();
  };
  session.start();
  const BsonDoc found = session.run(R"("find": "u", "$db": "rec")");
  CAPTURE(to_json(found, 500));
  REQUIRE(batch_of(found).size() == 2);
  CHECK(sim.world->shared().metrics.streamed_replies.value() == (compresses ? 0 : 1));
  session.run(R"("abortTransaction": 1, "$db": "admin")");
  CAPTURE(session.commands);
  CHECK(std::count_if(session.commands.begin(), session.commands.end(), [](const std::string& each) {
          return each.starts_with("sh1 abortTransaction");
        }) == 1);
}

}  // namespace spillway::test
