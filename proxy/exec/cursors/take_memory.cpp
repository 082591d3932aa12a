#include "proxy/exec/cursors/take_memory.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "allocator/pressure.h"
#include "proxy/base/memory_wait.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/cursors/cursor_keeper.h"

namespace spillway::exec {

namespace {

// An operation that has not begun may be tried again.
constexpr Duration open_wait_max = std::chrono::seconds(5);

std::function<bool()> not_interrupted(const shard::Interrupt* interrupt) {
  return [interrupt] { return shard::requested_of(interrupt) == nullptr; };
}

TimePoint end_of(const Patience& patience) noexcept {
  return std::min(patience.deadline, Clock::now() + patience.longest);
}

Error refusal(const Patience& patience, const MemoryBudget& budget, std::size_t bytes,
              std::string_view what) {
  if (const Error* why = shard::requested_of(patience.interrupt)) return *why;
  if (Clock::now() >= patience.deadline) return time_limit_exceeded();
  return memory_refused(budget, bytes, what);
}

}  // namespace

Task<Result<Buffer>> take_buffer(Context& context, Patience patience, MemoryBudget& budget,
                                 std::size_t bytes, std::string_view what) {
  const auto wanted = not_interrupted(patience.interrupt);
  auto taking = allocate_or_wait(context.loop, budget, bytes, end_of(patience), wanted, patience.holder);
  auto taken = co_await taking;
  if (!taken) co_return refusal(patience, budget, bytes, what);
  co_return *std::move(taken);
}

Task<Result<Reservation>> take_reservation(Context& context, Patience patience,
                                           MemoryBudget& budget, std::size_t bytes,
                                           std::string_view what) {
  const auto wanted = not_interrupted(patience.interrupt);
  auto taking = reserve_or_wait(context.loop, budget, bytes, end_of(patience), wanted, patience.holder);
  auto taken = co_await taking;
  if (!taken) co_return refusal(patience, budget, bytes, what);
  co_return *std::move(taken);
}

Task<Result<Reservation>> wait_to_open(Context& context, const Request& request, MemoryBudget& budget,
                                       std::size_t bytes, std::size_t left, std::string_view what) {
  const Patience patience{request.interrupt, request.deadline, open_wait_max};
  const auto wanted = not_interrupted(patience.interrupt);
  auto waiting = wait_for_reservation(context.loop, budget, bytes + left, end_of(patience), wanted, false);
  auto taken = co_await waiting;
  if (!taken) co_return refusal(patience, budget, bytes, what);
  taken->shrink_to(bytes);
  co_return *std::move(taken);
}

Task<Result<Reservation>> TakeCopyRoom::take() {
  MemoryBudget& budget = context_.shared.memory.writes;
  const std::size_t bytes = copies_ * request_.body.size();
  if (!context_.shared.memory.work_queue.somebody_waits()) {
    if (auto taken = budget.try_reserve(bytes)) co_return *std::move(taken);
  }
  auto waiting = wait_to_open(context_, request_, budget, bytes, 0, "a command for several shards");
  co_return co_await waiting;
}

bool is_half_free(const Context& context, std::uint64_t coming_bytes) noexcept {
  const BudgetUsage usage = context.shared.memory.payload_usage();
  if (usage.limit_bytes == 0) return true;
  if (usage.used_bytes + coming_bytes > usage.limit_bytes / 2) return false;
  // Memory that sockets have borrowed is given back later.
  return context.shared.memory.process.usage().used_bytes + coming_bytes <= usage.limit_bytes / 8 * 7;
}

bool is_scarce(const Context& context, std::uint64_t coming_bytes) noexcept {
  // The level is sampled. Many requests at once use up memory faster than it changes.
  return context.shared.pressure.at_least(PressureLevel::tight) || !is_half_free(context, coming_bytes);
}

std::optional<Error> refuse_new_cursor(Context& context, Client& client) {
  const Pressure& pressure = context.shared.pressure;
  if (!pressure.at_least(PressureLevel::critical)) return std::nullopt;
  // The level sinks seconds after the budgets, and counts what sockets have borrowed and give back: it can wait for
  // that.
  const BudgetUsage usage = context.shared.memory.payload_usage();
  const PressureState state = pressure.state();
  const bool by_budget = state.cause == PressureCause::budget && state.last.group_missing_bytes() == 0;
  if (by_budget && usage.used_bytes < usage.limit_bytes / 4 * 3) return std::nullopt;
  if (take_from_large_holders(context, *client.presence.facts())) return std::nullopt;
  context.shared.metrics.cursors_refused.add();
  return overloaded("memory is short: no cursor that merges several shards is opened now; try again later");
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

}  // namespace spillway::exec
