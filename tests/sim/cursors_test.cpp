// Cursors of the whole proxy: their lives on virtual time, and what faults of shards make of them.
#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

constexpr auto no_sort_keys = SimShardOptions::SortKeys::none;
constexpr auto object_sort_keys = SimShardOptions::SortKeys::object;
constexpr auto array_sort_keys = SimShardOptions::SortKeys::array;

constexpr std::string_view scatter_find =
    R"({"find": "docs", "filter": {}, "batchSize": 2, "$db": "app"})";

}  // namespace

TEST_CASE("an idle cursor times out, and its shard cursors are killed") {
  SimWorldOptions options = sharded_world(2, 20);
  options.cursor_timeout_ms = 30'000;
  SimWorld world(std::move(options));
  store_documents(world, 20);
  auto client = world.client();
  const std::int64_t id = cursor_id(call(world, *client, scatter_find));
  REQUIRE(id > 0);
  CHECK(open_shard_cursors(world) == 2);
  world.run_for(seconds(25));
  CHECK(world.shared().cursors.counts().open_total == 1);
  CHECK(is_ok(call(world, *client, get_more(id, 1))));
  world.run_for(seconds(25));  // the getMore began the time anew
  CHECK(world.shared().cursors.counts().open_total == 1);
  world.run_for(seconds(15));
  CHECK(world.shared().cursors.counts().open_total == 0);
  CHECK(world.shared().cursors.counts().timed_out == 1);
  CHECK(open_shard_cursors(world) == 0);
  CHECK(world.shard(0).cursors().killed == 1);
  CHECK(world.shard(1).cursors().killed == 1);
  CHECK(code_of(call(world, *client, get_more(id))) == 43);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a getMore keeps to the API parameters of its cursor") {
  SimWorld world(sharded_world(2, 20));
  store_documents(world, 20);
  auto client = world.client();
  const std::int64_t id = cursor_id(call(world, *client, R"({"find": "docs", "filter": {}, "batchSize": 2,
      "apiVersion": "1", "apiStrict": true, "$db": "app"})"));
  REQUIRE(id > 0);
  CHECK(code_of(call(world, *client, get_more(id, 1))) == 347);
  std::string strict = get_more(id, 1);
  strict.insert(strict.size() - 1, R"(, "apiVersion": "1", "apiStrict": true)");
  CHECK(is_ok(call(world, *client, strict)));
  CHECK(is_ok(call(world, *client, fmt::format(R"({{"killCursors": "docs", "cursors": [{{"$numberLong": "{}"}}],
      "$db": "app"}})", id))));
}

TEST_CASE("OP_KILL_CURSORS kills cursors, and has no answer") {
  SimWorld world(sharded_world(2, 20));
  store_documents(world, 20);
  auto client = world.client();
  const std::int64_t first = cursor_id(call(world, *client, scatter_find));
  const std::int64_t second = cursor_id(call(world, *client, scatter_find));
  const std::int64_t kept = cursor_id(call(world, *client, scatter_find));
  CHECK(world.run(client->kill_cursors({first, 4711, second})));
  world.run_for(seconds(1));
  CHECK(open_shard_cursors(world) == 2);
  CHECK(is_ok(call(world, *client, get_more(kept, 1))));  // over the same connection
  CHECK(code_of(call(world, *client, get_more(first))) == 43);
  CHECK(code_of(call(world, *client, get_more(second))) == 43);
  CHECK(world.run(client->kill_cursors({kept})));
  world.run_for(seconds(1));
  CHECK(open_shard_cursors(world) == 0);
  // One that names none is no message.
  CHECK(world.run(client->kill_cursors({})));
  CHECK_FALSE(try_call(world, *client, json(scatter_find)).has_value());
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a cursor with noCursorTimeout stays") {
  SimWorldOptions options = sharded_world(2, 20);
  options.cursor_timeout_ms = 30'000;
  SimWorld world(std::move(options));
  store_documents(world, 20);
  auto client = world.client();
  const BsonDoc reply = call(
      world, *client,
      R"({"find": "docs", "filter": {}, "batchSize": 2, "noCursorTimeout": true, "$db": "app"})");
  world.run_for(minutes(10));
  CHECK(world.shared().cursors.counts().open_total == 1);
  CHECK(is_ok(call(world, *client, get_more(cursor_id(reply), 1))));
}

TEST_CASE("sorted getMores merge shards with and without sort keys of both forms") {
  struct Case {
    SimShardOptions::SortKeys first, second, third;
  };
  const auto each = GENERATE(values<Case>({{no_sort_keys, no_sort_keys, no_sort_keys},
                                           {object_sort_keys, object_sort_keys, object_sort_keys},
                                           {array_sort_keys, array_sort_keys, array_sort_keys},
                                           {object_sort_keys, array_sort_keys, array_sort_keys},
                                           {object_sort_keys, no_sort_keys, array_sort_keys}}));
  SimWorldOptions options = sharded_world(3, 20);
  options.shards[0].sort_keys = each.first;
  options.shards[1].sort_keys = each.second;
  options.shards[2].sort_keys = each.third;
  SimWorld world(std::move(options));
  store_documents(world, 20);
  auto client = world.client();
  BsonDoc reply =
      call(world, *client, R"({"find": "docs", "filter": {}, "sort": {"k": -1, "_id": 1},
    "projection": {"text": 1}, "batchSize": 3, "$db": "app"})");
  std::vector<std::int64_t> order;
  for (;;) {
    for (const BsonDoc& document : batch_of(reply)) {
      CHECK(document.view().count() == 2);  // _id and text: what the sort needed is gone
      order.push_back(document.view()["_id"].as_int32());
    }
    if (cursor_id(reply) == 0) break;
    reply = call(world, *client, get_more(cursor_id(reply), 4));
    REQUIRE(is_ok(reply));
  }
  std::vector<std::int64_t> expected(60);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<std::int64_t>(i);
  std::stable_sort(expected.begin(), expected.end(),
                   [](std::int64_t a, std::int64_t b) { return (a * 7) % 5 > (b * 7) % 5; });
  CHECK(order == expected);
  CHECK(open_shard_cursors(world) == 0);
}

