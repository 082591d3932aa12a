// Writes whose connection is cut after the shard has executed them, or whose shard steps down in the middle.
#include <algorithm>
#include <set>

#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

constexpr std::string_view session =
    R"("lsid": {"id": {"$binary": {"base64": "AAECAwQFBgcICQoLDA0ODw==", "subType": "04"}}})";

std::string retryable(std::string_view command, int txn_number) {
  return fmt::format(R"({{{}, {}, "txnNumber": {{"$numberLong": "{}"}}, "$db": "app"}})", command,
                     session, txn_number);
}

SimShardOptions member() {
  SimShardOptions like;
  like.set_name = "rs";
  return like;
}

// A small deployment for step-downs: `span` documents on each of two shards, {_id, k: 1}.
struct Steps {
  static constexpr int span = 6;
  SimWorld world{sharded_world(2, span, member())};
  std::unique_ptr<SimClient> client = world.client();

  Steps() {
    for (int id = 0; id < 2 * span; ++id) {
      BsonWriter out;
      out.append("_id", id).append("k", 1);
      world.shard(static_cast<std::size_t>(id / span)).store("app.docs", std::move(out).finish());
    }
  }
  SimShard& first() { return world.shard(0); }
  // Its primary steps down in the middle; it is elected again before this returns.
  BsonDoc ask(std::string_view command, std::size_t yields, std::int32_t code) {
    const std::size_t before = first().step_downs();
    first().step_down(yields, code, seconds(2));
    BsonDoc reply = call(world, *client, command);
    stepped_down = first().step_downs() > before;
    first().clear_faults();
    world.run_for(seconds(5));
    check_codes(reply.view());
    return reply;
  }
  // No code of a shard's state reaches a client, wherever in the reply.
  static void check_codes(DocView reply) {
    static const std::set<std::int64_t> of_states = {91, 189, 10107, 11600, 11602, 13435, 13436};
    INFO(to_json(reply));
    CHECK(!of_states.contains(code_of(reply)));
    for (std::size_t i = 0; reply["writeErrors"].is_array() && i < reply["writeErrors"].as_document().count(); ++i) {
      CHECK(!of_states.contains(code_of(item_of(reply, "writeErrors", i).as_document())));
    }
    CHECK(!of_states.contains(reply.find_path("writeConcernError.code").to_int64().value_or(0)));
  }
  // How many documents of a shard have this value in a field that is missing elsewhere.
  std::size_t with(std::size_t shard, const std::string& field, std::int64_t value) {
    const auto& all = world.shard(shard).stored("app.docs");
    return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [&](const BsonDoc& each) {
      return each.view()[field].to_int64().value_or(0) == value;
    }));
  }
  bool stepped_down = false;
};

bool all_done(DocView reply) {
  return reply["ok"].truthy() && !reply["writeErrors"].exists() && !reply["writeConcernError"].exists();
}

constexpr std::int32_t interruptions[] = {11602, 189, 11600, 91};

std::int64_t n_of(DocView reply) { return reply["n"].to_int64().value_or(-1); }

}  // namespace

// A driver's time for a socket is over, and it sends the write again over another connection.
TEST_CASE("a retryable write whose second attempt meets the first at work is executed once") {
  const std::string_view write = GENERATE(
      std::string_view(R"("update": "docs", "updates": [{"q": {"k": 1}, "u": {"$inc": {"k": 1}}}])"),
      std::string_view(R"("findAndModify": "docs", "query": {"k": 1}, "update": {"$inc": {"k": 1}})"));
  // What the first takes is the only match on its shard: the second would look on the other.
  SimWorld world(sharded_world(2, 6, member()));
  for (const int id : {0, 7}) {
    BsonWriter out;
    out.append("_id", id).append("k", 1);
    world.shard(static_cast<std::size_t>(id / 6)).store("app.docs", std::move(out).finish());
  }
  auto client = world.client(), another = world.client();
  for (std::size_t i = 0; i < 2; ++i) world.shard(i).delay = milliseconds(200);
  const auto first = start(world, *client, json(retryable(write, 7)));
  world.run_for(milliseconds(250));  // it has asked for earlier attempts, and looks for a document
  const auto second = start(world, *another, json(retryable(write, 7)));
  REQUIRE(world.run_until([&] { return first->done && second->done; }, seconds(20)));
  CHECK(is_ok(*first->reply));
  CHECK(is_ok(*second->reply));
  int taken = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    for (const BsonDoc& each : world.shard(i).stored("app.docs")) taken += each.view()["k"].to_int64() == 2;
  }
  CHECK(taken == 1);
  client->close();
  another->close();
  world.run_for(seconds(1));
}

