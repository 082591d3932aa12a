// Requests for which there is no memory: they wait, and are refused as drivers expect.
#include <random>
#include <set>

#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

constexpr std::uint64_t limit_bytes = 4 * limits::mib;

SimWorldOptions small_world() {
  SimWorldOptions options = sharded_world(2, 100);
  options.memory_limit_bytes = limit_bytes;
  return options;
}

BsonDoc insert_of(std::size_t text_bytes, bool random = false) {
  std::string text(text_bytes / 2, 'x');
  if (random) {
    std::mt19937 engine(5);
    for (char& letter : text) letter = static_cast<char>(' ' + engine() % 90);
  }
  BsonWriter out;
  out.append("insert", "docs");
  out.begin_array("documents");
  for (int id : {1, 101}) {
    out.begin_document_item().append("_id", id).append("text", text).end();
  }
  out.end();
  out.append("$db", "app");
  return std::move(out).finish();
}

std::vector<std::string> labels_of(const BsonDoc& reply) {
  std::vector<std::string> labels;
  const ValueView list = reply.view()["errorLabels"];
  if (!list.is_array()) return labels;
  for (const Element& label : list.as_document()) labels.emplace_back(label.as_string());
  return labels;
}

// All that commands can get.
std::vector<Reservation> take_all(SimWorld& world) {
  exec::ProcessMemory& memory = world.shared().memory;
  std::vector<Reservation> all;
  for (MemoryBudget* budget : {&memory.process, memory.work_queue.small(), memory.work_queue.large()}) {
    all.push_back(take_all_but(*budget));
  }
  return all;
}

}  // namespace

