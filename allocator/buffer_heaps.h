// Which heap new payload blocks come from. It may change while blocks are out: each goes back to
// the heap that it came from.
#pragma once

#include <cstdint>
#include <string_view>

#include "allocator/heap.h"

namespace spillway {

// Process-wide, as malloc is. Thread-safe; current() is one load.
class BufferHeaps {
 public:
  static Heap& current() noexcept;
  // `heap` must live until the process ends.
  static void select(Heap& heap) noexcept;
  // False: this build has no heap of this name.
  static bool select(std::string_view name);
  static std::uint64_t switches() noexcept;
};

}  // namespace spillway
