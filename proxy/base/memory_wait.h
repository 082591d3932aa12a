// Memory for bytes that a peer sends, waited for where it is short: the socket stays unread
// meanwhile, and the kernel slows the peer down.
//
//   auto taking = allocate_or_wait(loop, budget, bytes, deadline, wanted);
//   std::optional<Buffer> buffer = co_await taking;
//
// A wait ends with nothing when there is no queue, when too many wait, when `bytes` could never fit, when the deadline
// passes, or when `wanted` returns false. `wanted` is called now and then, on the loop, and outlives the wait.
//
// First come, first served: a request that can wait joins the line where there is one, and only the first of it is
// woken when memory is given back. `holder`: the cursor that the memory is for, if it merges (MemoryQueue).
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>

#include "allocator/buffer.h"
#include "allocator/memory_queue.h"
#include "cursor/error.h"
#include "proxy/base/loop.h"

namespace spillway {

// From the budget; a small request also from the small reserve of the budget's queue.
std::optional<Buffer> allocate_now(MemoryBudget& budget, std::size_t bytes) noexcept;
std::optional<Reservation> reserve_now(MemoryBudget& budget, std::size_t bytes) noexcept;
// Others wait for the same memory. (A small request has a reserve and never waits.)
bool must_wait(const MemoryBudget& budget, std::size_t bytes, MemoryQueue::Holder holder = nullptr) noexcept;

Task<std::optional<Buffer>> wait_for_buffer(Loop& loop, MemoryBudget& budget, std::size_t bytes,
                                            TimePoint deadline,
                                            const std::function<bool()>& wanted,
                                            MemoryQueue::Holder holder = nullptr);
// `in_line`: false for optional work: it takes no reserve, and delays no other work.
Task<std::optional<Reservation>> wait_for_reservation(Loop& loop, MemoryBudget& budget,
                                                      std::size_t bytes, TimePoint deadline,
                                                      const std::function<bool()>& wanted,
                                                      bool in_line = true);

// At once if there is room, else by waiting, in line.
Task<std::optional<Buffer>> allocate_or_wait(Loop& loop, MemoryBudget& budget, std::size_t bytes,
                                             TimePoint deadline,
                                             const std::function<bool()>& wanted,
                                             MemoryQueue::Holder holder = nullptr);
Task<std::optional<Reservation>> reserve_or_wait(Loop& loop, MemoryBudget& budget,
                                                 std::size_t bytes, TimePoint deadline,
                                                 const std::function<bool()>& wanted,
                                                 MemoryQueue::Holder holder = nullptr);

// The error for a client: IngressRequestRateLimitExceeded(462) with the labels that make a driver try again, or
// ExceededMemoryLimit(146) if not even an empty proxy has room. `what` is a noun phrase: "a request".
Error memory_refused(const MemoryBudget& budget, std::size_t bytes, std::string_view what);
// The same for a write of which nothing was executed: with the label NoWritesPerformed.
Error without_writes(Error refusal);

}  // namespace spillway