TEST_CASE("a request without room waits, then is refused, and the connection lives on") {
  SimWorld world(small_world());
  auto client = world.client();
  REQUIRE(is_ok(call(world, *client, R"({"ping": 1, "$db": "admin"})")));
  auto others = world.shared().memory.process.try_reserve(limit_bytes - 600'000 -
                                                          world.shared().memory.process.usage().used_bytes);
  REQUIRE(others);
  const auto waiting = start(world, *client, insert_of(1'000'000));
  world.run_for(seconds(3));
  CHECK_FALSE(waiting->done);
  CHECK(world.shared().memory.request_queue.usage().waiting == 1);
  SECTION("room comes") {
    others->release();
    REQUIRE(world.run_until([&] { return waiting->done; }, seconds(1)));
    REQUIRE(waiting->reply);
    INFO(to_json(*waiting->reply));
    CHECK(is_ok(*waiting->reply));
    CHECK(waiting->reply->view()["n"].to_int64() == 2);
  }
  SECTION("none comes") {
    REQUIRE(world.run_until([&] { return waiting->done; }, seconds(20)));
    REQUIRE(waiting->reply);
    INFO(to_json(*waiting->reply));
    CHECK(code_of(*waiting->reply) == 462);
    CHECK(labels_of(*waiting->reply) ==
          std::vector<std::string>{"SystemOverloadedError", "RetryableError", "NoWritesPerformed"});
    CHECK(world.shared().metrics.requests_refused.value() == 1);
    CHECK(world.shard(0).stored("app.docs").empty());
    // Small commands have a reserve, and the connection is as before.
    CHECK(is_ok(call(world, *client, R"({"ping": 1, "$db": "admin"})")));
    others->release();
    CHECK(is_ok(*try_call(world, *client, insert_of(1'000'000, random))));
  }
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a request that cannot be refused yet is refused half a second after others were") {
  SimWorld world(small_world());
  auto client = world.client();
  REQUIRE(is_ok(call(world, *client, R"({"ping": 1, "$db": "admin"})")));
  auto others = world.shared().memory.process.try_reserve(limit_bytes - 600'000 -
                                                          world.shared().memory.process.usage().used_bytes);
  REQUIRE(others);
  constexpr int all_slots = 4;
  world.shared().memory.refusals_under_way += all_slots;
  const auto waiting = start(world, *client, insert_of(1'500'000));
  world.run_for(seconds(18));
  CHECK_FALSE(waiting->done);
  world.shared().memory.refusals_under_way -= all_slots;
  REQUIRE(world.run_until([&] { return waiting->done; }, seconds(2)));
  REQUIRE(waiting->reply);
  CHECK(code_of(*waiting->reply) == 462);
  others->release();
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a compressed request without room is refused as any other, unless zstd hides what it is") {
  const auto compressor = GENERATE(wire::Compressor::noop, wire::Compressor::snappy, wire::Compressor::zlib,
                                   wire::Compressor::zstd);
  const bool random = GENERATE(false, true);  // only what is inside finds no room, or the envelope does not either
  SimWorld world(small_world());
  auto client = world.client();
  client->compressor = compressor;
  REQUIRE(is_ok(call(world, *client, R"({"ping": 1, "$db": "admin"})")));
  auto others = world.shared().memory.process.try_reserve(limit_bytes - 600'000 -
                                                          world.shared().memory.process.usage().used_bytes);
  REQUIRE(others);
  const auto waiting = start(world, *client, insert_of(1'000'000, random));
  REQUIRE(world.run_until([&] { return waiting->done; }, seconds(20)));
  others->release();
  CHECK(world.shared().metrics.requests_refused.value() == 1);
  if (compressor == wire::Compressor::zstd) {
    CHECK_FALSE(waiting->reply);
  } else {
    REQUIRE(waiting->reply);
    CHECK(code_of(*waiting->reply) == 462);
    CHECK(labels_of(*waiting->reply) ==
          std::vector<std::string>{"SystemOverloadedError", "RetryableError", "NoWritesPerformed"});
    CHECK(is_ok(*try_call(world, *client, insert_of(1'000'000, random))));
  }
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a large read over several shards pays for the command that they get") {
  constexpr std::size_t text_bytes = 500'000;
  const std::string text = "\"" + std::string(text_bytes, 'x') + "\"";
  const std::string name = GENERATE("find", "aggregate", "count", "distinct", "explain");
  std::string asked = R"({"find": "docs", "filter": {"text": )" + text + "}";
  if (name == "aggregate") {
    asked = R"({"aggregate": "docs", "cursor": {}, "pipeline": [{"$match": {"text": )" + text + "}}]";
  } else if (name == "count" || name == "distinct") {
    asked = R"({")" + name + R"(": "docs", "key": "k", "query": {"text": )" + text + "}";
  } else if (name == "explain") {
    asked = R"({"explain": )" + asked + "}";
  }
  const BsonDoc command = json(asked + R"(, "$db": "app"})");
  SimWorld world(small_world());
  for (std::size_t i = 0; i < 2; ++i) {
    world.shard(i).delay = seconds(2);
    world.shard(i).revise = [](std::string_view of, BsonDoc reply) {
      return of == "distinct" || of == "explain" ? json(R"({"values": [], "ok": 1})") : reply;
    };
  }
  auto client = world.client();
  MemoryBudget& copies = world.shared().memory.writes;
  SECTION("while the shards have it") {
    const auto pending = start(world, *client, command);
    world.run_for(seconds(1));
    CHECK(copies.usage().used_bytes >= text_bytes);
    REQUIRE(world.run_until([&] { return pending->done; }, seconds(10)));
    REQUIRE(pending->reply);
    INFO(to_json(*pending->reply).substr(0, 300));
    CHECK(is_ok(*pending->reply));
    CHECK(copies.usage().used_bytes == 0);
  }
  SECTION("or is not sent") {
    MemoryBudget& memory = world.shared().memory.process;
    auto others = memory.try_reserve(limit_bytes - 900'000 - memory.usage().used_bytes);
    REQUIRE(others);
    const auto pending = start(world, *client, command);
    REQUIRE(world.run_until([&] { return pending->done; }, seconds(10)));
    REQUIRE(pending->reply);
    CHECK(code_of(*pending->reply) == 462);
    CHECK(labels_of(*pending->reply) ==
          std::vector<std::string>{"SystemOverloadedError", "RetryableError"});
    CHECK(world.shard(0).seen(name) + world.shard(1).seen(name) == 0);
    others->release();
  }
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a crowd that waits for room keeps little of what it sent, and is not cut") {
  SimWorldOptions options = small_world();
  options.small_reserve_bytes = 64 * limits::kib;
  SimWorld world(std::move(options));
  auto others = world.shared().memory.process.try_reserve(limit_bytes - 600'000);
  REQUIRE(others);
  std::vector<std::unique_ptr<SimClient>> clients;
  std::vector<std::shared_ptr<Pending>> waiting;
  for (int i = 0; i < 50; ++i) {
    clients.push_back(world.client());
    waiting.push_back(start(world, *clients.back(), insert_of(1'000'000)));
    world.run_for(milliseconds(20));
  }
  CHECK(world.shared().memory.request_queue.usage().waiting == 50);
  CHECK(world.shared().metrics.requests_refused.value() == 0);
  others->release();
  for (const auto& each : waiting) {
    REQUIRE(world.run_until([&] { return each->done; }, seconds(10)));
    CHECK(each->reply.has_value());
  }
  for (auto& client : clients) client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("small commands are answered while nothing is left") {
  SimWorld world(small_world());
  store_documents(world, 10);
  auto client = world.client();
  auto others =
      world.shared().memory.process.try_reserve(limit_bytes - world.shared().memory.process.usage().used_bytes);
  REQUIRE(others);
  CHECK(is_ok(call(world, *client, R"({"ping": 1, "$db": "admin"})")));
  CHECK(is_ok(call(world, *client, R"({"serverStatus": 1, "$db": "admin"})")));
  const BsonDoc found = call(world, *client, R"({"find": "docs", "filter": {"_id": 3}, "$db": "app"})");
  CHECK(batch_of(found).size() == 1);
  CHECK(is_ok(*try_call(world, *client, insert_of(1'000))));
  others->release();
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("shards are known and can be connected to while nothing at all is left") {
  SimWorldOptions options = small_world();
  options.gateway.pool_idle_ms = 5'000;
  options.gateway.pool_min = 0;
  SimWorld world(std::move(options));
  store_documents(world, 10);
  world.run_for(seconds(10));  // the pools are empty
  exec::Shared& shared = world.shared();
  Reservation others = take_all_but(shared.memory.process);
  Reservation small = take_all_but(*shared.memory.work_queue.small());
  Reservation large = take_all_but(*shared.memory.work_queue.large());
  auto client = world.client();
  const auto found = start(world, *client, json(R"({"find": "docs", "filter": {"_id": 3}, "$db": "app"})"));
  for (int i = 0; i < 60; ++i) {
    world.run_for(seconds(1));
    for (const shard::ShardState& shard : world.worker(0).context().gateway.states()) {
      CHECK(shard.hosts.at(0).known);
      if (shard.name == "shard0") CHECK(shard.hosts.at(0).created > 0);
    }
    if (i == 20) small.release();  // for the answer alone
  }
  REQUIRE(found->done);
  REQUIRE(found->reply);
  INFO(to_json(*found->reply));
  others.release();
  large.release();
  CHECK(is_ok(call(world, *client, R"({"find": "docs", "filter": {"_id": 3}, "$db": "app"})")));
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("what can never fit is refused at once, as such") {
  SimWorld world(small_world());
  auto client = world.client();
  const auto waiting = start(world, *client, insert_of(5'000'000));
  REQUIRE(world.run_until([&] { return waiting->done; }, seconds(2)));
  REQUIRE(waiting->reply);
  CHECK(code_of(*waiting->reply) == 146);
  CHECK(labels_of(*waiting->reply).empty());
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("critical memory refuses cursors that merge, not those that pass through") {
  SimWorld world(sharded_world(2, 100));
  store_documents(world, 100);
  auto client = world.client();
  PressureInputs inputs;
  world.shared().pressure.publish(inputs, LevelChange{PressureLevel::normal, PressureLevel::critical});
  const BsonDoc sorted = call(world, *client, R"({"find": "docs", "sort": {"k": 1}, "$db": "app"})");
  CHECK(code_of(sorted) == 462);
  CHECK(labels_of(sorted) == std::vector<std::string>{"SystemOverloadedError", "RetryableError"});
  CHECK(is_ok(call(world, *client, R"({"find": "docs", "$db": "app", "batchSize": 5})")));
  CHECK(world.shared().metrics.cursors_refused.value() == 1);
}

TEST_CASE("a cursor waits for room to be opened") {
  SimWorld world(small_world());
  store_documents(world, 100, 10'000);
  auto client = world.client();
  exec::Shared& shared = world.shared();
  // From now on it is known what a document has.
  CHECK(is_ok(call(world, *client, R"({"find": "docs", "batchSize": 2, "singleBatch": true, "$db": "app"})")));
  auto others = shared.memory.process.try_reserve(limit_bytes - shared.memory.process.usage().used_bytes - 30'000);
  REQUIRE(others);
  const auto waiting = start(world, *client, json(R"({"find": "docs", "sort": {"k": 1}, "$db": "app"})"));
  world.run_for(seconds(1));
  CHECK_FALSE(waiting->done);
  others->release();
  REQUIRE(world.run_until([&] { return waiting->done; }, seconds(2)));
  REQUIRE(waiting->reply);
  INFO(to_json(*waiting->reply));
  CHECK(batch_of(*waiting->reply).size() == 101);
  client->close();
  world.run_for(minutes(20));
  require_quiet(world);
}

TEST_CASE("a cursor goes on after a getMore for whose batch no room came") {
  const std::size_t shards = GENERATE(std::size_t{1}, std::size_t{2});
  CAPTURE(shards);
  SimWorldOptions options = sharded_world(shards, 100);
  options.memory_limit_bytes = limit_bytes;
  SimWorld world(std::move(options));
  store_documents(world, 100);
  auto client = world.client();
  BsonDoc reply = call(world, *client, R"({"find": "docs", "filter": {}, "batchSize": 10, "$db": "app"})");
  std::set<std::int64_t> returned;
  const auto take = [&](const BsonDoc& from) {
    for (const BsonDoc& document : batch_of(from)) CHECK(returned.insert(*document.view()["_id"].to_int64()).second);
  };
  take(reply);
  const std::int64_t id = cursor_id(reply);
  REQUIRE(id > 0);
  const BsonDoc more = json(fmt::format(
      R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "docs", "batchSize": 40, "$db": "app"}})", id));
  exec::Shared& shared = world.shared();
  auto others = shared.memory.process.try_reserve(limit_bytes - shared.memory.process.usage().used_bytes);
  REQUIRE(others);
  const std::uint64_t asked = world.shard(0).seen("getMore");
  const auto waiting = start(world, *client, more);
  world.run_for(seconds(29));
  CHECK_FALSE(waiting->done);
  REQUIRE(world.run_until([&] { return waiting->done; }, seconds(2)));
  REQUIRE(waiting->reply);
  INFO(to_json(*waiting->reply));
  CHECK(code_of(*waiting->reply) == 462);
  CHECK(labels_of(*waiting->reply) == std::vector<std::string>{"SystemOverloadedError", "RetryableError"});
  CHECK(world.shard(0).seen("getMore") == asked);
  CHECK(shared.cursors.counts().open_total == 1);
  CHECK(shared.cursors.counts().pinned == 0);
  others->release();
  do {
    reply = *try_call(world, *client, more);
    INFO(to_json(reply));
    REQUIRE(is_ok(reply));
    take(reply);
  } while (cursor_id(reply) != 0);
  CHECK(returned.size() == shards * 100);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a getMore whose reply finds no memory at all gets it when some comes back") {
  const std::size_t shards = GENERATE(std::size_t{1}, std::size_t{2});
  const bool sorted = GENERATE(false, true);
  const std::size_t read_bytes_max = GENERATE(std::size_t{0}, std::size_t{20});  // 20: less than a reply's start
  CAPTURE(shards, sorted, read_bytes_max);
  SimWorldOptions options = sharded_world(shards, 100);
  options.memory_limit_bytes = limit_bytes;
  options.faults.read_bytes_max = read_bytes_max;
  SimWorld world(std::move(options));
  store_documents(world, 200 / static_cast<int>(shards), 2000);
  auto client = world.client();
  const std::string_view find = sorted ? R"({"find": "docs", "sort": {"_id": 1}, "batchSize": 10, "$db": "app"})"
                                       : R"({"find": "docs", "batchSize": 10, "$db": "app"})";
  BsonDoc reply = call(world, *client, find);
  std::size_t returned = batch_of(reply).size();
  const std::int64_t id = cursor_id(reply);
  REQUIRE(id > 0);
  for (std::size_t i = 0; i < shards; ++i) world.shard(i).delay = milliseconds(200);
  const std::string more = get_more(id, 60);
  const auto waiting = start(world, *client, json(more));
  world.run_for(milliseconds(100));
  {
    const std::vector<Reservation> others = take_all(world);
    world.run_for(seconds(5));
    // A merge has taken the memory before it asked.
    CHECK(waiting->done == (sorted && shards > 1));
  }
  REQUIRE(world.run_until([&] { return waiting->done; }, seconds(2)));
  REQUIRE(waiting->reply);
  reply = *std::move(waiting->reply);
  for (;;) {
    INFO(to_json(reply).substr(0, 300));
    REQUIRE(is_ok(reply));
    returned += batch_of(reply).size();
    if (cursor_id(reply) == 0) break;
    reply = call(world, *client, more);
  }
  CHECK(returned == 200);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("of merges that wait for one another's memory the last one ends, and the others go on") {
  SimWorld world(small_world());
  store_documents(world, 100);
  const auto first = world.client();
  const auto last = world.client();
  std::vector<BsonDoc> more;
  for (SimClient* client : {first.get(), last.get()}) {
    const BsonDoc reply =
        call(world, *client, R"({"find": "docs", "filter": {}, "sort": {"_id": 1}, "batchSize": 10, "$db": "app"})");
    more.push_back(json(get_more(cursor_id(reply), 1000)));
  }
  std::vector<Reservation> others = take_all(world);
  set_level(world, PressureLevel::critical);
  const auto goes_on = start(world, *first, std::move(more[0]));
  world.run_for(milliseconds(100));
  const auto ends = start(world, *last, std::move(more[1]));
  world.run_for(seconds(1));
  CHECK_FALSE(ends->done);
  REQUIRE(world.run_until([&] { return ends->done; }, seconds(3)));
  REQUIRE(ends->reply);
  CHECK(code_of(*ends->reply) == 237);
  // What it held is enough for a document.
  REQUIRE(world.run_until([&] { return goes_on->done; }, seconds(2)));
  REQUIRE(goes_on->reply);
  INFO(to_json(*goes_on->reply).substr(0, 300));
  REQUIRE(is_ok(*goes_on->reply));
  CHECK(batch_of(*goes_on->reply).size() >= 1);
  others.clear();
  CHECK(is_ok(call(world, *last, R"({"ping": 1, "$db": "admin"})")));
  for (SimClient* client : {first.get(), last.get()}) client->close();
  world.run_for(minutes(20));
  require_quiet(world);
}

namespace {

struct Scans {
  std::size_t done = 0, refused = 0;
  std::vector<std::int64_t> failed;  // codes of getMores
};

// From the document `first` to its end, in the order of _id. A command that is refused is not tried again.
Task<void> scan(SimClient* client, std::string_view command, Scans* scans, std::int64_t first, std::int64_t documents) {
  auto finding = client->call(json(command));
  std::optional<BsonDoc> reply = co_await finding;
  std::int64_t next = first;
  while (reply && is_ok(*reply)) {
    for (const BsonDoc& document : batch_of(*reply)) CHECK(*document.view()["_id"].to_int64() == next++);
    if (cursor_id(*reply) == 0) {
      CHECK(next == documents);
      ++scans->done;
      co_return;
    }
    auto getting = client->call(json(get_more(cursor_id(*reply), 1000)));
    reply = co_await getting;
  }
  const std::int64_t code = reply ? code_of(*reply) : -1;
  if (next == first && code == 462) {
    ++scans->refused;
  } else {
    scans->failed.push_back(code);
  }
}

// Thirty clients at once. Their scans end within that time, none of them in the middle, and nothing is left.
Scans scan_by_many(SimWorld& world, std::string_view command, std::int64_t first, std::int64_t documents,
                   std::chrono::seconds within) {
  constexpr std::size_t count = 30;
  Scans scans;
  std::vector<std::unique_ptr<SimClient>> clients;
  for (std::size_t i = 0; i < count; ++i) {
    clients.push_back(world.client());
    world.spawn(scan(clients.back().get(), command, &scans, first, documents));
  }
  CHECK(world.run_until([&] { return scans.done + scans.refused + scans.failed.size() == count; }, within));
  CAPTURE(scans.done, scans.refused);
  CHECK(scans.failed.empty());
  CHECK(world.shared().memory.process.usage().peak_bytes <= limit_bytes);
  for (auto& client : clients) client->close();
  world.run_for(minutes(20));
  require_quiet(world);
  return scans;
}

}  // namespace

TEST_CASE("merges of many clients over large documents go on, and those that do not fit are not begun") {
  const auto [command, first] = GENERATE(table<std::string_view, std::int64_t>(
      {{R"({"find": "docs", "sort": {"_id": 1}, "$db": "app"})", 0},
       {R"({"find": "docs", "sort": {"_id": 1}, "skip": 20, "$db": "app"})", 20},
       {R"({"aggregate": "docs", "pipeline": [{"$sort": {"_id": 1}}], "cursor": {}, "$db": "app"})", 0}}));
  CAPTURE(command);
  SimWorldOptions options = small_world();
  options.faults.window_bytes = 64 * 1024;
  SimWorld world(std::move(options));
  for (int id = 0; id < 60; ++id) {
    BsonWriter out;
    out.append("_id", id).append("text", std::string(80'000 + static_cast<std::size_t>(id) * 7'919 % 40'000, 'x'));
    world.shard(id < 30 ? 0 : 1).store("app.docs", std::move(out).finish());
  }
  CHECK(scan_by_many(world, command, first, 60, seconds(60)).done >= 10);
}

TEST_CASE("merges of many clients over documents of very different sizes go on") {
  const std::string_view command =
      GENERATE(as<std::string_view>(), R"({"find": "docs", "sort": {"_id": 1}, "$db": "app"})",
               R"({"aggregate": "docs", "pipeline": [{"$sort": {"_id": 1}}], "cursor": {}, "$db": "app"})");
  CAPTURE(command);
  SimWorldOptions options = small_world();
  options.faults.window_bytes = 64 * 1024;
  options.large_reserve_bytes = limits::mib;
  SimWorld world(std::move(options));
  constexpr int documents = 1'200;
  for (int id = 0; id < documents; ++id) {
    BsonWriter out;
    out.append("_id", id).append("text", std::string(id % 41 == 20 ? 150'000 : 300, 'x'));
    world.shard(id % 2 == 0 ? 0 : 1).store("app.docs", std::move(out).finish());
  }
  CHECK(scan_by_many(world, command, 0, documents, seconds(120)).done >= 25);
}

TEST_CASE("a merge that could never fit fails at once, and does not hold up others") {
  SimWorldOptions options = small_world();
  options.large_reserve_bytes = limits::mib;
  SimWorld world(std::move(options));
  for (int id = 0; id < 4; ++id) {
    BsonWriter out;
    out.append("_id", id).append("text", std::string(2'500'000, 'x'));
    world.shard(id % 2 == 0 ? 0 : 1).store("app.docs", std::move(out).finish());
  }
  const auto client = world.client();
  const auto finding = start(world, *client, json(R"({"find": "docs", "sort": {"_id": 1}, "$db": "app"})"));
  REQUIRE(world.run_until([&] { return finding->done; }, seconds(1)));
  REQUIRE(finding->reply);
  INFO(to_json(*finding->reply));
  CHECK(code_of(*finding->reply) == 146);
  // The reply that was refused opened a cursor, too.
  CHECK(world.run_until([&] { return world.shard(0).cursors().open() + world.shard(1).cursors().open() == 0; },
                        seconds(1)));
  CHECK(world.shard(0).cursors().opened + world.shard(1).cursors().opened == 2);
  client->close();
  world.run_for(minutes(20));
  require_quiet(world);
}

TEST_CASE("a merge asks for few documents as long as it has seen few") {
  SimWorld world(small_world());
  for (int id = 0; id < 60; ++id) {
    BsonWriter out;
    out.append("_id", id).append("text", std::string(id < 2 ? 100 : 60'000, 'x'));
    world.shard(id % 2 == 0 ? 0 : 1).store("app.docs", std::move(out).finish());
  }
  const auto client = world.client();
  Scans scans;
  world.spawn(scan(client.get(), R"({"find": "docs", "sort": {"_id": 1}, "$db": "app"})", &scans, 0, 60));
  REQUIRE(world.run_until([&] { return scans.done == 1; }, seconds(10)));
  CHECK(world.shared().memory.cursors.usage().peak_bytes < 1'500'000);
  client->close();
  world.run_for(minutes(20));
  require_quiet(world);
}

TEST_CASE("documents that are skipped tell their size, too") {
  SimWorld world(small_world());
  store_documents(world, 600, 100);
  const auto client = world.client();
  const BsonDoc reply = call(
      world, *client, R"({"find": "docs", "sort": {"_id": 1}, "skip": 550, "$db": "app"})");
  CHECK(batch_of(reply).size() >= 50);
  CHECK(world.shard(0).seen("getMore") < 12);
  client->close();
}

TEST_CASE("after documents that were much larger than known a merge begins again with one of each shard") {
  SimWorldOptions options = small_world();
  options.large_reserve_bytes = limits::mib;
  SimWorld world(std::move(options));
  for (int id = 0; id < 400; ++id) {
    BsonWriter out;
    out.append("_id", id).append("k", id).append("text", std::string(id < 300 ? 1'000 : 300'000, 'x'));
    world.shard(id % 2 == 0 ? 0 : 1).store("app.docs", std::move(out).finish());
  }
  const auto client = world.client();
  Scans scans;
  const std::string_view large =
      R"({"find": "docs", "filter": {"k": {"$gte": 300}}, "sort": {"_id": 1}, "$db": "app"})";
  const std::string_view small =
      R"({"find": "docs", "filter": {"k": {"$lt": 300}}, "sort": {"_id": 1}, "limit": 150, "$db": "app"})";
  for (int i = 0; i < 3; ++i) call(world, *client, small);
  bool done = false;
  for (int attempt = 0; attempt < 3 && !done; ++attempt) {
    scans = {};
    world.spawn(scan(client.get(), large, &scans, 300, 400));
    REQUIRE(world.run_until([&] { return scans.done + scans.refused + scans.failed.size() == 1; }, seconds(60)));
    done = scans.done == 1;
  }
  CHECK(done);
  client->close();
  world.run_for(minutes(20));
  require_quiet(world);
}

TEST_CASE("merges are opened again as soon as the budgets are empty, even if the level is still critical") {
  SimWorld world(small_world());
  store_documents(world, 10, 40'000);
  const auto client = world.client();
  set_level(world, PressureLevel::critical);
  const std::string_view find = R"({"find": "docs", "sort": {"_id": 1}, "$db": "app"})";
  CHECK(is_ok(call(world, *client, find)));
  {
    MemoryBudget& memory = world.shared().memory.process;
    const auto others = memory.try_reserve(limit_bytes * 3 / 4);
    REQUIRE(others);
    CHECK(code_of(call(world, *client, find)) == 462);
  }
  CHECK(is_ok(call(world, *client, find)));
  client->close();
}

TEST_CASE("long sort keys are paid for while a batch is filled, and go when the cursor waits for its client") {
  struct Held {
    std::uint64_t peak = 0;
    std::uint64_t idle = 0;
  };
  const auto held = [](const char* sort) {
    SimWorld world(sharded_world(2, 100));
    store_documents(world, 5, 200'000);
    auto client = world.client();
    const BsonDoc first = call(
        world, *client, fmt::format(R"({{"find": "docs", "sort": {}, "batchSize": 2, "$db": "app"}})", sort));
    CHECK(batch_of(first).size() == 2);
    const BudgetUsage usage = world.shared().memory.cursors.usage();
    client->close();
    return Held{usage.peak_bytes, usage.used_bytes};
  };
  const Held by_number = held(R"({"k": 1})");
  const Held by_text = held(R"({"text": 1, "k": 1})");
  CHECK(by_text.peak >= by_number.peak + 2 * 200'000);
  CHECK(by_text.idle == by_number.idle);
  CHECK(by_number.idle > 0);
}

TEST_CASE("a long sort key without room waits for it") {
  SimWorldOptions options = sharded_world(2, 100);
  options.memory_limit_bytes = limit_bytes;
  options.large_reserve_bytes = 64 * limits::kib;  // holds no such key
  SimWorld world(std::move(options));
  store_documents(world, 2, 200'000);
  auto client = world.client();
  exec::Shared& shared = world.shared();
  // Room for what the shards send and for the reply, not for two keys.
  const BsonDoc find = json(R"({"find": "docs", "sort": {"text": 1}, "batchSize": 1, "$db": "app"})");
  auto others = shared.memory.process.try_reserve(limit_bytes - shared.memory.process.usage().used_bytes - 1'400'000);
  REQUIRE(others);
  const auto waiting = start(world, *client, find);
  world.run_for(seconds(3));
  CHECK_FALSE(waiting->done);
  CHECK(shared.memory.work_queue.usage().waiting == 1);
  others->release();
  REQUIRE(world.run_until([&] { return waiting->done; }, seconds(2)));
  REQUIRE(waiting->reply);
  INFO(to_json(*waiting->reply));
  CHECK(batch_of(*waiting->reply).size() == 1);
  client->close();
  world.run_for(minutes(20));
  require_quiet(world);
}

TEST_CASE("a sender that stops in the middle of a message loses its connection") {
  const bool others_wait = GENERATE(false, true);
  SimWorld world(small_world());
  auto slow = world.client();
  REQUIRE(world.run(slow->send_part(insert_of(2'000'000), 500'000)));
  world.run_for(seconds(1));
  CHECK(world.shared().memory.requests.usage().used_bytes > 2'000'000);
  auto other = world.client();
  if (others_wait) start(world, *other, insert_of(3'000'000));
  world.run_for(seconds(others_wait ? 4 : 25));
  CHECK(world.shared().metrics.senders_stopped.value() == (others_wait ? 1 : 0));
  world.run_for(seconds(10));
  CHECK(world.shared().metrics.senders_stopped.value() == 1);
  slow->close();
  other->close();
  world.run_for(seconds(2));
  require_quiet(world);
}

TEST_CASE("a long listing of several shards is merged with little more memory than it takes") {
  constexpr int names = 18'000;
  SimWorldOptions options = sharded_world(3, 100);
  options.routing += "  defaultShardKey: {_id: hashed}\n";
  SimWorld world(std::move(options));
  REQUIRE_FALSE(world.shared().divide_memory(78 * limits::mib));  // of a memory.limit of 128 MiB
  const auto row_of = [](int i) {
    BsonWriter row;
    row.append("name", fmt::format("collection{:06}", i)).append("type", "collection");
    row.append("options", std::string(940, 'x'));
    return std::move(row).finish();
  };
  // The shards list the same names, the later ones first, in batches of 16 MiB where no size is asked for.
  struct Position {
    int asked = 0, next = 0;
  };
  for (std::size_t i = 0; i < 3; ++i) {
    SimShard& shard = world.shard(i);
    shard.delay = milliseconds(3 - i);
    auto at = std::make_shared<Position>();
    shard.observe = [=](DocView command) {
      const bool more = command.first().name == "getMore";
      const ValueView size = more ? command["batchSize"] : command.find_path("cursor.batchSize");
      at->asked = static_cast<int>(size.to_int64().value_or(names));
    };
    shard.revise = [=](std::string_view command, BsonDoc reply) {
      if (command != "listCollections" && command != "getMore") return reply;
      const std::size_t row_bytes = row_of(0).size() + 10;
      const int most = std::min(at->asked, static_cast<int>(16 * limits::mib / row_bytes));
      const int end = std::min(names, at->next + most);
      BsonWriter out;
      out.begin_document("cursor").begin_array(command == "getMore" ? "nextBatch" : "firstBatch");
      for (; at->next < end; ++at->next) out.append_item(row_of(at->next).view());
      out.end().append("id", std::int64_t{end < names ? 77 : 0}).append("ns", "other.$cmd.listCollections").end();
      out.append("ok", 1.0);
      return std::move(out).finish();
    };
  }
  auto client = world.client();
  BsonDoc reply = call(world, *client, R"({"listCollections": 1, "cursor": {}, "$db": "other"})");
  INFO(to_json(reply).substr(0, 200));
  REQUIRE(is_ok(reply));
  const std::size_t listed_bytes = names * row_of(0).size();
  const std::uint64_t budget_bytes = world.shared().memory.process.usage().limit_bytes;
  CHECK(listed_bytes > 18'000'000);
  CHECK(world.shared().memory.cursors.usage().peak_bytes <= listed_bytes + names * 192 + 3 * budget_bytes / 60);
  std::size_t listed = batch_of(reply).size();
  for (std::size_t i = 0; i < 3; ++i) world.shard(i).revise = nullptr;
  while (cursor_id(reply) != 0) {
    reply = call(world, *client, fmt::format(R"({{"getMore": {{"$numberLong": "{}"}}, "$db": "other",
                                                 "collection": "$cmd.listCollections"}})", cursor_id(reply)));
    REQUIRE(is_ok(reply));
    listed += batch_of(reply).size();
  }
  CHECK(listed == names);
}

}  // namespace spillway::test
