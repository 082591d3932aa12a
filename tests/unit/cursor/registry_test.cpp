#include "cursor/registry.h"

#include <atomic>
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

TEST_CASE("who owns a cursor and its session is checked") {
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
  const auto ended = registry.kill_sessions([](std::string_view lsid) { return lsid == "L1"; });
  CHECK(ended.size() == 1);
  CHECK(registry.killed(out));
  CHECK(registry.check_in(std::move(taken.value()), 0));
  CHECK(registry.check_out(other, "app.users", caller("L2")).has_value());
  CHECK(registry.kill_all().empty());  // it is out
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
          registry.idle();
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
