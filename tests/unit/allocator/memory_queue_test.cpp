#include "allocator/memory_queue.h"

#include <catch2/catch.hpp>

#include <optional>
#include <thread>
#include <vector>

namespace spillway {
namespace {

TEST_CASE("who came first is first until he leaves") {
  MemoryQueue queue("test");
  CHECK_FALSE(queue.somebody_waits());
  std::optional<MemoryQueue::Place> a, b, c;
  a.emplace(queue);
  b.emplace(queue);
  c.emplace(queue);
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
        const MemoryQueue::Place place(queue);
        while (!place.first()) std::this_thread::yield();
        auto taken = queue.large()->try_reserve(1);  // the first has it for himself
        if (taken) served.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(served == 4 * 500);
  CHECK(queue.usage().waiting == 0);
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
