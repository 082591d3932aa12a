// The heap over gperftools' tcmalloc.
#pragma once

#include "allocator/heap.h"

namespace spillway {

Heap& tcmalloc_heap();

// For tcmalloc as the process's malloc. Its page heap is the same as the one above: kept memory is
// counted, and released, there.
namespace tcmalloc_plain {
void flush_thread_cache() noexcept;
HeapUsage usage() noexcept;
}  // namespace tcmalloc_plain

}  // namespace spillway
