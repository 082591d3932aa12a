// The heaps that this build is linked with, and the process's malloc.
#include "allocator/heaps.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "allocator/buffer_heaps.h"
#include "tests/unit/allocator/heap_support.h"
#include "tests/support/units.h"

extern "C" void* pvalloc(std::size_t bytes) noexcept;

namespace spillway {
namespace {

constexpr std::size_t kib = 1024;
using test::mib;

std::string library_of(const char* symbol) {
  Dl_info info{};
  void* address = ::dlsym(RTLD_DEFAULT, symbol);
  if (address == nullptr || ::dladdr(address, &info) == 0) return "";
  return info.dli_fname;
}

std::vector<Block> take_and_touch(Heap& heap, std::size_t bytes, std::size_t total) {
  std::vector<Block> blocks;
  for (std::size_t at = 0; at < total; at += bytes) {
    blocks.push_back(heap.take(bytes));
    REQUIRE(blocks.back().data != nullptr);
    std::memset(blocks.back().data, 0x5a, blocks.back().bytes);
  }
  return blocks;
}

void give_back_all(Heap& heap, std::vector<Block>& blocks) {
  for (const Block& block : blocks) heap.give_back(block);
  blocks.clear();
}

TEST_CASE("what returns memory shares free's library", "[heaps]") {
  // Every name of the malloc family that programs and libraries call, and operator new and delete.
  const char* const names[] = {"malloc",
                               "calloc",
                               "realloc",
                               "posix_memalign",
                               "aligned_alloc",
                               "memalign",
                               "valloc",
                               "malloc_usable_size",
                               "_Znwm",
                               "_Znam",
                               "_ZnwmRKSt9nothrow_t",
                               "_ZnamRKSt9nothrow_t",
                               "_ZnwmSt11align_val_t",
                               "_ZnamSt11align_val_t",
                               "_ZnwmSt11align_val_tRKSt9nothrow_t",
                               "_ZnamSt11align_val_tRKSt9nothrow_t",
                               "_ZdlPv",
                               "_ZdaPv",
                               "_ZdlPvm",
                               "_ZdaPvm",
                               "_ZdlPvRKSt9nothrow_t",
                               "_ZdaPvRKSt9nothrow_t",
                               "_ZdlPvSt11align_val_t",
                               "_ZdaPvSt11align_val_t",
                               "_ZdlPvmSt11align_val_t",
                               "_ZdaPvmSt11align_val_t"};
  const std::string owner = library_of("free");
  REQUIRE_FALSE(owner.empty());
  for (const char* name : names) {
    INFO(name);
    const std::string library = library_of(name);
    if (find_heap("jemalloc") != nullptr || name[0] != '_') {
      CHECK(library == owner);
    } else {
      // libstdc++'s own operators call malloc.
      CHECK((library == owner || library.find("libstdc++") != std::string::npos));
    }
  }
  CHECK(owner.find(plain_malloc::library()) != std::string::npos);
}

TEST_CASE("pvalloc is this program's and hands on to malloc's library", "[heaps]") {
  void* memory = ::pvalloc(5000);
  REQUIRE(memory != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(memory) %
            static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) ==
        0);
  std::memset(memory, 1, 8192);
  std::free(memory);
  CHECK(library_of("pvalloc").find("tcmalloc") == std::string::npos);
  // volatile: the compiler knows that no block can be so large, and warns.
  volatile std::size_t too_large = SIZE_MAX - 10;
  CHECK(::pvalloc(too_large) == nullptr);
}

TEST_CASE("a build names its malloc and has the heaps that go with it", "[heaps]") {
  INFO(plain_malloc::library());
  CHECK(find_heap("mimalloc") == nullptr);
  const bool both = find_heap("jemalloc") != nullptr;
  CHECK(both == (find_heap("system") == nullptr));
  CHECK(both == (find_heap("tcmalloc") != nullptr));
  if (both && std::getenv("LD_PRELOAD") == nullptr) CHECK(plain_malloc::kind() == "jemalloc");
}

TEST_CASE("a block is as large as the heap said, and counted", "[heaps]") {
  for (Heap* heap : linked_heaps()) {
    INFO(heap->name());
    const HeapUsage before = heap->usage();
    for (const std::size_t bytes :
         {16 * kib, 17 * kib, 33 * kib, 64 * kib, 168'000UL, 256 * kib, 300 * kib, 512 * kib,
          513 * kib, mib, mib + 1, 3 * mib, 16 * mib + 16 * kib}) {
      INFO(bytes);
      const Block block = heap->take(bytes);
      REQUIRE(block.data != nullptr);
      CHECK(block.bytes >= bytes);
      CHECK(block.bytes == heap->block_bytes(bytes));
      CHECK(block.bytes <= (bytes <= mib ? 2 * bytes : bytes + bytes / 4));
      CHECK(block.heap == heap);
      std::memset(block.data, 0x77, block.bytes);
      CHECK(heap->usage().in_use_bytes == before.in_use_bytes + block.bytes);
      heap->give_back(block);
      CHECK(heap->usage().in_use_bytes == before.in_use_bytes);
    }
    CHECK(heap->usage().taken_bytes > before.taken_bytes);
  }
}

TEST_CASE("block_bytes is a fixed point: a block's own size asks for no more", "[heaps]") {
  for (Heap* heap : linked_heaps()) {
    for (std::size_t bytes = block_bytes_min; bytes < 70 * mib; bytes = bytes * 21 / 20 + 7) {
      const std::size_t whole = heap->block_bytes(bytes);
      INFO(heap->name() << " " << bytes);
      CHECK(heap->block_bytes(whole) == whole);
    }
  }
}

TEST_CASE("freed blocks of every size go back to the system, in slices", "[heaps]") {
  constexpr std::size_t total = 128 * mib;
  for (Heap* heap : linked_heaps()) {
    for (const std::size_t bytes : {16 * kib, 64 * kib, 168'000UL, mib, 5 * mib, 16 * mib}) {
      INFO(heap->name() << ", blocks of " << bytes);
      RecordingPacer clean;
      heap->release(clean);
      const std::uint64_t given_back = heap->usage().given_back_bytes;
      const std::uint64_t idle = resident_bytes();
      std::vector<Block> blocks = take_and_touch(*heap, bytes, total);
      // A sanitizer keeps freed memory on purpose, and takes it again: what is resident says nothing.
      if (!sanitized) CHECK(resident_bytes() > idle + total * 9 / 10);
      give_back_all(*heap, blocks);
      RecordingPacer pacer;
      heap->release(pacer);
      if (sanitized) continue;
      CHECK(resident_bytes() < idle + 8 * mib);
      CHECK(heap->usage().kept_bytes < 8 * mib);
      CHECK(heap->usage().given_back_bytes >= given_back + total * 9 / 10);
      CHECK(pacer.largest <= release_slice_bytes);
      CHECK(pacer.open == 0);
    }
  }
}

TEST_CASE("a survivor in every span pins no more than itself", "[heaps]") {
  constexpr std::size_t total = 128 * mib;
  for (Heap* heap : linked_heaps()) {
    if (sanitized) continue;
    INFO(heap->name());
    RecordingPacer pacer;
    heap->release(pacer);
    const std::uint64_t idle = resident_bytes();
    std::vector<Block> blocks = take_and_touch(*heap, 16 * kib, total);
    std::vector<Block> survivors, freed;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      (i % 64 == 17 ? survivors : freed).push_back(blocks[i]);
    }
    give_back_all(*heap, freed);
    heap->release(pacer);
    CHECK(resident_bytes() < idle + survivors.size() * 16 * kib + 8 * mib);
    for (const Block& block : survivors) {
      CHECK(std::all_of(block.data, block.data + block.bytes,
                        [](std::uint8_t b) { return b == 0x5a; }));
    }
    give_back_all(*heap, survivors);
    heap->release(pacer);
    CHECK(resident_bytes() < idle + 8 * mib);
  }
}

TEST_CASE("memory that was given back can be taken again", "[heaps]") {
  for (Heap* heap : linked_heaps()) {
    INFO(heap->name());
    for (int round = 0; round < 3; ++round) {
      std::vector<Block> blocks = take_and_touch(*heap, 64 * kib, 16 * mib);
      std::vector<Block> large = take_and_touch(*heap, 3 * mib, 16 * mib);
      give_back_all(*heap, blocks);
      RecordingPacer pacer;
      heap->release(pacer);
      for (const Block& block : large) {
        CHECK(std::all_of(block.data, block.data + block.bytes,
                          [](std::uint8_t b) { return b == 0x5a; }));
      }
      give_back_all(*heap, large);
    }
    CHECK(heap->usage().in_use_bytes == 0);
  }
}

TEST_CASE("a release that is told to stop stops, and the next one finishes", "[heaps]") {
  for (Heap* heap : linked_heaps()) {
    if (sanitized) continue;
    INFO(heap->name());
    RecordingPacer clean;
    heap->release(clean);
    const std::uint64_t idle = resident_bytes();
    std::vector<Block> blocks = take_and_touch(*heap, 256 * kib, 64 * mib);
    give_back_all(*heap, blocks);
    RecordingPacer short_pacer;
    short_pacer.slices_max = 3;
    heap->release(short_pacer);
    RecordingPacer pacer;
    heap->release(pacer);
    CHECK(resident_bytes() < idle + 8 * mib);
  }
}

TEST_CASE("plain malloc's free memory is returned too", "[heaps]") {
  if (sanitized) return;
  RecordingPacer pacer;
  plain_malloc::release(pacer);
  const std::uint64_t idle = resident_bytes();
  std::vector<std::vector<char>> many;
  for (int i = 0; i < 64'000; ++i) many.emplace_back(1000, 'x');
  CHECK(resident_bytes() > idle + 48 * mib);
  many = {};
  plain_malloc::flush_thread_cache();
  plain_malloc::release(pacer);
  CHECK(resident_bytes() < idle + 8 * mib);
}

}  // namespace
}  // namespace spillway
