#include "proxy/base/memory_wait.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "allocator/memory_queue.h"

namespace spillway {

namespace {

// How often a waiting request is asked whether it is still wanted. Its client may have left; the check costs a system
// call.
constexpr Duration asked_every = std::chrono::milliseconds(500);

// Sleeps until a thread wakes it, or for a time. Lives on its loop; a posted call keeps it alive.
class LoopSleeper final : public MemoryQueue::Sleeper, public Timer, public std::enable_shared_from_this<LoopSleeper> {
 public:
  explicit LoopSleeper(Loop& loop) : loop_(loop) {}

  void wake() noexcept override {
    if (woken_.exchange(true)) return;
    loop_.post([self = shared_from_this()] { self->resume(); });
  }
  void on_timer() override { resume(); }

  // co_await sleeper.sleep_until(at): at once if it was woken since the last time.
  struct Sleep {
    LoopSleeper& sleeper;
    TimePoint at;
    bool await_ready() const noexcept { return sleeper.woken_.load(); }
    void await_suspend(std::coroutine_handle<> waiter) {
      sleeper.waiter_ = waiter;
      sleeper.loop_.arm(sleeper, at);
    }
    void await_resume() const noexcept { sleeper.woken_.store(false); }
  };
  Sleep sleep_until(TimePoint at) noexcept { return {*this, at}; }

 private:
  void resume() {
    if (!waiter_) return;
    loop_.disarm(*this);
    std::exchange(waiter_, nullptr).resume();
  }

  Loop& loop_;
  std::coroutine_handle<> waiter_;
  std::atomic<bool> woken_{false};
};

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

// Whether an empty proxy would have room for `bytes`.
bool could_ever_fit(const MemoryBudget& budget, std::size_t bytes) noexcept {
  const std::uint64_t ceiling = budget.ceiling_bytes();
  if (ceiling == 0 || bytes <= ceiling) return true;
  return budget.queue() != nullptr && bytes <= budget.queue()->large_bytes();
}

template <class T>
Task<std::optional<T>> wait_for(Loop& loop, MemoryBudget& budget, std::size_t bytes,
                                TimePoint deadline, const std::function<bool()>& wanted,
                                bool in_line, MemoryQueue::Holder holder) {
  MemoryQueue* const queue = budget.queue();
  if (queue == nullptr || !could_ever_fit(budget, bytes)) co_return std::nullopt;
  if (queue->full(holder)) {
    queue->count_in_vain();
    co_return std::nullopt;
  }
  const auto sleeper = std::make_shared<LoopSleeper>(loop);
  // A request that the reserve could never hold does not block others that fit.
  MemoryQueue::Place place(*queue, *sleeper, in_line && bytes <= queue->large_bytes(), holder);
  TimePoint asked = Clock::now();
  for (;;) {
    if (place.first()) {
      auto taken = in_line ? take_now<T>(budget, bytes)
                           : take(budget, bytes, static_cast<T*>(nullptr));
      MemoryBudget* const reserve = taken || !place.in_line() ? nullptr : place.reserve();
      if (reserve != nullptr) taken = take(*reserve, bytes, static_cast<T*>(nullptr));
      if (taken) {
        place.count_served();
        co_return taken;
      }
    }
    const TimePoint now = Clock::now();
    if (now >= deadline) break;
    co_await sleeper->sleep_until(std::min(deadline, now + asked_every));
    if (Clock::now() < asked + asked_every) continue;
    asked = Clock::now();
    if (!wanted()) co_return std::nullopt;
  }
  queue->count_in_vain();
  co_return std::nullopt;
}

template <class T>
Task<std::optional<T>> take_or_wait(Loop& loop, MemoryBudget& budget, std::size_t bytes,
                                    TimePoint deadline, const std::function<bool()>& wanted,
                                    MemoryQueue::Holder holder) {
  if (!must_wait(budget, bytes, holder)) {
    if (auto taken = take_now<T>(budget, bytes)) co_return taken;
  }
  co_return co_await wait_for<T>(loop, budget, bytes, deadline, wanted, true, holder);
}

}  // namespace

bool must_wait(const MemoryBudget& budget, std::size_t bytes, MemoryQueue::Holder holder) noexcept {
  return bytes > MemoryQueue::small_bytes_max && budget.queue() != nullptr && budget.queue()->must_join(holder);
}

std::optional<Buffer> allocate_now(MemoryBudget& budget, std::size_t bytes) noexcept {
  return take_now<Buffer>(budget, bytes);
}

std::optional<Reservation> reserve_now(MemoryBudget& budget, std::size_t bytes) noexcept {
  return take_now<Reservation>(budget, bytes);
}

Task<std::optional<Buffer>> wait_for_buffer(Loop& loop, MemoryBudget& budget, std::size_t bytes,
                                            TimePoint deadline,
                                            const std::function<bool()>& wanted, MemoryQueue::Holder holder) {
  return wait_for<Buffer>(loop, budget, bytes, deadline, wanted, true, holder);
}

Task<std::optional<Reservation>> wait_for_reservation(Loop& loop, MemoryBudget& budget,
                                                      std::size_t bytes, TimePoint deadline,
                                                      const std::function<bool()>& wanted,
                                                      bool in_line) {
  return wait_for<Reservation>(loop, budget, bytes, deadline, wanted, in_line, nullptr);
}

Task<std::optional<Buffer>> allocate_or_wait(Loop& loop, MemoryBudget& budget, std::size_t bytes,
                                             TimePoint deadline,
                                             const std::function<bool()>& wanted, MemoryQueue::Holder holder) {
  return take_or_wait<Buffer>(loop, budget, bytes, deadline, wanted, holder);
}

Task<std::optional<Reservation>> reserve_or_wait(Loop& loop, MemoryBudget& budget,
                                                 std::size_t bytes, TimePoint deadline,
                                                 const std::function<bool()>& wanted, MemoryQueue::Holder holder) {
  return take_or_wait<Reservation>(loop, budget, bytes, deadline, wanted, holder);
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

Error without_writes(Error refusal) {
  constexpr std::string_view label = "NoWritesPerformed";
  const bool has_it = std::find(refusal.labels.begin(), refusal.labels.end(), label) != refusal.labels.end();
  if (refusal.is(ErrorCode::ingress_request_rate_limit_exceeded) && !has_it) refusal.labels.emplace_back(label);
  return refusal;
}

}  // namespace spillway
