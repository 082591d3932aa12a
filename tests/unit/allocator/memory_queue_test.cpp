#include "allocator/memory_queue.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

namespace spillway {
namespace {

struct Sleeper final : MemoryQueue::Sleeper {
  void wake() noexcept override { woken.fetch_add(1); }
  std::atomic<int> woken{0};
};

TEST_CASE("memory that is given back wakes the first of each line only") {
  MemoryQueue queue("test");
  MemoryBudget memory("memory", 100), node("node", 0, &memory);
  memory.set_wakes({&queue});
  Sleeper a, b, c, d;
  auto held = node.try_reserve(100);
  std::optional<MemoryQueue::Place> first(std::in_place, queue, a), second(std::in_place, queue, b);
  const MemoryQueue::Place outside(queue, c, false), behind(queue, d, false);
  CHECK(first->first());
  CHECK(outside.first());
  CHECK_FALSE(behind.first());
  held->shrink_to(50);
  CHECK(a.woken == 1);
  CHECK(b.woken == 0);
  CHECK(c.woken == 1);
  CHECK(d.woken == 0);
  first.reset();  // what is left is for the next
  CHECK(b.woken == 1);
  second.reset();
  held->release();
  CHECK(a.woken == 1);
  CHECK(b.woken == 1);
  CHECK(c.woken == 2);
}

TEST_CASE("a reserve that is given back wakes the first, too") {
  MemoryQueue queue("test");
  queue.set_reserves(10, 10);
  auto large = queue.large()->try_reserve(10);
  Sleeper sleeper;
  const MemoryQueue::Place place(queue, sleeper);
  large->release();
  CHECK(sleeper.woken == 1);
}

TEST_CASE("the first in the line stays first until it leaves") {
  Sleeper sleeper;
  MemoryQueue queue("test");
  CHECK_FALSE(queue.somebody_waits());
  std::optional<MemoryQueue::Place> a, b, c;
  a.emplace(queue, sleeper);
  b.emplace(queue, sleeper);
  c.emplace(queue, sleeper);
  CHECK(a->first());
  CHECK_FALSE(b->first());
  b.reset();  // gave up
  CHECK(a->first());
  a.reset();
  CHECK(c->first());
  CHECK(queue.usage().waiting == 1);
  CHECK(queue.usage().waits == 3);
  c.reset();
  CHECK_FALSE(queue.somebody_waits());
}

TEST_CASE("one cursor at a time takes from the reserve, and its waits come first as long as it holds some of it") {
  MemoryQueue queue("test");
  queue.set_reserves(100, 10);
  Sleeper sleeper;
  const int one = 0, other = 0;
  std::optional<MemoryQueue::Place> a, b, c, d, e;
  a.emplace(queue, sleeper, true, &one);
  b.emplace(queue, sleeper, true, &other);
  c.emplace(queue, sleeper, true, &one);
  REQUIRE(a->reserve() != nullptr);
  auto held = a->reserve()->try_reserve(40);
  REQUIRE(held);
  a.reset();
  CHECK(c->first());
  auto more = c->reserve()->try_reserve(40);
  c.reset();
  CHECK(queue.usage().large.used_bytes == 80);

  REQUIRE(b->first());
  CHECK(b->reserve() == nullptr);
  CHECK(queue.must_join(&other));
  CHECK_FALSE(queue.must_join(&one));
  d.emplace(queue, sleeper, true, &one);
  CHECK(d->first());  // before b
  CHECK(d->reserve() != nullptr);
  d.reset();
  CHECK_FALSE(queue.must_join(nullptr));
  e.emplace(queue, sleeper);  // no cursor: not behind b
  CHECK(e->first());
  CHECK(e->reserve() == queue.large());

  held->release();
  CHECK(b->reserve() == nullptr);
  sleeper.woken = 0;
  more->release();
  CHECK(sleeper.woken > 0);
  CHECK(b->first());
  CHECK(b->reserve() == nullptr);  // another request waits for it
  sleeper.woken = 0;
  e.reset();
  CHECK(sleeper.woken > 0);
  CHECK(b->reserve() != nullptr);
  d.emplace(queue, sleeper, true, &one);  // it holds nothing any more
  CHECK_FALSE(d->first());
}

TEST_CASE("a queue is full when as many wait as may") {
  Sleeper sleeper;
  MemoryQueue queue("test");
  queue.set_waiting_max(2);
  const MemoryQueue::Place a(queue, sleeper);
  CHECK_FALSE(queue.full());
  std::optional<MemoryQueue::Place> b;
  b.emplace(queue, sleeper, false);  // those that delay no other count, too
  CHECK(queue.full());
  b.reset();
  CHECK_FALSE(queue.full());
}

TEST_CASE("reserves stand beside the budgets and have limits of their own") {
  MemoryQueue queue("test");
  CHECK(queue.large() == nullptr);
  CHECK(queue.small() == nullptr);
  queue.set_reserves(1000, 100);
  auto large = queue.large()->try_reserve(1000);
  auto small = queue.small()->try_reserve(100);
  REQUIRE(large);
  REQUIRE(small);
  CHECK_FALSE(queue.large()->try_reserve(1));
  CHECK_FALSE(queue.small()->try_reserve(1));
  CHECK(queue.usage().large.used_bytes == 1000);
  CHECK(queue.usage().small.used_bytes == 100);
}

TEST_CASE("many threads queue up and all get to the front") {
  MemoryQueue queue("test");
  queue.set_reserves(1, 1);
  std::vector<std::thread> threads;
  std::atomic<int> served{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        Sleeper sleeper;
        const MemoryQueue::Place place(queue, sleeper);
        while (!place.first()) std::this_thread::yield();
        auto taken = queue.large()->try_reserve(1);  // the first has it alone
        if (taken) served.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(served == 4 * 500);
  CHECK(queue.usage().waiting == 0);
}

TEST_CASE("cursors that need a second piece while they hold the first all go on") {
  MemoryQueue queue("test");
  queue.set_reserves(2, 1);
  std::vector<std::thread> threads;
  std::atomic<int> served{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        const int cursor = i;
        std::vector<Reservation> held;
        while (held.size() < 2) {
          Sleeper sleeper;
          MemoryQueue::Place place(queue, sleeper, true, &cursor);
          const std::size_t had = held.size();
          while (held.size() == had) {
            MemoryBudget* const reserve = place.first() ? place.reserve() : nullptr;
            auto taken = reserve == nullptr ? std::nullopt : reserve->try_reserve(1);
            if (!taken) {
              std::this_thread::yield();
              continue;
            }
            held.push_back(*std::move(taken));
          }
        }
        served.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(served == 4 * 300);
  CHECK(queue.usage().large.used_bytes == 0);
}

TEST_CASE("the ceiling is the least limit on the way up") {
  MemoryBudget process("process", 1000);
  MemoryBudget requests("requests", 0, &process);
  MemoryBudget few("few", 10, &requests);
  CHECK(requests.ceiling_bytes() == 1000);
  CHECK(few.ceiling_bytes() == 10);
  process.set_limit(5);
  CHECK(few.ceiling_bytes() == 5);
  MemoryBudget none("none", 0);
  CHECK(none.ceiling_bytes() == 0);
}

}  // namespace
}  // namespace spillway
