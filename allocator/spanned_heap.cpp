#include "allocator/spanned_heap.h"

#include "allocator/retention.h"

namespace spillway {

std::size_t SpannedHeap::block_bytes(std::size_t bytes) const noexcept {
  if (SpanPool::serves(bytes)) return SpanPool::class_bytes(SpanPool::class_of(bytes));
  return bytes <= span_bytes ? span_bytes : pages_bytes(bytes);
}

Block SpannedHeap::take(std::size_t bytes) noexcept {
  Block block;
  block.bytes = block_bytes(bytes);
  if (SpanPool::serves(bytes)) {
    const SpanPool::Cut cut = spans_.take(SpanPool::class_of(bytes));
    block.data = cut.data;
    block.span = cut.span;
  } else {
    Retention::before_pages(block.bytes);
    block.data = static_cast<std::uint8_t*>(take_pages(block.bytes));
  }
  if (block.data == nullptr) return {};
  block.heap = this;
  count_taken(block.bytes);
  Retention::taken(block.bytes);
  return block;
}

void SpannedHeap::give_back(const Block& block) noexcept {
  if (block.span != nullptr) {
    spans_.give_back(block.data, block.span);
  } else {
    give_back_pages(block.data, block.bytes);
  }
  count_freed(block.bytes);
  Retention::freed(block.bytes);
}

void* SpannedHeap::take_span() noexcept {
  Retention::before_pages(span_bytes);
  return take_pages(span_bytes);
}

void SpannedHeap::release(SlicePacer& pacer) noexcept {
  spans_.release(pacer);
  release_pages(pacer);
}

HeapUsage SpannedHeap::usage() const noexcept {
  const PagesUsage pages = pages_usage();
  HeapUsage usage;
  usage.in_use_bytes = in_use_bytes();
  usage.kept_bytes = pages.kept_bytes + spans_.kept_bytes();
  usage.given_back_bytes = pages.given_back_bytes + spans_.given_back_bytes();
  usage.taken_bytes = taken_bytes();
  return usage;
}

}  // namespace spillway
