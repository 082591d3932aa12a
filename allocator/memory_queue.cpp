#include "allocator/memory_queue.h"

namespace spillway {

void MemoryQueue::set_reserves(std::uint64_t large_bytes, std::uint64_t small_bytes) noexcept {
  large_.set_limit(large_bytes);
  small_.set_limit(small_bytes);
  has_reserve_ = large_bytes != 0 && small_bytes != 0;
}

MemoryQueue::Place::Place(MemoryQueue& queue, Sleeper& sleeper, bool in_line)
    : queue_(queue), line_(in_line ? queue.line_ : queue.outside_) {
  queue_.waits_.fetch_add(1, std::memory_order_relaxed);
  queue_.waiting_.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(queue_.mutex_);
  number_ = queue_.next_++;
  line_.waiting.emplace_hint(line_.waiting.end(), number_, &sleeper);
  line_.set_first();
}

MemoryQueue::Place::~Place() {
  queue_.waiting_.fetch_sub(1, std::memory_order_relaxed);
  const std::lock_guard lock(queue_.mutex_);
  const bool was_first = first();
  line_.waiting.erase(number_);
  line_.set_first();
  if (was_first && !line_.waiting.empty()) line_.waiting.begin()->second->wake();
}

void MemoryQueue::wake_first() noexcept {
  // A request looks for memory after it has joined, and this comes after memory was given back: one of the two
  // sees the other.
  if (line_.first.load() == 0 && outside_.first.load() == 0) return;
  const std::lock_guard lock(mutex_);
  for (Line* line : {&line_, &outside_}) {
    if (!line->waiting.empty()) line->waiting.begin()->second->wake();
  }
}

MemoryQueueUsage MemoryQueue::usage() const {
  MemoryQueueUsage usage;
  usage.waiting = waiting_.load(std::memory_order_relaxed);
  usage.waits = waits_.load(std::memory_order_relaxed);
  usage.in_vain = in_vain_.load(std::memory_order_relaxed);
  usage.large = large_.usage();
  usage.small = small_.usage();
  return usage;
}

}  // namespace spillway
