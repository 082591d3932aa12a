// Tables that all clients share: a client that fills one pays for it, and keeps no other out.
#include "proxy/wire/op_msg.h"
#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

constexpr std::uint64_t limit_bytes = 4 * limits::mib;

BsonDoc insert_of(std::size_t text_bytes) {
  BsonWriter out;
  out.append("insert", "docs");
  out.begin_array("documents");
  out.begin_document_item().append("_id", 1).append("text", std::string(text_bytes, 'x')).end();
  out.end();
  out.append("$db", "app");
  return std::move(out).finish();
}

// Every connected client is this user.
void log_in_all(SimWorld& world, const char* name) {
  for (exec::Client* client : world.worker(0).context().clients) {
    if (!client->login.user) world.log_in(*client, name);
  }
}

std::unique_ptr<SimClient> client_of(SimWorld& world, const char* name) {
  auto client = world.client();
  call(world, *client, R"({"ping": 1, "$db": "admin"})");
  log_in_all(world, name);
  return client;
}

BsonDoc session(std::uint32_t number, bool wrapped) {
  std::uint8_t id[16] = {};
  store_le(id, number);
  store_le(id + 8, number);
  BsonWriter out;
  if (wrapped) out.begin_document("lsid");
  out.append_binary("id", 4, id);
  if (wrapped) out.end();
  return std::move(out).finish();
}

}  // namespace

