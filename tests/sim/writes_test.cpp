// Writes whose connection is cut after the shard has executed them.
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

std::int64_t n_of(DocView reply) { return reply["n"].to_int64().value_or(-1); }

}  // namespace

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
  const auto ended = start(world, *client, json(fmt::format(
      R"({{"{}": [{{"id": {{"$binary": {{"base64": "AAECAwQFBgcICQoLDA0ODw==", "subType": "04"}}}}}}], "$db": "admin"}})",
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

}  // namespace spillway::test
