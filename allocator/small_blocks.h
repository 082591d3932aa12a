// Small blocks: memory below 16 KiB for bytes that come and go with every operation, recycled in
// lists of the calling thread, so that a worker in steady state asks malloc for nothing. A block may
// be given back on another thread than it was taken on. A list's bytes are bounded, and no budget counts them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace spillway {

namespace small_blocks {

// Larger ones are not recycled.
inline constexpr std::size_t block_bytes_max = 16 * 1024;

namespace detail {
inline constexpr std::size_t step_bytes = 16;      // between the first classes,
inline constexpr std::size_t even_bytes_max = 64;  // up to here
}  // namespace detail

// The size of a block for `bytes`: the classes of jemalloc's malloc, four to a doubling, so that malloc takes the
// same. (Another malloc's classes are at most an eighth larger.)
constexpr std::size_t rounded(std::size_t bytes) noexcept {
  if (bytes == 0) bytes = 1;
  const std::size_t step = bytes <= detail::even_bytes_max ? detail::step_bytes : std::bit_ceil(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

namespace detail {
// The class of a rounded size: 16, 32, 48, 64, 80, 96, 112, 128, 160, …
constexpr std::size_t class_of(std::size_t rounded_bytes) noexcept {
  if (rounded_bytes <= even_bytes_max) return rounded_bytes / step_bytes - 1;
  const auto doubling = static_cast<std::size_t>(std::bit_width((rounded_bytes - 1) / even_bytes_max));
  const std::size_t start = even_bytes_max << (doubling - 1);
  return 3 + (doubling - 1) * 4 + (rounded_bytes - start) / (start / 4);
}
inline constexpr std::size_t classes = class_of(block_bytes_max) + 1;
static_assert(class_of(64) == 3 && class_of(80) == 4 && class_of(160) == 8 && classes == 36);

void* take(std::size_t size_class, std::size_t rounded_bytes) noexcept;
void give_back(void* block, std::size_t size_class, std::size_t rounded_bytes) noexcept;
}  // namespace detail

// rounded(bytes) bytes, or null: there is no memory. Inline, since most sizes, as those of coroutine frames, are known
// to the compiler.
inline void* take(std::size_t bytes) noexcept {
  if (bytes > block_bytes_max) return std::malloc(bytes);
  const std::size_t whole = rounded(bytes);
  return detail::take(detail::class_of(whole), whole);
}
// `bytes`: the size that the block was taken for, or that size rounded.
inline void give_back(void* block, std::size_t bytes) noexcept {
  if (bytes > block_bytes_max) return std::free(block);
  const std::size_t whole = rounded(bytes);
  detail::give_back(block, detail::class_of(whole), whole);
}
// Bytes that this thread's lists keep.
std::size_t kept_bytes() noexcept;

}  // namespace small_blocks

// An allocator over them, for containers that live as long as an operation.
template <class T>
struct RecyclingAllocator {
  using value_type = T;
  RecyclingAllocator() noexcept = default;
  template <class U>
  RecyclingAllocator(const RecyclingAllocator<U>&) noexcept {}  // NOLINT: as allocators convert
  T* allocate(std::size_t count) {
    static_assert(alignof(T) <= alignof(std::max_align_t));
    if (count > SIZE_MAX / sizeof(T)) throw std::bad_array_new_length();
    void* const block = small_blocks::take(count * sizeof(T));
    if (block == nullptr) throw std::bad_alloc();
    return static_cast<T*>(block);
  }
  void deallocate(T* block, std::size_t count) noexcept {
    small_blocks::give_back(block, count * sizeof(T));
  }
  // Bytes that resize() adds have any value: what adds them writes them.
  template <class U, class... Args>
  void construct(U* at, Args&&... args) {
    if constexpr (std::is_same_v<U, std::uint8_t> && sizeof...(Args) == 0) {
      ::new (static_cast<void*>(at)) U;
    } else {
      ::new (static_cast<void*>(at)) U(std::forward<Args>(args)...);
    }
  }
  template <class U>
  bool operator==(const RecyclingAllocator<U>&) const noexcept {
    return true;
  }
};

template <class T>
using RecycledVector = std::vector<T, RecyclingAllocator<T>>;
// Bytes of ours, out of which a message is made.
using RecycledBytes = RecycledVector<std::uint8_t>;

}  // namespace spillway