TEST_CASE("the last batch of a small unsorted cursor says that it is the last") {
  SimWorld world(sharded_world(3, 5));
  store_documents(world, 5);
  auto client = world.client();
  BsonDoc reply = call(world, *client, scatter_find);
  std::size_t documents = batch_of(reply).size();
  REQUIRE(cursor_id(reply) != 0);
  reply = call(world, *client, get_more(cursor_id(reply)));
  documents += batch_of(reply).size();
  CHECK(documents == 15);
  CHECK(cursor_id(reply) == 0);
}

TEST_CASE("a getMore comes over another connection and another worker") {
  SimWorld world(two_workers(2, 20));
  store_documents(world, 20);
  auto first = world.client(0);
  auto second = world.client(1);
  BsonDoc reply = call(world, *first, scatter_find);
  std::size_t documents = batch_of(reply).size();
  bool turn = false;
  while (cursor_id(reply) != 0) {
    turn = !turn;
    reply = call(world, turn ? *second : *first, get_more(cursor_id(reply), 3));
    REQUIRE(is_ok(reply));
    documents += batch_of(reply).size();
  }
  CHECK(documents == 40);
  first->close();
  second->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a cursor that a getMore works on is in use") {
  SimWorld world(sharded_world(2, 20));
  store_documents(world, 20);
  auto first = world.client();
  auto second = world.client();
  const std::int64_t id = cursor_id(call(world, *first, scatter_find));
  for (std::size_t i = 0; i < 2; ++i) world.shard(i).delay = seconds(3);
  auto pending = start(world, *first, json(get_more(id, 30)));
  world.run_for(seconds(1));
  CHECK(!pending->done);
  CHECK(code_of(call(world, *second, get_more(id))) == 143);
  CHECK(world.run_until([&] { return pending->done; }, minutes(1)));
  REQUIRE(pending->reply.has_value());
  CHECK(is_ok(*pending->reply));
}

TEST_CASE("a cursor is killed while a getMore works on it") {
  SimWorld world(sharded_world(2, 20));
  store_documents(world, 20);
  auto first = world.client();
  auto second = world.client();
  const std::int64_t id = cursor_id(call(world, *first, scatter_find));
  for (std::size_t i = 0; i < 2; ++i) world.shard(i).delay = minutes(1);
  auto pending = start(world, *first, json(get_more(id, 5)));
  world.run_for(seconds(1));
  for (std::size_t i = 0; i < 2; ++i) world.shard(i).delay = {};
  const BsonDoc killed = call(
      world, *second,
      fmt::format(
          R"({{"killCursors": "docs", "cursors": [{{"$numberLong": "{}"}}], "$db": "app"}})", id));
  CHECK(killed.view()["cursorsKilled"].as_document().count() == 1);
  CHECK(world.run_until([&] { return pending->done; }, seconds(1)));
  REQUIRE(pending->reply.has_value());
  CHECK(code_of(*pending->reply) == 237);
  world.run_for(seconds(10));
  CHECK(open_shard_cursors(world) == 0);
  CHECK(code_of(call(world, *second, get_more(id))) == 43);
}

