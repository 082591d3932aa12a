// Shutdowns: how clients are told, what goes on meanwhile, what is left on shards.
#include "proxy/exec/commands/command_table.h"
#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

constexpr std::string_view hello = R"({"hello": 1, "$db": "admin"})";
constexpr std::string_view awaiting_hello =
    R"({"hello": 1, "topologyVersion": {"processId": {"$oid": "000000000000000000000000"},
        "counter": {"$numberLong": "0"}}, "maxAwaitTimeMS": 10000, "$db": "admin"})";
constexpr std::string_view scatter_find = R"({"find": "docs", "batchSize": 5, "$db": "app"})";
constexpr std::string_view find_one =
    R"({"find": "docs", "filter": {"_id": 1}, "limit": 1, "$db": "app"})";

void check_quiescing(DocView reply, std::int64_t remaining_ms) {
  CHECK_FALSE(is_ok(reply));
  CHECK(code_of(reply) == 91);
  CHECK(reply.find_path("topologyVersion.counter").to_int64() == std::int64_t{1});
  CHECK(reply["remainingQuiesceTimeMillis"].to_int64().value_or(-1) <= remaining_ms);
  CHECK(reply["remainingQuiesceTimeMillis"].to_int64().value_or(-1) > remaining_ms - 1'000);
}

// Counts what is open on shards, and on this side.
std::uint64_t open_on_shards(SimWorld& world) {
  std::uint64_t open = 0;
  for (std::size_t i = 0; i < world.shard_count(); ++i) open += world.shard(i).cursors().open();
  return open;
}

void advance_to_end(SimWorld& world) {
  REQUIRE(world.run_until([&] { return world.shutdown().done(); }, minutes(1)));
}

}  // namespace

