#include "allocator/budget.h"

#include <catch2/catch.hpp>
#include <limits>
#include <thread>
#include <vector>

namespace spillway {
namespace {

TEST_CASE("a reservation charges its node and every ancestor", "[budget]") {
  MemoryBudget root("root", 1000);
  MemoryBudget middle("middle", 0, &root);
  MemoryBudget leaf("leaf", 500, &middle);
  {
    auto held = leaf.try_reserve(300);
    REQUIRE(held);
    CHECK(held->bytes() == 300);
    CHECK(held->budget() == &leaf);
    CHECK(leaf.usage().used_bytes == 300);
    CHECK(middle.usage().used_bytes == 300);
    CHECK(root.usage().used_bytes == 300);
  }
  CHECK(leaf.usage().used_bytes == 0);
  CHECK(root.usage().used_bytes == 0);
  CHECK(root.usage().peak_bytes == 300);
}

TEST_CASE("a refusal charges nothing and counts at the node that refused", "[budget]") {
  MemoryBudget root("root", 1000);
  MemoryBudget wide("wide", 5000, &root);
  MemoryBudget narrow("narrow", 100, &root);

  CHECK_FALSE(narrow.try_reserve(101));
  CHECK(narrow.usage().refusals == 1);
  CHECK(root.usage().refusals == 0);

  auto held = wide.try_reserve(950);
  REQUIRE(held);
  CHECK_FALSE(wide.try_reserve(51));
  CHECK(wide.usage().refusals == 0);
  CHECK(root.usage().refusals == 1);
  CHECK(wide.usage().used_bytes == 950);
  CHECK(root.usage().used_bytes == 950);
  CHECK(wide.try_reserve(50));
}

TEST_CASE("the limit itself may be used up", "[budget]") {
  MemoryBudget budget("budget", 64);
  auto held = budget.try_reserve(64);
  REQUIRE(held);
  CHECK_FALSE(budget.try_reserve(1));
  CHECK(budget.try_reserve(0));
}

TEST_CASE("absurd sizes are refused, not wrapped around", "[budget]") {
  MemoryBudget budget("budget", 1000);
  auto held = budget.try_reserve(10);
  REQUIRE(held);
  CHECK_FALSE(budget.try_reserve(std::numeric_limits<std::uint64_t>::max()));
  CHECK_FALSE(budget.try_reserve(std::numeric_limits<std::uint64_t>::max() - 5));
  CHECK(budget.usage().used_bytes == 10);
}

TEST_CASE("reservations grow, shrink, split and merge", "[budget]") {
  MemoryBudget budget("budget", 100);
  auto held = budget.try_reserve(40);
  REQUIRE(held);
  CHECK(held->try_grow(60));
  CHECK_FALSE(held->try_grow(1));
  CHECK(held->bytes() == 100);

  Reservation half = held->split(50);
  CHECK(half.bytes() == 50);
  CHECK(held->bytes() == 50);
  CHECK(budget.usage().used_bytes == 100);

  half.shrink_to(20);
  CHECK(budget.usage().used_bytes == 70);

  held->merge(std::move(half));
  CHECK(held->bytes() == 70);
  CHECK(half.bytes() == 0);  // NOLINT: a moved-from reservation is empty
  CHECK(budget.usage().used_bytes == 70);

  held->release();
  held->release();
  CHECK(budget.usage().used_bytes == 0);
}

TEST_CASE("a reservation merges into an empty one", "[budget]") {
  MemoryBudget budget("budget", 0);
  auto held = budget.try_reserve(7);
  REQUIRE(held);
  Reservation empty;
  empty.merge(*std::move(held));
  CHECK(empty.bytes() == 7);
  empty.release();
  CHECK(budget.usage().used_bytes == 0);
}

TEST_CASE("moving a reservation releases what the target held", "[budget]") {
  MemoryBudget first("first", 0);
  MemoryBudget second("second", 0);
  auto a = first.try_reserve(5);
  auto b = second.try_reserve(9);
  REQUIRE((a && b));
  *a = *std::move(b);
  CHECK(first.usage().used_bytes == 0);
  CHECK(second.usage().used_bytes == 9);
  Reservation& self = *a;
  *a = std::move(self);
  CHECK(a->bytes() == 9);
}

TEST_CASE("threads never exceed the limit and leave nothing behind", "[budget]") {
  constexpr std::uint64_t limit = 1000;
  MemoryBudget root("root", limit);
  MemoryBudget left("left", 0, &root);
  MemoryBudget right("right", 600, &root);
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> sure{0};  // bytes surely reserved at some moment
  std::atomic<bool> exceeded{false};
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      MemoryBudget& budget = thread % 2 == 0 ? left : right;
      for (std::uint64_t turn = 0; turn < 5000; ++turn) {
        const std::uint64_t bytes = 1 + turn % 400;
        auto held = budget.try_reserve(bytes);
        if (!held) continue;
        if (sure.fetch_add(bytes) + bytes > limit) exceeded = true;
        sure.fetch_sub(bytes);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK_FALSE(exceeded.load());
  CHECK(root.usage().used_bytes == 0);
  CHECK(left.usage().used_bytes == 0);
  CHECK(right.usage().used_bytes == 0);
}

}  // namespace
}  // namespace spillway