TEST_CASE("a receive buffer grows for a client that has logged in, not for a stranger") {
  SimWorldOptions options = sharded_world(2, 20);
  options.socket_buffers.client_receive_bytes = 8 * 1024;
  options.socket_buffers.client_receive_large_bytes = 64 * 1024;
  options.socket_buffers.growth_bytes_max = limits::mib;
  SimWorld world(std::move(options));
  auto known = client_of(world, "ann");
  auto stranger = world.client();
  call(world, *stranger, R"({"hello": 1, "$db": "admin"})");
  CHECK(world.run(stranger->send_part(insert_of(50'000), 30'000)));
  world.run_for(seconds(1));
  CHECK(world.shared().memory.sockets.own().usage().used_bytes == 0);
  CHECK(world.run(known->send_part(insert_of(50'000), 30'000)));
  world.run_for(seconds(1));
  CHECK(world.shared().memory.sockets.own().usage().used_bytes == 128 * 1024);
  known->close();
  stranger->close();
  world.run_for(seconds(1));
  CHECK(world.shared().memory.sockets.own().usage().used_bytes == 0);
}

TEST_CASE("a user that names sessions without end keeps no other from its own") {
  SimWorldOptions options = sharded_world(2, 20);
  SimWorld world(std::move(options));
  store_documents(world, 20);
  auto mallory = client_of(world, "mallory");
  auto ann = client_of(world, "ann");
  std::uint32_t number = 1;
  for (int command = 0; command < 25; ++command) {
    BsonWriter out;
    out.begin_array("refreshSessions");
    for (int i = 0; i < 10'000; ++i) out.append_item(session(number++, false).view());
    out.end();
    out.append("$db", "admin");
    const BsonDoc reply = *try_call(world, *mallory, std::move(out).finish());
    REQUIRE(is_ok(reply));
  }
  CHECK(world.shared().session_owners.size() <= exec::SessionOwners::entries_max);
  for (std::uint32_t each = 0; each < 100; ++each) {
    BsonWriter find;
    find.append("find", "docs").append_element(session(1'000'000 + each, true).view().first());
    find.append("$db", "app");
    const BsonDoc reply = *try_call(world, *ann, std::move(find).finish());
    INFO(to_json(reply).substr(0, 300));
    REQUIRE(is_ok(reply));
  }
  mallory->close();
  ann->close();
  world.run_for(minutes(1));
}

TEST_CASE("a later request does not go before those that wait for memory") {
  SimWorldOptions options = sharded_world(2, 100);
  options.memory_limit_bytes = limit_bytes;
  options.large_reserve_bytes = 2 * limits::mib;
  SimWorld world(std::move(options));
  exec::Shared& shared = world.shared();
  auto first = world.client(), later = world.client();
  for (SimClient* client : {first.get(), later.get()}) call(world, *client, R"({"ping": 1, "$db": "admin"})");
  auto reserve = shared.memory.request_queue.large()->try_reserve(2 * limits::mib);
  REQUIRE(reserve);
  Reservation others = take_all_but(shared.memory.process, 600'000);
  const auto waiting = start(world, *first, insert_of(1'000'000));
  world.run_for(seconds(1));
  const auto behind = start(world, *later, insert_of(300'000));  // there would be room
  world.run_for(seconds(1));
  CHECK_FALSE(waiting->done);
  CHECK_FALSE(behind->done);
  CHECK(shared.memory.request_queue.usage().waiting == 2);
  const TimePoint released = Clock::now();
  others.release();
  REQUIRE(world.run_until([&] { return waiting->done && behind->done; }, seconds(2)));
  CHECK(Clock::now() - released < milliseconds(1));  // woken, and not by a clock
  reserve->release();
  first->close();
  later->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a client that takes a merged reply drop by drop is closed, soon while others wait for memory") {
  const bool others_wait = GENERATE(true, false);
  SimWorldOptions options = sharded_world(2, 20);
  options.memory_limit_bytes = 16 * limits::mib;
  options.faults.window_bytes = 32 * 1024;
  SimWorld world(std::move(options));
  store_documents(world, 20, 50'000);
  exec::Shared& shared = world.shared();
  auto slow = world.client(), other = world.client();
  slow->pace_bytes = 2'000;
  slow->pace_pause = seconds(9);
  const auto pending =
      start(world, *slow, json(R"({"find": "docs", "sort": {"k": 1}, "batchSize": 1000, "$db": "app"})"));
  world.run_for(seconds(1));
  REQUIRE(shared.memory.process.usage().used_bytes > 1'000'000);
  std::optional<Reservation> rest;
  std::shared_ptr<Pending> waiting;
  if (others_wait) {
    rest = take_all_but(shared.memory.process, 100'000);
    waiting = start(world, *other, insert_of(1'000'000));
  }
  world.run_for(seconds(25));
  CHECK(shared.metrics.stalled_clients_closed.value() == (others_wait ? 1 : 0));
  if (rest) rest->release();
  world.run_for(minutes(3));  // 30 s, and one for each 16 KiB
  CHECK(shared.metrics.stalled_clients_closed.value() == 1);
  CHECK(shared.memory.process.usage().used_bytes < limits::mib);
  slow->close();
  other->close();
  world.run_for(minutes(2));
  require_quiet(world);
}

TEST_CASE("a client that takes its reply slowly, but takes it, has it whole") {
  SimWorldOptions options = sharded_world(2, 20);
  options.faults.window_bytes = 32 * 1024;
  SimWorld world(std::move(options));
  store_documents(world, 20, 50'000);
  auto slow = world.client();
  slow->pace_bytes = 20'000;
  slow->pace_pause = seconds(1);
  const auto pending =
      start(world, *slow, json(R"({"find": "docs", "sort": {"k": 1}, "batchSize": 1000, "$db": "app"})"));
  REQUIRE(world.run_until([&] { return pending->done; }, minutes(5)));
  REQUIRE(pending->reply);
  CHECK(batch_of(*pending->reply).size() == 40);
  slow->close();
  world.run_for(minutes(1));
  require_quiet(world);
}

TEST_CASE("strangers' messages that are too long for them keep a few bytes each, however slowly they come") {
  SimWorldOptions options = sharded_world(2, 20);
  options.memory_limit_bytes = limit_bytes;
  SimWorld world(std::move(options));
  exec::Shared& shared = world.shared();
  auto ann = client_of(world, "ann");
  const std::uint64_t before = shared.memory.process.usage().used_bytes;
  std::vector<std::unique_ptr<SimClient>> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(world.client());
    world.run(strangers.back()->send_part(insert_of(1'000'000), 100'000));
  }
  world.run_for(milliseconds(500));
  CHECK(shared.memory.process.usage().used_bytes <= before + 20 * limits::kib);
  for (auto& stranger : strangers) stranger->close();
  world.run_for(seconds(1));
  ann->close();
  world.run_for(minutes(1));
  require_quiet(world);
}

TEST_CASE("strangers that stop in the middle of a message take nothing of logged-in clients") {
  SimWorldOptions options = sharded_world(2, 20);
  options.memory_limit_bytes = limit_bytes;
  SimWorld world(std::move(options));
  exec::Shared& shared = world.shared();
  shared.memory.connections.set_limit(limits::mib);
  shared.memory.strangers.set_limit(256 * limits::kib);
  auto ann = client_of(world, "ann");
  const std::uint64_t before = shared.memory.process.usage().used_bytes;
  const std::uint64_t reserve = shared.memory.request_queue.usage().small.used_bytes;
  std::vector<std::unique_ptr<SimClient>> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(world.client());
    world.run(strangers.back()->send_part(insert_of(60'000), 1'000));
  }
  world.run_for(milliseconds(500));
  // Waiting clients keep the first bytes that they sent.
  CHECK(shared.memory.process.usage().used_bytes <= before + 20 * limits::kib);
  CHECK(shared.memory.request_queue.usage().small.used_bytes <= reserve + 20 * 4096);
  CHECK(shared.memory.strangers.usage().used_bytes > 128 * limits::kib);
  CHECK(shared.memory.strangers.usage().used_bytes <= 256 * limits::kib);
  // A client that sends a whole message is answered.
  auto other = world.client();
  CHECK(is_ok(call(world, *other, R"({"hello": 1, "$db": "admin"})")));
  CHECK(is_ok(call(world, *ann, R"({"find": "docs", "$db": "app"})")));
  // Clients that keep others waiting are closed, a turn after the other.
  world.run_for(seconds(30));
  CHECK(shared.metrics.senders_stopped.value() >= 12);
  for (auto& stranger : strangers) stranger->close();
  ann->close();
  other->close();
  world.run_for(seconds(2));
  CHECK(shared.memory.connections.usage().used_bytes == 0);
  require_quiet(world);
}

TEST_CASE("idle connections are counted, and beyond what is there for them refused") {
  SimWorld world(sharded_world(1, 20));
  exec::Shared& shared = world.shared();
  shared.memory.connections.set_limit(10 * 2 * limits::kib);
  std::vector<std::unique_ptr<SimClient>> idle;
  for (int i = 0; i < 10; ++i) {
    idle.push_back(world.client());
    CHECK(is_ok(call(world, *idle.back(), R"({"hello": 1, "$db": "admin"})")));
  }
  CHECK(shared.memory.connections.usage().used_bytes == 10 * 2 * limits::kib);
  auto beyond = world.client();
  CHECK_FALSE(try_call(world, *beyond, json(R"({"hello": 1, "$db": "admin"})")));
  CHECK(shared.metrics.connections_rejected.value() == 1);
  idle.back()->close();
  world.run_for(seconds(1));
  CHECK(is_ok(call(world, *world.client(), R"({"hello": 1, "$db": "admin"})")));
  for (auto& client : idle) client->close();
  world.run_for(seconds(1));
  CHECK(shared.memory.connections.usage().used_bytes == 0);
}

TEST_CASE(
    "a program has its cursors while a connection of it is there, whatever its address, of its user or of none") {
  SimWorldOptions options = sharded_world(2, 20);
  SimWorld world(std::move(options));
  store_documents(world, 20);
  const auto hello = [](const char* name) {
    return fmt::format(R"({{"hello": 1, "$db": "admin", "client": {{"application": {{"name": "{}"}},
        "driver": {{"name": "d", "version": "1"}}, "os": {{"type": "Linux"}}}}}})", name);
  };
  const std::string whose = GENERATE("monitor", "user", "another user", "another program");
  auto reader = world.client(), other = world.client();
  call(world, *reader, hello("report"));
  log_in_all(world, "ann");
  call(world, *other, hello(whose == "another program" ? "shop" : "report"));
  if (whose == "user" || whose == "another user") log_in_all(world, whose == "user" ? "ann" : "mallory");
  const BsonDoc opened = call(world, *reader, R"({"find": "docs", "sort": {"k": 1}, "batchSize": 2, "$db": "app"})");
  REQUIRE(cursor_id(opened) > 0);
  reader->close();
  world.run_for(minutes(2));
  const bool kept = whose == "monitor" || whose == "user";
  CHECK(world.shared().cursors.counts().open_total == (kept ? 1 : 0));
  other->close();
  world.run_for(minutes(2));
  CHECK(world.shared().cursors.counts().open_total == 0);
  require_quiet(world);
}

TEST_CASE("a stream of hellos that are not to wait is no flood") {
  SimWorld world(sharded_world(1, 20));
  auto [transport, far] = world.network(0).pair();
  world.worker(0).serve(std::move(far), 1'000);
  std::vector<std::uint8_t> message;
  wire::begin_op_msg(message, 1, 0, wire::flags::exhaust_allowed);
  wire::append_body(message, json(R"({"hello": 1, "topologyVersion": {"processId": {"$oid": "000000000000000000000000"},
      "counter": {"$numberLong": "0"}}, "maxAwaitTimeMS": 0, "$db": "admin"})"));
  wire::finish_op_msg(message);
  iovec piece{message.data(), message.size()};
  const auto write = [](Transport* to, iovec* what) -> Task<bool> {
    auto writing = write_all(*to, {what, 1});
    co_return co_await writing;
  };
  REQUIRE(world.run(write(transport.get(), &piece)));
  std::size_t bytes = 0;
  std::vector<std::uint8_t> into(64 * 1024);
  for (int i = 0; i < 100; ++i) {
    world.run_for(milliseconds(100));
    for (IoResult got = transport->try_read(into); got.ok(); got = transport->try_read(into)) bytes += got.bytes;
  }
  CHECK(bytes > 1'000);
  CHECK(bytes < 25 * 1'000);
  transport->close();
  world.run_for(seconds(1));
}

}  // namespace spillway::test
