// SpannedHeap: what the heaps have in common. Blocks of up to 512 KiB are cut from spans; a block
// of more is the library's own.
#pragma once

#include "allocator/heap.h"
#include "allocator/span_pool.h"

namespace spillway {

class SpannedHeap : public Heap, private SpanSource {
 public:
  explicit SpannedHeap(std::string_view name) noexcept : Heap(name), spans_(*this) {}

  std::size_t block_bytes(std::size_t bytes) const noexcept final;
  Block take(std::size_t bytes) noexcept final;
  void give_back(const Block& block) noexcept final;
  void release(SlicePacer& pacer) noexcept final;
  HeapUsage usage() const noexcept final;

 protected:
  // The library's side. `bytes` is what pages_bytes() said; memory is aligned to pages.
  virtual std::size_t pages_bytes(std::size_t bytes) const noexcept = 0;
  virtual void* take_pages(std::size_t bytes) noexcept = 0;
  virtual void give_back_pages(void* pages, std::size_t bytes) noexcept = 0;
  virtual void release_pages(SlicePacer& pacer) noexcept = 0;
  struct PagesUsage {
    std::uint64_t kept_bytes = 0;
    std::uint64_t given_back_bytes = 0;
  };
  virtual PagesUsage pages_usage() const noexcept = 0;

 private:
  void* take_span() noexcept final;
  void give_back_span(void* base) noexcept final { give_back_pages(base, span_bytes); }

  SpanPool spans_;
};

}  // namespace spillway
