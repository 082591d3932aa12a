#include "allocator/buffer.h"

#include <cassert>
#include <cstdint>
#include <cstring>

#include "allocator/buffer_heaps.h"
#include "allocator/small_blocks.h"

namespace spillway {

std::size_t Buffer::charged_bytes(std::size_t capacity) noexcept {
  const std::size_t small = small_blocks::rounded(capacity);
  return small < block_bytes_min ? small : BufferHeaps::current().block_bytes(capacity);
}

std::optional<Buffer> Buffer::allocate(MemoryBudget& budget, std::size_t capacity) noexcept {
  static_assert(block_bytes_min <= small_blocks::block_bytes_max);
  // No heap gives out more, and rounding up could wrap around.
  if (capacity > static_cast<std::size_t>(PTRDIFF_MAX)) return std::nullopt;
  Heap* heap = nullptr;
  std::size_t bytes = small_blocks::rounded(capacity);
  if (bytes >= block_bytes_min) {
    heap = &BufferHeaps::current();
    bytes = heap->block_bytes(capacity);
  }
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

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    give_back();
    block_ = std::exchange(other.block_, {});
    size_ = std::exchange(other.size_, 0);
    reservation_ = std::move(other.reservation_);
  }
  return *this;
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
