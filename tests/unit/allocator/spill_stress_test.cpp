// The store with its thread: slow disks, and many threads at once.
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <thread>

#include "allocator/spill.h"
#include "tests/unit/allocator/spill_support.h"
#include "tests/unit/allocator/temporary_folder.h"
#include "tests/support/units.h"

namespace spillway {
namespace {

using test::buffer_of;
using test::ByteVector;
using test::FakeDisk;
using test::FakeFile;
using test::random_bytes;
using test::text_bytes;

using test::mib;

SpillFetched fetch(SpillStore& store, SpillTicket& ticket, MemoryBudget& budget) {
  std::promise<SpillFetched> later;
  std::future<SpillFetched> future = later.get_future();
  auto now =
      store.fetch(ticket, budget, [&later](SpillFetched got) { later.set_value(std::move(got)); });
  return now ? *std::move(now) : future.get();
}

void wait_for(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) FAIL("it did not come");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

TEST_CASE("a_slow_disk_holds_nobody_up", "[spill]") {
  FakeDisk disk;
  MemoryBudget budget("budget", 0);
  SpillStore store({.limit_bytes = 64 * mib, .queue_max = 2}, budget,
                   std::make_unique<FakeFile>(disk));
  const ByteVector bytes = random_bytes(300'000, 1);
  const auto park = [&] {
    Buffer buffer = buffer_of(budget, bytes);
    return store.park(buffer, 0, bytes.size(), nullptr, 0);
  };
  disk.set_stuck(true);
  auto writing = park();
  REQUIRE(writing);
  disk.wait_until_stuck();
  auto second = park(), third = park();
  REQUIRE((second && third));
  CHECK_FALSE(park());  // refused, at once
  // What waits can be had at once; what is being written comes when the disk lets go.
  CHECK(fetch(store, *second, budget).end == bytes.size());
  std::promise<SpillFetched> later;
  CHECK_FALSE(
      store.fetch(*writing, budget, [&](SpillFetched got) { later.set_value(std::move(got)); }));
  third.reset();
  disk.set_stuck(false);
  const SpillFetched got = later.get_future().get();
  CHECK(got.error == SpillError::none);
  REQUIRE(got.end - got.begin == bytes.size());
  CHECK(std::equal(bytes.begin(), bytes.end(), got.buffer.data() + got.begin));
  wait_for([&] { return store.stats().disk_bytes == 0 && store.stats().parked_bytes == 0; });
}

TEST_CASE("ending_while_the_disk_is_busy_is_clean", "[spill]") {
  FakeDisk disk;
  MemoryBudget budget("budget", 0);
  const ByteVector bytes = random_bytes(300'000, 2);
  {
    SpillStore store({.limit_bytes = 64 * mib}, budget, std::make_unique<FakeFile>(disk));
    Buffer first = buffer_of(budget, bytes), second = buffer_of(budget, bytes);
    disk.set_stuck(true);
    auto writing = store.park(first, 0, bytes.size(), nullptr, 0);
    REQUIRE(writing);
    disk.wait_until_stuck();
    auto waiting = store.park(second, 0, bytes.size(), nullptr, 0);
    REQUIRE(waiting);
    writing.reset();  // dropped while it is written
    std::thread release([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      disk.set_stuck(false);
    });
    store.stop();
    release.join();
    CHECK(fetch(store, *waiting, budget).end == bytes.size());
  }
  CHECK(budget.usage().used_bytes == 0);
}

namespace {

// Parks, waits a little, fetches or drops, checks every byte.
void use_store(SpillStore& store, MemoryBudget& budget, unsigned seed, int rounds,
               std::atomic<int>& wrong, std::atomic<int>& checked) {
  std::mt19937 dice(seed);
  struct Held {
    ByteVector bytes;
    SpillTicket ticket;
    std::size_t fetched = 0;
  };
  std::vector<Held> held;
  for (int round = 0; round < rounds || !held.empty(); ++round) {
    if (round < rounds && held.size() < 6) {
      const std::size_t size = 1 + dice() % 400'000;
      const auto kind = static_cast<unsigned>(dice());
      ByteVector bytes = kind % 2 == 0 ? random_bytes(size, kind) : text_bytes(size, kind);
      Buffer buffer = buffer_of(budget, bytes);
      auto ticket = store.park(buffer, 0, size, nullptr, round);
      if (ticket) held.push_back({std::move(bytes), *std::move(ticket)});
      if (dice() % 3 == 0) std::this_thread::yield();
    }
    if (held.empty() || (round < rounds && dice() % 3 == 0)) continue;
    Held& one = held[dice() % held.size()];
    if (dice() % 8 == 0) {
      std::swap(one, held.back());
      held.pop_back();
      continue;
    }
    const SpillFetched got = fetch(store, one.ticket, budget);
    const std::size_t bytes = got.end - got.begin;
    const bool right = got.error == SpillError::none && one.fetched + bytes <= one.bytes.size() &&
                       std::equal(got.buffer.data() + got.begin, got.buffer.data() + got.end,
                                  one.bytes.data() + one.fetched);
    wrong += right ? 0 : 1;
    ++checked;
    one.fetched += bytes;
    if (!one.ticket.empty() && right) continue;
    wrong += right && one.fetched != one.bytes.size() ? 1 : 0;
    std::swap(one, held.back());
    held.pop_back();
  }
}

}  // namespace

TEST_CASE("many_threads_park_fetch_and_drop", "[spill]") {
  const test::TemporaryFolder folder;
  const bool with_file = GENERATE(true, false);
  std::unique_ptr<SpillFile> file;
  if (with_file) {
    OpenedSpillFile opened = open_spill_file(folder.path());
    INFO(opened.error);
    REQUIRE(opened.file);
    file = std::move(opened.file);
  }
  MemoryBudget process("process", 0);
  MemoryBudget raw("raw", 0, &process), spill("spill", 0, &process);
  std::atomic<int> wrong{0}, checked{0};
  {
    SpillStore store(
        {.limit_bytes = 4 * mib, .queue_max = 8, .piece_bytes = 64UL * 1024, .retry_ns = 0}, spill,
        std::move(file));
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] { use_store(store, raw, i + 1, 250, wrong, checked); });
    }
    for (std::thread& thread : threads) thread.join();
    wait_for([&] { return store.stats().parked_bytes == 0 && store.stats().disk_bytes == 0; });
    CHECK(store.stats().memory_bytes == 0);
    CHECK(store.stats().corrupt == 0);
  }
  CHECK(wrong == 0);
  CHECK(checked > 500);
  CHECK(process.usage().used_bytes == 0);
}

}  // namespace spillway
