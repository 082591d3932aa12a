// Bounds how many large messages are read and dropped at a time; other requests without memory keep waiting. Refused
// clients send everything again, which would leave no time for accepted requests.
#pragma once

#include <atomic>
#include <cstddef>

#include "allocator/limits.h"

namespace spillway::server {

// One refusal under way, counted in `taken`, which all workers share; small messages are not counted.
class RefusalSlot {
 public:
  RefusalSlot(std::atomic<int>& taken, std::size_t message_bytes) noexcept
      : taken_(message_bytes >= large_bytes ? &taken : nullptr),
        free_(taken_ == nullptr || taken_->fetch_add(1, std::memory_order_relaxed) < slots) {}
  RefusalSlot(const RefusalSlot&) = delete;
  RefusalSlot& operator=(const RefusalSlot&) = delete;
  ~RefusalSlot() {
    if (taken_ != nullptr) taken_->fetch_sub(1, std::memory_order_relaxed);
  }

  // Would one be free?
  static bool may_take(const std::atomic<int>& taken, std::size_t message_bytes) noexcept {
    return message_bytes < large_bytes || taken.load(std::memory_order_relaxed) < slots;
  }
  // False: too many others are being refused now.
  bool free() const noexcept { return free_; }

 private:
  static constexpr int slots = 4;
  static constexpr std::size_t large_bytes = 1 * limits::mib;

  std::atomic<int>* taken_;
  bool free_;
};

}  // namespace spillway::server