TEST_CASE("getMores have what is left of their find's maxTimeMS, without the time between them") {
  SimWorld world(sharded_world(3, 20));
  store_documents(world, 20);
  auto client = world.client();
  const std::string targets = GENERATE("{}", R"({"_id": {"$gte": 20, "$lt": 40}})");
  BsonDoc reply = call(world, *client, R"({"find": "docs", "filter": )" + targets +
                                           R"(, "batchSize": 1, "maxTimeMS": 1000, "$db": "app"})");
  REQUIRE(is_ok(reply));
  for (std::size_t i = 0; i < 3; ++i) world.shard(i).delay = milliseconds(600);
  Duration worked{};
  while (is_ok(reply) && worked < seconds(3)) {
    world.run_for(seconds(5));
    const TimePoint asked = Clock::now();
    reply = call(world, *client, get_more(cursor_id(reply), 1));
    worked += Clock::now() - asked;
  }
  CHECK(code_of(reply) == 50);
  CHECK(worked > seconds(1));
  CHECK(worked <= milliseconds(1260));  // a shard has 250 ms to say it first
  world.run_for(seconds(10));
  CHECK(open_shard_cursors(world) == 0);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a document that stages have made is paid for until it is sent") {
  SimWorld world(sharded_world(2, 20));
  auto client = world.client();
  store_documents(world, 20);
  const std::string large(9 * limits::mib, 'x');
  // Two documents of nine megabytes: the batch has room for one.
  const BsonDoc reply = call(world, *client, R"({"aggregate": "docs", "pipeline": [
      {"$group": {"_id": {"$mod": ["$_id", 2]}}}, {"$addFields": {"text": ")" + large + R"("}}],
      "cursor": {}, "$db": "app"})");
  REQUIRE(is_ok(reply));
  CHECK(batch_of(reply).size() == 1);
  CHECK(world.shared().memory.cursors.usage().used_bytes > 9 * limits::mib);
  CHECK(batch_of(call(world, *client, get_more(cursor_id(reply), 5))).size() == 1);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a cursor is killed while its first batch is fetched") {
  SimWorldOptions options = sharded_world(2, 20);
  options.memory_limit_bytes = 64 * limits::mib;  // shards are asked for no documents at first
  SimWorld world(std::move(options));
  store_documents(world, 20);
  for (std::size_t i = 0; i < 2; ++i) world.shard(i).delay = seconds(3);
  auto client = world.client();
  auto pending = start(world, *client, json(scatter_find));
  world.run_for(seconds(5));
  CHECK(world.shard(0).seen("getMore") + world.shard(1).seen("getMore") == 1);
  CHECK(world.shared().cursors.kill_all().empty());
  CHECK(world.run_until([&] { return pending->done; }, minutes(1)));
  REQUIRE(pending->reply.has_value());
  CHECK(code_of(*pending->reply) == 237);
  CHECK(world.shared().cursors.counts().open_total == 0);
  world.run_for(seconds(10));
  CHECK(open_shard_cursors(world) == 0);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a find's maxTimeMS holds for a first batch that is asked for by itself") {
  SimWorldOptions options = sharded_world(2, 20);
  options.memory_limit_bytes = 64 * limits::mib;  // shards are asked for no documents at first
  SimWorld world(std::move(options));
  store_documents(world, 20);
  for (std::size_t i = 0; i < 2; ++i) world.shard(i).delay = milliseconds(100);
  auto client = world.client();
  auto pending =
      start(world, *client, json(R"({"find": "docs", "filter": {}, "maxTimeMS": 500, "$db": "app"})"));
  world.run_for(milliseconds(50));
  for (std::size_t i = 0; i < 2; ++i) world.shard(i).delay = seconds(8);
  world.run_for(milliseconds(650));
  CHECK(world.shard(0).seen("getMore") + world.shard(1).seen("getMore") == 1);
  CHECK(!pending->done);
  CHECK(world.run_until([&] { return pending->done; }, milliseconds(100)));
  if (pending->done) {
    REQUIRE(pending->reply.has_value());
    CHECK(code_of(*pending->reply) == 50);
  }
  world.run_for(seconds(20));
  CHECK(open_shard_cursors(world) == 0);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("killOp ends a read or createIndexes that waits for its shards, at once") {
  SimWorld world(two_workers(2, 20));
  store_documents(world, 20);
  auto first = world.client(0);
  auto second = world.client(1);
  const std::string command = GENERATE(
      std::string(scatter_find), std::string(R"({"find": "docs", "filter": {"_id": 1}, "$db": "app"})"),
      std::string(R"({"createIndexes": "docs", "indexes": [{"key": {"x": 1}, "name": "x_1"}], "$db": "app"})"),
      std::string("getMore"));
  const bool more = command == "getMore";
  const BsonDoc asked =
      json(more ? get_more(cursor_id(call(world, *first, scatter_find)), 9) : command);
  for (std::size_t i = 0; i < 2; ++i) world.shard(i).delay = minutes(5);
  auto pending = start(world, *first, asked);
  world.run_for(seconds(1));
  const BsonDoc ops = call(world, *second, R"({"aggregate": 1, "cursor": {}, "$db": "admin",
      "pipeline": [{"$currentOp": {"localOps": true}}]})");
  std::int64_t op = 0;
  for (const BsonDoc& row : batch_of(ops)) {
    const ValueView command_of = row.view()["command"];
    if (command_of.is_document() && command_of.as_document()["$db"].is_string() &&
        command_of.as_document()["$db"].as_string() == "app") {
      op = row.view()["opid"].to_int64().value_or(0);
    }
  }
  INFO(command << to_json(ops));
  REQUIRE(op != 0);
  CHECK(is_ok(call(world, *second, fmt::format(R"({{"killOp": 1, "op": {}, "$db": "admin"}})", op))));
  CHECK(world.run_until([&] { return pending->done; }, seconds(1)));
  REQUIRE(pending->reply.has_value());
  INFO(to_json(*pending->reply));
  CHECK(code_of(*pending->reply) == 11601);
  for (std::size_t i = 0; i < 2; ++i) world.shard(i).delay = {};
  // The next operation of that connection is not concerned.
  CHECK(is_ok(call(world, *first, R"({"find": "docs", "filter": {"_id": 1}, "$db": "app"})")));
  world.run_for(minutes(6));
  CHECK(world.shared().cursors.counts().open_total == 0);
  first->close();
  second->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("what kills a session ends its operations that wait for shards, at once, on all workers") {
  SimWorld world(two_workers(2, 20));
  store_documents(world, 20);
  auto killed = world.client(0), other = world.client(0), killer = world.client(1);
  const auto in_session = [](std::string_view id) {
    return fmt::format(R"("lsid": {{"id": {{"$binary": {{"base64": "{}", "subType": "04"}}}}}})", id);
  };
  const std::string one = in_session("AAAAAAAAAAAAAAAAAAAAAA=="), another = in_session("AQAAAAAAAAAAAAAAAAAAAA==");
  const auto find_in = [](const std::string& lsid) {
    return json(fmt::format(R"({{"find": "docs", "filter": {{}}, {}, "$db": "app"}})", lsid));
  };
  const auto [kill, both] = GENERATE_COPY(
      std::pair(fmt::format(R"({{"killSessions": [{{{}}}], "$db": "admin"}})", one.substr(one.find('{') + 1,
                                                                    one.rfind('}') - one.find('{') - 1)), false),
      std::pair(fmt::format(R"({{"killAllSessionsByPattern": [{{{}}}], "$db": "admin"}})", one), false),
      std::pair(std::string(R"({"killAllSessions": [], "$db": "admin"})"), true));
  for (std::size_t i = 0; i < 2; ++i) world.shard(i).delay = minutes(5);
  auto first = start(world, *killed, find_in(one)), second = start(world, *other, find_in(another));
  world.run_for(seconds(1));
  auto killing = start(world, *killer, json(kill));
  CHECK(world.run_until([&] { return first->done; }, seconds(1)));
  REQUIRE(first->reply.has_value());
  CHECK(code_of(*first->reply) == 11601);
  CHECK(second->done == both);
  for (std::size_t i = 0; i < 2; ++i) world.shard(i).delay = {};
  CHECK(world.run_until([&] { return killing->done; }, seconds(20)));
  CHECK(is_ok(call(world, *killed, to_json(find_in(one)))));
  world.run_for(minutes(6));
  for (auto* client : {&killed, &other, &killer}) (*client)->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a client that leaves ends its read") {
  SimWorld world(sharded_world(2, 20));
  store_documents(world, 20);
  auto client = world.client();
  const std::string command = GENERATE(
      std::string(scatter_find), std::string(R"({"find": "docs", "filter": {"_id": 1}, "$db": "app"})"));
  for (std::size_t i = 0; i < 2; ++i) world.shard(i).delay = minutes(5);
  REQUIRE(world.run(client->send(json(command))));
  world.run_for(seconds(2));
  CHECK(world.shared().metrics.killed_due_to_client_disconnect.value() == 0);
  CHECK(world.shared().connections.current.load() == 1);
  client->reset();
  world.run_for(seconds(1));
  CHECK(world.shared().metrics.killed_due_to_client_disconnect.value() == 1);
  CHECK(world.shared().connections.current.load() == 0);
  for (std::size_t i = 0; i < 2; ++i) world.shard(i).delay = {};
  world.run_for(minutes(6));
  require_quiet(world);
}

