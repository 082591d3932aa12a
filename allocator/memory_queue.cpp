#include "allocator/memory_queue.h"

#include <utility>

namespace spillway {

void MemoryQueue::set_reserves(std::uint64_t large_bytes, std::uint64_t small_bytes) noexcept {
  large_.set_limit(large_bytes);
  small_.set_limit(small_bytes);
  has_reserve_ = large_bytes != 0 && small_bytes != 0;
}

MemoryQueue::Place::Place(MemoryQueue& queue, Sleeper& sleeper, bool in_line, Holder holder)
    : queue_(queue),
      line_(!in_line ? queue.outside_ : holder == nullptr ? queue.line_ : queue.merges_),
      sleeper_(sleeper),
      holder_(holder) {
  queue_.waits_.fetch_add(1, std::memory_order_relaxed);
  queue_.waiting_.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(queue_.mutex_);
  number_ = in_line && queue_.holds_reserve(holder) ? queue_.next_preceding_++ : queue_.next_++;
  line_.waiting.emplace(number_, this);
  line_.set_first();
}

MemoryQueue::Place::~Place() {
  queue_.waiting_.fetch_sub(1, std::memory_order_relaxed);
  const std::lock_guard lock(queue_.mutex_);
  const bool was_first = first();
  line_.waiting.erase(number_);
  line_.set_first();
  if (was_first && !line_.waiting.empty()) line_.waiting.begin()->second->sleeper_.wake();
  // Now a merge may take from the reserve.
  const Line& merges = queue_.merges_;
  if (&line_ == &queue_.line_ && line_.waiting.empty() && !merges.waiting.empty()) {
    merges.waiting.begin()->second->sleeper_.wake();
  }
}

MemoryBudget* MemoryQueue::Place::reserve() {
  if (holder_ == nullptr) return queue_.large();
  if (!queue_.has_reserve_) return nullptr;
  const std::lock_guard lock(queue_.mutex_);
  if (queue_.holds_reserve(holder_)) return &queue_.held_;
  if (queue_.held_.usage().used_bytes > 0 || queue_.line_.waits()) return nullptr;
  queue_.give_reserve(holder_);
  return &queue_.held_;
}

void MemoryQueue::give_reserve(Holder holder) {
  holder_ = holder;
  std::map<std::uint64_t, Place*> waiting;
  waiting.swap(merges_.waiting);
  while (!waiting.empty()) {
    auto node = waiting.extract(waiting.begin());
    Place& place = *node.mapped();
    const bool precedes = node.key() < first_number;
    if (precedes != (place.holder_ == holder)) {
      place.number_ = precedes ? next_++ : next_preceding_++;
      node.key() = place.number_;
    }
    merges_.waiting.insert(std::move(node));
  }
  merges_.set_first();
}

void MemoryQueue::wake_first() noexcept {
  // A request looks for memory after it has joined, and this comes after memory was given back: one of the two
  // sees the other.
  if (line_.first.load() == 0 && merges_.first.load() == 0 && outside_.first.load() == 0) return;
  const std::lock_guard lock(mutex_);
  for (Line* line : {&line_, &merges_, &outside_}) {
    if (!line->waiting.empty()) line->waiting.begin()->second->sleeper_.wake();
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
