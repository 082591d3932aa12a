#include "allocator/memory_queue.h"

namespace spillway {

void MemoryQueue::set_reserves(std::uint64_t large_bytes, std::uint64_t small_bytes) noexcept {
  large_.set_limit(large_bytes);
  small_.set_limit(small_bytes);
  has_reserve_ = large_bytes != 0 && small_bytes != 0;
}

MemoryQueue::Place::Place(MemoryQueue& queue, bool in_line) : queue_(queue) {
  queue_.waits_.fetch_add(1, std::memory_order_relaxed);
  if (!in_line) {
    queue_.outside_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const std::lock_guard lock(queue_.mutex_);
  number_ = queue_.next_++;
  queue_.waiting_.insert(queue_.waiting_.end(), number_);
  queue_.first_.store(*queue_.waiting_.begin(), std::memory_order_release);
}

MemoryQueue::Place::~Place() {
  if (!in_line()) {
    queue_.outside_.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  const std::lock_guard lock(queue_.mutex_);
  queue_.waiting_.erase(number_);
  queue_.first_.store(queue_.waiting_.empty() ? 0 : *queue_.waiting_.begin(),
                      std::memory_order_release);
}

MemoryQueueUsage MemoryQueue::usage() const {
  MemoryQueueUsage usage;
  {
    const std::lock_guard lock(mutex_);
    usage.waiting = waiting_.size();
  }
  usage.waiting += outside_.load(std::memory_order_relaxed);
  usage.waits = waits_.load(std::memory_order_relaxed);
  usage.in_vain = in_vain_.load(std::memory_order_relaxed);
  usage.large = large_.usage();
  usage.small = small_.usage();
  return usage;
}

}  // namespace spillway
