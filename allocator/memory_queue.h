// MemoryQueue: requests that wait for memory, first come, first served, and a reserve for the first of them, so that
// the longest-waiting request always makes progress.
//
// Two reserves stand beside the budgets, not in them:
//   small  for pieces of up to small_bytes_max: commands, their answers. No request waits for them.
//   large  for one of the largest messages: the first in the queue takes from it.
// A request that holds memory of one queue takes more only from the small reserve, or from a queue whose holders need
// nothing of the first: so no deadlock is possible. Requests have one queue, and what is made of them (copies for
// shards, decompressed bytes, replies) has another.
//
// Cursors that merge are the exception: they wait for documents of one shard while they hold those of others. They have
// a line of their own, so that other requests do not wait behind them. One of them at a time takes from the large
// reserve, if no other request waits for it, and as long as it holds some of that, its waits come first: it goes on,
// whatever the others hold, if the reserve is large enough for a document of each shard.
//
// The caller does the waiting (proxy/base/memory_wait.h): only the first of a line tries. It is woken when memory
// comes back, or when it becomes the first. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string_view>

#include "allocator/budget.h"

namespace spillway {

struct MemoryQueueUsage {
  std::uint64_t waiting = 0;  // now
  std::uint64_t waits = 0;    // ever begun
  std::uint64_t in_vain = 0;  // ended without memory
  BudgetUsage large;
  BudgetUsage small;
};

class MemoryQueue {
 public:
  static constexpr std::uint64_t small_bytes_max = 64 * 1024;

  // A cursor that merges, by its address. Null: work that needs no second piece of memory while it holds one.
  using Holder = const void*;

  // Limits of 0: nothing is kept (a process without a limit).
  explicit MemoryQueue(std::string_view name) : large_(name, 0), held_(name, 0, &large_), small_(name, 0) {
    large_.set_wakes({this});
    small_.set_wakes({this});
  }
  MemoryQueue(const MemoryQueue&) = delete;
  MemoryQueue& operator=(const MemoryQueue&) = delete;

  // Before the first use.
  void set_reserves(std::uint64_t large_bytes, std::uint64_t small_bytes) noexcept;
  // Before the first use. Each waiting request holds what has arrived for it in the kernel, outside of any budget. 0:
  // no bound.
  void set_waiting_max(std::size_t waiting_max) noexcept { waiting_max_ = waiting_max; }

  // Null: there is no reserve.
  MemoryBudget* large() noexcept { return has_reserve_ ? &large_ : nullptr; }
  MemoryBudget* small() noexcept { return has_reserve_ ? &small_ : nullptr; }
  std::uint64_t large_bytes() const noexcept { return large_.usage().limit_bytes; }

  // Called on any thread, under the queue's lock: only passes the signal on.
  class Sleeper {
   public:
    virtual void wake() noexcept = 0;

   protected:
    ~Sleeper() = default;
  };

  class Place;
  // The waiting requests by their numbers, which rise. Those of the cursor that has the reserve have the lowest ones.
  struct Line {
    std::map<std::uint64_t, Place*> waiting;    // under the queue's lock
    std::atomic<std::uint64_t> first{0};        // 0: no request waits
    std::atomic<std::uint64_t> served{0};       // how many got their memory

    void set_first() noexcept { first.store(waiting.empty() ? 0 : waiting.begin()->first); }
    bool waits() const noexcept { return first.load(std::memory_order_relaxed) != 0; }
  };

  // One waiting request; leaves the queue when destroyed. The queue and the sleeper outlive it.
  class [[nodiscard]] Place {
   public:
    // `in_line`: false for a request that the reserve could never hold, and for optional work. These wait in a
    // separate line and delay no other request.
    Place(MemoryQueue& queue, Sleeper& sleeper, bool in_line = true, Holder holder = nullptr);
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place();
    bool in_line() const noexcept { return &line_ != &queue_.outside_; }
    bool first() const noexcept { return line_.first.load(std::memory_order_acquire) == number_.load(); }
    // What the first may take from now; null: another cursor has the reserve. REQUIRES in_line() and first().
    MemoryBudget* reserve();
    // It has got its memory.
    void count_served() noexcept { line_.served.fetch_add(1, std::memory_order_relaxed); }

   private:
    friend class MemoryQueue;
    MemoryQueue& queue_;
    Line& line_;
    Sleeper& sleeper_;
    const Holder holder_;
    std::atomic<std::uint64_t> number_{0};
  };

  bool somebody_waits() const noexcept { return line_.waits() || merges_.waits() || outside_.waits(); }
  // Of those that merge, and of all others.
  const Line& merges() const noexcept { return merges_; }
  const Line& others() const noexcept { return line_; }
  // Others have come first: a new request that can wait joins them.
  bool must_join(Holder holder) const noexcept {
    return line_.waits() || (holder != nullptr && merges_.waits() && !holds_reserve(holder));
  }
  // No further request may wait, but for the cursor that has the reserve.
  bool full(Holder holder = nullptr) const noexcept {
    return waiting_max_ != 0 && waiting_.load(std::memory_order_relaxed) >= waiting_max_ && !holds_reserve(holder);
  }
  bool is_large_reserve(const MemoryBudget* budget) const noexcept { return budget == &large_ || budget == &held_; }
  // Memory has come back.
  void wake_first() noexcept;
  // A request gave up waiting, or could not wait.
  void count_in_vain() noexcept { in_vain_.fetch_add(1, std::memory_order_relaxed); }
  MemoryQueueUsage usage() const;

 private:
  static constexpr std::uint64_t first_number = std::uint64_t{1} << 62;  // of those that have no precedence

  bool holds_reserve(Holder holder) const noexcept {
    return holder != nullptr && holder == holder_.load() && held_.usage().used_bytes > 0;
  }
  void give_reserve(Holder holder);  // under the lock: its waits come first from now on, and no other's

  std::mutex mutex_;
  Line line_, merges_, outside_;
  std::uint64_t next_ = first_number;
  std::uint64_t next_preceding_ = 1;
  std::atomic<Holder> holder_{nullptr};  // the last that took from held_
  std::atomic<std::uint64_t> waits_{0};
  std::atomic<std::uint64_t> in_vain_{0};
  std::size_t waiting_max_ = 0;
  std::atomic<std::size_t> waiting_{0};
  bool has_reserve_ = false;
  MemoryBudget large_;
  MemoryBudget held_;  // the part of it that a cursor holds
  MemoryBudget small_;
};

}  // namespace spillway
