// Buffer: a block of payload memory together with the reservation that pays for it. The only way to
// get memory for bytes that a peer sends. Blocks of 16 KiB and more come from the current buffer
// heap (buffer_heaps.h), smaller ones from the thread's lists (small_blocks.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "allocator/budget.h"
#include "allocator/heap.h"

namespace spillway {

// Move-only owner of `capacity()` bytes, of which the first `size()` are filled. Not thread-safe;
// may be moved to another thread. Moving does not move the bytes: views stay valid.
class Buffer {
  struct BlockChoice;

 public:
  Buffer() noexcept = default;
  Buffer(Buffer&& other) noexcept
      : block_(std::exchange(other.block_, {})),
        size_(std::exchange(other.size_, 0)),
        reservation_(std::move(other.reservation_)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      if (block_.data != nullptr) give_back();
      block_ = std::exchange(other.block_, {});
      size_ = std::exchange(other.size_, 0);
      reservation_ = std::move(other.reservation_);
    }
    return *this;
  }
  ~Buffer() {
    if (block_.data != nullptr) give_back();
  }

  // nullopt: the budget refused, or there is no memory. Charges the whole block that is taken,
  // which is also the buffer's capacity.
  static std::optional<Buffer> allocate(MemoryBudget& budget, std::size_t capacity) noexcept;
  // The same out of what is reserved already. nullopt: that is too little, or there is no memory.
  static std::optional<Buffer> allocate(Reservation& paid, std::size_t capacity) noexcept;
  // What allocate() charges for it now: the whole block. At most PTRDIFF_MAX.
  static std::size_t charged_bytes(std::size_t capacity) noexcept;

  // Another budget pays from now on, if it has room.
  void charge_to(MemoryBudget& budget) noexcept;

  std::uint8_t* data() noexcept { return block_.data; }
  const std::uint8_t* data() const noexcept { return block_.data; }
  std::size_t size() const noexcept { return size_; }
  std::size_t capacity() const noexcept { return block_.bytes; }
  std::size_t room() const noexcept { return block_.bytes - size_; }
  void set_size(std::size_t size) noexcept { size_ = size; }  // REQUIRES size <= capacity()
  std::span<const std::uint8_t> bytes() const noexcept { return {block_.data, size_}; }
  std::span<std::uint8_t> free_space() noexcept {
    return {block_.data + size_, block_.bytes - size_};
  }
  void append(const void* from, std::size_t bytes) noexcept;  // REQUIRES bytes <= room()
  // What pays for it; null: there is no block.
  const MemoryBudget* budget() const noexcept { return reservation_.budget(); }
  explicit operator bool() const noexcept { return block_.data != nullptr; }
  void reset() noexcept { *this = Buffer(); }

 private:
  static std::optional<Buffer> take(BlockChoice choice, std::size_t capacity, Reservation paid) noexcept;
  void give_back() noexcept;  // REQUIRES a block; leaves the members as they are

  Block block_;
  std::size_t size_ = 0;
  Reservation reservation_;
};

}  // namespace spillway
