// The heap over plain malloc, block by block, for builds with a sanitizer.
#pragma once

#include "allocator/heap.h"

namespace spillway {

Heap& system_heap();

}  // namespace spillway
