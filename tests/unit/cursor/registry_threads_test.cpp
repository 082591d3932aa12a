// Workers on threads of their own: a getMore waits for a cursor that another one fills, while a
// third kills some. Run under ThreadSanitizer too.
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <catch2/catch.hpp>

#include "cursor/registry.h"

namespace spillway {
namespace {


// What a worker's loop does with a delivery: another thread takes it.
class ThreadWaiter final : public CursorWaiter {
 public:
  using CursorWaiter::CursorWaiter;
  void deliver(Result<CursorPtr> cursor) override {
    const std::lock_guard lock(mutex_);
    ++deliveries_;
    result_ = std::move(cursor);
    there_.notify_one();
  }
  Result<CursorPtr> take() {
    std::unique_lock lock(mutex_);
    there_.wait(lock, [this] { return result_.has_value(); });
    return *std::exchange(result_, std::nullopt);
  }
  int deliveries() {
    const std::lock_guard lock(mutex_);
    return deliveries_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable there_;
  std::optional<Result<CursorPtr>> result_;
  int deliveries_ = 0;
};

CursorPtr make() {
  auto cursor = std::make_unique<ClusterCursor>();
  cursor->ns = "app.users";
  cursor->remotes.resize(2);
  return cursor;
}

struct Totals {
  std::atomic<int> waited{0}, taken{0}, in_use{0}, gone{0}, ended{0}, wrong{0};
};

// Takes a cursor, leaves it to be filled, and fills it: the number of fills is its own count of batches.
void fill_again_and_again(CursorRegistry& registry, std::int64_t id, Totals& totals) {
  for (;;) {
    auto taken = registry.check_out(id, "app.users", {});
    if (taken.has_error()) {
      if (taken.error().is(ErrorCode::cursor_not_found)) return;
      std::this_thread::yield();
      continue;
    }
    CursorPtr cursor = *std::move(taken);
    if (!registry.begin_filling(*cursor)) {
      registry.forget(id);
      ++totals.ended;
      return;
    }
    ++cursor->batches_returned;
    std::this_thread::yield();
    if (registry.check_in(std::move(cursor), 0)) {
      ++totals.ended;
      return;
    }
  }
}

void get_more_again_and_again(CursorRegistry& registry, std::int64_t id, Totals& totals) {
  std::uint64_t seen = 0;
  for (;;) {
    auto waiter = std::make_shared<ThreadWaiter>(CursorCaller{});
    auto taken = registry.check_out(id, "app.users", {}, [&] { return waiter; });
    const bool waits = taken.has_value() && *taken == nullptr;
    if (waits) {
      ++totals.waited;
      taken = waiter->take();
      if (waiter->deliveries() != 1) ++totals.wrong;
    }
    if (taken.has_error()) {
      if (taken.error().is(ErrorCode::cursor_in_use)) {
        ++totals.in_use;
        std::this_thread::yield();
        continue;
      }
      ++totals.gone;  // killed, or not found any more
      return;
    }
    CursorPtr cursor = *std::move(taken);
    ++totals.taken;
    // All that the others did to it is there: no other thread has it now.
    if (cursor->batches_returned < seen || cursor->id != id) ++totals.wrong;
    seen = cursor->batches_returned;
    if (registry.check_in(std::move(cursor), 0)) {
      ++totals.ended;
      return;
    }
  }
}

// Three threads fight for a cursor. Returns how often one waited for another: a few rounds on a busy machine may pass
// without.
int fight(int rounds) {
  CursorRegistry registry;
  Totals totals;
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t id = registry.insert(make(), 0);
    std::array<std::thread, 3> workers;
    workers[0] = std::thread([&] { fill_again_and_again(registry, id, totals); });
    workers[1] = std::thread([&] { get_more_again_and_again(registry, id, totals); });
    workers[2] = std::thread([&] {
      for (int i = 0; i < round % 50; ++i) std::this_thread::yield();
      auto killed = registry.kill(id, "app.users");
      if (killed.cursor) ++totals.ended;
      if (killed.outcome == CursorRegistry::KillOutcome::not_found) ++totals.wrong;
    });
    for (std::thread& worker : workers) worker.join();
  }
  CHECK(totals.wrong == 0);
  CHECK(totals.ended == rounds);  // each cursor by exactly one of them
  CHECK(registry.counts().open_total == 0);
  WARN(totals.taken << " taken, " << totals.waited << " waited, " << totals.in_use << " in use");
  return totals.waited;
}

}  // namespace

TEST_CASE("a getMore on one thread waits for a cursor that another thread fills") {
  CursorRegistry registry;
  const std::int64_t id = registry.insert(make(), 0);
  auto filling = registry.check_out(id, "app.users", {});
  REQUIRE(filling.has_value());
  REQUIRE(registry.begin_filling(**filling));
  auto waiter = std::make_shared<ThreadWaiter>(CursorCaller{});
  auto waiting = registry.check_out(id, "app.users", {}, [&] { return waiter; });
  REQUIRE(waiting.has_value());
  REQUIRE(*waiting == nullptr);
  std::thread filler([&registry, cursor = *std::move(filling)]() mutable {
    cursor->batches_returned = 7;
    registry.check_in(std::move(cursor), 0);
  });
  auto delivered = waiter->take();
  filler.join();
  REQUIRE(delivered.has_value());
  CHECK((*delivered)->batches_returned == 7);
  CHECK_FALSE(registry.check_in(*std::move(delivered), 0));
}

TEST_CASE("cursors that threads fill, ask for and kill are delivered once, and none is lost") {
  fight(100);
}

TEST_CASE("the same for as long as it takes to meet rare orders", "[stress]") { CHECK(fight(2'000) > 0); }

}  // namespace spillway
