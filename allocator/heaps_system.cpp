// Builds that cannot hold a second malloc: only the system's.
#include <array>

#include "allocator/heap_system.h"
#include "allocator/heaps.h"

namespace spillway {

std::span<Heap* const> linked_heaps() {
  static const std::array<Heap*, 1> heaps = {&system_heap()};
  return heaps;
}

namespace plain_malloc {

void flush_thread_cache() noexcept {}

void release(SlicePacer&) noexcept {}

HeapUsage usage() noexcept { return {}; }

}  // namespace plain_malloc

}  // namespace spillway
