#include "allocator/budget.h"

#include <atomic>
#include <cassert>
#include <utility>

#include "allocator/budget_denial.h"
#include "allocator/memory_queue.h"

namespace spillway {

namespace {

struct Denial {
  std::atomic<const MemoryBudget*> node{nullptr};
  std::atomic<std::int64_t> left{0};
  std::atomic<bool> and_later{false};
  std::atomic<std::uint64_t> denied{0};
};
constinit Denial denial;

bool deny_this() noexcept {
  const std::int64_t left = denial.left.fetch_sub(1);
  if (left > 1 || (left < 1 && !denial.and_later)) return false;
  denial.denied.fetch_add(1);
  return true;
}

}  // namespace

void deny_charges(const MemoryBudget* node, std::int64_t nth, bool and_later) noexcept {
  denial.node = nullptr;
  denial.left = nth;
  denial.and_later = and_later;
  denial.denied = 0;
  denial.node = node;
}

std::uint64_t denied_charges() noexcept { return denial.denied; }

bool Reservation::try_grow(std::uint64_t more_bytes) noexcept {
  assert(budget_ != nullptr);
  if (!budget_->charge(more_bytes)) return false;
  bytes_ += more_bytes;
  return true;
}

void Reservation::shrink_to(std::uint64_t bytes) noexcept {
  assert(bytes <= bytes_);
  if (budget_ != nullptr) budget_->credit(bytes_ - bytes);
  bytes_ = bytes;
}

Reservation Reservation::split(std::uint64_t bytes) noexcept {
  assert(bytes <= bytes_);
  bytes_ -= bytes;
  return {budget_, bytes};
}

void Reservation::merge(Reservation&& other) noexcept {
  assert(other.bytes_ == 0 || budget_ == nullptr || budget_ == other.budget_);
  if (budget_ == nullptr) budget_ = other.budget_;
  bytes_ += std::exchange(other.bytes_, 0);
  other.budget_ = nullptr;
}

void Reservation::release() noexcept {
  if (budget_ != nullptr) budget_->credit(bytes_);
  budget_ = nullptr;
  bytes_ = 0;
}

MemoryBudget::MemoryBudget(std::string_view name, std::uint64_t limit_bytes, MemoryBudget* parent)
    : name_(name), limit_bytes_(limit_bytes), parent_(parent) {}

MemoryBudget::~MemoryBudget() { assert(used_bytes_.load() == 0); }

std::uint64_t MemoryBudget::ceiling_bytes() const noexcept {
  std::uint64_t least = 0;
  for (const MemoryBudget* node = this; node != nullptr; node = node->parent_) {
    const std::uint64_t limit = node->limit_bytes_.load(std::memory_order_relaxed);
    if (limit != 0 && (least == 0 || limit < least)) {
      least = limit;
    }
  }
  return least;
}

bool MemoryBudget::has_room(std::uint64_t bytes) const noexcept {
  for (const MemoryBudget* node = this; node != nullptr; node = node->parent_) {
    const std::uint64_t limit = node->limit_bytes_.load(std::memory_order_relaxed);
    if (limit != 0 && node->used_bytes_.load(std::memory_order_relaxed) + bytes > limit) return false;
  }
  return true;
}

std::optional<Reservation> MemoryBudget::try_reserve(std::uint64_t bytes) noexcept {
  if (!charge(bytes)) return std::nullopt;
  return Reservation(this, bytes);
}

bool MemoryBudget::charge(std::uint64_t bytes) noexcept {
  const MemoryBudget* const denied_node = denial.node.load(std::memory_order_relaxed);
  for (MemoryBudget* node = this; node != nullptr; node = node->parent_) {
    const std::uint64_t before = node->used_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    const std::uint64_t after = before + bytes;
    const std::uint64_t limit = node->limit_bytes_.load(std::memory_order_relaxed);
    const bool over = limit != 0 && (after > limit || after < before);
    if (over || (node == denied_node && deny_this())) [[unlikely]] {
      node->refusals_.fetch_add(1, std::memory_order_relaxed);
      // Undo this node and those below it: all or nothing.
      for (MemoryBudget* undo = this;; undo = undo->parent_) {
        undo->used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
        if (undo == node) return false;
      }
    }
    std::uint64_t peak = node->peak_bytes_.load(std::memory_order_relaxed);
    while (after > peak &&
           !node->peak_bytes_.compare_exchange_weak(peak, after, std::memory_order_relaxed)) {
    }
  }
  return true;
}

void MemoryBudget::credit(std::uint64_t bytes) noexcept {
  for (MemoryBudget* node = this; node != nullptr; node = node->parent_) {
    [[maybe_unused]] const std::uint64_t before = node->used_bytes_.fetch_sub(bytes);
    assert(before >= bytes);
    if (node->wakes_.front() == nullptr) continue;  // most nodes have none
    for (MemoryQueue* queue : node->wakes_) {
      if (queue != nullptr) queue->wake_first();
    }
  }
}

BudgetUsage MemoryBudget::usage() const noexcept {
  return {used_bytes_.load(std::memory_order_relaxed), peak_bytes_.load(std::memory_order_relaxed),
          limit_bytes_.load(std::memory_order_relaxed), refusals_.load(std::memory_order_relaxed)};
}

}  // namespace spillway
