// The heap of builds without jemalloc and tcmalloc: each block is one allocation, so that a sanitizer sees its bounds
// and its life.
#include <cstdlib>

#include "allocator/heap_system.h"
#include "allocator/retention.h"
#include "allocator/span_pool.h"

namespace spillway {

namespace {

constexpr std::size_t system_page_bytes = 4096;

class PlainHeap final : public Heap {
 public:
  PlainHeap() : Heap("system") {}

  std::size_t block_bytes(std::size_t bytes) const noexcept override {
    if (SpanPool::serves(bytes)) return SpanPool::class_bytes(SpanPool::class_of(bytes));
    if (bytes <= span_bytes) return span_bytes;
    return (bytes + system_page_bytes - 1) / system_page_bytes * system_page_bytes;
  }
  Block take(std::size_t bytes) noexcept override {
    Block block{nullptr, block_bytes(bytes), this, nullptr};
    block.data = static_cast<std::uint8_t*>(std::malloc(block.bytes));
    if (block.data == nullptr) return {};
    count_taken(block.bytes);
    Retention::taken(block.bytes);
    return block;
  }
  void give_back(const Block& block) noexcept override {
    std::free(block.data);
    count_freed(block.bytes);
    Retention::freed(block.bytes);
  }
  void release(SlicePacer&) noexcept override {}
  HeapUsage usage() const noexcept override {
    const std::uint64_t freed = freed_bytes();
    return {in_use_bytes(), 0, freed, taken_bytes()};
  }
  bool decays() const noexcept override { return false; }
};

}  // namespace

Heap& system_heap() {
  static Heap* const heap = new PlainHeap;
  return *heap;
}

}  // namespace spillway
