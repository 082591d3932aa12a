// glibc's own malloc, wherever `malloc` leads: looked up in libc itself, for gperftools defines
// __libc_malloc, mallopt and mallinfo too.
#pragma once

#include <malloc.h>

#include <cstddef>

#include "allocator/heap.h"

namespace spillway {

struct LibcMalloc {
  void* (*memalign)(std::size_t, std::size_t) = nullptr;
  void (*free)(void*) = nullptr;
  int (*mallopt)(int, int) = nullptr;
  int (*trim)(std::size_t) = nullptr;
  struct mallinfo2 (*info)() = nullptr;
};

// Never fails: a libc without them does not start this program (it aborts, naming the symbol).
const LibcMalloc& libc_malloc() noexcept;

// malloc_trim, in one slice: it holds an arena's lock while it walks it.
void libc_malloc_release(SlicePacer& pacer) noexcept;
HeapUsage libc_malloc_usage() noexcept;

}  // namespace spillway