TEST_CASE("a retryable insert that is cut after its execution is applied once") {
  SimWorld world(sharded_world(2, 20, member()));
  auto client = world.client();
  world.shard(0).misbehave(SimShard::Fault::cut_after, "insert");

  SECTION("one document") {
    const BsonDoc reply =
        call(world, *client, retryable(R"("insert": "docs", "documents": [{"_id": 1}])", 1));
    CHECK(is_ok(reply));
    CHECK(n_of(reply) == 1);
    CHECK(!reply.view()["writeErrors"].exists());
    CHECK(world.shard(0).applied() == 1);
    CHECK(world.shard(0).seen("insert") == 2);
    CHECK(world.shard(1).seen("insert") == 0);
  }
  SECTION("documents of two shards") {
    const BsonDoc reply = call(
        world, *client,
        retryable(
            R"("insert": "docs", "documents": [{"_id": 30}, {"_id": 1}, {"_id": 31}, {"_id": 2}],
                  "ordered": false)",
            2));
    CHECK(is_ok(reply));
    CHECK(n_of(reply) == 4);
    CHECK(!reply.view()["writeErrors"].exists());
    CHECK(world.shard(0).applied() == 2);
    CHECK(world.shard(1).applied() == 2);
  }
  SECTION("a collection that is not sharded") {
    const BsonDoc reply =
        call(world, *client, retryable(R"("insert": "other", "documents": [{"_id": 1}])", 3));
    CHECK(is_ok(reply));
    CHECK(n_of(reply) == 1);
    CHECK(world.shard(0).applied() == 1);
    CHECK(world.shard(0).seen("insert") == 2);
  }
}

TEST_CASE("a retryable update that is cut after its execution counts once") {
  SimWorld world(sharded_world(2, 20, member()));
  world.shard(1).store("app.docs", json(R"({"_id": 25, "n": {"$numberLong": "0"}})"));
  auto client = world.client();
  world.shard(1).misbehave(SimShard::Fault::cut_after, "update");
  const BsonDoc reply =
      call(world, *client,
           retryable(
               R"("update": "docs", "updates": [{"q": {"_id": 25}, "u": {"$inc": {"n": 1}}}])", 1));
  CHECK(is_ok(reply));
  CHECK(n_of(reply) == 1);
  CHECK(world.shard(1).seen("update") == 2);
  CHECK(world.shard(1).stored("app.docs").front().view()["n"].to_int64() == 1);
}

TEST_CASE("a write without a transaction number is never sent twice once it may have run") {
  const bool replica_set = GENERATE(false, true);
  SimWorld world(sharded_world(2, 20, replica_set ? member() : SimShardOptions()));
  auto client = world.client();
  world.shard(0).misbehave(SimShard::Fault::cut_after, "insert");
  const BsonDoc reply =
      call(world, *client, R"({"insert": "docs", "documents": [{"_id": 1}], "$db": "app"})");
  CHECK((!is_ok(reply) || reply.view()["writeErrors"].exists()));
  CHECK(world.shard(0).applied() == 1);
  CHECK(world.shard(0).seen("insert") == 1);
}

TEST_CASE("an aggregation that writes is never sent twice once it may have run") {
  SimWorld world(sharded_world(2, 20, member()));
  auto client = world.client();
  const auto [last_stage, sent] = GENERATE(table<std::string, std::uint64_t>(
      {{R"({"$merge": {"into": "third"}})", 1}, {R"({"$out": "third"})", 1}, {R"({"$limit": 5})", 2}}));
  world.shard(0).misbehave(SimShard::Fault::cut_after, "aggregate");
  const BsonDoc reply = call(world, *client,
                             fmt::format(R"({{"aggregate": "other", "pipeline": [{{"$match": {{}}}}, {}],
                                              "cursor": {{}}, "$db": "app"}})",
                                         last_stage));
  CHECK(world.shard(0).seen("aggregate") == sent);
  if (sent == 1) CHECK(code_of(reply) == 6);
}