TEST_CASE("a shard that lost its cursor ends the client's, and the other shards' too") {
  SimWorld world(sharded_world(3, 20));
  store_documents(world, 20);
  auto client = world.client();
  const std::int64_t id = cursor_id(call(world, *client, scatter_find));
  world.shard(1).misbehave(SimShard::Fault::cursor_not_found, "getMore");
  CHECK(code_of(call(world, *client, get_more(id, 50))) == 43);
  CHECK(code_of(call(world, *client, get_more(id, 50))) == 43);
  world.run_for(seconds(1));
  CHECK(open_shard_cursors(world) == 0);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a shard's change of state is never told to a client") {
  const bool replica_set = GENERATE(false, true);
  SimShardOptions like;
  if (replica_set) like.set_name = "rs";
  SimWorld world(sharded_world(2, 20, like));
  store_documents(world, 20);
  auto client = world.client();
  const std::vector<std::string> commands = {
      std::string(scatter_find),
      R"({"find": "docs", "filter": {"_id": 1}, "$db": "app"})",
      R"({"count": "docs", "query": {}, "$db": "app"})",
      R"({"aggregate": "docs", "pipeline": [{"$match": {"_id": 1}}], "cursor": {}, "$db": "app"})",
      R"({"insert": "docs", "documents": [{"_id": 1000}], "$db": "app"})",
      R"({"insert": "docs", "documents": [{"_id": -1}, {"_id": 1001}], "$db": "app"})",
      R"({"find": "elsewhere", "filter": {}, "$db": "app"})",
  };
  for (const std::string& command : commands) {
    INFO(command);
    world.shard(0).misbehave(SimShard::Fault::not_primary, "", 20);
    world.shard(1).misbehave(SimShard::Fault::not_primary, "", 20);
    const BsonDoc reply = call(world, *client, command);
    INFO(to_json(reply));
    const std::string text = to_json(reply);
    CHECK(text.find(R"("code" : 10107)") == std::string::npos);
    CHECK(text.find("NotWritablePrimary") == std::string::npos);
    CHECK((!is_ok(reply) || reply.view()["writeErrors"].exists()));
    for (std::size_t i = 0; i < 2; ++i) world.shard(i).clear_faults();
  }
}

