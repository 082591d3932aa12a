#include "proxy/exec/take_memory.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "proxy/base/memory_wait.h"
#include "proxy/exec/cursor_keeper.h"

namespace spillway::exec {

namespace {

// What is under way is worth waiting for: a getMore cannot be tried again.
constexpr Duration wait_max = std::chrono::seconds(30);
// What has not begun may be tried again.
constexpr Duration open_wait_max = std::chrono::seconds(5);

std::function<bool()> not_interrupted(const shard::Interrupt* interrupt) {
  return [interrupt] { return interrupt == nullptr || interrupt->requested() == nullptr; };
}

Error refusal(const shard::Interrupt* interrupt, TimePoint deadline, const MemoryBudget& budget, std::size_t bytes,
              std::string_view what) {
  if (interrupt != nullptr && interrupt->requested() != nullptr) return *interrupt->requested();
  if (Clock::now() >= deadline) {
    return Error(ErrorCode::max_time_ms_expired, "operation exceeded time limit");
  }
  return memory_refused(budget, bytes, what);
}

}  // namespace

Task<Result<Buffer>> take_buffer_for(Context& context, const shard::Interrupt* interrupt, TimePoint deadline,
                                     MemoryBudget& budget, std::size_t bytes, std::string_view what) {
  auto taken = allocate_now(budget, bytes);
  if (!taken) {
    const auto wanted = not_interrupted(interrupt);
    auto waiting = wait_for_buffer(context.loop, budget, bytes, std::min(deadline, Clock::now() + wait_max), wanted);
    taken = co_await waiting;
  }
  if (!taken) co_return refusal(interrupt, deadline, budget, bytes, what);
  co_return *std::move(taken);
}

Task<Result<Buffer>> take_buffer(Context& context, const Request& request, MemoryBudget& budget,
                                 std::size_t bytes, std::string_view what) {
  return take_buffer_for(context, request.interrupt, request.deadline, budget, bytes, what);
}

Task<Result<Reservation>> take_reservation(Context& context, const Request& request,
                                           MemoryBudget& budget, std::size_t bytes,
                                           std::string_view what) {
  auto taken = reserve_now(budget, bytes);
  if (!taken) {
    const auto wanted = not_interrupted(request.interrupt);
    auto waiting = wait_for_reservation(
        context.loop, budget, bytes, std::min(request.deadline, Clock::now() + wait_max), wanted);
    taken = co_await waiting;
  }
  if (!taken) co_return refusal(request.interrupt, request.deadline, budget, bytes, what);
  co_return *std::move(taken);
}

Task<Result<std::vector<Buffer>>> take_rooms(Context& context, const Request& request, std::size_t count,
                                             std::size_t bytes_each) {
  MemoryBudget& budget = context.shared.cursor_memory;
  const TimePoint deadline = std::min(request.deadline, Clock::now() + open_wait_max);
  const auto wanted = not_interrupted(request.interrupt);
  std::vector<Buffer> rooms;
  for (;;) {
    // What open cursors have taken from the reserve is theirs in turn: without it they could not go on.
    const std::uint64_t lent = context.shared.work_queue.usage().large.used_bytes;
    const std::uint64_t wanted_bytes = count * bytes_each + lent;
    if (auto there = budget.try_reserve(wanted_bytes)) {
      there->release();
      for (std::size_t i = 0; i < count; ++i) {
        auto room = Buffer::allocate(budget, bytes_each);
        if (!room) break;
        rooms.push_back(*std::move(room));
      }
      if (rooms.size() == count) co_return std::move(rooms);
      rooms.clear();
    }
    auto waiting = wait_for_reservation(context.loop, budget, wanted_bytes, deadline, wanted, false);
    const auto there = co_await waiting;
    if (!there) {
      co_return refusal(request.interrupt, request.deadline, budget, count * bytes_each,
                        "a cursor over several shards");
    }
  }
}

bool is_scarce(const Context& context) noexcept {
  if (context.shared.pressure.at_least(PressureLevel::tight)) return true;
  // The level is sampled, and a crowd is faster.
  const BudgetUsage usage = context.shared.memory.usage();
  return usage.limit_bytes != 0 && usage.used_bytes > usage.limit_bytes / 2;
}

OpeningShare::OpeningShare(Context& context, std::uint64_t bytes) noexcept : context_(context), bytes_(bytes) {
  context_.shared.opening_bytes.fetch_add(bytes_, std::memory_order_relaxed);
}

OpeningShare::~OpeningShare() { context_.shared.opening_bytes.fetch_sub(bytes_, std::memory_order_relaxed); }

bool OpeningShare::is_scarce() const noexcept {
  if (exec::is_scarce(context_)) return true;
  const BudgetUsage usage = context_.shared.memory.usage();
  const std::uint64_t opening = context_.shared.opening_bytes.load(std::memory_order_relaxed);
  return usage.limit_bytes != 0 && usage.used_bytes + opening > usage.limit_bytes / 2;
}

std::optional<Error> refuse_new_cursor(Context& context, Client& client) {
  if (!context.shared.pressure.at_least(PressureLevel::critical)) return std::nullopt;
  if (take_from_large_holders(context, client)) return std::nullopt;
  context.shared.metrics.cursors_refused.add();
  Error error(ErrorCode::ingress_request_rate_limit_exceeded,
              "memory is short: no cursor that merges several shards is opened now; try again later");
  error.labels = {"SystemOverloadedError", "RetryableError"};
  return error;
}

Error try_again(Error refusal) {
  if (refusal.is(ErrorCode::ingress_request_rate_limit_exceeded)) {
    refusal.labels = {"SystemOverloadedError", "RetryableError"};
  }
  return refusal;
}

Error do_not_try_again(Error refusal) {
  if (refusal.is(ErrorCode::ingress_request_rate_limit_exceeded)) refusal.labels.clear();
  return refusal;
}

Error without_writes(Error refusal) {
  if (refusal.is(ErrorCode::ingress_request_rate_limit_exceeded)) {
    refusal.labels.emplace_back("NoWritesPerformed");
  }
  return refusal;
}

}  // namespace spillway::exec