TEST_CASE("a client that leaves does not end its writes") {
  SimWorld world(sharded_world(2, 20));
  auto client = world.client();
  for (std::size_t i = 0; i < 2; ++i) world.shard(i).delay = seconds(1);
  SECTION("of several rounds") {
    REQUIRE(world.run(client->send(json(R"({"insert": "docs", "documents": [
        {"_id": 1}, {"_id": 31}, {"_id": 2}, {"_id": 32}, {"_id": 3}, {"_id": 33}], "$db": "app"})"))));
    world.run_for(milliseconds(1500));
    client->reset();
    world.run_for(seconds(20));
    CHECK(world.shard(0).applied() == 3);
    CHECK(world.shard(1).applied() == 3);
  }
  SECTION("of an aggregation") {
    REQUIRE(world.run(client->send(json(
        R"({"aggregate": "other", "pipeline": [{"$out": "third"}], "cursor": {}, "$db": "app"})"))));
    world.run_for(milliseconds(500));
    client->reset();
    world.run_for(seconds(20));
    CHECK(world.shard(0).seen("aggregate") == 1);
  }
  CHECK(world.shared().metrics.killed_due_to_client_disconnect.value() == 0);
  for (std::size_t i = 0; i < 2; ++i) world.shard(i).delay = {};
  world.run_for(minutes(6));
  require_quiet(world);
}

TEST_CASE("a driver that ends its sessions does not wait for shards") {
  SimWorld world(sharded_world(2, 20, member()));
  auto client = world.client();
  CHECK(is_ok(call(world, *client, R"({"ping": 1, "$db": "admin"})")));
  world.shard(1).freeze();
  const std::string name = GENERATE("endSessions", "refreshSessions");
  const auto ended = start(
      world, *client,
      json(fmt::format(
          R"({{"{}": [{{"id": {{"$binary": {{"base64": "AAECAwQFBgcICQoLDA0ODw==", "subType": "04"}}}}}}],)"
          R"( "$db": "admin"}})",
          name)));
  REQUIRE(world.run_until([&] { return ended->done; }, seconds(1)));
  REQUIRE(ended->reply.has_value());
  CHECK(is_ok(*ended->reply));
  world.run_for(seconds(1));
  CHECK(world.shard(0).seen(name) == 1);
  world.shard(1).thaw();
  world.run_for(minutes(1));
}

TEST_CASE("what a transaction's read cannot reach says that the transaction may be tried again") {
  SimWorld world(sharded_world(2, 20, member()));
  auto client = world.client();
  const std::string read = GENERATE(
      std::string(R"("find": "docs", "filter": {"_id": 1})"),
      std::string(R"("aggregate": "docs", "pipeline": [{"$match": {"_id": 1}}], "cursor": {})"),
      std::string(R"("distinct": "docs", "key": "a", "query": {"_id": 1})"));
  const auto fault = GENERATE(SimShard::Fault::cut_after, SimShard::Fault::not_primary);
  world.shard(0).misbehave(fault, "");
  const BsonDoc reply = call(world, *client, retryable(read + R"(, "startTransaction": true, "autocommit": false)", 1));
  INFO(to_json(reply));
  CHECK_FALSE(is_ok(reply));
  CHECK(to_json(reply).find("TransientTransactionError") != std::string::npos);
}

TEST_CASE("a standalone takes no transaction number, and is not even asked") {
  SimWorld world(sharded_world(2, 20));
  auto client = world.client();
  const BsonDoc reply =
      call(world, *client, retryable(R"("insert": "docs", "documents": [{"_id": 1}])", 1));
  CHECK(!is_ok(reply));
  CHECK(code_of(reply) == 20);
  CHECK(world.shard(0).seen("insert") == 0);
  CHECK(world.shard(0).applied() == 0);
}

TEST_CASE("a document that cannot be read is not passed over when one is chosen to be written") {
  SimWorld world(sharded_world(2, 20));
  for (const int id : {1, 21}) {
    BsonWriter out;
    out.append("_id", id).append("k", 1);
    world.shard(id == 1 ? 0 : 1).store("app.docs", std::move(out).finish());
  }
  damage_replies(world.shard(0), "find", "cursor.firstBatch", 0);
  auto client = world.client();
  const BsonDoc reply =
      call(world, *client,
           R"({"update": "docs", "updates": [{"q": {"k": 1}, "u": {"$inc": {"n": 1}}}], "$db": "app"})");
  INFO(to_json(reply));
  CHECK((!is_ok(reply) || reply.view()["writeErrors"].exists()));
  CHECK(world.shard(0).applied() == 0);
  CHECK(world.shard(1).applied() == 0);
}

TEST_CASE("write errors that cannot be read are not taken for success") {
  SimWorld world(sharded_world(2, 20));
  world.shard(0).store("app.docs", json(R"({"_id": 1})"));
  damage_replies(world.shard(0), "insert", "writeErrors", 0);
  auto client = world.client();
  const BsonDoc reply = call(world, *client,
                             R"({"insert": "docs", "documents": [{"_id": 1}, {"_id": 21}],
                                 "ordered": false, "$db": "app"})");
  INFO(to_json(reply));
  CHECK(n_of(reply) == 1);
  CHECK(item_of(reply, "writeErrors", 0).exists());
}

