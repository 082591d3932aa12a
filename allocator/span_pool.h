// SpanPool: blocks of 16 KiB to 512 KiB, cut from spans of 1 MiB.
//
//   span   |b0|b1|b2|b3| ... |b63|     one class per span: 64 × 16 KiB, 42 × 24, … 2 × 512
//   free    1  0  1  1  ...   0        a bit per block
//   clean   0  0  1  0  ...   0        free, and its pages are the operating system's already
//
// Without it, tcmalloc's thread and central caches would keep blocks of up to 256 KiB out of its
// release's reach, and jemalloc would add a page to each block (5 pages for 16 KiB). A free block
// is whole pages, so it can be given back while its neighbours are in use: no survivor pins a span.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "allocator/heap.h"

namespace spillway {

class SpanPool;

// Bookkeeping of a span; not inside it, so that an unused span has no resident page.
struct Span {
  std::uint8_t* base = nullptr;
  std::uint64_t free = 0;
  std::uint64_t clean = 0;
  Span* next = nullptr;
  Span* previous = nullptr;
  std::uint8_t size_class = 0;
  bool listed = false;  // in its class's list: some block is free
};

// Where spans come from and go to.
class SpanSource {
 public:
  virtual void* take_span() noexcept = 0;  // span_bytes, page-aligned; null: no memory
  virtual void give_back_span(void* base) noexcept = 0;

 protected:
  ~SpanSource() = default;
};

// Thread-safe: a lock per class, held for a few instructions; never across the source or madvise.
class SpanPool {
 public:
  explicit SpanPool(SpanSource& source) noexcept : source_(source) {}
  ~SpanPool();  // REQUIRES that every block was given back

  // Parts of a span, in pages: each class at most half as large again as the one before.
  static constexpr std::array<std::size_t, 12> class_kib = {16,  24,  32,  48,  64,  100,
                                                            128, 168, 204, 256, 340, 512};
  static constexpr std::size_t classes = class_kib.size();
  static constexpr std::size_t class_bytes(std::size_t index) noexcept {
    return class_kib[index] * 1024;
  }
  static constexpr bool serves(std::size_t bytes) noexcept {
    return bytes <= class_bytes(classes - 1);
  }
  // REQUIRES serves(bytes)
  static std::size_t class_of(std::size_t bytes) noexcept;

  struct Cut {
    std::uint8_t* data = nullptr;
    Span* span = nullptr;
  };
  Cut take(std::size_t size_class) noexcept;
  void give_back(std::uint8_t* data, Span* span) noexcept;

  // Empty spans to the source, free blocks of the others to the operating system.
  void release(SlicePacer& pacer) noexcept;
  std::uint64_t kept_bytes() const noexcept;  // free and not given back
  std::uint64_t given_back_bytes() const noexcept;
  std::uint64_t spans() const noexcept { return spans_.load(std::memory_order_relaxed); }

 private:
  // Spans with a free block, the one last touched in front; at most one is wholly free.
  struct alignas(64) SizeClass {
    mutable std::mutex mutex;
    Span* first = nullptr;
    Span* last = nullptr;
    Span* empty = nullptr;
    std::uint64_t dirty_blocks = 0;  // free and not clean
  };

  static void link_front(SizeClass& size_class, Span* span) noexcept;
  static void link_back(SizeClass& size_class, Span* span) noexcept;
  static void unlink(SizeClass& size_class, Span* span) noexcept;
  Span* make_span(std::size_t size_class) noexcept;
  void destroy(Span* span) noexcept;
  void clean_span(Span* span, std::uint64_t blocks, SlicePacer& pacer) noexcept;

  // One step of a release over a class; false: nothing is left to do.
  bool clean_next(std::size_t index, SlicePacer& pacer) noexcept;

  SpanSource& source_;
  std::array<SizeClass, classes> classes_;
  std::atomic<std::uint64_t> spans_{0};
  std::atomic<std::uint64_t> given_back_{0};
};

}  // namespace spillway