TEST_CASE("a read that meets a change of state once is answered") {
  SimShardOptions like;
  like.set_name = "rs";
  SimWorld world(sharded_world(2, 20, like));
  store_documents(world, 20);
  auto client = world.client();
  world.shard(0).misbehave(SimShard::Fault::not_primary, "find");
  const BsonDoc reply =
      call(world, *client, R"({"find": "docs", "filter": {"_id": 1}, "$db": "app"})");
  CHECK(is_ok(reply));
  CHECK(batch_of(reply).size() == 1);
}

TEST_CASE("a shard is asked once about the stages that only the router runs") {
  SimWorld world(sharded_world(2, 20));
  store_documents(world, 20);
  auto client = world.client();
  const auto seen = [&] {
    return std::pair(world.shard(0).seen("aggregate"), world.shard(1).seen("aggregate"));
  };
  const auto run = [&](std::string_view pipeline) {
    const BsonDoc reply =
        call(world, *client,
             fmt::format(R"({{"aggregate": "docs", "pipeline": {}, "cursor": {{}}, "$db": "app"}})",
                         pipeline));
    INFO(to_json(reply));
    CHECK(is_ok(reply));
    return seen();
  };
  using Seen = std::pair<std::uint64_t, std::uint64_t>;
  CHECK(run(R"([{"$match": {"_id": {"$gte": 0}}}, {"$group": {"_id": "$n"}}])") == Seen(1, 1));
  CHECK(run(R"([{"$group": {"_id": "$n"}}, {"$match": {"_id": 1}}])") == Seen(3, 2));
  CHECK(run(R"([{"$group": {"_id": "$m"}}, {"$match": {"_id": 7}}])") == Seen(4, 3));
  CHECK(run(R"([{"$group": {"_id": "$n"}}, {"$match": {"_id": "x"}}])") == Seen(6, 4));
  client->close();
  world.run_for(seconds(1));
  CHECK(open_shard_cursors(world) == 0);
  require_quiet(world);
}

TEST_CASE("a shard's refusal of what only the router would run is the answer") {
  SimWorld world(sharded_world(2, 20));
  store_documents(world, 20);
  auto client = world.client();
  world.shard(0).refused_stage = "$sort";
  const auto code = [&](std::string_view pipeline) {
    return code_of(
        call(world, *client,
             fmt::format(R"({{"aggregate": "docs", "pipeline": {}, "cursor": {{}}, "$db": "app"}})",
                         pipeline)));
  };
  for (int turn = 0; turn < 2; ++turn) {
    CHECK(code(R"([{"$group": {"_id": "$n"}}, {"$sort": {"_id": 1}}])") == 40324);
  }
  world.shard(0).refused_stage.clear();
  CHECK(code(R"([{"$group": {"_id": "$n"}}, {"$sort": {"_id": 1}}])") == 0);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("replies that are none to the request end the shard's connection only") {
  const auto fault = GENERATE(SimShard::Fault::wrong_response_to, SimShard::Fault::garbage_length,
                              SimShard::Fault::cut_within);
  SimWorld world(sharded_world(2, 20));
  store_documents(world, 20);
  auto client = world.client();
  world.shard(0).misbehave(fault, "find", 10);
  const BsonDoc failed = call(world, *client, scatter_find);
  CHECK(!is_ok(failed));
  world.shard(0).clear_faults();
  world.run_for(seconds(2));
  CHECK(is_ok(call(world, *client, R"({"find": "docs", "filter": {"_id": 1}, "$db": "app"})")));
  world.run_for(seconds(20));
  CHECK(world.shard(1).cursors().open() == 0);  // opened beside the failure, and killed
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a batch whose first document cannot be read is an error, not an empty one") {
  const std::string_view sort = GENERATE("", R"("sort": {"_id": 1},)");
  // The shard's cursor ends with that batch; it goes on; it is of a getMore.
  const auto [batch_size, command] = GENERATE(table<int, std::string>(
      {{100, "find"}, {2, "find"}, {2, "getMore"}}));
  CAPTURE(sort, batch_size, command);
  SimWorld world(sharded_world(2, 20));
  store_documents(world, 20);
  auto client = world.client();
  damage_replies(world.shard(1), command,
                 command == "find" ? "cursor.firstBatch" : "cursor.nextBatch", 0);
  BsonDoc reply = call(
      world, *client,
      fmt::format(R"({{"find": "docs", "filter": {{}}, {} "batchSize": {}, "$db": "app"}})", sort,
                  batch_size));
  for (int turn = 0; turn < 50 && is_ok(reply); ++turn) {
    REQUIRE(cursor_id(reply) != 0);
    reply = call(world, *client, get_more(cursor_id(reply), 2));
  }
  CHECK(code_of(reply) == 1);
  world.run_for(seconds(1));
  CHECK(open_shard_cursors(world) == 0);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a shard's list that cannot be read to its end fails what is made of it") {
  struct Case {
    std::string command, reply, path;
  };
  const auto each = GENERATE(values<Case>(
      {{R"({"distinct": "docs", "key": "k", "$db": "app"})",
        R"({"values": [{"k": 1}, {"k": 2}, {"k": 3}], "ok": 1})", "values"},
       {R"({"listCollections": 1, "cursor": {}, "nameOnly": true, "$db": "app"})",
        R"({"cursor": {"id": {"$numberLong": "7"}, "ns": "app.$cmd.listCollections", "firstBatch":
            [{"name": "docs"}, {"name": "b"}, {"name": "c"}]}, "ok": 1})",
        "cursor.firstBatch"},
       {R"({"listDatabases": 1, "$db": "admin"})",
        R"({"databases": [{"name": "a"}, {"name": "b"}, {"name": "c"}], "ok": 1})", "databases"}}));
  const std::size_t damaged = GENERATE(0u, 2u);
  CAPTURE(each.command, damaged);
  SimWorld world(sharded_world(2, 20));
  const BsonDoc asked = json(each.command);
  for (std::size_t i = 0; i < 2; ++i) {
    world.shard(i).revise = [&, i](std::string_view name, BsonDoc reply) {
      if (name != asked.view().first().name) return reply;
      reply = json(each.reply);
      if (i == 0) damage(item_of(reply, each.path, damaged));
      return reply;
    };
  }
  auto client = world.client();
  const BsonDoc reply = call(world, *client, each.command);
  INFO(to_json(reply));
  CHECK(code_of(reply) == 1);
  client->close();
  world.run_for(seconds(1));
  if (each.path == "cursor.firstBatch") CHECK(world.shard(0).seen("killCursors") == 1);
  require_quiet(world);
}