TEST_CASE("a write that a stepped-down primary refused is sent to the next one") {
  SimWorld world(sharded_world(2, 20, member()));
  auto client = world.client();
  world.shard(0).misbehave(SimShard::Fault::not_primary, "insert");
  const BsonDoc reply =
      call(world, *client, retryable(R"("insert": "docs", "documents": [{"_id": 1}])", 1));
  CHECK(is_ok(reply));
  CHECK(n_of(reply) == 1);
  CHECK(world.shard(0).applied() == 1);
}

TEST_CASE("a step-down at any yield of a multi-update counts no document twice, and is told") {
  Steps steps;
  int round = 0;
  for (const std::int32_t code : interruptions) {
    for (std::size_t yields = 0; yields <= Steps::span; ++yields) {
      const std::string field = fmt::format("n{}", ++round);
      const std::uint64_t sent = steps.first().seen("update");
      const BsonDoc reply = steps.ask(
          fmt::format(R"({{"update": "docs", "updates": [{{"q": {{}}, "u": {{"$inc": {{"{}": 1}}}}, "multi": true}}],
                           "$db": "app"}})", field), yields, code);
      INFO(code << " after " << yields << ": " << to_json(reply));
      CHECK(steps.stepped_down == (yields < Steps::span));
      CHECK(all_done(reply) == (yields == Steps::span));
      CHECK(steps.first().seen("update") == sent + 1);
      CHECK(steps.with(0, field, 1) == yields);
      CHECK(steps.with(0, field, 0) == Steps::span - yields);
      CHECK(steps.with(1, field, 1) == Steps::span);
    }
  }
}

TEST_CASE("a multi-update on one shard only that a step-down ends is not sent again") {
  Steps steps;
  for (int id = 0; id < Steps::span; ++id) {
    steps.first().store("app.other", json(fmt::format(R"({{"_id": {}}})", id)));
  }
  for (const std::int32_t code : interruptions) {
    const std::uint64_t sent = steps.first().seen("update");
    const BsonDoc reply = steps.ask(
        R"({"update": "other", "updates": [{"q": {}, "u": {"$inc": {"n": 1}}, "multi": true}], "$db": "app"})", 3,
        code);
    CHECK(!all_done(reply));
    CHECK(steps.first().seen("update") == sent + 1);
  }
  for (int id = 0; id < Steps::span; ++id) {
    CHECK(steps.first().stored("app.other")[static_cast<std::size_t>(id)].view()["n"].to_int64().value_or(0) ==
          (id < 3 ? static_cast<std::int64_t>(std::size(interruptions)) : 0));
  }
}

