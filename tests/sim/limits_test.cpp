// Limits as clients meet them: what is refused, what goes on all the same, and that nothing is left
// behind on shards.
#include <functional>

#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

using exec::LimitOf;

constexpr std::string_view ping = R"({"ping": 1, "$db": "admin"})";

LimitSettings per(LimitKey key, LimitValues values) {
  LimitSettings settings;
  settings.per[static_cast<std::size_t>(key)] = values;
  return settings;
}

std::string hello_of(std::string_view application) {
  return fmt::format(R"({{"hello": 1, "$db": "admin", "client": {{"application": {{"name": "{}"}},
                         "driver": {{"name": "d", "version": "1"}}, "os": {{"type": "Linux"}}}}}})", application);
}

std::uint64_t refusals(SimWorld& world, LimitKey key, LimitOf thing) {
  return world.shared().limits.usage(key).refused[static_cast<std::size_t>(thing)];
}

void check_refused(const BsonDoc& reply, bool write = false) {
  CHECK_FALSE(is_ok(reply));
  CHECK(code_of(reply) == 462);
  const std::string labels = to_json(reply.view()["errorLabels"]);
  CHECK(labels.find("SystemOverloadedError") != std::string::npos);
  CHECK(labels.find("RetryableError") != std::string::npos);
  CHECK((labels.find("NoWritesPerformed") != std::string::npos) == write);
}

// How many of these are answered until the first refusal.
int answered(SimWorld& world, SimClient& client, std::string_view command, int tries = 50) {
  for (int i = 0; i < tries; ++i) {
    if (!is_ok(call(world, client, command))) return i;
  }
  return tries;
}

Task<void> send_again_and_again(SimClient* client, BsonDoc command, int times) {
  for (int i = 0; i < times; ++i) {
    auto sending = client->send(command);
    const bool sent = co_await sending;
    if (!sent) co_return;
  }
}

}  // namespace

TEST_CASE("an address has its operations per second over all its connections, and may always finish") {
  SimWorld world(two_workers(3, 20));
  store_documents(world, 20);
  world.shared().limits.configure(per(LimitKey::address, {.operations_per_second = 10}));
  auto here = world.client(0), there = world.client(1);
  auto other = world.balanced_client("PROXY TCP4 198.51.100.9 10.0.0.1 4000 27016\r\n");
  call(world, *other, R"({"hello": 1, "loadBalanced": true, "$db": "admin"})");
  const BsonDoc opened = call(world, *here, R"({"find": "docs", "batchSize": 5, "$db": "app"})");
  REQUIRE(cursor_id(opened) != 0);
  CHECK(answered(world, *here, ping) + answered(world, *there, ping) == 9);
  check_refused(call(world, *there, R"({"find": "docs", "$db": "app"})"));
  check_refused(call(world, *there, R"({"insert": "docs", "documents": [{"_id": 1}], "$db": "app"})"), true);
  // Another is not concerned; a cursor goes on, and hello is answered.
  CHECK(is_ok(call(world, *other, ping)));
  BsonDoc reply = *try_call(world, *here, json(get_more(cursor_id(opened), 5)));
  CHECK(is_ok(reply));
  CHECK(batch_of(reply).size() == 5);
  CHECK(is_ok(call(world, *here, R"({"hello": 1, "$db": "admin"})")));
  CHECK(is_ok(call(world, *there,
                   fmt::format(R"({{"killCursors": "docs", "cursors": [{{"$numberLong": "{}"}}], "$db": "app"}})",
                               cursor_id(opened)))));
  CHECK(refusals(world, LimitKey::address, LimitOf::operations) == 4);
  // Two more after a fifth of a second, of all connections together.
  world.run_for(milliseconds(210));
  CHECK(answered(world, *here, ping) + answered(world, *there, ping) == 2);
  for (SimClient* client : {here.get(), there.get(), other.get()}) client->close();
  world.run_for(minutes(1));
  require_quiet(world);
}

