// The heap over the C library's malloc; in sanitizer builds over the sanitizer's, block by block.
#pragma once

#include "allocator/heap.h"

namespace spillway {

Heap& system_heap();

}  // namespace spillway
