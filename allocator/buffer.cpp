#include "allocator/buffer.h"

#include <cassert>
#include <cstdint>
#include <cstring>

#include "allocator/buffer_heaps.h"
#include "allocator/small_blocks.h"

namespace spillway {

struct Buffer::BlockChoice {
  Heap* heap;  // null: small_blocks
  std::size_t bytes;

  explicit BlockChoice(std::size_t capacity) noexcept : heap(nullptr), bytes(small_blocks::rounded(capacity)) {
    if (bytes < block_bytes_min) return;
    heap = &BufferHeaps::current();
    bytes = heap->block_bytes(capacity);
  }
};

std::size_t Buffer::charged_bytes(std::size_t capacity) noexcept { return BlockChoice(capacity).bytes; }

std::optional<Buffer> Buffer::allocate(MemoryBudget& budget, std::size_t capacity) noexcept {
  static_assert(block_bytes_min <= small_blocks::block_bytes_max);
  // No heap gives out more, and rounding up could wrap around.
  if (capacity > static_cast<std::size_t>(PTRDIFF_MAX)) return std::nullopt;
  const BlockChoice choice(capacity);
  auto paid = budget.try_reserve(choice.bytes);
  if (!paid) return std::nullopt;
  return take(choice, capacity, *std::move(paid));
}

std::optional<Buffer> Buffer::allocate(Reservation& paid, std::size_t capacity) noexcept {
  if (capacity > paid.bytes()) return std::nullopt;
  const BlockChoice choice(capacity);
  if (choice.bytes > paid.bytes()) return std::nullopt;
  return take(choice, capacity, paid.split(choice.bytes));
}

std::optional<Buffer> Buffer::take(BlockChoice choice, std::size_t capacity, Reservation paid) noexcept {
  Buffer buffer;
  if (choice.heap != nullptr) {
    buffer.block_ = choice.heap->take(capacity);
  } else {
    buffer.block_ = {static_cast<std::uint8_t*>(small_blocks::take(choice.bytes)), choice.bytes, nullptr, nullptr};
  }
  if (buffer.block_.data == nullptr) return std::nullopt;
  assert(buffer.block_.bytes == choice.bytes);
  buffer.reservation_ = std::move(paid);
  return buffer;
}

void Buffer::give_back() noexcept {
  if (block_.heap != nullptr) {
    block_.heap->give_back(block_);
  } else {
    small_blocks::give_back(block_.data, block_.bytes);
  }
}

void Buffer::charge_to(MemoryBudget& budget) noexcept {
  if (reservation_.budget() == nullptr || reservation_.budget() == &budget) return;
  if (!budget.has_room(reservation_.bytes())) return;
  if (auto paid = budget.try_reserve(reservation_.bytes())) reservation_ = *std::move(paid);
}

void Buffer::append(const void* from, std::size_t bytes) noexcept {
  assert(bytes <= room());
  std::memcpy(block_.data + size_, from, bytes);
  size_ += bytes;
}

}  // namespace spillway
