#include "allocator/buffer.h"

#include <cassert>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace spillway {

namespace {
// Small blocks are rounded up to 64 bytes, large ones to pages: what the heap would do anyway.
std::size_t block_size(std::size_t capacity) noexcept {
  const std::size_t grain = capacity >= 16384 ? 4096 : 64;
  return (capacity + grain - 1) / grain * grain;
}
}  // namespace

std::optional<Buffer> Buffer::allocate(MemoryBudget& budget, std::size_t capacity) noexcept {
  // No heap gives out more, and rounding up could wrap around.
  if (capacity > static_cast<std::size_t>(PTRDIFF_MAX)) return std::nullopt;
  const std::size_t bytes = block_size(capacity == 0 ? 1 : capacity);
  auto reservation = budget.try_reserve(bytes);
  if (!reservation) return std::nullopt;
  auto* block = static_cast<std::uint8_t*>(std::malloc(bytes));
  if (block == nullptr) return std::nullopt;
  Buffer buffer;
  buffer.block_ = block;
  buffer.capacity_ = bytes;
  buffer.reservation_ = std::move(*reservation);
  return buffer;
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    std::free(block_);
    block_ = std::exchange(other.block_, nullptr);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
    reservation_ = std::move(other.reservation_);
  }
  return *this;
}

Buffer::~Buffer() { std::free(block_); }

void Buffer::append(const void* from, std::size_t bytes) noexcept {
  assert(bytes <= room());
  std::memcpy(block_ + size_, from, bytes);
  size_ += bytes;
}

}  // namespace spillway