TEST_CASE("a count over several shards takes its limit and skip as a server does") {
  SimWorld world(sharded_world(2, 20));
  store_documents(world, 20);
  auto client = world.client();
  const auto count = [&](const std::string& arguments) {
    const BsonDoc reply = call(world, *client, R"({"count": "docs", "query": {})" + arguments +
                                                   R"(, "$db": "app"})");
    return is_ok(reply) ? reply.view()["n"].as_int32() : -code_of(reply);
  };
  CHECK(count("") == 40);
  CHECK(count(R"(, "limit": null, "skip": null)") == 40);
  CHECK(count(R"(, "limit": 30, "skip": 3)") == 30);
  CHECK(count(R"(, "limit": -30)") == 30);
  CHECK(count(R"(, "limit": 2.9)") == 2);
  CHECK(count(R"(, "skip": 39)") == 1);
  CHECK(count(R"(, "limit": "abc")") == -14);
  CHECK(count(R"(, "skip": {"a": 1})") == -14);
  CHECK(count(R"(, "skip": -1)") == -51024);
  CHECK(count(R"(, "limit": {"$numberLong": "9223372036854775807"}, "skip": 1)") == -15);
  CHECK(count(R"(, "limit": 1e300, "skip": 1)") == -15);
  CHECK(count(R"(, "limit": {"$numberLong": "-9223372036854775808"})") == -2);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("what is merged here is refused with a collation") {
  SimWorld world(sharded_world(2, 20));
  store_documents(world, 20);
  auto client = world.client();
  const auto code = [&](const std::string& command) {
    return code_of(call(world, *client,
                        "{" + command + R"(, "collation": {"locale": "de"}, "$db": "app"})"));
  };
  const auto aggregate = [&](const std::string& stage) {
    return code(R"("aggregate": "docs", "pipeline": [)" + stage + R"(], "cursor": {})");
  };
  CHECK(aggregate(R"({"$match": {"text": "x"}})") == 0);
  CHECK(aggregate(R"({"$sort": {"text": 1}})") == 115);  // the streams would be merged in binary order
  CHECK(aggregate(R"({"$group": {"_id": "$text"}})") == 115);
  CHECK(code(R"("distinct": "docs", "key": "text")") == 115);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a distinct over several shards merges more values than one step takes") {
  SimWorld world(sharded_world(2, 20));
  constexpr int each = 5'000;
  for (std::size_t i = 0; i < 2; ++i) {
    world.shard(i).revise = [i](std::string_view name, BsonDoc reply) {
      if (name != "distinct") return reply;
      BsonWriter out;
      out.begin_array("values");
      for (int n = 0; n < each; ++n) out.append_item(2 * n + static_cast<int>(i));
      out.end();
      out.append("ok", 1.0);
      return std::move(out).finish();
    };
  }
  auto client = world.client();
  const BsonDoc reply = call(world, *client, R"({"distinct": "docs", "key": "k", "$db": "app"})");
  REQUIRE(is_ok(reply));
  int expected = 0;
  for (const Element& value : reply.view()["values"].as_document()) {
    if (value.as_int32() != expected++) FAIL("not " << expected - 1);
  }
  CHECK(expected == 2 * each);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a cursor pays for the stages that it keeps") {
  SimWorldOptions options = sharded_world(2, 20);
  options.memory_limit_bytes = 32 * limits::mib;
  SimWorld world(std::move(options));
  store_documents(world, 20);
  auto client = world.client();
  std::string operands = "null";
  for (int i = 1; i < 60'000; ++i) operands += ", null";
  const std::string command = R"({"aggregate": "docs", "pipeline": [{"$limit": 30},
      {"$addFields": {"y": {"$and": [)" + operands +
                              R"(]}}}], "cursor": {"batchSize": 1}, "$db": "app"})";
  std::vector<std::int64_t> open;
  BsonDoc reply = call(world, *client, command);
  while (is_ok(reply) && open.size() < 8) {
    open.push_back(cursor_id(reply));
    reply = call(world, *client, command);
  }
  INFO(to_json(reply));
  CHECK(open.size() >= 1);
  CHECK(open.size() < 8);
  CHECK(code_of(reply) == 462);
  const auto kill = [&](std::int64_t id) {
    call(world, *client, fmt::format(R"({{"killCursors": "docs", "$db": "app",
        "cursors": [{{"$numberLong": "{}"}}]}})", id));
  };
  for (const std::int64_t id : open) kill(id);
  reply = call(world, *client, command);
  CHECK(is_ok(reply));
  kill(cursor_id(reply));
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a damaged document fails the stage that would read it to its damage") {
  SimWorld world(sharded_world(2, 20));
  store_documents(world, 20);
  auto client = world.client();
  world.shard(1).revise = [](std::string_view name, BsonDoc reply) {
    const ValueView first = item_of(reply, "cursor.firstBatch", 0);
    if (name == "aggregate" && first.exists()) damage(first.as_document()["_id"]);
    return reply;
  };
  const BsonDoc reply = call(world, *client,
                             R"({"aggregate": "docs", "pipeline": [{"$group": {"_id": "$text"}}],
                                 "cursor": {}, "$db": "app"})");
  INFO(to_json(reply));
  CHECK(code_of(reply) == 1);
}

TEST_CASE("allowPartialResults is about what shards do, not about what the proxy refuses") {
  SimWorldOptions options = sharded_world(2, 20);
  options.memory_limit_bytes = 8 * limits::mib;
  SimWorld world(std::move(options));
  store_documents(world, 20);
  const auto answer_get_more = [&](std::string reply) {
    world.shard(1).revise = [reply](std::string_view name, BsonDoc usual) {
      return name == "getMore" ? json(reply) : std::move(usual);
    };
  };
  auto client = world.client();
  BsonDoc reply = call(world, *client, R"({"find": "docs", "filter": {}, "sort": {"_id": 1},
      "batchSize": 5, "allowPartialResults": true, "$db": "app"})");
  REQUIRE(is_ok(reply));
  std::size_t documents = batch_of(reply).size();
  // Until it answers, or everybody else's documents are there.
  const auto read_on = [&] {
    while (is_ok(reply) && cursor_id(reply) != 0) {
      reply = call(world, *client, get_more(cursor_id(reply), 3));
      documents += batch_of(reply).size();
    }
  };

  SECTION("a reply that cannot fit") {
    answer_get_more(fmt::format(R"({{"cursor": {{"id": {{"$numberLong": "0"}}, "ns": "app.docs",
        "nextBatch": [{{"_id": 26, "text": "{}"}}]}}, "ok": 1}})", std::string(12 * limits::mib, 'x')));
    read_on();
    CHECK(code_of(reply) == 146);
  }
  SECTION("a shard's own error, whatever it is") {
    answer_get_more(R"({"ok": 0, "code": 50, "errmsg": "operation exceeded time limit"})");
    read_on();
    REQUIRE(is_ok(reply));
    CHECK(documents == 21);
    CHECK(reply.view().find_path("cursor.partialResultsReturned").truthy());
  }
  world.run_for(seconds(1));
  CHECK(world.shard(1).cursors().open() == 0);
  client->close();
  world.run_for(seconds(1));
  CHECK(open_shard_cursors(world) == 0);
  require_quiet(world);
}

