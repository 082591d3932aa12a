// Switching the heap of new buffers while old ones are out.
#include "allocator/buffer_heaps.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "allocator/buffer.h"
#include "allocator/heaps.h"
#include "tests/unit/allocator/heap_support.h"

namespace spillway {
namespace {

// The heap that was current is current again afterwards.
class HeapRestored {
 public:
  HeapRestored() : before_(BufferHeaps::current()) {}
  HeapRestored(const HeapRestored&) = delete;
  HeapRestored& operator=(const HeapRestored&) = delete;
  ~HeapRestored() { BufferHeaps::select(before_); }

 private:
  Heap& before_;
};

FakeHeap& fake(int index) {
  static std::array<FakeHeap*, 2> heaps = {new FakeHeap("first"), new FakeHeap("second")};
  return *heaps[static_cast<std::size_t>(index)];
}

TEST_CASE("a buffer goes back to the heap it came from", "[buffer_heaps]") {
  const HeapRestored restored;
  MemoryBudget budget("budget", 0);
  const std::uint64_t switches = BufferHeaps::switches();
  BufferHeaps::select(fake(0));
  auto old = Buffer::allocate(budget, 100'000);
  REQUIRE(old);
  BufferHeaps::select(fake(1));
  auto young = Buffer::allocate(budget, 3'000'000);
  REQUIRE(young);
  CHECK(BufferHeaps::switches() == switches + 2);
  CHECK(fake(0).usage().in_use_bytes == old->capacity());
  CHECK(fake(1).usage().in_use_bytes == young->capacity());
  CHECK(budget.usage().used_bytes == old->capacity() + young->capacity());
  old->reset();
  CHECK(fake(0).usage().in_use_bytes == 0);
  CHECK(fake(1).usage().in_use_bytes == young->capacity());
  *young = Buffer();
  CHECK(fake(1).usage().in_use_bytes == 0);
  CHECK(budget.usage().used_bytes == 0);
}

TEST_CASE("a heap is selected by name, an unknown one is not", "[buffer_heaps]") {
  const HeapRestored restored;
  const std::string_view last = linked_heaps().back()->name();
  CHECK(BufferHeaps::select(last));
  CHECK(BufferHeaps::current().name() == last);
  CHECK_FALSE(BufferHeaps::select("nonesuch"));
  CHECK(BufferHeaps::current().name() == last);
}

TEST_CASE("small buffers are malloc's", "[buffer_heaps]") {
  const HeapRestored restored;
  BufferHeaps::select(fake(0));
  MemoryBudget budget("budget", 0);
  auto small = Buffer::allocate(budget, 8'000);
  REQUIRE(small);
  CHECK(fake(0).usage().in_use_bytes == 0);
  auto large = Buffer::allocate(budget, 16 * 1024);
  REQUIRE(large);
  CHECK(fake(0).usage().in_use_bytes == 16 * 1024);
}

TEST_CASE("a heap without memory refuses the buffer and leaves no charge", "[buffer_heaps]") {
  const HeapRestored restored;
  BufferHeaps::select(fake(0));
  fake(0).pages_limit = fake(0).pages_in_use.load() + span_bytes;
  MemoryBudget budget("budget", 0);
  CHECK_FALSE(Buffer::allocate(budget, 5'000'000));
  CHECK(budget.usage().used_bytes == 0);
  fake(0).pages_limit = UINT64_MAX;
}

// Threads take, hold, hand over and drop buffers while the heap changes and releases run.
void switch_under_load(const std::vector<Heap*>& heaps, int rounds) {
  const HeapRestored restored;
  MemoryBudget budget("budget", 0);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0}, taken{0};
  constexpr int threads_total = 3;
  std::array<std::mutex, 8> shelf_locks;
  std::array<Buffer, 8> shelf;  // through which buffers change their thread
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<Buffer> held;
    while (!stop.load()) {
      const std::size_t capacity = std::size_t{1} << (10 + random() % 12);
      auto buffer = Buffer::allocate(budget, capacity + random() % capacity);
      if (!buffer) {
        ++wrong;
        break;
      }
      ++taken;
      const auto mark = static_cast<std::uint8_t>(random());
      buffer->data()[0] = buffer->data()[buffer->capacity() - 1] = mark;
      held.push_back(std::move(*buffer));
      if (held.size() < 8) continue;
      const std::size_t at = random() % held.size();
      wrong += held[at].data()[0] != held[at].data()[held[at].capacity() - 1];
      const std::size_t place = random() % shelf.size();
      const std::lock_guard lock(shelf_locks[place]);
      std::swap(shelf[place], held[at]);
      held[at] = std::move(held.back());
      held.pop_back();
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < threads_total; ++i) threads.emplace_back(work, 100 + i);
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t enough = taken.load() + 200;
    BufferHeaps::select(*heaps[static_cast<std::size_t>(round) % heaps.size()]);
    while (taken.load() < enough && wrong.load() == 0) std::this_thread::yield();
    RecordingPacer pacer;
    pacer.slices_max = 512;  // else a release of the heap in use goes on for as long as the threads give back more
    heaps[static_cast<std::size_t>(round / 2) % heaps.size()]->release(pacer);
    CHECK(pacer.open == 0);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (Buffer& buffer : shelf) buffer.reset();
  CHECK(wrong.load() == 0);
  CHECK(budget.usage().used_bytes == 0);
  for (Heap* heap : heaps) {
    INFO(heap->name());
    CHECK(heap->usage().in_use_bytes == 0);
  }
}

TEST_CASE("heaps are switched under load: fakes", "[buffer_heaps][thread]") {
  switch_under_load({&fake(0), &fake(1)}, 60);
  RecordingPacer pacer;
  fake(0).release(pacer);
  fake(1).release(pacer);
  CHECK(fake(0).pages_in_use.load() == 0);
  CHECK(fake(1).pages_in_use.load() == 0);
}

// sbrk() is not thread-safe and glibc's malloc calls it under a lock of its own: a heap that calls it too may be given
// the same memory.
TEST_CASE("growing heaps leave the program break to malloc", "[buffer_heaps]") {
  for (Heap* heap : linked_heaps()) {
    INFO(heap->name());
    std::vector<Block> blocks;
    blocks.reserve(64);
    const void* const program_break = ::sbrk(0);
    for (int i = 0; i < 64; ++i) blocks.push_back(heap->take(4 << 20));
    CHECK(::sbrk(0) == program_break);
    for (const Block& block : blocks) {
      CHECK(block.data != nullptr);
      heap->give_back(block);
    }
    RecordingPacer pacer;
    heap->release(pacer);
  }
}

TEST_CASE("heaps are switched under load: this build's own", "[buffer_heaps][thread]") {
  const auto heaps = linked_heaps();
  switch_under_load({heaps.begin(), heaps.end()}, 60);
}

}  // namespace
}  // namespace spillway
