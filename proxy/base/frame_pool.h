// Recycles coroutine frames: a free list per thread and size class, so that a request in steady state
// allocates no frame. A frame may be given back on another thread than it was taken on.
#pragma once

#include <cstddef>

namespace spillway::frame_pool {

void* take(std::size_t bytes);
void give(void* frame, std::size_t bytes) noexcept;
// Frames handed out by malloc rather than from a list, on this thread: for tests.
std::size_t misses() noexcept;

}  // namespace spillway::frame_pool