TEST_CASE("allowPartialResults tolerates a shard that is gone") {
  SimWorld world(sharded_world(3, 20));
  store_documents(world, 20);
  auto client = world.client();
  const std::string partial =
      R"({"find": "docs", "filter": {}, "batchSize": 5, "allowPartialResults": true, "$db": "app"})";

  SECTION("before the find") {
    world.shard(1).die();
    world.run_for(seconds(1));
    CHECK(!is_ok(call(world, *client, scatter_find)));
    BsonDoc reply = call(world, *client, partial);
    REQUIRE(is_ok(reply));
    std::size_t documents = batch_of(reply).size();
    CHECK(reply.view().find_path("cursor.partialResultsReturned").truthy());
    while (cursor_id(reply) != 0) {
      reply = call(world, *client, get_more(cursor_id(reply), 7));
      REQUIRE(is_ok(reply));
      documents += batch_of(reply).size();
    }
    CHECK(documents == 40);
  }
  SECTION("that is the only one of a find") {
    world.shard(1).die();
    world.run_for(seconds(1));
    const std::string key = GENERATE("25", "5");
    const BsonDoc reply = call(world, *client, R"({"find": "docs", "filter": {"_id": )" + key +
                                                   R"(}, "allowPartialResults": true, "$db": "app"})");
    REQUIRE(is_ok(reply));
    const bool missing = key == "25";
    CHECK(batch_of(reply).size() == (missing ? 0 : 1));
    CHECK(reply.view().find_path("cursor.partialResultsReturned").truthy() == missing);
    CHECK(cursor_id(reply) == 0);
  }
  SECTION("with all others, of a sorted find") {
    for (std::size_t i = 0; i < 3; ++i) world.shard(i).die();
    world.run_for(seconds(1));
    const std::string batch_size = GENERATE("0", "5");
    BsonDoc reply = call(world, *client,
                         R"({"find": "docs", "filter": {}, "sort": {"_id": 1}, "batchSize": )" + batch_size +
                             R"(, "allowPartialResults": true, "$db": "app"})");
    REQUIRE(is_ok(reply));
    CHECK(reply.view().find_path("cursor.partialResultsReturned").truthy());
    CHECK(batch_of(reply).size() == 0);
    if (cursor_id(reply) != 0) reply = call(world, *client, get_more(cursor_id(reply), 7));
    CHECK(is_ok(reply));
    CHECK(cursor_id(reply) == 0);
  }
  SECTION("that is the only one of a find, between two batches") {
    BsonDoc reply = call(world, *client, R"({"find": "docs", "filter": {"_id": {"$gte": 20, "$lt": 40}}, "batchSize": 5,
        "allowPartialResults": true, "$db": "app"})");
    REQUIRE(is_ok(reply));
    world.shard(1).die();
    world.run_for(seconds(1));
    bool said = false;
    while (cursor_id(reply) != 0) {
      reply = call(world, *client, get_more(cursor_id(reply), 5));
      REQUIRE(is_ok(reply));
      said = reply.view().find_path("cursor.partialResultsReturned").truthy();
    }
    CHECK(said);
  }
  SECTION("between two batches") {
    BsonDoc reply = call(world, *client, partial);
    REQUIRE(is_ok(reply));
    std::size_t documents = batch_of(reply).size();
    world.shard(1).die();
    bool said = false;
    while (cursor_id(reply) != 0) {
      reply = call(world, *client, get_more(cursor_id(reply), 7));
      REQUIRE(is_ok(reply));
      said = said || reply.view().find_path("cursor.partialResultsReturned").truthy();
      documents += batch_of(reply).size();
    }
    CHECK(said);
    CHECK(documents >= 40);
    CHECK(documents < 60);
  }
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a shutdown kills the cursors that are open, on every worker") {
  SimWorld world(two_workers(3, 20));
  store_documents(world, 20);
  auto first = world.client(0);
  auto second = world.client(1);
  CHECK(cursor_id(call(world, *first, scatter_find)) != 0);
  CHECK(cursor_id(call(world, *second, scatter_find)) != 0);
  CHECK(open_shard_cursors(world) == 6);
  first->close();
  second->close();
  CHECK(world.shut_down(seconds(30)));
  for (std::size_t i = 0; i < 3; ++i) CHECK(world.shard(i).cursors().killed == 2);
}

