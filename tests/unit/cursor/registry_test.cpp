#include "cursor/registry.h"

#include <malloc.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <set>
#include <thread>

#include <catch2/catch.hpp>

namespace spillway {
namespace {

CursorPtr make(std::string ns = "app.users", std::string lsid = "") {
  auto cursor = std::make_unique<ClusterCursor>();
  cursor->ns = std::move(ns);
  cursor->session.lsid = std::move(lsid);
  cursor->remotes.resize(2);
  return cursor;
}

CursorCaller caller(std::string_view lsid = {}, std::string_view user = {}) {
  CursorCaller who;
  who.lsid = lsid;
  who.user = user;
  return who;
}

int code_of(CursorRegistry& registry, std::int64_t id, const CursorCaller& who,
            std::string_view ns = "app.users") {
  auto taken = registry.check_out(id, ns, who);
  REQUIRE(taken.has_error());
  return taken.error().code;
}

TEST_CASE("a cursor is out with one caller at a time") {
  CursorRegistry registry;
  const auto id = registry.insert(make(), 10);
  CHECK(id > 0);
  auto taken = registry.check_out(id, "app.users", caller());
  REQUIRE(taken.has_value());
  CHECK(taken.value()->id == id);
  CHECK(code_of(registry, id, caller()) == 143);
  CHECK(registry.counts().pinned == 1);
  CHECK_FALSE(registry.check_in(std::move(taken.value()), 20));
  CHECK(registry.counts().pinned == 0);
  CHECK(registry.counts().open_multi_target == 1);
  CHECK(registry.check_out(id, "app.users", caller()).has_value());
}

TEST_CASE("a cursor is found by its id and its namespace only") {
  CursorRegistry registry;
  const auto id = registry.insert(make(), 0);
  CHECK(code_of(registry, id + 1, caller()) == 43);
  CHECK(code_of(registry, id, caller(), "app.other") == 43);
  CHECK(registry.kill(id, "app.other").outcome == CursorRegistry::KillOutcome::not_found);
}

TEST_CASE("the owner of a cursor and its session are checked") {
  CursorRegistry registry;
  auto owned = make("app.users", "L1");
  owned->owner = "ann";
  const auto id = registry.insert(std::move(owned), 0);
  const auto bare = registry.insert(make(), 0);
  CHECK(code_of(registry, id, caller("L1", "bob")) == 13);
  CHECK(code_of(registry, id, caller("", "ann")) == 50800);
  CHECK(code_of(registry, id, caller("L2", "ann")) == 50801);
  CHECK(code_of(registry, bare, caller("L1")) == 50799);
  CHECK(registry.check_out(id, "app.users", caller("L1", "ann")).has_value());
}

TEST_CASE("a transaction's cursor belongs to its transaction") {
  CursorRegistry registry;
  auto inside = make("app.users", "L1");
  inside->session.in_transaction = true;
  inside->session.txn_number = 7;
  const auto id = registry.insert(std::move(inside), 0);
  const auto outside = registry.insert(make("app.users", "L1"), 0);
  auto who = caller("L1");
  CHECK(code_of(registry, id, who) == 50803);
  who.in_transaction = true;
  who.txn_number = 8;
  CHECK(code_of(registry, outside, who) == 50802);
  CHECK(code_of(registry, id, who) == 50804);
  who.txn_number = 7;
  CHECK(registry.check_out(id, "app.users", who).has_value());
}

TEST_CASE("a getMore has the API parameters of its cursor's command") {
  CursorRegistry registry;
  auto strict = make();
  strict->session.api = {true, true, {}};
  const auto id = registry.insert(std::move(strict), 0);
  const auto bare = registry.insert(make(), 0);
  auto who = caller();
  CHECK(code_of(registry, id, who) == 347);
  who.api.version = true;
  CHECK(code_of(registry, id, who) == 347);
  CHECK(code_of(registry, bare, who) == 347);
  who.api.strict = false;
  CHECK(code_of(registry, id, who) == 347);
  who.api.strict = true;
  CHECK(registry.check_out(id, "app.users", who).has_value());
  CHECK(registry.check_out(bare, "app.users", caller()).has_value());
}

TEST_CASE("a kill takes an idle cursor at once and marks one that is out") {
  CursorRegistry registry;
  const auto idle = registry.insert(make(), 0);
  auto killed = registry.kill(idle, "app.users");
  CHECK(killed.outcome == CursorRegistry::KillOutcome::killed_idle);
  REQUIRE(killed.cursor);
  CHECK(killed.cursor->id == idle);

  const auto out = registry.insert(make(), 0);
  auto taken = registry.check_out(out, "app.users", caller());
  REQUIRE(taken.has_value());
  CHECK(registry.kill(out, "app.users").outcome == CursorRegistry::KillOutcome::marked_in_use);
  CHECK(registry.killed(out));
  CHECK(registry.kill(out, "app.users").outcome == CursorRegistry::KillOutcome::not_found);
  CHECK(code_of(registry, out, caller()) == 43);
  CHECK(registry.check_in(std::move(taken.value()), 1));  // the caller has to end it
  CHECK(registry.counts().open_total == 0);
}

TEST_CASE("an exhausted cursor is forgotten, and says whether it was killed") {
  CursorRegistry registry;
  for (const bool kill : {false, true}) {
    const auto id = registry.insert_checked_out(*make(), 0);
    if (kill) registry.kill(id, "app.users");
    CHECK(registry.forget(id) == kill);
    CHECK(registry.counts().open_total == 0);
  }
}

TEST_CASE("expiry takes what is idle too long and nothing else") {
  CursorRegistry registry;
  const auto old = registry.insert(make(), 10);
  const auto with_session = registry.insert(make("app.users", "L1"), 10);
  const auto fresh = registry.insert(make(), 30);
  auto kept = make();
  kept->no_timeout = true;
  const auto no_timeout = registry.insert(std::move(kept), 10);
  const auto out = registry.insert(make(), 10);
  auto taken = registry.check_out(out, "app.users", caller());
  REQUIRE(taken.has_value());

  const auto first = registry.expire(20, false);
  REQUIRE(first.size() == 1);
  CHECK(first[0]->id == old);
  const auto second = registry.expire(20, true);
  REQUIRE(second.size() == 1);
  CHECK(second[0]->id == with_session);
  CHECK(registry.counts().timed_out == 2);
  CHECK(registry.counts().open_total == 3);
  CHECK(registry.check_out(fresh, "app.users", caller()).has_value());
  CHECK(registry.check_out(no_timeout, "app.users", caller()).has_value());
}

TEST_CASE("sessions' cursors end with their sessions") {
  CursorRegistry registry;
  registry.insert(make("app.users", "L1"), 0);
  const auto other = registry.insert(make("app.users", "L2"), 0);
  const auto out = registry.insert(make("app.users", "L1"), 0);
  auto taken = registry.check_out(out, "app.users", caller("L1"));
  REQUIRE(taken.has_value());
  const auto ended = registry.kill_sessions({session_id_of_lsid("L1")});
  CHECK(ended.size() == 1);
  CHECK(registry.killed(out));
  CHECK(registry.check_in(std::move(taken.value()), 0));
  CHECK(registry.check_out(other, "app.users", caller("L2")).has_value());
  CHECK(registry.kill_all().empty());  // it is out
}

CursorPtr with_bytes(MemoryBudget& budget, std::size_t bytes,
                     std::shared_ptr<const CursorClient> client = nullptr) {
  CursorPtr cursor = make();
  cursor->client = std::move(client);
  if (bytes == 0) return cursor;
  auto buffer = Buffer::allocate(budget, bytes);
  REQUIRE(buffer);
  buffer->set_size(bytes);
  std::fill_n(buffer->data(), bytes, std::uint8_t{0});
  cursor->remotes.front().batches.emplace_back(*std::move(buffer), 0, bytes);
  return cursor;
}

std::shared_ptr<const CursorClient> client_at(std::string address, std::string application) {
  auto client = std::make_shared<CursorClient>();
  client->address = std::move(address);
  client->application = std::move(application);
  return client;
}

std::set<std::int64_t> ids_of(const std::vector<CursorPtr>& cursors) {
  std::set<std::int64_t> ids;
  for (const CursorPtr& cursor : cursors) ids.insert(cursor->id);
  return ids;
}

constexpr std::size_t kib = 1024;

TEST_CASE("the heaviest idle cursors give way, and their getMore hears why") {
  MemoryBudget budget("test", 0);
  CursorRegistry registry;
  const auto light = registry.insert(with_bytes(budget, 64 * kib), 10);
  const auto heavy = registry.insert(with_bytes(budget, 512 * kib), 10);
  const auto empty = registry.insert(with_bytes(budget, 0), 10);
  const auto fresh = registry.insert(with_bytes(budget, 1024 * kib), 50);
  const auto out = registry.insert(with_bytes(budget, 1024 * kib), 10);
  auto taken = registry.check_out(out, "app.users", caller());
  REQUIRE(taken.has_value());

  auto evicted = registry.evict(20, 1);
  CHECK(ids_of(evicted) == std::set{heavy});
  CHECK(registry.counts().evicted == 1);
  CHECK(registry.counts().evicted_bytes >= 512 * kib);
  auto again = registry.check_out(heavy, "app.users", caller());
  REQUIRE(again.has_error());
  CHECK(again.error().code == 43);
  CHECK(again.error().message.find("memory was short") != std::string::npos);
  auto never = registry.check_out(heavy + 1, "app.users", caller());
  REQUIRE(never.has_error());
  CHECK(never.error().message.find("memory") == std::string::npos);

  CHECK(ids_of(registry.evict(20, 1'000'000'000)) == std::set{light});
  CHECK(registry.evict(20, 1'000'000'000).empty());  // an empty one never gives way
  CHECK(registry.check_out(empty, "app.users", caller()).has_value());
  CHECK(registry.check_out(fresh, "app.users", caller()).has_value());
  CHECK_FALSE(registry.check_in(std::move(taken.value()), 60));
  CHECK(registry.counts().evicted == 2);
}

TEST_CASE("a client that holds over its share gives way to others, down to that share") {
  MemoryBudget budget("test", 0);
  CursorRegistry registry;
  const auto greedy = client_at("10.0.0.1", "export"), small = client_at("10.0.0.1", "web"),
             asking = client_at("10.0.0.2", "web");
  for (int i = 0; i < 10; ++i) registry.insert(with_bytes(budget, 64 * kib, greedy), 10);
  registry.insert(with_bytes(budget, 64 * kib, small), 10);
  CHECK(registry.evict_beyond_share(asking.get(), 1024 * kib, 20).empty());
  CHECK(registry.evict_beyond_share(greedy.get(), 256 * kib, 20).empty());  // not for itself
  CHECK(registry.evict_beyond_share(asking.get(), 256 * kib, 5).empty());   // in use a moment ago
  const auto evicted = registry.evict_beyond_share(asking.get(), 4 * 66 * kib, 20);
  CHECK(evicted.size() == 6);
  for (const CursorPtr& cursor : evicted) CHECK(cursor->client == greedy);
  CHECK(registry.counts().open_total == 5);
}

TEST_CASE("cursors whose client is gone end after the grace, unless it comes back") {
  MemoryBudget budget("test", 0);
  CursorRegistry registry;
  const auto here = client_at("10.0.0.1", ""), gone = client_at("10.0.0.2", "");
  const auto kept = registry.insert(with_bytes(budget, 0, here), 0);
  const auto lost = registry.insert(with_bytes(budget, 64 * kib, gone), 0);
  const auto back = registry.insert(with_bytes(budget, 0, gone), 0);
  const auto has_client = [&](const ClusterCursor& cursor) { return cursor.client == here; };
  auto first = registry.end_orphans(has_client, 100, 30);
  CHECK(first.ended.empty());
  CHECK(first.clientless == 2);
  CHECK(registry.counts().clientless == 2);
  // Without a client its documents are the first to be parked, however recently it was used.
  CHECK(registry.heaviest_idle(-1, 16 * kib, 5) == std::vector{lost});
  auto used = registry.check_out(back, "app.users", caller());
  REQUIRE(used.has_value());
  CHECK_FALSE(registry.check_in(std::move(used.value()), 120));
  auto second = registry.end_orphans(has_client, 130, 30);
  CHECK(ids_of(second.ended) == std::set{lost});
  CHECK(second.clientless == 1);
  CHECK(registry.end_orphans([](const ClusterCursor&) { return true; }, 140, 30).clientless == 0);
  CHECK(registry.end_orphans(has_client, 165, 30).ended.empty());  // it counts anew
  CHECK(ids_of(registry.end_orphans(has_client, 200, 30).ended) == std::set{back});
  CHECK(registry.counts().orphaned == 2);
  auto asked = registry.check_out(lost, "app.users", caller());
  REQUIRE(asked.has_error());
  CHECK(asked.error().code == 43);
  CHECK(registry.check_out(kept, "app.users", caller()).has_value());
}

TEST_CASE("the cursors that a connection used last end with it") {
  CursorRegistry registry;
  auto client = std::make_shared<CursorClient>();
  client->connection_id = 7;
  CursorPtr mine = make(), used = make();
  mine->client = client;
  const auto id = registry.insert(std::move(mine), 0);
  used->client = client;
  const auto out = registry.insert(std::move(used), 0);
  registry.insert(make(), 0);
  auto taken = registry.check_out(out, "app.users", caller());
  REQUIRE(taken.has_value());
  CHECK(ids_of(registry.kill_connection(7)) == std::set{id});
  CHECK(registry.kill_connection(7).empty());
  CHECK(registry.check_in(std::move(taken.value()), 0));
  CHECK(registry.counts().open_total == 1);
  CHECK(registry.counts().orphaned == 2);
  // Also a fetch in progress, of a cursor that another client opened.
  const auto opened = registry.insert(make(), 0);
  auto fetching = registry.check_out(opened, "app.users", caller());
  REQUIRE(fetching.has_value());
  fetching.value()->client = client;
  REQUIRE(registry.begin_filling(**fetching));
  CHECK(registry.kill_connection(7).empty());
  CHECK(registry.killed(opened));
  CHECK(registry.counts().orphaned == 3);
}

TEST_CASE("what a connection or sessions end is found without a look at all others") {
  CursorRegistry registry;
  std::vector<std::shared_ptr<CursorClient>> clients;
  std::vector<std::int64_t> ids;
  for (std::int64_t connection = 1; connection <= 1000; ++connection) {
    auto& client = clients.emplace_back(std::make_shared<CursorClient>());
    client->connection_id = connection;
    for (int n = 0; n < 2; ++n) {
      CursorPtr cursor = make("app.users", "session " + std::to_string(connection));
      cursor->client = client;
      ids.push_back(registry.insert(std::move(cursor), 0));
    }
  }
  // Used over another connection since.
  auto moved = registry.check_out(ids[0], "app.users", caller("session 1"));
  REQUIRE(moved.has_value());
  moved.value()->client = clients[1];
  CHECK_FALSE(registry.check_in(std::move(moved.value()), 1));
  CHECK(ids_of(registry.kill_connection(1)) == std::set{ids[1]});
  CHECK(ids_of(registry.kill_connection(2)) == std::set{ids[0], ids[2], ids[3]});
  CHECK(registry.counts().looked_at == 4);
  CHECK(ids_of(registry.kill_sessions({session_id_of_lsid("session 7"), session_id_of_lsid("none")})) ==
        std::set{ids[12], ids[13]});
  CHECK(registry.counts().looked_at <=
        4 + 2 + 2 * (2000 / limits::cursor_stripes));  // a stripe may be as small as the list
  for (std::int64_t connection = 3; connection <= 900; ++connection) registry.kill_connection(connection);
  const std::uint64_t before = registry.counts().looked_at;
  CHECK(before <= 6 + 2 * 900 + 2 * (2000 / limits::cursor_stripes));
  // More sessions than cursors: each cursor is looked at once.
  std::vector<SessionId> many;
  for (int n = 1; n < 10'000; ++n) many.push_back(session_id_of_lsid("session " + std::to_string(n)));
  CHECK(registry.kill_sessions(many).size() == 200);
  CHECK(registry.counts().looked_at == before + 200);
  CHECK(registry.counts().open_total == 0);
  CHECK(registry.kill_connection(950).empty());
}

TEST_CASE("all sessions' cursors may end at once, and others stay") {
  CursorRegistry registry;
  registry.insert(make("app.users", "L1"), 0);
  const auto bare = registry.insert(make(), 0);
  CHECK(registry.kill_all_sessions().size() == 1);
  CHECK(registry.check_out(bare, "app.users", caller()).has_value());
}

struct TestWaiter final : CursorWaiter {
  using CursorWaiter::CursorWaiter;
  void deliver(Result<CursorPtr> given) override {
    ++delivered;
    if (given.has_error()) {
      code = given.error().code;
    } else {
      cursor = *std::move(given);
    }
  }
  int delivered = 0;
  int code = 0;
  CursorPtr cursor;
};

TEST_CASE("a getMore waits for a cursor that is being filled") {
  CursorRegistry registry;
  const auto id = registry.insert(make("app.users", "L1"), 0);
  auto filling = registry.check_out(id, "app.users", caller("L1"));
  REQUIRE(filling.has_value());
  REQUIRE(registry.begin_filling(**filling));
  CHECK(registry.counts().filling == 1);
  const std::string_view lsid = GENERATE("L1", "L2");
  auto waiter = std::make_shared<TestWaiter>(caller(lsid));
  auto waiting = registry.check_out(id, "app.users", waiter->caller(), [&] { return waiter; });
  REQUIRE(waiting.has_value());
  CHECK_FALSE(waiting.value());
  CHECK(code_of(registry, id, caller("L1")) == 143);  // one waits, others do not
  auto second = registry.check_out(id, "app.users", caller("L1"),
                                   [] { return std::make_shared<TestWaiter>(caller("L1")); });
  CHECK(second.has_error());

  SECTION("and gets it when it is filled, if it may have it") {
    CHECK_FALSE(registry.check_in(std::move(filling.value()), 1));
    CHECK(waiter->delivered == 1);
    CHECK(registry.counts().filling == 0);
    if (lsid == "L1") {
      REQUIRE(waiter->cursor);
      CHECK(registry.counts().pinned == 1);
      CHECK_FALSE(registry.check_in(std::move(waiter->cursor), 2));
    } else {
      CHECK(waiter->code == 50801);
    }
    CHECK(registry.counts().pinned == 0);
    CHECK(registry.expire(5, true).size() == 1);
  }
  SECTION("and hears of a kill at once") {
    CHECK(registry.kill(id, "app.users").outcome == CursorRegistry::KillOutcome::marked_in_use);
    CHECK(waiter->code == 237);
    CHECK(registry.check_in(std::move(filling.value()), 1));
  }
  SECTION("and of its session's end") {
    CHECK(registry.kill_sessions({session_id_of_lsid("L1")}).empty());
    CHECK(waiter->code == 237);
    CHECK(registry.forget(id));
    CHECK(waiter->delivered == 1);
  }
  SECTION("and may stop waiting") {
    CHECK(registry.stop_waiting(id, *waiter));
    CHECK_FALSE(registry.stop_waiting(id, *waiter));
    CHECK_FALSE(registry.check_in(std::move(filling.value()), 1));
    CHECK(waiter->delivered == 0);
    CHECK(registry.check_out(id, "app.users", caller("L1")).has_value());
  }
}

TEST_CASE("expiry takes cursors in the order of their last use") {
  CursorRegistry registry;
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 1'000; ++i) ids.push_back(registry.insert(make(), i));
  for (int i = 0; i < 1'000; i += 2) {  // every other one is used again, much later
    auto taken = registry.check_out(ids[static_cast<std::size_t>(i)], "app.users", caller());
    REQUIRE(taken.has_value());
    CHECK_FALSE(registry.check_in(std::move(taken.value()), 10'000 + i));
  }
  CHECK(registry.expire(499, true).size() == 250);
  CHECK(registry.expire(9'999, true).size() == 250);
  CHECK(registry.expire(9'999, true).empty());
  CHECK(registry.expire(10'500, true).size() == 251);
  CHECK(registry.kill_all().size() == 249);
  CHECK(registry.expire(1'000'000, true).empty());
}

TEST_CASE("100,000 idle cursors over three shards take at most 2 KiB each") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const bool measured = false;  // a sanitizer's own memory counts more than what is looked at
#else
  const bool measured = true;
#endif
  const auto resident = [] {
    std::ifstream file("/proc/self/statm");
    std::size_t total = 0, resident_pages = 0;
    file >> total >> resident_pages;
    return resident_pages * 4096;
  };
  constexpr std::size_t count = 100'000;
  const auto client = client_at("10.0.0.1", "export");
  const HostName host("shard0.example.net");  // as a reply brings it: its connection's own
  CursorRegistry registry;
  ::malloc_trim(0);
  const std::size_t before = resident();
  for (std::size_t i = 0; i < count; ++i) {
    auto cursor = std::make_unique<ClusterCursor>();
    cursor->ns = "app.orders";
    cursor->session.lsid = std::string(46, 'l');
    cursor->originating_command = std::string(512, 'c');
    cursor->client = client;
    cursor->remotes.reserve(3);
    for (std::uint16_t shard = 0; shard < 3; ++shard) {
      RemoteCursor& remote = cursor->remotes.emplace_back();
      remote.shard = shard;
      remote.host = host;
      remote.id = static_cast<std::int64_t>(i) + 1;
    }
    registry.insert(std::move(cursor), static_cast<std::int64_t>(i));
  }
  const std::size_t each = (resident() - before) / count;
  WARN("bytes per idle cursor: " << each << ", of which the cursor itself " << sizeof(ClusterCursor)
                                 << ", each shard's half " << sizeof(RemoteCursor));
  if (measured) CHECK(each <= 2048);
  CHECK(registry.counts().open_total == count);
  CHECK(registry.expire(static_cast<std::int64_t>(count), true).size() == count);
}

// Many threads insert, use, kill, expire and count. Each cursor ends exactly once.
TEST_CASE("threads share a registry") {
  CursorRegistry registry;
  constexpr int threads = 4, rounds = 2000;
  std::atomic<int> ended{0};
  std::atomic<std::int64_t> shared_id{0};
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      for (int i = 0; i < rounds; ++i) {
        const auto mine = registry.insert(make(), i);
        const auto theirs = shared_id.exchange(mine);
        if (theirs != 0) {
          if (auto taken = registry.check_out(theirs, "app.users", caller()); taken.has_value()) {
            taken.value()->documents_returned += 1;
            if (registry.check_in(std::move(taken.value()), i + 1)) ++ended;
          }
        }
        if (i % 3 == t % 3 && registry.kill(mine, "app.users").cursor) ++ended;
        if (i % 64 == 0) ended += static_cast<int>(registry.expire(i - 32, true).size());
        if (i % 97 == 0) {
          const auto counts = registry.counts();
          if (counts.total_opened < counts.open_total) ended = -1'000'000;
          registry.for_each_idle([](const ClusterCursor&, std::int64_t) {});
        }
      }
    });
  }
  for (auto& one : running) one.join();
  ended += static_cast<int>(registry.kill_all().size());
  CHECK(ended == threads * rounds);
  CHECK(registry.counts().open_total == 0);
  CHECK(registry.counts().total_opened == threads * rounds);
}

}  // namespace
}  // namespace spillway
