// The heap over jemalloc: a few arenas of its own, without thread caches.
#pragma once

#include "allocator/heap.h"

namespace spillway {

Heap& jemalloc_heap();

// For jemalloc as the process's malloc.
namespace jemalloc_plain {
void flush_thread_cache() noexcept;
void release(SlicePacer& pacer) noexcept;
HeapUsage usage() noexcept;
}  // namespace jemalloc_plain

}  // namespace spillway
