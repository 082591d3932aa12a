#include "allocator/span_pool.h"

#include <sys/mman.h>

#include <bit>
#include <cassert>
#include <new>

#include "allocator/retention.h"

namespace spillway {

namespace {

constexpr std::uint64_t all_blocks(std::size_t size_class) noexcept {
  const std::size_t blocks = span_bytes / SpanPool::class_bytes(size_class);
  return blocks == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << blocks) - 1;
}

static_assert(span_bytes / block_bytes_min <= 64, "a bit per block");
static_assert(SpanPool::class_bytes(SpanPool::classes - 1) == span_bytes / 2);

}  // namespace

std::size_t SpanPool::class_of(std::size_t bytes) noexcept {
  assert(serves(bytes));
  std::size_t index = 0;
  while (class_bytes(index) < bytes) ++index;
  return index;
}

SpanPool::~SpanPool() {
  for (SizeClass& size_class : classes_) {
    if (size_class.empty != nullptr) destroy(size_class.empty);
  }
}

void SpanPool::link_front(SizeClass& size_class, Span* span) noexcept {
  span->previous = nullptr;
  span->next = size_class.first;
  (span->next != nullptr ? span->next->previous : size_class.last) = span;
  size_class.first = span;
  span->listed = true;
}

void SpanPool::link_back(SizeClass& size_class, Span* span) noexcept {
  span->next = nullptr;
  span->previous = size_class.last;
  (span->previous != nullptr ? span->previous->next : size_class.first) = span;
  size_class.last = span;
  span->listed = true;
}

void SpanPool::unlink(SizeClass& size_class, Span* span) noexcept {
  (span->previous != nullptr ? span->previous->next : size_class.first) = span->next;
  (span->next != nullptr ? span->next->previous : size_class.last) = span->previous;
  span->next = span->previous = nullptr;
  span->listed = false;
}

Span* SpanPool::make_span(std::size_t size_class) noexcept {
  Span* span = new (std::nothrow) Span;
  if (span == nullptr) return nullptr;
  span->base = static_cast<std::uint8_t*>(source_.take_span());
  if (span->base == nullptr) {
    delete span;
    return nullptr;
  }
  span->size_class = static_cast<std::uint8_t>(size_class);
  span->free = all_blocks(size_class);
  span->clean = Retention::gone() ? span->free : 0;
  spans_.fetch_add(1, std::memory_order_relaxed);
  return span;
}

void SpanPool::destroy(Span* span) noexcept {
  source_.give_back_span(span->base);
  spans_.fetch_sub(1, std::memory_order_relaxed);
  delete span;
}

SpanPool::Cut SpanPool::take(std::size_t index) noexcept {
  SizeClass& size_class = classes_[index];
  std::unique_lock lock(size_class.mutex);
  if (size_class.first == nullptr) {
    lock.unlock();
    Span* fresh = make_span(index);
    if (fresh == nullptr) return {};
    lock.lock();
    link_front(size_class, fresh);
    size_class.dirty_blocks +=
        static_cast<std::uint64_t>(std::popcount(fresh->free & ~fresh->clean));
  }
  Span* span = size_class.first;
  if (size_class.empty == span) size_class.empty = nullptr;
  const std::uint64_t dirty = span->free & ~span->clean;  // whose pages need no fault
  const int block = std::countr_zero(dirty != 0 ? dirty : span->free);
  const std::uint64_t bit = std::uint64_t{1} << block;
  if (dirty != 0) --size_class.dirty_blocks;
  span->free &= ~bit;
  span->clean &= ~bit;
  if (span->free == 0) unlink(size_class, span);
  return {span->base + static_cast<std::size_t>(block) * class_bytes(index), span};
}

