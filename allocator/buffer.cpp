#include "allocator/buffer.h"

#include <bit>
#include <cassert>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "allocator/buffer_heaps.h"

namespace spillway {

namespace {

// The classes of jemalloc's malloc, four to a doubling, so that what is charged is what is taken.
// (Another malloc's classes are at most an eighth larger.)
std::size_t small_block_bytes(std::size_t capacity) noexcept {
  constexpr std::size_t least = 64;
  if (capacity <= least) return least;
  const std::size_t step = std::bit_ceil(capacity) / 8;
  return (capacity + step - 1) / step * step;
}

}  // namespace

std::optional<Buffer> Buffer::allocate(MemoryBudget& budget, std::size_t capacity) noexcept {
  // No heap gives out more, and rounding up could wrap around.
  if (capacity > static_cast<std::size_t>(PTRDIFF_MAX)) return std::nullopt;
  Heap* heap = nullptr;
  std::size_t bytes = small_block_bytes(capacity);
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
    buffer.block_ = {static_cast<std::uint8_t*>(std::malloc(bytes)), bytes, nullptr, nullptr};
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
    std::free(block_.data);
  }
}

void Buffer::append(const void* from, std::size_t bytes) noexcept {
  assert(bytes <= room());
  std::memcpy(block_.data + size_, from, bytes);
  size_ += bytes;
}

}  // namespace spillway