TEST_CASE("a client at its limit has no more asked of the shards") {
  constexpr int span = 300;
  SimWorld world(sharded_world(2, span));
  store_documents(world, span);
  auto client = world.client();
  // Just what the shards send at once: 101 documents each.
  const std::string command = GENERATE(
      R"("find": "docs", "limit": 202, "batchSize": 300)",
      R"("aggregate": "docs", "pipeline": [{"$limit": 202}], "cursor": {"batchSize": 300})",
      R"("aggregate": "docs", "pipeline": [{"$limit": 202}, {"$addFields": {"a": 1}}], "cursor": {"batchSize": 300})",
      R"("aggregate": "docs", "pipeline": [{"$limit": 202}, {"$unwind": "$k"}], "cursor": {"batchSize": 300})",
      R"("aggregate": "docs", "pipeline": [{"$limit": 202}, {"$group": {"_id": "$_id"}}],)"
      R"( "cursor": {"batchSize": 300})");
  CAPTURE(command);
  const BsonDoc reply = call(world, *client, "{" + command + R"(, "$db": "app"})");
  CHECK(batch_of(reply).size() == 202);
  CHECK(cursor_id(reply) == 0);
  CHECK(world.shard(0).seen("getMore") + world.shard(1).seen("getMore") == 0);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

}  // namespace spillway::test
