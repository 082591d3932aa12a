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

std::function<bool()> not_interrupted(const Request& request) {
  return [interrupt = request.interrupt] {
    return interrupt == nullptr || interrupt->requested() == nullptr;
  };
}

Error refusal(const Request& request, const MemoryBudget& budget, std::size_t bytes,
              std::string_view what) {
  if (request.interrupt != nullptr && request.interrupt->requested() != nullptr) {
    return *request.interrupt->requested();
  }
  if (Clock::now() >= request.deadline) {
    return Error(ErrorCode::max_time_ms_expired, "operation exceeded time limit");
  }
  return memory_refused(budget, bytes, what);
}

}  // namespace

Task<Result<Buffer>> take_buffer(Context& context, const Request& request, MemoryBudget& budget,
                                 std::size_t bytes, std::string_view what) {
  auto taken = allocate_now(budget, bytes);
  if (!taken) {
    const auto wanted = not_interrupted(request);
    auto waiting = wait_for_buffer(context.loop, budget, bytes,
                                   std::min(request.deadline, Clock::now() + wait_max), wanted);
    taken = co_await waiting;
  }
  if (!taken) co_return refusal(request, budget, bytes, what);
  co_return *std::move(taken);
}

Task<Result<Reservation>> take_reservation(Context& context, const Request& request,
                                           MemoryBudget& budget, std::size_t bytes,
                                           std::string_view what) {
  auto taken = reserve_now(budget, bytes);
  if (!taken) {
    const auto wanted = not_interrupted(request);
    auto waiting = wait_for_reservation(
        context.loop, budget, bytes, std::min(request.deadline, Clock::now() + wait_max), wanted);
    taken = co_await waiting;
  }
  if (!taken) co_return refusal(request, budget, bytes, what);
  co_return *std::move(taken);
}

bool is_scarce(const Context& context) noexcept {
  if (context.shared.pressure.at_least(PressureLevel::tight)) return true;
  // The level is sampled, and a crowd is faster.
  const BudgetUsage usage = context.shared.memory.usage();
  return usage.limit_bytes != 0 && usage.used_bytes > usage.limit_bytes / 2;
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
