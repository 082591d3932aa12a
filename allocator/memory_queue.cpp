#include "allocator/memory_queue.h"

namespace spillway {

void MemoryQueue::set_reserves(std::uint64_t large_bytes, std::uint64_t small_bytes) noexcept {
  large_.set_limit(large_bytes);
  small_.set_limit(small_bytes);
  has_reserve_ = large_bytes != 0 && small_bytes != 0;
}

MemoryQueue::Place::Place(MemoryQueue& queue, Sleeper& sleeper, bool in_line, Holder holder)
    : queue_(queue), line_(in_line ? queue.line_ : queue.outside_), sleeper_(sleeper), holder_(holder) {
  queue_.waits_.fetch_add(1, std::memory_order_relaxed);
  queue_.waiting_.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(queue_.mutex_);
  queue_.enter(*this, in_line && queue_.has_reserve(holder) ? queue_.next_preceding_++ : queue_.next_++);
  line_.set_first();
}

MemoryQueue::Place::~Place() {
  queue_.waiting_.fetch_sub(1, std::memory_order_relaxed);
  const std::lock_guard lock(queue_.mutex_);
  const bool was_first = first();
  line_.waiting.erase(number_);
  line_.set_first();
  if (was_first && !line_.waiting.empty()) line_.waiting.begin()->second->sleeper_.wake();
}

MemoryBudget* MemoryQueue::Place::reserve() noexcept {
  if (holder_ == nullptr) return queue_.large();
  if (!queue_.has_reserve_) return nullptr;
  return queue_.held_.usage().used_bytes == 0 || queue_.has_reserve(holder_) ? &queue_.held_ : nullptr;
}

void MemoryQueue::Place::served(bool from_reserve) {
  queue_.served_.fetch_add(1, std::memory_order_relaxed);
  if (from_reserve && holder_ != nullptr) queue_.give_reserve(holder_);
}

void MemoryQueue::enter(Place& place, std::uint64_t number) {
  place.number_ = number;
  place.line_.waiting.emplace(number, &place);
}

// Its other waits, which came before it had the reserve, come first from now on.
void MemoryQueue::give_reserve(Holder holder) {
  const std::lock_guard lock(mutex_);
  holder_ = holder;
  for (auto at = line_.waiting.lower_bound(first_number); at != line_.waiting.end();) {
    Place& place = *at->second;
    if (place.holder_ != holder) {
      ++at;
      continue;
    }
    at = line_.waiting.erase(at);
    enter(place, next_preceding_++);
  }
  line_.set_first();
}

void MemoryQueue::wake_first() noexcept {
  // A request looks for memory after it has joined, and this comes after memory was given back: one of the two
  // sees the other.
  if (line_.first.load() == 0 && outside_.first.load() == 0) return;
  const std::lock_guard lock(mutex_);
  for (Line* line : {&line_, &outside_}) {
    if (!line->waiting.empty()) line->waiting.begin()->second->sleeper_.wake();
  }
}

MemoryQueueUsage MemoryQueue::usage() const {
  MemoryQueueUsage usage;
  usage.waiting = waiting_.load(std::memory_order_relaxed);
  usage.waits = waits_.load(std::memory_order_relaxed);
  usage.served = served_.load(std::memory_order_relaxed);
  usage.in_vain = in_vain_.load(std::memory_order_relaxed);
  usage.large = large_.usage();
  usage.small = small_.usage();
  return usage;
}

}  // namespace spillway