TEST_CASE("batches of inserts that a step-down ends are stored once, and what was not is told") {
  const bool ordered = GENERATE(true, false);
  const bool retryable_write = GENERATE(true, false);
  Steps steps;
  int next = 100, number = 0;
  for (const std::int32_t code : {11602, 189, 10107, 11600, 91}) {
    for (std::size_t yields = 0; yields <= 3; ++yields) {
      // Three for each shard, in turn: with `ordered` each is a command of its own.
      std::string documents;
      for (int i = 0; i < 6; ++i) {
        documents += fmt::format("{}{{\"_id\": {}}}", i == 0 ? "" : ", ", i % 2 == 0 ? -next : next);
        ++next;
      }
      const std::string command =
          fmt::format(R"("insert": "docs", "ordered": {}, "documents": [{}])", ordered, documents);
      const BsonDoc reply =
          steps.ask(retryable_write ? retryable(command, ++number) : fmt::format(R"({{{}, "$db": "app"}})", command),
                    yields, code);
      INFO(code << " after " << yields << ": " << to_json(reply));
      const bool mended = retryable_write || yields == 3;
      // Alone in its command, a document meets an interruption of the whole of it.
      CHECK(all_done(reply) == mended);
      if (mended) CHECK(n_of(reply) == 6);
    }
  }
  for (std::size_t shard = 0; shard < 2; ++shard) {
    std::set<std::int64_t> ids;
    for (const BsonDoc& each : steps.world.shard(shard).stored("app.docs")) {
      CHECK(ids.insert(each.view()["_id"].to_int64().value_or(0)).second);
    }
  }
}

TEST_CASE("an ordered batch ends where a step-down ends a statement, an unordered one goes on elsewhere") {
  const bool ordered = GENERATE(true, false);
  Steps steps;
  const std::string command = fmt::format(
      R"({{"insert": "docs", "ordered": {}, "documents": [{{"_id": -1}}, {{"_id": -2}}, {{"_id": 50}}, {{"_id": -3}}],
           "$db": "app"}})", ordered);
  const std::int32_t code = GENERATE(11602, 189);
  const BsonDoc reply = steps.ask(command, 1, code);
  INFO(to_json(reply));
  CHECK(steps.first().stored("app.docs").size() == Steps::span + 1);
  CHECK(steps.world.shard(1).stored("app.docs").size() == Steps::span + (ordered ? 0 : 1));
  REQUIRE(reply.view()["writeErrors"].is_array());
  // With 11602 it is unknown how far the shard's part came; of an ordered batch a router names the first only.
  const std::size_t errors = ordered ? 1 : (code == 11602 ? 3 : 2);
  CHECK(reply.view()["writeErrors"].as_document().count() == errors);
  CHECK(n_of(reply) == (ordered ? 0 : 1) + (code == 11602 ? 0 : 1));
  for (std::size_t i = 0; i < errors; ++i) CHECK(code_of(item_of(reply, "writeErrors", i).as_document()) == 6);
}

TEST_CASE("a delete of many that a step-down ends is not sent again") {
  const std::int32_t code = GENERATE(from_range(std::begin(interruptions), std::end(interruptions)));
  Steps steps;
  const BsonDoc reply = steps.ask(
      R"({"delete": "docs", "deletes": [{"q": {"_id": {"$lt": 6}}, "limit": 0}], "$db": "app"})", 2, code);
  INFO(to_json(reply));
  CHECK(!all_done(reply));
  CHECK(steps.first().seen("delete") == 1);
  CHECK(steps.first().stored("app.docs").size() == Steps::span - 2);
}

TEST_CASE("a findAndModify that a step-down ends is sent again only with a transaction number") {
  const std::int32_t code = GENERATE(from_range(std::begin(interruptions), std::end(interruptions)));
  const std::string what = GENERATE(std::string(R"("update": {"$inc": {"n": 1}})"), std::string(R"("remove": true)"));
  const std::string query = GENERATE(std::string(R"({"_id": 1})"), std::string(R"({"k": 1})"));
  Steps steps;
  const std::string command = fmt::format(R"("findAndModify": "docs", "query": {}, {})", query, what);
  const BsonDoc plain = steps.ask(fmt::format(R"({{{}, "$db": "app"}})", command), 0, code);
  INFO(to_json(plain));
  CHECK(code_of(plain) == 6);
  CHECK(steps.first().seen("findAndModify") == 1);
  const BsonDoc numbered = steps.ask(retryable(command, 1), 0, code);
  INFO(to_json(numbered));
  CHECK(steps.stepped_down);
  CHECK(is_ok(numbered));
  CHECK(steps.first().applied() == 1);
}

