// ConnectionCounts: how many connections clients have. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace spillway::exec {

struct ConnectionCounts {
  std::atomic<std::int64_t> current{0};
  std::atomic<std::int64_t> total{0};
  std::atomic<std::int64_t> busy{0};  // that have sent more than hello
  std::atomic<std::int64_t> max{0};   // admitted at once; 0: not set
};

// Counts one in a counter while it lives.
class Counted {
 public:
  Counted() = default;
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { leave(); }
  void enter(std::atomic<std::int64_t>& counter) noexcept {
    if (counter_ != nullptr) return;
    counter_ = &counter;
    counter.fetch_add(1, std::memory_order_relaxed);
  }
  void leave() noexcept {
    if (counter_ != nullptr) std::exchange(counter_, nullptr)->fetch_sub(1, std::memory_order_relaxed);
  }

  bool entered() const noexcept { return counter_ != nullptr; }

 private:
  std::atomic<std::int64_t>* counter_ = nullptr;
};

}  // namespace spillway::exec
