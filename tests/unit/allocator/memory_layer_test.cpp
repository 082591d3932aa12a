// The memory layer of a process: choosing a heap, giving memory back, one account.
#include "allocator/memory_layer.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "allocator/buffer.h"
#include "allocator/buffer_heaps.h"
#include "allocator/heaps.h"
#include "tests/unit/allocator/heap_support.h"
#include "tests/support/units.h"

namespace spillway {
namespace {

using test::mib;

class HeapRestored {
 public:
  ~HeapRestored() { BufferHeaps::select(before_); }
  Heap& before_ = BufferHeaps::current();
};

const HeapAccount& account_of(const MemoryAccount& account, std::string_view name) {
  for (const HeapAccount& heap : account.heaps) {
    if (heap.name == name) return heap;
  }
  FAIL("no heap " << name);
  return account.heaps.front();
}

TEST_CASE("the configured heap serves from the start, and another when chosen", "[memory_layer]") {
  const HeapRestored restored;
  std::vector<std::string> switches;
  MemoryLayer layer;
  MemoryLayerSettings settings;
  const std::string first(linked_heaps().front()->name());
  settings.choice = find_allocator_choice(first).value();
  REQUIRE_FALSE(layer.start(
      settings, [&](const PolicyDecision& decision) { switches.emplace_back(decision.heap); },
      nullptr));
  CHECK(BufferHeaps::current().name() == first);
  CHECK(layer.choice() == settings.choice);
  CHECK(layer.description().find(plain_malloc::library()) != std::string::npos);
  CHECK(layer.description().find("buffers: " + first + " (memory.allocator: " + first + ")") != std::string::npos);
  if (find_heap("tcmalloc") != nullptr) {
    CHECK_FALSE(layer.choose(AllocatorChoice::tcmalloc));
    CHECK(BufferHeaps::current().name() == "tcmalloc");
    CHECK(switches == std::vector<std::string>{"tcmalloc"});
    CHECK(layer.account().switches == 1);
    CHECK(layer.account().last_switch_ns);
    CHECK(layer.choose(AllocatorChoice::system) == "this build has no heap \"system\", only jemalloc, tcmalloc");
    CHECK(BufferHeaps::current().name() == "tcmalloc");
  } else {
    const auto missing = layer.choose(AllocatorChoice::tcmalloc);
    REQUIRE(missing);
    CHECK(*missing == "this build has no heap \"tcmalloc\", only system");
    CHECK(layer.choice() == AllocatorChoice::system);
    CHECK(BufferHeaps::current().name() == "system");
  }
}

TEST_CASE("auto begins with the build's first heap", "[memory_layer]") {
  const HeapRestored restored;
  MemoryLayer layer;
  REQUIRE_FALSE(layer.start({}, nullptr, nullptr));
  CHECK(BufferHeaps::current().name() == linked_heaps().front()->name());
  for (std::int64_t second = 1; second < 5; ++second)
    layer.tick(steady_now_ns() + second * 1'000'000'000);
  CHECK(layer.account().switches == 0);
}

TEST_CASE("a layer that was not started changes and releases nothing", "[memory_layer]") {
  const HeapRestored restored;
  MemoryLayer layer;
  Heap& before = BufferHeaps::current();
  layer.tick(1);
  layer.releaser().request(ReleaseReason::kill);
  CHECK(&BufferHeaps::current() == &before);
  CHECK(layer.account().releases.releases == 0);
}

TEST_CASE("the account names what is held, by heap", "[memory_layer]") {
  const HeapRestored restored;
  MemoryLayer layer;
  REQUIRE_FALSE(layer.start({}, nullptr, nullptr));
  for (Heap* heap : linked_heaps()) {
    BufferHeaps::select(*heap);
    MemoryBudget budget("budget", 0);
    const std::uint64_t before = account_of(layer.account(), heap->name()).usage.in_use_bytes;
    auto buffer = Buffer::allocate(budget, 3 * mib);
    REQUIRE(buffer);
    const MemoryAccount account = layer.account();
    CHECK(account_of(account, heap->name()).current);
    CHECK(account_of(account, heap->name()).usage.in_use_bytes == before + buffer->capacity());
    CHECK(account.resident_bytes > mib);
  }
}

TEST_CASE("once the load is over, memory goes back without being asked for", "[memory_layer]") {
  const HeapRestored restored;
  MemoryLayer layer;
  MemoryLayerSettings settings;
  settings.release.quiet_ns = 1'000'000;
  REQUIRE_FALSE(layer.start(settings, nullptr, nullptr));
  {
    MemoryBudget budget("budget", 0);
    std::vector<Buffer> buffers;
    for (int i = 0; i < 32; ++i) {
      buffers.push_back(*Buffer::allocate(budget, mib));
      std::memset(buffers.back().data(), 1, mib);
    }
  }
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (layer.account().releases.releases == 0 && std::chrono::steady_clock::now() < patience) {
    layer.tick(steady_now_ns());
  }
  const MemoryAccount account = layer.account();
  REQUIRE(account.releases.releases >= 1);
  CHECK(account.releases.history.front().reasons != 0);
  for (const HeapAccount& heap : account.heaps) CHECK(heap.usage.kept_bytes < 4 * mib);
}

}  // namespace
}  // namespace spillway
