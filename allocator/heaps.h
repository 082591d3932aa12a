// The heaps that this program is linked with, and the process's own malloc.
//
// jemalloc and tcmalloc are both in a normal build: the one named first on the link line serves
// malloc, the other is reached by its own names. A build with a sanitizer or for fuzzing cannot
// hold two of them: there only `system` exists. CMake decides which (SPILLWAY_HEAPS): it links heaps_all.cpp or
// heaps_system.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "allocator/heap.h"

namespace spillway {

// Immortal; made on first use. The first is the one to begin with. Any thread.
std::span<Heap* const> linked_heaps();
// nullptr: this build has no such heap.
Heap* find_heap(std::string_view name);

// The malloc that serves everything that is not a block of a heap.
namespace plain_malloc {

// The file whose `malloc` this process calls, as the dynamic linker bound it: "libjemalloc.so.2".
std::string library();
// "jemalloc", "tcmalloc", or "other" (a sanitizer's, one that was preloaded).
std::string_view kind();
// Gives the calling thread's cache of free memory back to its heap.
void flush_thread_cache() noexcept;
// Returns its free memory to the operating system; jemalloc's and tcmalloc's alone.
void release(SlicePacer& pacer) noexcept;
// Only kept and in use, of the same two.
HeapUsage usage() noexcept;

}  // namespace plain_malloc

}  // namespace spillway
