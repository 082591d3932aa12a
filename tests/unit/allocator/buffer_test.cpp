#include "allocator/buffer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <limits>

namespace spillway {
namespace {

TEST_CASE("a buffer charges what it takes and gives it back", "[buffer]") {
  MemoryBudget budget("budget", 1 << 20);
  {
    auto buffer = Buffer::allocate(budget, 100);
    REQUIRE(buffer);
    CHECK(buffer->capacity() >= 100);
    CHECK(buffer->size() == 0);
    CHECK(budget.usage().used_bytes == buffer->capacity());
  }
  CHECK(budget.usage().used_bytes == 0);
}

TEST_CASE("the charge covers the whole block at every size", "[buffer]") {
  MemoryBudget budget("budget", 0);
  for (const std::size_t capacity : {0U, 1U, 63U, 64U, 65U, 16383U, 16384U, 16385U, 100000U}) {
    auto buffer = Buffer::allocate(budget, capacity);
    REQUIRE(buffer);
    CHECK(buffer->capacity() >= std::max<std::size_t>(capacity, 1));
    CHECK(
        buffer->capacity() <=
        std::max<std::size_t>(64, capacity < 16384 ? capacity + capacity / 4 + 16 : 2 * capacity));
    CHECK(budget.usage().used_bytes == buffer->capacity());
    std::memset(buffer->data(), 0xa5, buffer->capacity());
  }
}

TEST_CASE("a buffer out of what is reserved charges nothing more", "[buffer]") {
  const std::size_t bytes = GENERATE(std::size_t{100}, std::size_t{100'000});
  MemoryBudget budget("b", 0);
  const std::size_t charged = Buffer::charged_bytes(bytes);
  auto paid = budget.try_reserve(charged + 10);
  REQUIRE(paid);
  {
    const auto buffer = Buffer::allocate(*paid, bytes);
    REQUIRE(buffer);
    CHECK(buffer->capacity() == charged);
    CHECK(paid->bytes() == 10);
    CHECK(budget.usage().used_bytes == charged + 10);
    CHECK_FALSE(Buffer::allocate(*paid, bytes));
    CHECK(paid->bytes() == 10);
  }
  CHECK(budget.usage().used_bytes == 10);
}

TEST_CASE("a refused buffer takes nothing", "[buffer]") {
  MemoryBudget budget("budget", 4096);
  CHECK_FALSE(Buffer::allocate(budget, 4097));
  CHECK(budget.usage().used_bytes == 0);
  CHECK(budget.usage().refusals == 1);
}

TEST_CASE("sizes beyond the address space are refused", "[buffer]") {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  MemoryBudget limited("limited", 1 << 20);
  MemoryBudget boundless("boundless", 0);
  for (const std::size_t capacity : {most, most - 1, most - 4095, most / 2 + 1}) {
    CHECK_FALSE(Buffer::allocate(limited, capacity));
    CHECK_FALSE(Buffer::allocate(boundless, capacity));
  }
  CHECK(limited.usage().used_bytes == 0);
  CHECK(boundless.usage().used_bytes == 0);
}

TEST_CASE("bytes are appended, and seen through both views", "[buffer]") {
  MemoryBudget budget("budget", 0);
  auto buffer = Buffer::allocate(budget, 8);
  REQUIRE(buffer);
  buffer->append("abc", 3);
  buffer->append("de", 2);
  CHECK(buffer->size() == 5);
  CHECK(buffer->room() == buffer->capacity() - 5);
  CHECK(std::memcmp(buffer->bytes().data(), "abcde", 5) == 0);
  CHECK(buffer->free_space().data() == buffer->data() + 5);
  CHECK(buffer->free_space().size() == buffer->room());
  buffer->set_size(2);
  CHECK(buffer->bytes().size() == 2);
}

TEST_CASE("moving keeps the bytes in place", "[buffer]") {
  MemoryBudget budget("budget", 0);
  auto first = Buffer::allocate(budget, 64);
  auto second = Buffer::allocate(budget, 128);
  REQUIRE((first && second));
  first->append("xyz", 3);
  const std::uint8_t* bytes = first->data();
  Buffer moved(*std::move(first));
  CHECK(moved.data() == bytes);
  CHECK_FALSE(static_cast<bool>(*first));  // NOLINT: a moved-from buffer is empty
  CHECK(first->capacity() == 0);

  *second = std::move(moved);
  CHECK(second->data() == bytes);
  CHECK(second->size() == 3);
  CHECK(budget.usage().used_bytes == second->capacity());
  second->reset();
  CHECK_FALSE(static_cast<bool>(*second));
  CHECK(budget.usage().used_bytes == 0);
}

TEST_CASE("another budget pays for a buffer if it has room") {
  MemoryBudget reserve("reserve", 0), budget("budget", 50'000);
  auto buffer = Buffer::allocate(reserve, 40'000);
  REQUIRE(buffer);
  const std::uint64_t charged = reserve.usage().used_bytes;
  auto others = budget.try_reserve(20'000);
  buffer->charge_to(budget);
  CHECK(buffer->budget() == &reserve);
  CHECK(budget.usage().refusals == 0);
  others->release();
  buffer->charge_to(budget);
  CHECK(buffer->budget() == &budget);
  CHECK(budget.usage().used_bytes == charged);
  CHECK(reserve.usage().used_bytes == 0);
}

}  // namespace
}  // namespace spillway
