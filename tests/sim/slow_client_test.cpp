// Clients that stop reading in the middle of a reply.
#include "tests/sim/sim_support.h"
#include "tests/unit/allocator/spill_support.h"

namespace spillway::test {

namespace {

constexpr std::size_t document_text_bytes = 1'000'000;
constexpr int documents_stored = 12;

constexpr std::string_view find_all =
    R"({"find": "docs", "filter": {}, "batchSize": 1000, "$db": "app"})";

SimWorldOptions slow_world() {
  SimWorldOptions options = sharded_world(1, 1000);
  options.faults.window_bytes = 256 * 1024;
  return options;
}

void store_large(SimWorld& world) {
  for (int id = 0; id < documents_stored; ++id) {
    BsonWriter out;
    out.append("_id", id).append(
        "text", std::string(document_text_bytes, static_cast<char>('a' + id % 26)));
    world.shard(0).store("app.docs", std::move(out).finish());
  }
}

// Bytes that do not compress.
void store_random(SimWorld& world) {
  for (int id = 0; id < documents_stored; ++id) {
    BsonWriter out;
    out.append("_id", id);
    out.append_binary("bytes", 0, random_bytes(document_text_bytes, static_cast<unsigned>(id)));
    world.shard(0).store("app.docs", std::move(out).finish());
  }
}

void check_whole(SimWorld& world, const std::optional<BsonDoc>& reply) {
  REQUIRE(reply.has_value());
  INFO(to_json(*reply).substr(0, 300));
  REQUIRE(is_ok(*reply));
  const std::vector<BsonDoc> batch = batch_of(*reply);
  const std::vector<BsonDoc>& stored = world.shard(0).stored("app.docs");
  REQUIRE(batch.size() == stored.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const Bytes a = batch[i].view().bytes();
    const Bytes b = stored[i].view().bytes();
    CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
  }
}

}  // namespace

TEST_CASE("a client that takes its reply slowly keeps no memory for its request") {
  SimWorld world(slow_world());
  store_large(world);
  auto client = world.client();
  client->holds = true;
  BsonWriter find;
  find.append("find", "docs").begin_document("filter").end().append("batchSize", 1000);
  find.append("comment", std::string(4'000'000, 'x')).append("$db", "app");
  const auto pending = start(world, *client, std::move(find).finish());
  REQUIRE(world.run_until([&] { return world.shard(0).seen("find") > 0; }, seconds(30)));
  world.run_for(seconds(1));
  REQUIRE_FALSE(pending->done);
  CHECK(world.shared().memory.requests.usage().used_bytes < 64 * limits::kib);
  client->holds = false;
  REQUIRE(world.run_until([&] { return pending->done; }, minutes(2)));
  check_whole(world, pending->reply);
}

TEST_CASE("a client that does not take a short reply is closed, too") {
  SimWorldOptions options = sharded_world(1, 1000);
  options.faults.window_bytes = 4 * 1024;
  SimWorld world(std::move(options));
  BsonWriter out;
  out.append("_id", 1).append("text", std::string(20'000, 'x'));
  world.shard(0).store("app.docs", std::move(out).finish());
  auto client = world.client();
  client->holds = true;
  const auto pending = start(world, *client, json(find_all));
  world.run_for(seconds(20));
  CHECK(world.shared().metrics.stalled_clients_closed.value() == 0);
  world.run_for(seconds(20));
  CHECK(world.shared().metrics.stalled_clients_closed.value() == 1);
  CHECK(world.shared().memory.replies.usage().used_bytes == 0);
  client->holds = false;
  REQUIRE(world.run_until([&] { return pending->done; }, seconds(10)));
}

TEST_CASE("a long reply that the router has made is paid for until the client has it") {
  SimWorldOptions options = sharded_world(2, 1000);
  options.faults.window_bytes = 64 * 1024;
  SimWorld world(std::move(options));
  const std::string text(1'000'000, 'x');
  for (std::size_t shard = 0; shard < 2; ++shard) {
    for (int i = 0; i < 3; ++i) {
      const int id = static_cast<int>(shard) * 1000 + i;
      BsonWriter out;
      out.append("_id", id).append("text", fmt::format("{}{}", id, text));
      world.shard(shard).store("app.docs", std::move(out).finish());
    }
  }
  const std::size_t bytes = 2 * text.size();
  const bool echoes = GENERATE(true, false);
  auto client = world.client();
  client->holds = true;
  const auto pending = start(world, *client, echoes
      ? BsonWriter().append("echo", 1).append("text", text + text).append("$db", "admin").finish()
      : json(R"({"distinct": "docs", "key": "text", "$db": "app"})"));
  world.run_for(seconds(1));
  REQUIRE_FALSE(pending->done);
  CHECK(world.shared().memory.replies.usage().used_bytes > bytes);
  client->holds = false;
  REQUIRE(world.run_until([&] { return pending->done; }, minutes(2)));
  REQUIRE(pending->reply.has_value());
  CHECK(is_ok(*pending->reply));
  world.run_for(seconds(1));
  CHECK(world.shared().memory.replies.usage().used_bytes == 0);
}

TEST_CASE("a client that stops reading while memory is short is not cut in mid-reply") {
  SimWorldOptions options = slow_world();
  options.memory_limit_bytes = 4 * limits::mib;
  options.large_reserve_bytes = 64 * limits::kib;
  options.faults.window_bytes = 4 * limits::mib;  // so far the client takes all at once
  const bool reserve_is_free = GENERATE(true, false);
  SimWorld world(std::move(options));
  store_large(world);
  auto client = world.client();
  client->pace_bytes = 1'000'000;
  world.shard(0).pause_at_bytes = 3'000'000;
  const auto pending = start(world, *client, json(find_all));
  world.run_for(seconds(1));
  REQUIRE_FALSE(pending->done);
  REQUIRE(world.shared().metrics.streamed_replies.value() == 1);
  // The relay waits for its shard and holds nothing; now there is nothing left.
  CHECK(world.shared().memory.replies.usage().used_bytes == 0);
  Reservation others = take_all_but(world.shared().memory.process, 0);
  exec::Shared& shared = world.shared();
  Reservation small = take_all_but(*shared.memory.work_queue.small());
  std::optional<Reservation> large;
  if (!reserve_is_free) {
    large = take_all_but(*shared.memory.work_queue.large());
  }
  client->holds = true;
  FaultOptions narrow;
  narrow.window_bytes = 256 * 1024;
  world.set_faults(narrow);
  world.shard(0).pause_at_bytes = SIZE_MAX;
  world.run_for(seconds(5));
  CHECK_FALSE(pending->done);
  CHECK(shared.metrics.stream_refusals.value() == 0);
  if (large) large->release();
  client->holds = false;
  REQUIRE(world.run_until([&] { return pending->done; }, minutes(1)));
  check_whole(world, pending->reply);
  CHECK(shared.metrics.stream_refusals.value() == 0);
  CHECK(shared.metrics.stream_failures.value() == 0);
  others.release();
  small.release();
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a crowd of streams whose clients stall at once is not cut for want of room") {
  SimWorldOptions options = slow_world();
  options.memory_limit_bytes = 3 * limits::mib;
  options.faults.window_bytes = 4 * limits::mib;  // so far the clients take all at once
  SimWorld world(std::move(options));
  store_large(world);
  world.shard(0).pause_at_bytes = 3'000'000;
  constexpr int crowd = 15;  // pieces of 128 KiB: 1.9 MiB
  std::vector<std::unique_ptr<SimClient>> clients;
  std::vector<std::shared_ptr<Pending>> pending;
  for (int i = 0; i < crowd; ++i) {
    clients.push_back(world.client());
    clients.back()->pace_bytes = 1'000'000;
    pending.push_back(start(world, *clients.back(), json(find_all)));
  }
  exec::Shared& shared = world.shared();
  world.run_for(seconds(5));
  REQUIRE(shared.metrics.streamed_replies.value() == crowd);
  // Memory is just not scarce: each of them alone would find room.
  Reservation others = take_all_but(world.shared().memory.process, 3 * limits::mib / 2 + 32 * limits::kib);
  for (const auto& client : clients) client->holds = true;
  FaultOptions narrow;
  narrow.window_bytes = 64 * 1024;
  world.set_faults(narrow);
  world.shard(0).pause_at_bytes = SIZE_MAX;
  world.run_for(seconds(5));
  CHECK(shared.metrics.stream_refusals.value() == 0);
  others.release();
  for (const auto& client : clients) client->holds = false;
  for (const auto& each : pending) {
    REQUIRE(world.run_until([&] { return each->done; }, minutes(1)));
    check_whole(world, each->reply);
  }
  for (const auto& client : clients) client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

namespace {

std::uint64_t leased(SimWorld& world) {
  std::uint64_t in_use = 0;
  for (const shard::ShardState& shard : world.worker(0).context().gateway.states()) {
    for (const shard::HostState& host : shard.hosts) in_use += host.in_use;
  }
  return in_use;
}

// A client that reads the first bytes of a large reply, and then stops.
struct Stalled {
  std::unique_ptr<SimClient> client;
  std::shared_ptr<Pending> pending;
};
Stalled stalled_client(SimWorld& world, std::string_view find) {
  Stalled stalled{world.client(), nullptr};
  stalled.client->pace_bytes = 50'000;
  stalled.client->holds = true;  // after its first read
  stalled.pending = start(world, *stalled.client, json(find));
  return stalled;
}

void check_read_on(SimWorld& world, Stalled& stalled) {
  stalled.client->holds = false;
  REQUIRE(world.run_until([&] { return stalled.pending->done; }, minutes(1)));
  for (const std::string& violation : stalled.client->violations()) FAIL_CHECK(violation);
  check_whole(world, stalled.pending->reply);
}

// The client reads on, but too slowly, for 25 s; then `check`, and it leaves. `others_wait`: another waits for memory.
void read_drop_by_drop(SimWorld& world, Stalled& stalled, bool others_wait, std::uint64_t closed,
                       const std::function<void()>& check) {
  stalled.client->pace_bytes = 2'000;
  stalled.client->pace_pause = seconds(9);
  stalled.client->holds = false;
  auto other = world.client();
  std::optional<Reservation> rest;
  std::shared_ptr<Pending> waiting;
  if (others_wait) {
    rest = take_all_but(world.shared().memory.process, 100'000);
    waiting = start(world, *other, json(R"({"find": "docs", "filter": {}, "sort": {"_id": 1}, "$db": "app"})"));
  }
  world.run_for(seconds(25));
  CHECK(world.shared().metrics.stalled_clients_closed.value() == closed);
  check();
  rest.reset();
  stalled.client->reset();
  world.run_for(seconds(1));
  other->close();
  world.run_for(minutes(1));
  require_quiet(world);
}

}  // namespace

TEST_CASE("a client that stalls for 200 ms gives its shard's connection back") {
  const bool limited = GENERATE(false, true);
  SimWorldOptions options = slow_world();
  if (limited) options.memory_limit_bytes = 64 * limits::mib;
  SimWorld world(std::move(options));
  store_large(world);
  Stalled stalled = stalled_client(world, find_all);
  world.run_for(milliseconds(150));
  CHECK(leased(world) == 1);
  CHECK(world.shared().memory.replies.usage().used_bytes < limits::mib);
  world.run_for(milliseconds(150));
  CHECK(leased(world) == 0);
  CHECK(world.shared().metrics.streams_moved.value() == 1);
  CHECK(world.shared().memory.replies.usage().used_bytes > 10 * limits::mib);
  CHECK(world.worker(0).context().stalled_clients.count() == 0);
  world.run_for(seconds(20));
  SECTION("and has its whole reply when it reads on") {
    check_read_on(world, stalled);
    stalled.client->close();
  }
  SECTION("and may leave") {
    const bool polite = GENERATE(false, true);
    polite ? stalled.client->close() : stalled.client->reset();
    world.run_for(seconds(10));
    CHECK(stalled.pending->done);
  }
  SECTION("and memory comes back as it reads") {
    stalled.client->pace_pause = milliseconds(20);
    stalled.client->holds = false;
    world.run_for(seconds(2));
    CHECK_FALSE(stalled.pending->done);
    CHECK(world.shared().memory.replies.usage().used_bytes < 9 * limits::mib);
    check_read_on(world, stalled);
    stalled.client->close();
  }
  world.run_for(seconds(1));
  CHECK(world.shard(0).cursors().open() == 0);
  require_quiet(world);
}

TEST_CASE("what was read ahead for a client is not kept drop by drop from others that wait for memory") {
  const bool others_wait = GENERATE(false, true);
  SimWorldOptions options = slow_world();
  options.memory_limit_bytes = 64 * limits::mib;
  SimWorld world(std::move(options));
  store_large(world);
  Stalled stalled = stalled_client(world, find_all);
  world.run_for(seconds(1));
  REQUIRE(world.shared().metrics.streams_moved.value() == 1);
  REQUIRE(world.shared().memory.replies.usage().used_bytes > 10 * limits::mib);
  read_drop_by_drop(world, stalled, others_wait, others_wait ? 1 : 0, [&] {
    CHECK((world.shared().memory.replies.usage().used_bytes > 10 * limits::mib) == !others_wait);
  });
}

TEST_CASE("a client that reads on while the rest moves gets the rest as it comes") {
  SimWorld world(slow_world());
  store_large(world);
  world.shard(0).pause_at_bytes = 4'000'000;
  Stalled stalled = stalled_client(world, find_all);
  world.run_for(seconds(1));
  CHECK(world.shared().metrics.streams_moved.value() == 1);
  CHECK(leased(world) == 1);
  stalled.client->holds = false;
  world.run_for(seconds(1));
  world.shard(0).pause_at_bytes = SIZE_MAX;
  check_read_on(world, stalled);
  CHECK(world.shared().memory.replies.usage().used_bytes == 0);
  stalled.client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a client that stalls anew, once it has caught up with what moved, gets the rest whole") {
  SimWorldOptions options = slow_world();
  options.memory_limit_bytes = 64 * limits::mib;
  SimWorld world(std::move(options));
  store_large(world);
  world.shard(0).pause_at_bytes = 4'000'000;
  Stalled stalled = stalled_client(world, find_all);
  world.run_for(seconds(1));
  REQUIRE(world.shared().metrics.streams_moved.value() == 1);
  // Memory is short from now on: what the relay holds is not made anew when the client has caught up.
  auto others = world.shared().memory.process.try_reserve(40 * limits::mib);
  REQUIRE(others);
  stalled.client->holds = false;
  for (int i = 0; i < 100; ++i) {
    world.shard(0).pause_at_bytes += 2'000;
    world.run_for(milliseconds(20));
  }
  REQUIRE(world.shared().memory.replies.usage().used_bytes < limits::mib);
  stalled.client->holds = true;
  world.shard(0).pause_at_bytes = SIZE_MAX;
  world.run_for(seconds(1));
  REQUIRE(world.shared().metrics.streams_moved.value() == 1);
  REQUIRE(leased(world) == 1);
  others->release();
  world.run_for(seconds(1));
  REQUIRE(world.shared().metrics.streams_moved.value() == 2);
  CHECK(leased(world) == 0);
  check_read_on(world, stalled);
  stalled.client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a cursor goes on after a reply whose client stalled") {
  SimWorldOptions options = slow_world();
  options.shards.front().batch_bytes_max = 4 * limits::mib;
  SimWorld world(std::move(options));
  store_large(world);
  Stalled stalled = stalled_client(world, find_all);
  world.run_for(seconds(1));
  CHECK(leased(world) == 0);
  CHECK(world.shared().cursors.counts().open_total == 1);
  CHECK(world.shared().cursors.counts().pinned == 0);
  std::size_t returned = 0;
  SECTION("which it reads") {
    stalled.client->holds = false;
    REQUIRE(world.run_until([&] { return stalled.pending->done; }, minutes(1)));
    BsonDoc reply = *stalled.pending->reply;
    for (;;) {
      REQUIRE(is_ok(reply));
      returned += batch_of(reply).size();
      if (cursor_id(reply) == 0) break;
      reply =
          call(world, *stalled.client,
               fmt::format(
                   R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "docs", "$db": "app"}})",
                   cursor_id(reply)));
    }
    CHECK(returned == documents_stored);
    stalled.client->close();
  }
  SECTION("and ends at once if it leaves instead") {
    stalled.client->reset();
    world.run_for(seconds(2));
    CHECK(world.shared().cursors.counts().open_total == 0);
  }
  world.run_for(seconds(1));
  CHECK(world.shard(0).cursors().open() == 0);
  require_quiet(world);
}

TEST_CASE("where memory has no room for it, the rest of a reply to a stalled client is spilled") {
  FakeDisk disk;
  SimWorldOptions options = slow_world();
  options.memory_limit_bytes = 16 * limits::mib;  // the rest of a reply is over half of it
  options.spill_file = [&disk] { return std::make_unique<FakeFile>(disk); };
  SimWorld world(std::move(options));
  store_random(world);
  Stalled stalled = stalled_client(world, find_all);
  world.run_for(seconds(2));
  CHECK(leased(world) == 0);
  CHECK(world.shared().metrics.streams_moved.value() == 1);
  CHECK(world.shared().memory.replies.usage().used_bytes < limits::mib);
  CHECK(world.shared().memory.process.usage().peak_bytes < 2 * limits::mib);
  CHECK(world.shared().spill->stats().disk_bytes > 8 * limits::mib);
  SECTION("and comes back when it reads on") {
    check_read_on(world, stalled);
    stalled.client->close();
  }
  SECTION("and goes when it leaves") {
    stalled.client->reset();
    world.run_for(seconds(5));
    CHECK(stalled.pending->done);
  }
  SECTION("and its connection ends if the file cannot be read") {
    disk.read_error = EIO;
    stalled.client->holds = false;
    REQUIRE(world.run_until([&] { return stalled.pending->done; }, minutes(2)));
    CHECK_FALSE(stalled.pending->reply.has_value());
  }
  world.run_for(seconds(1));
  CHECK(world.shared().spill->stats().parked_bytes == 0);
  CHECK(world.shard(0).cursors().open() == 0);
  require_quiet(world);
}

TEST_CASE("a spill file that does not answer keeps no client, and no connection to its shard, for ever") {
  FakeDisk disk;
  SimWorldOptions options = slow_world();
  options.memory_limit_bytes = 16 * limits::mib;
  options.spill_file = [&disk] { return std::make_unique<FakeFile>(disk); };
  SimWorld world(std::move(options));
  store_random(world);
  world.set_disk_stuck(true);
  Stalled stalled = stalled_client(world, find_all);
  world.run_for(seconds(2));
  CHECK(leased(world) == 1);
  SECTION("if the client leaves") {
    stalled.client->reset();
    world.run_for(seconds(10));
  }
  SECTION("if it stays") {
    world.run_for(minutes(1));
    stalled.client->holds = false;
    world.run_for(seconds(1));
  }
  CHECK(leased(world) == 0);
  CHECK(stalled.pending->done);
  world.set_disk_stuck(false);
  world.run_for(seconds(1));
  CHECK(world.shared().spill->stats().parked_bytes == 0);
  require_quiet(world);
}

TEST_CASE("a slow client whose rest is in the spill file goes on while others wait for memory") {
  FakeDisk disk;
  SimWorldOptions options = slow_world();
  options.memory_limit_bytes = 16 * limits::mib;
  options.spill_file = [&disk] { return std::make_unique<FakeFile>(disk); };
  SimWorld world(std::move(options));
  store_random(world);
  Stalled stalled = stalled_client(world, find_all);
  REQUIRE(world.run_until([&] { return leased(world) == 0; }, seconds(10)));
  read_drop_by_drop(world, stalled, true, 0, [] {});
}

TEST_CASE("a file that takes no more leaves a stalled client its shard's connection") {
  FakeDisk disk;
  disk.room = limits::mib;
  SimWorldOptions options = slow_world();
  options.memory_limit_bytes = 16 * limits::mib;
  options.spill_file = [&disk] { return std::make_unique<FakeFile>(disk); };
  SimWorld world(std::move(options));
  store_random(world);
  Stalled stalled = stalled_client(world, find_all);
  world.run_for(seconds(2));
  CHECK(leased(world) == 1);
  CHECK(world.shared().spill->stats().given_up > 0);
  check_read_on(world, stalled);
  stalled.client->close();
  world.run_for(seconds(1));
  CHECK(world.shared().spill->stats().parked_bytes == 0);
  require_quiet(world);
}

TEST_CASE("a full spill file keeps no client waiting: what it does not take stays in memory, compressed") {
  FakeDisk disk;
  disk.room = 128 * limits::kib;
  SimWorldOptions options = slow_world();
  options.memory_limit_bytes = 16 * limits::mib;
  options.spill_file = [&disk] { return std::make_unique<FakeFile>(disk); };
  SimWorld world(std::move(options));
  store_large(world);
  Stalled stalled = stalled_client(world, find_all);
  world.run_for(seconds(2));
  CHECK(world.shared().spill->stats().parked_bytes > 0);
  SECTION("a client that reads on") { check_read_on(world, stalled); }
  SECTION("a client that leaves") {
    stalled.client->reset();
    world.run_for(seconds(10));
    CHECK(stalled.pending->done);
  }
  stalled.client->close();
  world.run_for(seconds(10));
  CHECK(world.shared().spill->stats().parked_bytes == 0);
  require_quiet(world);
}

TEST_CASE("without memory for it, stalled clients keep at most half of a shard's connections") {
  SimWorldOptions options = slow_world();
  options.memory_limit_bytes = 16 * limits::mib;  // the rest of a reply is over half of it
  options.gateway.pool_max = 6;
  SimWorld world(std::move(options));
  store_large(world);
  world.shard(0).store("app.small", json(R"({"_id": 1})"));
  std::vector<Stalled> stalled;
  for (int i = 0; i < 3; ++i) {
    stalled.push_back(stalled_client(world, find_all));
    world.run_for(milliseconds(500));
  }
  CHECK(leased(world) == 3);
  CHECK(world.worker(0).context().stalled_clients.count() == 3);
  CHECK(world.shared().metrics.stalled_clients_closed.value() == 0);
  CHECK(world.shared().metrics.streams_moved.value() == 0);
  stalled.push_back(stalled_client(world, find_all));
  world.run_for(seconds(5));
  CHECK(leased(world) == 4);
  CHECK(world.shared().metrics.stalled_clients_closed.value() == 0);
  world.run_for(seconds(6));
  // The one that has stalled longest is closed.
  CHECK(world.shared().metrics.stalled_clients_closed.value() == 1);
  stalled.front().client->holds = false;
  world.run_for(seconds(1));
  CHECK(stalled.front().pending->done);
  CHECK_FALSE(stalled.front().pending->reply.has_value());
  CHECK(leased(world) == 3);
  auto quick = world.client();
  const TimePoint before = Clock::now();
  CHECK(is_ok(call(world, *quick, R"({"find": "small", "filter": {"_id": 1}, "$db": "app"})")));
  CHECK(Clock::now() - before < milliseconds(100));
  quick->close();
  for (std::size_t i = 1; i < stalled.size(); ++i) {
    check_read_on(world, stalled[i]);
    stalled[i].client->close();
  }
  CHECK(world.shared().metrics.stalled_clients_closed.value() == 1);
  CHECK(world.worker(0).context().stalled_clients.count() == 0);
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a client that the kernel gave up is counted") {
  SimWorld world(slow_world());
  store_large(world);
  world.shard(0).store("app.small", json(R"({"_id": 1})"));
  auto client = world.client();
  auto& metrics = world.shared().metrics;
  ByteFault fault{ByteFault::Kind::time_out, false, 0, seconds(45)};
  std::string_view asked = find_all;
  bool whole = false, given_up = false;
  SECTION("in the middle of a stream") { fault.at_bytes = 1'000'000; }
  SECTION("but not in the middle of another reply, where the router gives it up before") {
    asked = R"({"serverStatus": 1, "$db": "admin"})";
    fault.at_bytes = 100;
    given_up = true;
  }
  SECTION("with all of a reply still to be read") {
    asked = R"({"find": "small", "filter": {"_id": 1}, "$db": "app"})";
    world.network(0).set_byte_fault("", 0, {ByteFault::Kind::split, false, UINT64_MAX});
    REQUIRE(is_ok(call(world, *client, asked)));
    fault.at_bytes = world.network(0).bytes_passed("", 0, false);
    whole = true;
  }
  world.network(0).set_byte_fault("", 0, fault);
  const auto pending = start(world, *client, json(asked));
  world.run_for(seconds(44));
  CHECK(world.network(0).byte_fault_happened("", 0));
  CHECK(metrics.clients_timed_out.value() == 0);
  world.run_for(seconds(3));
  CHECK(pending->done);
  CHECK(pending->reply.has_value() == whole);
  CHECK(metrics.clients_timed_out.value() == (given_up ? 0 : 1));
  CHECK(metrics.stalled_clients_closed.value() == (given_up ? 1 : 0));
  CHECK(world.shared().connections.current.load() == 0);
  // One that leaves is none.
  auto other = world.client();
  REQUIRE(world.run(other->send(json(find_all))));
  world.run_for(seconds(1));
  other->reset();
  world.run_for(seconds(1));
  CHECK(world.shared().connections.current.load() == 0);
  CHECK(metrics.clients_timed_out.value() == (given_up ? 0 : 1));
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a client that is slow, but reads, is none that stalls") {
  SimWorld world(slow_world());
  store_large(world);
  auto client = world.client();
  client->pace_bytes = 100'000;
  client->pace_pause = milliseconds(150);
  const auto pending = start(world, *client, json(find_all));
  REQUIRE(world.run_until([&] { return pending->done; }, minutes(2)));
  check_whole(world, pending->reply);
  CHECK(world.shared().metrics.streams_moved.value() == 0);
  CHECK(world.shared().memory.replies.usage().peak_bytes < limits::mib);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

}  // namespace spillway::test
