// A tree of byte counters that bound memory. A charge on a node is a charge on all its
// ancestors. (Model: seastar's semaphore_units for the reservation.)
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace spillway {

class MemoryBudget;
class MemoryQueue;

// A right to hold bytes. Move-only; the destructor gives them back. Not thread-safe itself; may be moved to and
// released on another thread.
class [[nodiscard]] Reservation {
 public:
  Reservation() noexcept = default;
  Reservation(Reservation&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Reservation& operator=(Reservation&& other) noexcept {
    if (this != &other) {
      if (budget_ != nullptr) release();
      budget_ = std::exchange(other.budget_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }
  ~Reservation() {
    if (budget_ != nullptr) release();  // most are empty: they have been moved from
  }

  [[nodiscard]] bool try_grow(std::uint64_t more_bytes) noexcept;
  void shrink_to(std::uint64_t bytes) noexcept;             // REQUIRES bytes <= this->bytes()
  Reservation split(std::uint64_t bytes) noexcept;          // REQUIRES bytes <= this->bytes()
  void merge(Reservation&& other) noexcept;                 // REQUIRES the same budget, or other empty
  void release() noexcept;
  std::uint64_t bytes() const noexcept { return bytes_; }
  MemoryBudget* budget() const noexcept { return budget_; }

 private:
  friend class MemoryBudget;
  Reservation(MemoryBudget* budget, std::uint64_t bytes) noexcept : budget_(budget), bytes_(bytes) {}
  MemoryBudget* budget_ = nullptr;
  std::uint64_t bytes_ = 0;
};

struct BudgetUsage {
  std::uint64_t used_bytes = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t limit_bytes = 0;  // 0: no limit of its own
  std::uint64_t refusals = 0;
};

// Thread-safe; never blocks, never allocates. A node outlives its children and reservations.
class MemoryBudget {
 public:
  // limit_bytes 0 means no limit of its own (the ancestors' still hold).
  MemoryBudget(std::string_view name, std::uint64_t limit_bytes, MemoryBudget* parent = nullptr);
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;
  ~MemoryBudget();  // checks that nothing is reserved

  // What is reserved already stays.
  void set_limit(std::uint64_t limit_bytes) noexcept { limit_bytes_.store(limit_bytes, std::memory_order_relaxed); }
  // Where refused requests may wait; null: nowhere. Set before the first use; outlives this node.
  void set_queue(MemoryQueue* queue) noexcept { queue_ = queue; }
  MemoryQueue* queue() const noexcept { return queue_; }
  // The queues in which requests may wait for memory that comes back here; null: none. Set before the first use.
  using Queues = std::array<MemoryQueue*, 2>;
  void set_wakes(const Queues& queues) noexcept { wakes_ = queues; }
  // The least of the limits that a charge must keep to; 0: none.
  std::uint64_t ceiling_bytes() const noexcept;
  // Would a charge fit now? Others may charge meanwhile.
  bool has_room(std::uint64_t bytes) const noexcept;

  // Charges this node and every ancestor, or nothing. A refusal is counted at the node that refused.
  [[nodiscard]] std::optional<Reservation> try_reserve(std::uint64_t bytes) noexcept;
  BudgetUsage usage() const noexcept;
  std::string_view name() const noexcept { return name_; }

 private:
  friend class Reservation;
  bool charge(std::uint64_t bytes) noexcept;
  void credit(std::uint64_t bytes) noexcept;

  std::string name_;
  std::atomic<std::uint64_t> limit_bytes_;
  MemoryBudget* parent_;
  MemoryQueue* queue_ = nullptr;
  Queues wakes_{};
  std::atomic<std::uint64_t> used_bytes_{0};
  std::atomic<std::uint64_t> peak_bytes_{0};
  std::atomic<std::uint64_t> refusals_{0};
};

}  // namespace spillway