TEST_CASE("a shutdown is told at once to clients that wait for a change, on every worker") {
  SimWorld world(two_workers(3, 20));
  auto first = world.client(0);
  auto second = world.client(1);
  auto busy = world.client(0);
  CHECK(is_ok(call(world, *busy, R"({"ping": 1, "$db": "admin"})")));
  const auto one = start(world, *first, json(awaiting_hello));
  const auto other = start(world, *second, json(awaiting_hello));
  world.run_for(seconds(2));
  CHECK_FALSE(one->done);
  world.shutdown().begin(seconds(15));
  const TimePoint begun = Clock::now();
  REQUIRE(world.run_until([&] { return one->done && other->done; }, seconds(5)));
  CHECK(Clock::now() - begun <= milliseconds(20));
  check_quiescing(*one->reply, 15'000);
  check_quiescing(*other->reply, 15'000);
  world.run_for(seconds(5));
  check_quiescing(call(world, *first, hello), 10'000);
  check_quiescing(call(world, *world.client(1), awaiting_hello), 10'000);
}

TEST_CASE("a client that asks to wait for a change during the announcement is told at once, and holds nothing up") {
  SimWorld world(two_workers(3, 20));
  auto busy = world.client(0);
  auto monitor = world.client(0);
  CHECK(is_ok(call(world, *busy, R"({"ping": 1, "$db": "admin"})")));
  CHECK(is_ok(call(world, *monitor, hello)));
  world.shutdown().begin(seconds(15));
  const TimePoint begun = Clock::now();
  world.run_for(seconds(1));
  // It knows of the change already.
  const auto told = start(world, *monitor, hello_that_waits(world, *monitor, 60'000));
  world.run_for(milliseconds(10));
  REQUIRE(told->done);
  REQUIRE(told->reply.has_value());
  check_quiescing(*told->reply, 14'000);
  advance_to_end(world);
  CHECK(Clock::now() - begun < seconds(16));
}

TEST_CASE("a hello that waits for a change is answered when its session is to end") {
  SimWorld world(two_workers(3, 20));
  auto monitor = world.client(0);
  const auto waiting = start(world, *monitor, hello_that_waits(world, *monitor, 60'000));
  world.run_for(seconds(1));
  REQUIRE_FALSE(waiting->done);
  world.worker(0).close_sessions(true);
  world.run_for(milliseconds(10));
  REQUIRE(waiting->done);
  REQUIRE(waiting->reply.has_value());
  CHECK(is_ok(*waiting->reply));
  CHECK(world.worker(0).connections() == 0);
}

TEST_CASE("everything but hello is served until the announcement ends") {
  SimWorld world(two_workers(3, 20));
  store_documents(world, 20);
  auto client = world.client(0);
  BsonDoc reply = call(world, *client, scatter_find);
  std::size_t documents = batch_of(reply).size();
  world.shutdown().begin(seconds(15));
  world.run_for(seconds(2));
  CHECK(world.listening());
  while (cursor_id(reply) != 0) {
    reply = call(world, *client, fmt::format(R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "docs",
                                                  "batchSize": 7, "$db": "app"}})", cursor_id(reply)));
    REQUIRE(is_ok(reply));
    documents += batch_of(reply).size();
  }
  CHECK(documents == 60);
  auto late = world.client(1);
  CHECK(is_ok(call(world, *late, R"({"insert": "docs", "documents": [{"_id": 5000}], "$db": "app"})")));
  CHECK(batch_of(call(world, *late, find_one)).size() == 1);
  world.run_for(seconds(11));
  CHECK_FALSE(world.shutdown().done());
  CHECK(world.listening());
  const TimePoint before = Clock::now();
  advance_to_end(world);
  CHECK(Clock::now() - before < seconds(4));
  CHECK_FALSE(try_call(world, *late, json(find_one)).has_value());
}

TEST_CASE("a shutdown waits only while clients are there that have sent requests") {
  SimWorld world(two_workers(3, 20));
  store_documents(world, 20);
  auto monitor = world.client(0);
  CHECK(is_ok(call(world, *monitor, hello)));
  auto client = world.client(1);
  CHECK(cursor_id(call(world, *client, scatter_find)) != 0);
  CHECK(open_on_shards(world) == 3);
  world.shutdown().begin(seconds(15));
  world.run_for(seconds(3));
  CHECK_FALSE(world.shutdown().done());
  client->close();
  const TimePoint left = Clock::now();
  advance_to_end(world);
  CHECK(Clock::now() - left < seconds(1));
  // The monitor was not waited for; the cursor is not left behind.
  CHECK_FALSE(try_call(world, *monitor, json(hello)).has_value());
  CHECK(open_on_shards(world) == 0);
}

TEST_CASE("a request that is running finishes, also after the announcement") {
  SimWorld world(two_workers(3, 20));
  store_documents(world, 20);
  auto client = world.client(1);
  world.shard(0).delay = seconds(5);
  const auto running = start(world, *client, json(find_one));
  world.run_for(seconds(1));
  world.shutdown().begin(seconds(2));
  advance_to_end(world);
  REQUIRE(running->reply.has_value());
  CHECK(is_ok(*running->reply));
  CHECK(batch_of(*running->reply).size() == 1);
}

TEST_CASE("what outlasts the drain is interrupted, and says that the router goes") {
  SimWorld world(two_workers(3, 20));
  store_documents(world, 20);
  auto client = world.client(1);
  CHECK(is_ok(call(world, *client, find_one)));
  world.shard(0).delay = seconds(60);
  const auto running = start(world, *client, json(find_one));
  world.run_for(seconds(1));
  world.shutdown().begin(seconds(2));
  const TimePoint begun = Clock::now();
  REQUIRE(world.run_until([&] { return running->done; }, minutes(1)));
  CHECK(Clock::now() - begun >= seconds(12));
  CHECK(Clock::now() - begun < seconds(13));
  REQUIRE(running->reply.has_value());
  CHECK(code_of(*running->reply) == 11600);
  CHECK(running->reply->view().find_path("topologyVersion.counter").to_int64() == std::int64_t{1});
  world.shard(0).delay = {};
  advance_to_end(world);
}

TEST_CASE("a transaction that a shutdown cuts may be tried again elsewhere") {
  SimShardOptions member;
  member.set_name = "rs";
  SimWorld world(sharded_world(3, 20, member));
  auto client = world.client();
  world.shard(0).delay = seconds(60);
  const auto running = start(world, *client, json(R"({"find": "docs", "filter": {"_id": 1},
      "lsid": {"id": {"$binary": {"base64": "AAECAwQFBgcICQoLDA0ODw==", "subType": "04"}}},
      "txnNumber": {"$numberLong": "1"}, "startTransaction": true, "autocommit": false, "$db": "app"})"));
  world.run_for(seconds(1));
  world.shutdown().begin(seconds(2));
  REQUIRE(world.run_until([&] { return running->done; }, minutes(1)));
  REQUIRE(running->reply.has_value());
  CHECK(code_of(*running->reply) == 11600);
  CHECK(to_json(*running->reply).find("TransientTransactionError") != std::string::npos);
  world.shard(0).delay = {};
  advance_to_end(world);
}

TEST_CASE("a transaction that is open is aborted on its shard") {
  SimShardOptions member;
  member.set_name = "rs";
  SimWorld world(sharded_world(3, 20, member));
  store_documents(world, 20);
  auto client = world.client();
  const BsonDoc reply = call(world, *client, R"({"find": "docs", "filter": {"_id": 25},
      "lsid": {"id": {"$binary": {"base64": "AAECAwQFBgcICQoLDA0ODw==", "subType": "04"}}},
      "txnNumber": {"$numberLong": "1"}, "startTransaction": true, "autocommit": false, "$db": "app"})");
  REQUIRE(is_ok(reply));
  client->close();
  world.shutdown().begin(seconds(15));
  advance_to_end(world);
  CHECK(world.shard(0).seen("abortTransaction") == 0);
  CHECK(world.shard(1).seen("abortTransaction") == 1);
  CHECK(world.shard(2).seen("abortTransaction") == 0);
}

TEST_CASE("a second signal waits for no client") {
  SimWorld world(two_workers(3, 20));
  store_documents(world, 20);
  auto idle = world.client(0);
  CHECK(cursor_id(call(world, *idle, scatter_find)) != 0);
  auto client = world.client(1);
  world.shard(0).delay = seconds(60);
  const auto running = start(world, *client, json(find_one));
  world.shutdown().begin(seconds(15));
  world.run_for(seconds(1));
  CHECK_FALSE(world.shutdown().done());
  const TimePoint hurried = Clock::now();
  world.shutdown().hurry();
  REQUIRE(world.run_until([&] { return running->done; }, seconds(2)));
  CHECK(Clock::now() - hurried < seconds(1));
  world.shard(0).delay = {};
  advance_to_end(world);
  CHECK(open_on_shards(world) == 0);
}

TEST_CASE("a connection whose message is being refused ends with it, as after any other") {
  SimWorldOptions options = sharded_world(2, 20);
  options.memory_limit_bytes = 4 * limits::mib;
  options.faults.latency_min = options.faults.latency_max = milliseconds(300);
  SimWorld world(std::move(options));
  auto client = world.client();
  REQUIRE(is_ok(call(world, *client, find_one)));
  MemoryBudget& process = world.shared().memory.process;
  auto others = process.try_reserve(4 * limits::mib - 600'000 - process.usage().used_bytes);
  REQUIRE(others);
  BsonWriter insert;
  insert.append("insert", "docs").begin_array("documents");
  insert.begin_document_item().append("_id", 1).append("text", std::string(1'200'000, 'x')).end();
  insert.end().append("$db", "app");
  const auto writing = start(world, *client, std::move(insert).finish());
  REQUIRE(world.run_until([&] { return world.shared().memory.refusals_under_way > 0; }, seconds(30)));
  const TimePoint begun = Clock::now();
  world.shutdown().begin(seconds(0));
  world.run_for(seconds(1));
  CHECK_FALSE(writing->done);
  world.set_faults({});
  REQUIRE(world.run_until([&] { return writing->done; }, seconds(9)));
  REQUIRE(writing->reply);
  CHECK(code_of(*writing->reply) == 462);
  advance_to_end(world);
  CHECK(Clock::now() - begun < seconds(9));  // it cuts after ten
}

TEST_CASE("a shard that hangs does not keep a shutdown waiting, and the others are told") {
  SimShardOptions member;
  member.set_name = "rs";
  SimWorldOptions options = sharded_world(3, 20, member);
  options.workers = 2;
  SimWorld world(std::move(options));
  store_documents(world, 20);
  const bool busy = GENERATE(false, true);
  auto idle = world.client(0), running = world.client(1), late = world.client(0);
  CHECK(cursor_id(call(world, *idle, scatter_find)) != 0);
  REQUIRE(is_ok(call(world, *idle, R"({"find": "docs", "filter": {"_id": 25},
      "lsid": {"id": {"$binary": {"base64": "AAECAwQFBgcICQoLDA0ODw==", "subType": "04"}}},
      "txnNumber": {"$numberLong": "1"}, "startTransaction": true, "autocommit": false, "$db": "app"})")));
  for (SimClient* client : {running.get(), late.get()}) CHECK(is_ok(call(world, *client, find_one)));
  world.shard(0).delay = minutes(1);
  std::vector<std::shared_ptr<Pending>> pending;
  if (busy) {
    for (SimClient* client : {running.get(), late.get()}) pending.push_back(start(world, *client, json(find_one)));
    world.run_for(seconds(1));
  }
  world.shutdown().begin(seconds(0));
  const TimePoint begun = Clock::now();
  advance_to_end(world);
  const Duration drain = busy ? seconds(10) : seconds(0);
  CHECK(Clock::now() - begun >= drain);
  CHECK(Clock::now() - begun < drain + seconds(3));
  for (const auto& each : pending) {
    REQUIRE(each->reply.has_value());
    CHECK(code_of(*each->reply) == 11600);
  }
  CHECK(world.shard(1).cursors().open() == 0);
  CHECK(world.shard(2).cursors().open() == 0);
  CHECK(world.shard(1).seen("abortTransaction") == 1);
}

TEST_CASE("a second, shorter announcement counts, a longer one does not") {
  SimWorld world(two_workers(3, 20));
  auto client = world.client(0);
  CHECK(is_ok(call(world, *client, R"({"ping": 1, "$db": "admin"})")));
  world.shutdown().begin(seconds(15));
  world.shutdown().begin(seconds(60));
  check_quiescing(call(world, *client, hello), 15'000);
  world.shutdown().begin(seconds(5));
  check_quiescing(call(world, *client, hello), 5'000);
  const TimePoint before = Clock::now();
  advance_to_end(world);
  CHECK(Clock::now() - before < seconds(6));
}

TEST_CASE("the shutdown command needs what sending the signal needs") {
  SimWorld world(sharded_world(1, 20));
  auto stranger = world.client();
  CHECK(code_of(call(world, *stranger, R"({"shutdown": 1, "$db": "admin"})")) == 13);
  CHECK(code_of(call(world, *stranger, R"({"shutdown": 1, "$db": "app"})")) == 13);
  exec::Client local;
  local.peer = "127.0.0.1:4000";
  const auto run = [&](std::string_view text) {
    const BsonDoc body = json(text);
    wire::OpMsg message;
    message.body = body;
    auto request = exec::parse_request(message, {}, Clock::now());
    REQUIRE(request.has_value());
    exec::Response response = world.run(exec::run_command(world.worker(0).context(), local, *request));
    if (response.closes) return BsonDoc();
    const auto pieces = response.pieces();
    return BsonDoc(DocView::trusted(pieces.front().iov_base));
  };
  CHECK(code_of(run(R"({"shutdown": 1, "$db": "admin"})")) == 20);  // no handler is set
  std::optional<std::chrono::milliseconds> asked;
  world.shared().life.request_shutdown = [&](std::chrono::milliseconds announce) {
    asked = announce;
    world.shutdown().begin(announce);
  };
  CHECK(code_of(run(R"({"shutdown": 1, "timeoutSecs": -1, "$db": "admin"})")) == 2);
  CHECK(code_of(run(R"({"shutdown": 1, "timeoutSecs": "long", "$db": "admin"})")) == 14);
  CHECK_FALSE(asked.has_value());
  stranger->close();
  const TimePoint before = Clock::now();
  CHECK(run(R"({"shutdown": 1, "timeoutSecs": 7, "force": true, "$db": "admin"})").view().empty());
  CHECK(asked == seconds(7));
  CHECK(Clock::now() - before < seconds(1));  // the command itself is no work to wait for
  advance_to_end(world);
}

}  // namespace spillway::test
