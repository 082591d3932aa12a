// Buffer: a block of payload memory together with the reservation that pays for it. The only way to
// get memory for bytes that a peer sends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "allocator/budget.h"

namespace spillway {

// Move-only owner of `capacity()` bytes, of which the first `size()` are filled. Not thread-safe; may be
// moved to another thread. Moving does not move the bytes: views stay valid.
class Buffer {
 public:
  Buffer() noexcept = default;
  Buffer(Buffer&& other) noexcept
      : block_(std::exchange(other.block_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)),
        reservation_(std::move(other.reservation_)) {}
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  // nullopt: the budget refused. Charges `capacity` rounded up to the block size actually taken.
  static std::optional<Buffer> allocate(MemoryBudget& budget, std::size_t capacity) noexcept;

  std::uint8_t* data() noexcept { return block_; }
  const std::uint8_t* data() const noexcept { return block_; }
  std::size_t size() const noexcept { return size_; }
  std::size_t capacity() const noexcept { return capacity_; }
  std::size_t room() const noexcept { return capacity_ - size_; }
  void set_size(std::size_t size) noexcept { size_ = size; }  // REQUIRES size <= capacity()
  std::span<const std::uint8_t> bytes() const noexcept { return {block_, size_}; }
  std::span<std::uint8_t> free_space() noexcept { return {block_ + size_, capacity_ - size_}; }
  void append(const void* from, std::size_t bytes) noexcept;  // REQUIRES bytes <= room()
  explicit operator bool() const noexcept { return block_ != nullptr; }
  void reset() noexcept { *this = Buffer(); }

 private:
  std::uint8_t* block_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
  Reservation reservation_;
};

}  // namespace spillway
