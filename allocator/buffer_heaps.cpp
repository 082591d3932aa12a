#include "allocator/buffer_heaps.h"

#include <atomic>

#include "allocator/heaps.h"

namespace spillway {

namespace {
std::atomic<Heap*> chosen{nullptr};
std::atomic<std::uint64_t> switched{0};
}  // namespace

Heap& BufferHeaps::current() noexcept {
  Heap* heap = chosen.load(std::memory_order_acquire);
  if (heap != nullptr) return *heap;
  // No heap is selected yet: take the build's first one, unless another thread selects one at this moment.
  Heap* first = linked_heaps().front();
  return chosen.compare_exchange_strong(heap, first, std::memory_order_acq_rel) ? *first : *heap;
}

void BufferHeaps::select(Heap& heap) noexcept {
  Heap& before = current();
  if (&before == &heap) return;
  chosen.store(&heap, std::memory_order_release);
  switched.fetch_add(1, std::memory_order_relaxed);
}

bool BufferHeaps::select(std::string_view name) {
  Heap* heap = find_heap(name);
  if (heap != nullptr) select(*heap);
  return heap != nullptr;
}

std::uint64_t BufferHeaps::switches() noexcept { return switched.load(std::memory_order_relaxed); }

Heap* find_heap(std::string_view name) {
  for (Heap* heap : linked_heaps()) {
    if (heap->name() == name) return heap;
  }
  return nullptr;
}

}  // namespace spillway