TEST_CASE("an aggregation that writes is not sent again after any error of a shard's state") {
  SimWorld world(sharded_world(2, 20, member()));
  auto client = world.client();
  // What it writes it writes in pieces, each of which a host may refuse that has stepped down.
  const std::int32_t code = GENERATE(189, 10107, 11602, 13435, 13436);
  const std::string last_stage =
      GENERATE(std::string(R"({"$merge": {"into": "third"}})"), std::string(R"({"$out": "third"})"));
  bool first = true;
  world.shard(0).revise = [&](std::string_view, BsonDoc reply) {
    return std::exchange(first, false) ? json(fmt::format(R"({{"ok": 0, "code": {}, "errmsg": "x"}})", code)) : reply;
  };
  const BsonDoc reply = call(world, *client, fmt::format(
      R"({{"aggregate": "other", "pipeline": [{}], "cursor": {{}}, "$db": "app"}})", last_stage));
  CHECK(code_of(reply) == 6);
  CHECK(world.shard(0).seen("aggregate") == 1);
}

TEST_CASE("DDL that a step-down ends is not sent again; what was refused is") {
  SimWorld world(sharded_world(2, 20, member()));
  auto client = world.client();
  const std::string command = GENERATE(
      std::string(R"("drop": "docs")"), std::string(R"("dropDatabase": 1)"), std::string(R"("create": "docs")"),
      std::string(R"("createIndexes": "docs", "indexes": [{"key": {"_id": 1, "a": 1}, "name": "a"}])"),
      std::string(R"("dropIndexes": "docs", "index": "a")"), std::string(R"("collMod": "other")"));
  const std::string name(json("{" + command + "}").view().first().name);
  const std::int32_t code = GENERATE(189, 11602, 11600, 10107);
  bool first = true;
  for (std::size_t i = 0; i < 2; ++i) {
    world.shard(i).revise = [&, i](std::string_view asked, BsonDoc reply) {
      if (asked != name) return reply;
      return json(i == 0 && std::exchange(first, false) ? fmt::format(R"({{"ok": 0, "code": {}, "errmsg": "x"}})", code)
                                                        : R"({"ok": 1})");
    };
  }
  const BsonDoc reply = call(world, *client, fmt::format(R"({{{}, "$db": "app"}})", command));
  INFO(to_json(reply));
  CHECK(is_ok(reply) == (code == 10107));
  CHECK(world.shard(0).seen(name) == (code == 10107 ? 2 : 1));
  if (code != 10107) CHECK(code_of(reply) == 6);
}

TEST_CASE("a statement of a transaction that a step-down ends is not sent again, its end is") {
  Steps steps;
  const std::int32_t code = GENERATE(from_range(std::begin(interruptions), std::end(interruptions)));
  const std::string in_transaction = R"(, "autocommit": false)";
  const BsonDoc written = steps.ask(
      retryable(
          R"("update": "docs", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}], "startTransaction": true)" +
              in_transaction,
          1),
      0, code);
  INFO(to_json(written));
  CHECK(code_of(written) == 6);
  CHECK(to_json(written).find("TransientTransactionError") != std::string::npos);
  CHECK(steps.first().seen("update") == 1);

  const BsonDoc again = call(
      steps.world, *steps.client,
      retryable(
          R"("update": "docs", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}], "startTransaction": true)" +
              in_transaction,
          2));
  CHECK(is_ok(again));
  bool first = true;
  steps.first().revise = [&](std::string_view asked, BsonDoc reply) {
    if (asked != "commitTransaction") return reply;
    return json(std::exchange(first, false) ? fmt::format(R"({{"ok": 0, "code": {}, "errmsg": "x"}})", code)
                                            : R"({"ok": 1})");
  };
  const BsonDoc committed = call(
      steps.world, *steps.client,
      fmt::format(
          R"({{"commitTransaction": 1, {}, "txnNumber": {{"$numberLong": "2"}}, "autocommit": false, "$db": "admin"}})",
          session));
  INFO(to_json(committed));
  CHECK(is_ok(committed));
  CHECK(steps.first().seen("commitTransaction") == 2);
}

TEST_CASE("a write that reaches a set between two primaries waits for the next one") {
  Steps steps;
  steps.first().step_down_now(seconds(3));
  const BsonDoc reply = call(steps.world, *steps.client,
      R"({"update": "docs", "updates": [{"q": {}, "u": {"$inc": {"n": 1}}, "multi": true}], "$db": "app"})");
  CHECK(all_done(reply));
  CHECK(n_of(reply) == 2 * Steps::span);
  CHECK(steps.with(0, "n", 1) == Steps::span);
  CHECK(steps.with(1, "n", 1) == Steps::span);
}

}  // namespace spillway::test
