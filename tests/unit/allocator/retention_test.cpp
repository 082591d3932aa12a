// Kept bytes count against the limit and go first.
#include "allocator/retention.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "allocator/heaps.h"
#include "allocator/memory_layer.h"
#include "tests/unit/allocator/heap_support.h"
#include "tests/support/units.h"

namespace spillway {
namespace {

using test::mib;

class KeepingReset {
 public:
  KeepingReset() { Retention::reset(); }
  ~KeepingReset() { Retention::reset(); }
};

std::vector<Block> take_and_touch(Heap& heap, std::size_t bytes, std::size_t total) {
  std::vector<Block> blocks;
  for (std::size_t at = 0; at < total; at += bytes) {
    blocks.push_back(heap.take(bytes));
    REQUIRE(blocks.back().data != nullptr);
    std::memset(blocks.back().data, 0x3c, blocks.back().bytes);
  }
  return blocks;
}

TEST_CASE("heaps keep below half of the room, nothing beyond, and again when it is calm",
          "[keeping]") {
  const KeepingReset reset;
  int changes = 0;
  const std::uint64_t before = Retention::in_use_bytes();
  Retention::set_up(
      2 * (before + 10 * mib), [](void* count) noexcept { ++*static_cast<int*>(count); }, &changes);
  Retention::taken(10 * mib);
  CHECK(Retention::allowed());
  Retention::taken(1);
  CHECK_FALSE(Retention::allowed());
  CHECK_FALSE(Retention::gone());
  CHECK(changes == 1);
  Retention::taken(mib);
  CHECK(changes == 1);
  { const Retention::Pass pass; }
  CHECK(Retention::gone());
  Retention::review(1'000'000'000);
  Retention::freed(4 * mib + 1);  // below three eighths
  Retention::review(2'000'000'000);
  Retention::review(2'900'000'000);
  CHECK(Retention::gone());
  Retention::taken(3 * mib);  // again over it: the time begins anew
  Retention::review(2'950'000'000);
  Retention::freed(3 * mib);
  Retention::review(4'900'000'000);
  CHECK(Retention::gone());
  Retention::review(4'950'000'000);
  CHECK(Retention::allowed());
  CHECK(changes == 2);
  Retention::freed(7 * mib);
  CHECK(Retention::in_use_bytes() == before);
}

TEST_CASE("a pass that began while heaps kept does not say that nothing is kept", "[keeping]") {
  const KeepingReset reset;
  Retention::set_up(2 * mib, nullptr, nullptr);
  {
    const Retention::Pass pass;
    Retention::taken(Retention::in_use_bytes() + 2 * mib);
  }
  CHECK_FALSE(Retention::allowed());
  CHECK_FALSE(Retention::gone());
  Retention::freed(2 * mib);
}

TEST_CASE("without room to keep, freed blocks leave at once, of every size and heap", "[keeping]") {
  if (sanitized) return;  // their malloc keeps what it likes
  for (Heap* heap : linked_heaps()) {
    for (const std::size_t bytes :
         {std::size_t{16'000}, std::size_t{100'000}, mib / 2, mib, 16 * mib}) {
      INFO(heap->name() << ", blocks of " << bytes);
      const KeepingReset reset;
      RecordingPacer pacer;
      heap->release(pacer);
      const std::uint64_t idle = resident_bytes();
      Retention::set_up(2 * (Retention::in_use_bytes() + 16 * mib), nullptr, nullptr);
      std::vector<Block> blocks = take_and_touch(*heap, bytes, 64 * mib);
      CHECK_FALSE(Retention::allowed());
      CHECK(resident_bytes() > idle + 48 * mib);  // the kernel may have reclaimed pages of the program meanwhile
      // The even ones first: each block's neighbours are still in use.
      for (std::size_t i = 0; i < blocks.size(); i += 2) heap->give_back(blocks[i]);
      CHECK(resident_bytes() < idle + 36 * mib);
      for (std::size_t i = 1; i < blocks.size(); i += 2) heap->give_back(blocks[i]);
      CHECK(resident_bytes() < idle + 4 * mib);
      heap->release(pacer);
      CHECK(heap->usage().kept_bytes < mib);
    }
  }
}

TEST_CASE("a heap's account of what it keeps holds while nothing is to be kept", "[keeping]") {
  if (sanitized) return;
  for (Heap* heap : linked_heaps()) {
    INFO(heap->name());
    const KeepingReset reset;
    RecordingPacer pacer;
    heap->release(pacer);
    Retention::set_up(2 * (Retention::in_use_bytes() + 8 * mib), nullptr, nullptr);
    std::vector<Block> blocks = take_and_touch(*heap, mib, 16 * mib);
    {
      const Retention::Pass pass;
      heap->release(pacer);
    }
    REQUIRE(Retention::gone());
    const std::vector<Block> others = take_and_touch(*heap, 50'000, 16 * mib);
    for (const Block& block : blocks) heap->give_back(block);
    CHECK(heap->usage().kept_bytes < 2 * mib);
    for (const Block& block : others) heap->give_back(block);
    CHECK(heap->usage().kept_bytes < 2 * mib);
  }
}

TEST_CASE("what threads keep one after the other fits into the room", "[keeping]") {
  if (sanitized) return;
  for (Heap* heap : linked_heaps()) {
    INFO(heap->name());
    const KeepingReset reset;
    RecordingPacer pacer;
    heap->release(pacer);
    const std::uint64_t room = Retention::in_use_bytes() + 64 * mib;
    bool ended = false;
    Retention::set_up(room, [](void* flag) noexcept { *static_cast<bool*>(flag) = true; }, &ended);
    std::uint64_t highest = 0;
    const auto use = [&] {  // each thread has an arena of its own
      std::vector<Block> blocks;
      for (int i = 0; i < 24; ++i) {
        blocks.push_back(heap->take(mib));
        std::memset(blocks.back().data, 0x22, blocks.back().bytes);
        if (std::exchange(ended, false)) {
          const Retention::Pass pass;
          heap->release(pacer);
        }
        highest = std::max(highest, Retention::in_use_bytes() + heap->usage().kept_bytes);
      }
      for (const Block& block : blocks) heap->give_back(block);
    };
    for (int i = 0; i < 8; ++i) std::thread(use).join();
    CHECK(highest / mib <= room / mib);
  }
}

// Twelve phases of blocks of one size and of another, over each heap.
void change_sizes(int steps) {
  if (sanitized) return;
  constexpr std::size_t room = 96 * mib;
  for (Heap* heap : linked_heaps()) {
    INFO(heap->name());
    const KeepingReset reset;
    MemoryLayer layer;
    MemoryLayerSettings settings;
    settings.choice = *find_allocator_choice(heap->name());
    settings.limit_bytes = resident_bytes() + room;
    REQUIRE_FALSE(layer.start(settings, nullptr, nullptr));
    const std::uint64_t idle = resident_bytes();
    std::mt19937_64 random(7);
    std::vector<Block> blocks;
    std::size_t held = 0;
    std::uint64_t highest = 0;
    const std::size_t sizes[] = {16'000, 90'000, 200'000, mib, 4 * mib, 16 * mib};
    for (int step = 0; step < steps; ++step) {
      // Phases of one size and of another, in which half or all of the payload's share is held.
      const std::size_t bytes = sizes[(random() % 4 + static_cast<std::size_t>(step * 6 / steps)) % 6];
      const std::size_t most = (step * 12 / steps % 2 == 0 ? 40 : 84) * mib;
      while (held + heap->block_bytes(bytes) > most) {
        std::swap(blocks[random() % blocks.size()], blocks.back());
        held -= blocks.back().bytes;
        heap->give_back(blocks.back());
        blocks.pop_back();
      }
      blocks.push_back(heap->take(bytes));
      std::memset(blocks.back().data, 0x11, blocks.back().bytes);
      held += blocks.back().bytes;
      highest = std::max(highest, resident_bytes());
    }
    CHECK((highest - idle) / mib <= room / mib);
    for (const Block& block : blocks) heap->give_back(block);
    layer.stop();
  }
}

TEST_CASE("RSS stays under the limit through changing sizes of blocks", "[keeping]") { change_sizes(600); }

TEST_CASE("RSS stays under the limit through many changing sizes of blocks", "[keeping][stress]") {
  change_sizes(3000);
}

}  // namespace
}  // namespace spillway
