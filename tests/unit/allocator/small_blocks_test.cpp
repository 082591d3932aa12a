#include "allocator/small_blocks.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <thread>
#include <vector>

namespace spillway {
namespace {

TEST_CASE("a block has room for what it was taken for, and is at most a quarter larger") {
  for (std::size_t bytes = 1; bytes <= small_blocks::block_bytes_max; ++bytes) {
    const std::size_t whole = small_blocks::rounded(bytes);
    REQUIRE(whole >= bytes);
    REQUIRE((bytes <= 64 || whole <= bytes + bytes / 4));
    REQUIRE(small_blocks::rounded(whole) == whole);
    void* const block = small_blocks::take(bytes);
    REQUIRE(block != nullptr);
    std::memset(block, 0xab, whole);
    small_blocks::give_back(block, bytes);
  }
}

#if !defined(__SANITIZE_ADDRESS__)
TEST_CASE("what was given back is taken again, by size") {
  void* const small = small_blocks::take(100);
  void* const large = small_blocks::take(3000);
  small_blocks::give_back(small, 100);
  small_blocks::give_back(large, 3000);
  void* const again = small_blocks::take(small_blocks::rounded(3000));
  CHECK(again == large);
  void* const other = small_blocks::take(112);  // of the class that 100 is in
  CHECK(other == small);
  small_blocks::give_back(again, 3000);
  small_blocks::give_back(other, 100);
}
#endif

TEST_CASE("a thread keeps a bounded number of free blocks") {
  std::vector<void*> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(small_blocks::take(4096));
  for (void* block : blocks) small_blocks::give_back(block, 4096);
  CHECK(small_blocks::kept_bytes() <= 512 * 1024);
}

TEST_CASE("blocks change threads, and outlive the lists of the thread that took them") {
  void* taken = nullptr;
  std::thread([&taken] { taken = small_blocks::take(500); }).join();
  REQUIRE(taken != nullptr);
  std::memset(taken, 1, 500);
  small_blocks::give_back(taken, 500);
}

TEST_CASE("blocks that are too large for the lists come from malloc and go back there") {
  const std::size_t before = small_blocks::kept_bytes();
  RecycledBytes bytes(small_blocks::block_bytes_max + 1, 7);
  bytes.push_back(8);
  bytes = RecycledBytes();
  CHECK(small_blocks::kept_bytes() <= before);
}

}  // namespace
}  // namespace spillway