void SpanPool::give_back(std::uint8_t* data, Span* span) noexcept {
  const std::size_t index = span->size_class;
  SizeClass& size_class = classes_[index];
  const auto block = static_cast<std::size_t>(data - span->base) / class_bytes(index);
  const std::uint64_t bit = std::uint64_t{1} << block;
  Span* unwanted = nullptr;
  const bool keep = Retention::allowed();
  if (!keep) {
    discard_pages(data, class_bytes(index));
    given_back_.fetch_add(class_bytes(index), std::memory_order_relaxed);
  }
  {
    const std::lock_guard lock(size_class.mutex);
    assert((span->free & bit) == 0);
    span->free |= bit;
    if (keep) {
      ++size_class.dirty_blocks;
    } else {
      span->clean |= bit;
    }
    if (!span->listed) link_front(size_class, span);
    if (span->free != all_blocks(index)) return;
    if (keep && size_class.empty == nullptr) {
      size_class.empty = span;  // kept: a stream of single blocks needs it again at once
    } else {
      unlink(size_class, span);
      size_class.dirty_blocks -=
          static_cast<std::uint64_t>(std::popcount(span->free & ~span->clean));
      unwanted = span;
    }
  }
  if (unwanted != nullptr) destroy(unwanted);
}

// Gives blocks that were taken out of the free ones back to the system, neighbours together.
void SpanPool::clean_span(Span* span, std::uint64_t blocks, SlicePacer& pacer) noexcept {
  const std::size_t bytes = class_bytes(span->size_class);
  while (blocks != 0) {
    const int first = std::countr_zero(blocks);
    const int count = std::countr_one(blocks >> first);
    const std::size_t run_bytes = static_cast<std::size_t>(count) * bytes;
    pacer.begin();
    const int failed =
        ::madvise(span->base + static_cast<std::size_t>(first) * bytes, run_bytes, MADV_DONTNEED);
    if (failed == 0) given_back_.fetch_add(run_bytes, std::memory_order_relaxed);
    pacer.end(failed == 0 ? run_bytes : 0);
    const std::uint64_t run = count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
    blocks &= ~(run << first);
  }
}

bool SpanPool::clean_next(std::size_t index, SlicePacer& pacer) noexcept {
  SizeClass& size_class = classes_[index];
  Span* unwanted = nullptr;
  std::uint64_t blocks = 0;
  Span* span = nullptr;
  {
    const std::lock_guard lock(size_class.mutex);
    span = size_class.first;
    if (span == nullptr) return false;
    unlink(size_class, span);
    blocks = span->free & ~span->clean;
    size_class.dirty_blocks -= static_cast<std::uint64_t>(std::popcount(blocks));
    if (span->free == all_blocks(index)) {
      if (size_class.empty == span) size_class.empty = nullptr;
      unwanted = span;
    } else {
      // Seen: to the back. While blocks of it are out it cannot become empty, so it stays.
      span->free &= ~blocks;
      if (span->free != 0) link_back(size_class, span);
    }
  }
  if (unwanted == nullptr && blocks != 0) {
    clean_span(span, blocks, pacer);
    const std::lock_guard lock(size_class.mutex);
    span->free |= blocks;
    span->clean |= blocks;
    if (!span->listed) link_back(size_class, span);
    if (span->free == all_blocks(index)) {
      unlink(size_class, span);
      unwanted = span;
      size_class.dirty_blocks -=
          static_cast<std::uint64_t>(std::popcount(span->free & ~span->clean));
    }
  }
  if (unwanted != nullptr) destroy(unwanted);
  return true;
}

void SpanPool::release(SlicePacer& pacer) noexcept {
  for (std::size_t index = 0; index < classes; ++index) {
    // Each span once, and those that came meanwhile: bounded, since other threads keep filling the list.
    for (std::uint64_t steps = 2 * spans() + 1; steps > 0 && pacer.more(); --steps) {
      if (!clean_next(index, pacer)) break;
    }
  }
}

std::uint64_t SpanPool::kept_bytes() const noexcept {
  std::uint64_t kept = 0;
  for (std::size_t index = 0; index < classes; ++index) {
    const SizeClass& size_class = classes_[index];
    const std::lock_guard lock(size_class.mutex);
    kept += size_class.dirty_blocks * class_bytes(index);
  }
  return kept;
}

std::uint64_t SpanPool::given_back_bytes() const noexcept {
  return given_back_.load(std::memory_order_relaxed);
}

}  // namespace spillway
