// Normal builds: both libraries are linked; jemalloc is named first.
#include <array>

#include "allocator/heap_jemalloc.h"
#include "allocator/heap_system.h"
#include "allocator/heap_tcmalloc.h"
#include "allocator/heaps.h"
#include "allocator/libc_malloc.h"

namespace spillway {

std::span<Heap* const> linked_heaps() {
  static const std::array<Heap*, 3> heaps = {&jemalloc_heap(), &tcmalloc_heap(), &system_heap()};
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
  if (kind() == "glibc") libc_malloc_release(pacer);
}

HeapUsage usage() noexcept {
  if (kind() == "jemalloc") return jemalloc_plain::usage();
  if (kind() == "tcmalloc") return tcmalloc_plain::usage();
  return kind() == "glibc" ? libc_malloc_usage() : HeapUsage{};
}

}  // namespace plain_malloc

}  // namespace spillway