TEST_CASE("a cursor beyond the limit is not left open, and its find is refused") {
  // Merged; of one shard; streamed from several; opened without a batch, and little in the first.
  const int layout = GENERATE(0, 1, 2, 3);
  CAPTURE(layout);
  SimWorldOptions options = sharded_world(layout == 1 ? 1 : 3, 20);
  if (layout == 3) options.memory_limit_bytes = 64 * limits::mib;
  SimWorld world(std::move(options));
  store_documents(world, 20, layout == 2 ? 30'000 : 10);
  world.shared().limits.configure(per(LimitKey::address, {.cursors = 2}));
  auto client = world.client();
  const std::string find = layout == 0 ? R"({"find": "docs", "sort": {"k": 1}, "batchSize": 5, "$db": "app"})"
                                       : R"({"find": "docs", "batchSize": 15, "$db": "app"})";
  const BsonDoc first = call(world, *client, find);
  const BsonDoc second = call(world, *client, find);
  REQUIRE(cursor_id(first) > 0);
  REQUIRE(cursor_id(second) > 0);
  check_refused(call(world, *client, find));
  CHECK(world.shared().cursors.counts().open_total == 2);
  // What needs no cursor is not concerned.
  CHECK(is_ok(call(world, *client,
                   R"({"find": "docs", "filter": {"_id": 3}, "limit": 1, "singleBatch": true, "$db": "app"})")));
  if (layout != 2) CHECK(is_ok(call(world, *client, R"({"find": "docs", "filter": {"_id": 3}, "$db": "app"})")));
  std::int64_t id = cursor_id(first);
  for (int turn = 0; turn < 20 && id != 0; ++turn) {
    const BsonDoc more = *try_call(world, *client, json(get_more(id, 100)));
    REQUIRE(is_ok(more));
    id = cursor_id(more);
  }
  REQUIRE(id == 0);
  // What is killed makes room for as many.
  for (int turn = 0; turn < 4; ++turn) {
    const BsonDoc third = call(world, *client, find);
    REQUIRE(cursor_id(third) > 0);
    check_refused(call(world, *client, find));
    call(world, *client,
         fmt::format(R"({{"killCursors": "docs", "cursors": [{{"$numberLong": "{}"}}], "$db": "app"}})",
                     cursor_id(third)));
  }
  client->close();
  world.run_for(minutes(2));  // orphans end
  CHECK(world.shared().cursors.counts().open_total == 0);
  require_quiet(world);
  auto again = world.client();
  CHECK(cursor_id(call(world, *again, find)) > 0);
}

TEST_CASE("what idle cursors hold is counted, and a client that holds too much opens no further") {
  SimWorld world(sharded_world(3, 20));
  world.shared().parameters.read_ahead = false;
  store_documents(world, 20, 10'000);
  auto client = world.client();
  const std::string find = R"({"find": "docs", "sort": {"k": 1}, "batchSize": 2, "$db": "app"})";
  const BsonDoc opened = call(world, *client, find);
  REQUIRE(cursor_id(opened) > 0);
  REQUIRE(world.shared().cursors.counts().buffered_bytes > 20'000);
  world.shared().limits.configure(per(LimitKey::address, {.buffered_bytes = 20'000}));
  check_refused(call(world, *client, find));
  CHECK(refusals(world, LimitKey::address, LimitOf::buffered_bytes) == 1);
  CHECK(is_ok(call(world, *client, ping)));
  CHECK(is_ok(call(world, *client, R"({"insert": "docs", "documents": [{"_id": 2000}], "$db": "app"})")));
  // Reading on makes room.
  std::int64_t id = cursor_id(opened);
  while (id != 0) {
    const BsonDoc more = *try_call(world, *client, json(get_more(id, 100)));
    REQUIRE(is_ok(more));
    id = cursor_id(more);
  }
  CHECK(is_ok(call(world, *client, find)));
  client->close();
}

TEST_CASE("connections beyond an address' limit hear why, and end") {
  SimWorld world(two_workers(1, 20));
  world.shared().limits.configure(per(LimitKey::address, {.connections = 2}));
  auto first = world.client(0), second = world.client(1), third = world.client(0);
  CHECK(is_ok(call(world, *first, hello_of("a"))));
  CHECK(is_ok(call(world, *second, hello_of("a"))));
  check_refused(call(world, *third, hello_of("a")));
  CHECK_FALSE(try_call(world, *third, json(ping)).has_value());
  CHECK(is_ok(call(world, *first, ping)));
  first->close();
  world.run_for(seconds(1));
  auto fourth = world.client(0);
  CHECK(is_ok(call(world, *fourth, ping)));
  // One that does not listen is not kept for long.
  auto silent = world.client(1);
  const BsonDoc unsent = json(ping);
  world.run(silent->send_part(unsent, 3));
  world.run_for(seconds(3));
  CHECK_FALSE(try_call(world, *silent, json(ping)).has_value());
  CHECK(world.shared().connections.current == 2);
}

TEST_CASE("a client refused by its address cannot stay by sending slowly") {
  SimWorld world(sharded_world(1, 20));
  world.shared().limits.configure(per(LimitKey::address, {.connections = 1}));
  auto first = world.client(), drips = world.client();
  CHECK(is_ok(call(world, *first, ping)));
  const BsonDoc large = json(fmt::format(R"({{"ping": 1, "x": "{}", "$db": "admin"}})", std::string(200'000, 'x')));
  world.run(drips->send_part(large, 30));
  for (int i = 0; i < 5 && world.shared().connections.current == 2; ++i) {
    world.run_for(milliseconds(900));
    world.run(drips->send_part(json(ping), 1));
  }
  CHECK(world.shared().connections.current == 1);
}

TEST_CASE("a client that waits for a change of the topology does not fill the memory meanwhile") {
  SimWorld world(sharded_world(1, 20));
  auto client = world.client();
  const BsonDoc waits = hello_that_waits(world, *client, 3'600'000);
  const BsonDoc large = json(fmt::format(R"({{"ping": 1, "x": "{}", "$db": "admin"}})", std::string(900'000, 'x')));
  world.run(client->send(waits));
  const TimePoint begin = Clock::now();
  world.run(client->send(large));
  const auto first = world.run(client->receive());
  const auto second = world.run(client->receive());
  REQUIRE((first && second));
  CHECK(is_ok(*first));
  CHECK(is_ok(*second));
  // It was answered at once: what stands behind it is a message like any other.
  CHECK(Clock::now() - begin < seconds(1));
}

TEST_CASE("a client that sends one waiting hello after the other is not read ahead for each") {
  SimWorld world(sharded_world(1, 20));
  auto client = world.client();
  const BsonDoc waits = hello_that_waits(world, *client, 3'600'000);
  constexpr int hellos = 2'000;
  world.spawn(send_again_and_again(client.get(), waits, hellos));
  for (int i = 0; i + 1 < hellos; ++i) REQUIRE(world.run(client->receive()));
  CHECK(world.shared().memory.requests.usage().peak_bytes < 128 * limits::kib);
}

TEST_CASE("idle connections are closed where that is wanted, busy ones are not") {
  SimWorld world(sharded_world(1, 20));
  store_documents(world, 20);
  auto idle = world.client(), used = world.client(), busy = world.client();
  for (SimClient* client : {idle.get(), used.get(), busy.get()}) call(world, *client, ping);
  world.run_for(minutes(60));
  CHECK(world.shared().connections.current == 3);
  world.shared().parameters.idle_client_ms = 5'000;
  CHECK(is_ok(call(world, *used, ping)));
  world.shard(0).delay = seconds(30);
  const auto running = start(world, *busy, json(R"({"find": "docs", "$db": "app"})"));
  for (int i = 0; i < 8; ++i) {
    world.run_for(seconds(2));
    CHECK(is_ok(call(world, *used, ping)));
  }
  CHECK(world.shared().connections.current == 2);
  CHECK(world.shared().metrics.idle_clients_closed.value() == 1);
  CHECK_FALSE(try_call(world, *idle, json(ping)).has_value());
  world.run_for(seconds(16));
  REQUIRE(running->done);
  CHECK(is_ok(*running->reply));
  world.run_for(seconds(6));
  CHECK(world.shared().connections.current == 0);
}

TEST_CASE("a client that says nothing, or stops in a header, is not waited for") {
  SimWorld world(sharded_world(1, 20));
  auto quiet = world.client(), greeted = world.client(), halfway = world.client();
  const BsonDoc command = json(ping);
  world.run(quiet->send_part(command, 0));
  call(world, *greeted, ping);
  call(world, *halfway, ping);
  world.run(halfway->send_part(command, 7));
  world.run_for(seconds(29));
  CHECK(world.shared().connections.current == 3);
  world.run_for(seconds(2));
  CHECK(world.shared().connections.current == 1);
  CHECK(world.shared().metrics.silent_clients_closed.value() == 1);
  CHECK(world.shared().metrics.senders_stopped.value() == 1);
  CHECK(is_ok(call(world, *greeted, ping)));
  // Dripping bytes is no message either.
  world.shared().parameters.handshake_ms = 2'000;
  auto dripping = world.client();
  world.run(dripping->send_part(command, 1));
  world.run_for(milliseconds(1'500));
  CHECK(world.shared().connections.current == 2);
  world.run_for(seconds(1));
  CHECK(world.shared().connections.current == 1);
}

TEST_CASE("a first message that drips in is not waited for, later ones are") {
  SimWorld world(sharded_world(1, 20));
  world.shared().parameters.handshake_ms = 2'000;
  auto greeted = world.client(), stranger = world.client();
  CHECK(is_ok(call(world, *greeted, ping)));
  const BsonDoc large = json(fmt::format(R"({{"ping": 1, "x": "{}", "$db": "admin"}})", std::string(200'000, 'x')));
  for (SimClient* client : {greeted.get(), stranger.get()}) world.run(client->send_part(large, 30));
  const TimePoint begun = Clock::now();
  while (Clock::now() - begun < milliseconds(1'800)) {
    world.run_for(milliseconds(300));
    for (SimClient* client : {greeted.get(), stranger.get()}) world.run(client->send_part(json(ping), 1));
  }
  CHECK(world.shared().connections.current == 2);
  CHECK(world.shared().memory.requests.usage().used_bytes > 2 * large.view().bytes().size());
  world.run_for(milliseconds(500));
  CHECK(world.shared().connections.current == 1);
  CHECK(world.shared().memory.requests.usage().used_bytes < 2 * large.view().bytes().size());
  CHECK(world.shared().metrics.senders_stopped.value() == 1);
}

TEST_CASE("a first message that no memory is there for is not cut for that") {
  SimWorldOptions options = sharded_world(1, 20);
  options.memory_limit_bytes = 4 * limits::mib;
  SimWorld world(std::move(options));
  exec::Shared& shared = world.shared();
  shared.parameters.handshake_ms = 2'000;
  std::vector<Reservation> others;
  others.push_back(take_all_but(shared.memory.process, 64 * limits::kib));
  others.push_back(take_all_but(*shared.memory.request_queue.large()));
  auto client = world.client();
  const BsonDoc large = json(fmt::format(R"({{"ping": 1, "x": "{}", "$db": "admin"}})", std::string(900'000, 'x')));
  const auto waits = start(world, *client, large);
  world.run_for(seconds(5));
  CHECK(shared.connections.current == 1);
  CHECK_FALSE(waits->done);
  others.clear();
  REQUIRE(world.run_until([&] { return waits->done; }, seconds(5)));
  REQUIRE(waits->reply);
  CHECK(is_ok(*waits->reply));
}

TEST_CASE("renewing sessions is work like any other: it begins, and ends nothing") {
  SimWorld world(sharded_world(2, 20));
  store_documents(world, 20);
  world.shared().limits.configure(per(LimitKey::address, {.operations_per_second = 10}));
  auto client = world.client();
  constexpr std::string_view sessions =
      R"([{"id": {"$binary": {"base64": "AAECAwQFBgcICQoLDA0ODw==", "subType": "04"}}}], "$db": "admin"})";
  CHECK(answered(world, *client, fmt::format(R"({{"refreshSessions": {})", sessions)) == 10);
  check_refused(call(world, *client, fmt::format(R"({{"refreshSessions": {})", sessions)));
  CHECK(is_ok(call(world, *client, fmt::format(R"({{"endSessions": {})", sessions))));
  client->close();
  world.run_for(seconds(20));
}

}  // namespace spillway::test
