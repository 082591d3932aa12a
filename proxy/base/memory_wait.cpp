#include "proxy/base/memory_wait.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "allocator/memory_queue.h"

namespace spillway {

namespace {

// Memory comes back on any thread, at any time: looked for again after so long, longer each time.
constexpr Duration poll_first = std::chrono::milliseconds(1);
constexpr Duration poll_longest = std::chrono::milliseconds(16);

std::optional<Buffer> take(MemoryBudget& budget, std::size_t bytes, Buffer*) noexcept {
  return Buffer::allocate(budget, bytes);
}
std::optional<Reservation> take(MemoryBudget& budget, std::size_t bytes, Reservation*) noexcept {
  return budget.try_reserve(bytes);
}

template <class T>
std::optional<T> take_now(MemoryBudget& budget, std::size_t bytes) noexcept {
  auto taken = take(budget, bytes, static_cast<T*>(nullptr));
  if (taken || bytes > MemoryQueue::small_bytes_max) return taken;
  MemoryQueue* queue = budget.queue();
  if (queue == nullptr || queue->small() == nullptr) return taken;
  return take(*queue->small(), bytes, static_cast<T*>(nullptr));
}

// Whether an empty proxy would have room for so many bytes.
bool could_ever_fit(const MemoryBudget& budget, std::size_t bytes) noexcept {
  const std::uint64_t ceiling = budget.ceiling_bytes();
  if (ceiling == 0 || bytes <= ceiling) return true;
  return budget.queue() != nullptr && bytes <= budget.queue()->large_bytes();
}

template <class T>
Task<std::optional<T>> wait_for(Loop& loop, MemoryBudget& budget, std::size_t bytes,
                                TimePoint deadline, const std::function<bool()>& wanted,
                                bool in_line) {
  MemoryQueue* const queue = budget.queue();
  if (queue == nullptr || !could_ever_fit(budget, bytes)) co_return std::nullopt;
  // What the reserve could never hold does not stand in the way of what it can.
  const MemoryQueue::Place place(*queue, in_line && bytes <= queue->large_bytes());
  Duration pause = poll_first;
  while (Clock::now() < deadline) {
    co_await loop.sleep_until(std::min(deadline, Clock::now() + pause));
    pause = std::min(pause * 2, poll_longest);
    if (!wanted()) co_return std::nullopt;
    if (place.in_line() && !place.first()) continue;
    auto taken = in_line ? take_now<T>(budget, bytes)
                         : take(budget, bytes, static_cast<T*>(nullptr));
    if (!taken && place.in_line()) taken = take(*queue->large(), bytes, static_cast<T*>(nullptr));
    if (taken) co_return taken;
  }
  queue->count_in_vain();
  co_return std::nullopt;
}

template <class T>
Task<std::optional<T>> take_or_wait(Loop& loop, MemoryBudget& budget, std::size_t bytes,
                                    TimePoint deadline, const std::function<bool()>& wanted) {
  auto taken = take_now<T>(budget, bytes);
  if (taken) co_return taken;
  auto waiting = wait_for<T>(loop, budget, bytes, deadline, wanted, true);
  co_return co_await waiting;
}

}  // namespace

std::optional<Buffer> allocate_now(MemoryBudget& budget, std::size_t bytes) noexcept {
  return take_now<Buffer>(budget, bytes);
}

std::optional<Reservation> reserve_now(MemoryBudget& budget, std::size_t bytes) noexcept {
  return take_now<Reservation>(budget, bytes);
}

Task<std::optional<Buffer>> wait_for_buffer(Loop& loop, MemoryBudget& budget, std::size_t bytes,
                                            TimePoint deadline,
                                            const std::function<bool()>& wanted) {
  return wait_for<Buffer>(loop, budget, bytes, deadline, wanted, true);
}

Task<std::optional<Reservation>> wait_for_reservation(Loop& loop, MemoryBudget& budget,
                                                      std::size_t bytes, TimePoint deadline,
                                                      const std::function<bool()>& wanted,
                                                      bool in_line) {
  return wait_for<Reservation>(loop, budget, bytes, deadline, wanted, in_line);
}

Task<std::optional<Buffer>> allocate_or_wait(Loop& loop, MemoryBudget& budget, std::size_t bytes,
                                             TimePoint deadline,
                                             const std::function<bool()>& wanted) {
  return take_or_wait<Buffer>(loop, budget, bytes, deadline, wanted);
}

Task<std::optional<Reservation>> reserve_or_wait(Loop& loop, MemoryBudget& budget,
                                                 std::size_t bytes, TimePoint deadline,
                                                 const std::function<bool()>& wanted) {
  return take_or_wait<Reservation>(loop, budget, bytes, deadline, wanted);
}

Error memory_refused(const MemoryBudget& budget, std::size_t bytes, std::string_view what) {
  if (!could_ever_fit(budget, bytes)) {
    return Error(ErrorCode::exceeded_memory_limit,
                 fmt::format("{} needs {} bytes, more than the {} bytes that memory.limit leaves",
                             what, bytes, budget.ceiling_bytes()));
  }
  Error error(ErrorCode::ingress_request_rate_limit_exceeded,
              fmt::format("memory is short: {} needs {} bytes; try again later", what, bytes));
  error.labels = {"SystemOverloadedError", "RetryableError"};
  return error;
}

}  // namespace spillway
