// Builds that cannot hold a second malloc: only the system's.
#include <array>

#include "allocator/heap_system.h"
#include "allocator/heaps.h"
#include "allocator/libc_malloc.h"

namespace spillway {

std::span<Heap* const> linked_heaps() {
  static const std::array<Heap*, 1> heaps = {&system_heap()};
  return heaps;
}

namespace plain_malloc {

void flush_thread_cache() noexcept {}

void release(SlicePacer& pacer) noexcept {
  if (kind() == "glibc") libc_malloc_release(pacer);
}

HeapUsage usage() noexcept { return kind() == "glibc" ? libc_malloc_usage() : HeapUsage{}; }

}  // namespace plain_malloc

}  // namespace spillway
