#include "allocator/buffer.h"

#include <cassert>
#include <cstdint>
#include <cstring>

#include "allocator/buffer_heaps.h"
#include "allocator/small_blocks.h"

namespace spillway {

namespace {

struct BlockChoice {
  Heap* heap;  // null: small_blocks
  std::size_t bytes;
};

BlockChoice block_for(std::size_t capacity) noexcept {
  const std::size_t small = small_blocks::rounded(capacity);
  if (small < block_bytes_min) return {nullptr, small};
  Heap& heap = BufferHeaps::current();
  return {&heap, heap.block_bytes(capacity)};
}

}  // namespace

std::size_t Buffer::charged_bytes(std::size_t capacity) noexcept { return block_for(capacity).bytes; }

std::optional<Buffer> Buffer::allocate(MemoryBudget& budget, std::size_t capacity) noexcept {
  static_assert(block_bytes_min <= small_blocks::block_bytes_max);
  // No heap gives out more, and rounding up could wrap around.
  if (capacity > static_cast<std::size_t>(PTRDIFF_MAX)) return std::nullopt;
  const auto [heap, bytes] = block_for(capacity);
  auto reservation = budget.try_reserve(bytes);
  if (!reservation) return std::nullopt;
  Buffer buffer;
  if (heap != nullptr) {
    buffer.block_ = heap->take(capacity);
  } else {
    buffer.block_ = {static_cast<std::uint8_t*>(small_blocks::take(bytes)), bytes, nullptr, nullptr};
  }
  if (buffer.block_.data == nullptr) return std::nullopt;
  assert(buffer.block_.bytes == bytes);
  buffer.reservation_ = std::move(*reservation);
  return buffer;
}

void Buffer::give_back() noexcept {
  if (block_.heap != nullptr) {
    block_.heap->give_back(block_);
  } else {
    small_blocks::give_back(block_.data, block_.bytes);
  }
}

void Buffer::append(const void* from, std::size_t bytes) noexcept {
  assert(bytes <= room());
  std::memcpy(block_.data + size_, from, bytes);
  size_ += bytes;
}

}  // namespace spillway
