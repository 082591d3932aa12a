// What the kernel buffers of moving streams may grow by, in the kernel's own count. Thread-safe.
//
// A part is set aside for sockets. More is borrowed from the payload's memory, while at most three quarters of that are
// in use. Above seven eighths, what was borrowed is wanted back.
#pragma once

#include <cstdint>

#include "allocator/budget.h"

namespace spillway {

class SocketGrowth {
 public:
  explicit SocketGrowth(MemoryBudget* payload) noexcept
      : own_("socketGrowth", 0), borrowed_("sockets", 0, payload), payload_(payload) {}

  // 0: none. Before the first take(), and after the payload's own limit is set.
  void set_limits(std::uint64_t own_bytes, std::uint64_t borrowed_bytes) noexcept;

  // For one end of a stream; may be empty. The first eight streams get equal parts, later ones less.
  Reservation take_for_receiving() noexcept;
  Reservation take_for_sending() noexcept;
  // Of the part that is set aside.
  std::optional<Reservation> try_reserve(std::uint64_t bytes) noexcept { return own_.try_reserve(bytes); }
  bool wants_back(const Reservation& taken) const noexcept;

  const MemoryBudget& own() const noexcept { return own_; }
  const MemoryBudget& borrowed() const noexcept { return borrowed_; }

 private:
  Reservation take(std::uint64_t part, std::uint64_t most) noexcept;
  std::uint64_t left_to_borrow() const noexcept;

  MemoryBudget own_;
  MemoryBudget borrowed_;
  const MemoryBudget* payload_;  // null: nothing is borrowed
  std::uint64_t own_limit_bytes_ = 0;
  std::uint64_t borrowed_limit_bytes_ = 0;
};

}  // namespace spillway
