// Normal builds: both libraries are linked; jemalloc is named first.
#include <array>

#include "allocator/heap_jemalloc.h"
#include "allocator/heap_tcmalloc.h"
#include "allocator/heaps.h"

namespace spillway {

std::span<Heap* const> linked_heaps() {
  static const std::array<Heap*, 2> heaps = {&jemalloc_heap(), &tcmalloc_heap()};
  return heaps;
}

namespace plain_malloc {

void flush_thread_cache() noexcept {
  if (kind() == "jemalloc") jemalloc_plain::flush_thread_cache();
  if (kind() == "tcmalloc") tcmalloc_plain::flush_thread_cache();
}

void release(SlicePacer& pacer) noexcept {
  if (kind() == "jemalloc") jemalloc_plain::release(pacer);
  if (kind() == "tcmalloc") tcmalloc_heap().release(pacer);
}

HeapUsage usage() noexcept {
  if (kind() == "jemalloc") return jemalloc_plain::usage();
  return kind() == "tcmalloc" ? tcmalloc_plain::usage() : HeapUsage{};
}

}  // namespace plain_malloc

}  // namespace spillway
