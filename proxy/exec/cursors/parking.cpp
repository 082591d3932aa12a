#include "proxy/exec/cursors/parking.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "allocator/pressure.h"
#include "allocator/spill.h"
#include "cursor/registry.h"
#include "proxy/base/log.h"
#include "proxy/config/parameters.h"
#include "proxy/exec/core/process_memory.h"

namespace spillway::exec {

namespace {

constexpr auto tight_idle = std::chrono::seconds(1);
constexpr auto critical_idle = std::chrono::milliseconds(250);
constexpr auto room_retry = std::chrono::milliseconds(20);
constexpr auto parked_interrupt_check = std::chrono::milliseconds(100);
// Per round. The next round begins after one second; after 250 ms while memory is tight.
constexpr std::size_t cursors_per_round = 64;
// Smaller cursors are not parked: the gain would be too small.
constexpr std::size_t parked_bytes_min = 16 * limits::kib;

// Lives until the store has answered, even if the caller has stopped waiting.
struct Unparking final : Timer {
  Event done;
  std::optional<SpillFetched> fetched;
  void on_timer() override { done.set(); }
};

Error read_back_failed(std::string_view why) {
  return Error(ErrorCode::operation_failed,
               fmt::format("documents of this cursor that were spilled to memory.spill.path "
                           "cannot be read back: {}",
                           why));
}

Error error_of(SpillError error) {
  switch (error) {
    case SpillError::no_memory:
      return overloaded("memory is short: no room for this cursor's next documents; try again later");
    case SpillError::io:
      return read_back_failed("the file gives errors");
    case SpillError::corrupt:
      return read_back_failed("the file gives other bytes than were written");
    case SpillError::stopped:
    case SpillError::none:
      break;
  }
  return read_back_failed("the server is shutting down");
}

// nullopt: no answer in time, or an interrupt. The store may still be working.
Task<std::optional<SpillFetched>> fetch_once(Context& context, SpillTicket& ticket,
                                             MemoryBudget& budget,
                                             const shard::Interrupt* interrupt,
                                             TimePoint deadline) {
  auto state = std::make_shared<Unparking>();
  const SpillDone later = [state, loop = &context.loop](SpillFetched fetched) {
    loop->post([state, fetched = std::move(fetched)]() mutable {
      state->fetched = std::move(fetched);
      state->done.set();
    });
  };
  auto now = context.shared.spill->fetch(ticket, budget, later);
  if (now) co_return std::move(now);
  while (!state->fetched && shard::requested_of(interrupt) == nullptr && Clock::now() < deadline) {
    context.loop.arm(*state, std::min<TimePoint>(deadline, Clock::now() + parked_interrupt_check));
    co_await state->done;
    context.loop.disarm(*state);
    state->done.clear();
  }
  co_return std::exchange(state->fetched, std::nullopt);
}

Duration idle_for(PressureLevel level, std::int64_t configured_ms) {
  const Duration configured = std::chrono::milliseconds(configured_ms);
  switch (level) {
    case PressureLevel::normal:
      return configured;
    case PressureLevel::tight:
      return std::min<Duration>(configured, tight_idle);
    case PressureLevel::critical:
      break;
  }
  return std::min<Duration>(configured, critical_idle);
}

}  // namespace

Task<Result<SpillFetched>> fetch_parked(Context& context, SpillTicket& ticket,
                                        MemoryBudget& budget, const shard::Interrupt* interrupt) {
  const TimePoint deadline = Clock::now() + unpark_wait_max;
  for (;;) {
    if (const Error* why = shard::requested_of(interrupt)) co_return *why;
    std::optional<SpillFetched> fetched = co_await fetch_once(context, ticket, budget, interrupt, deadline);
    if (!fetched && shard::requested_of(interrupt) != nullptr) continue;
    if (!fetched) co_return read_back_failed("the file does not answer");
    if (fetched->error == SpillError::none) co_return *std::move(fetched);
    if (fetched->error != SpillError::no_memory || Clock::now() >= deadline) {
      co_return error_of(fetched->error);
    }
    // Meanwhile getMores of other cursors free memory.
    co_await context.loop.sleep_for(room_retry);
  }
}

Task<Result<void>> unpark(Context& context, RemoteCursor& remote, shard::Interrupt* interrupt) {
  auto fetched = co_await fetch_parked(context, remote.parked.front(), context.shared.memory.cursors, interrupt);
  if (fetched.has_error()) {
    if (fetched.error().is(ErrorCode::operation_failed)) {
      log::warning("a cursor ends: its parked documents did not come back ({})", fetched.error().message);
    }
    co_return fetched.error();
  }
  remote.unpark(Batch(std::move(fetched->buffer), fetched->begin, fetched->end));
  co_return Result<void>();
}

void park_idle_cursors(Context& context, TimePoint now) {
  SpillStore* const store = context.shared.spill.get();
  if (store == nullptr) return;
  const PressureLevel level = context.shared.pressure.level();
  if (level == PressureLevel::normal && !store->has_file()) return;
  const Duration idle = idle_for(level, context.shared.parameters.spill_idle_ms.load());
  const std::int64_t now_ns = now.time_since_epoch().count();
  const std::int64_t not_after = (now - idle).time_since_epoch().count();
  CursorRegistry& cursors = context.shared.cursors;
  for (const std::int64_t id :
       cursors.heaviest_idle(not_after, parked_bytes_min, cursors_per_round)) {
    cursors.with_idle(id, [&](ClusterCursor& cursor) {
      cursor.park(*store, now_ns);
      if (cursor.charge.account() != nullptr) cursor.charge.hold(cursor.buffered_bytes());
    });
  }
}

}  // namespace spillway::exec
