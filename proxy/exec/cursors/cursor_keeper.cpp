#include "proxy/exec/cursors/cursor_keeper.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "allocator/pressure.h"
#include "cursor/registry.h"
#include "proxy/base/log.h"
#include "proxy/config/parameters.h"
#include "proxy/exec/core/ask_workers.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/life_cycle.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/cursors/parking.h"
#include "proxy/exec/tables/open_clients.h"

namespace spillway::exec {

namespace {

// While memory is not short.
constexpr auto park_interval = std::chrono::seconds(1);
constexpr auto orphan_interval = std::chrono::seconds(1);
// Finds cursors that a getMore put back after the client's last connection had closed.
constexpr auto full_orphan_interval = std::chrono::seconds(10);
// The grace of orphans while memory is short: time enough to connect again.
constexpr std::int64_t short_orphan_grace_ms = 2'000;
// Evictions stop when this part of the budget is in use.
constexpr double evict_down_to = 0.80;
// If not the budget but the machine is short of memory, each round evicts this part of the cursors' memory.
constexpr std::uint64_t evict_parts = 8;
// Cursors are evicted only if they hold at least an eighth of the missing memory. If they hold less, other programs
// of the same cgroup use the memory, and evictions would not help.
constexpr std::uint64_t real_share_parts = 8;
// Only cursors that have been idle for this time count as a large holder's: the others are being read.
constexpr auto share_idle = std::chrono::seconds(1);
constexpr auto share_interval = std::chrono::milliseconds(100);
// No request of a line has got memory for this time.
constexpr auto standstill = std::chrono::seconds(2);

std::int64_t ns_of(TimePoint time) noexcept { return time.time_since_epoch().count(); }

std::uint64_t buffered_bytes(const std::vector<CursorPtr>& cursors) noexcept {
  std::uint64_t bytes = 0;
  for (const CursorPtr& cursor : cursors) bytes += cursor->buffered_bytes();
  return bytes;
}

}  // namespace

void CursorKeeper::tick(Context& context, TimePoint now) {
  const bool is_short = memory_is_short(context);
  if (now >= next_orphans_) {
    next_orphans_ = now + orphan_interval;
    if (context.shared.life.replaced) {
      end_change_streams(context, now);
    } else {
      end_orphans(context, now, is_short);
    }
  }
  if (now >= next_park_ || context.shared.pressure.at_least(PressureLevel::tight)) {
    next_park_ = now + park_interval;
    park_idle_cursors(context, now);
  }
  if (now >= next_expiry_) {
    const auto every = context.shared.parameters.cursor_monitor_frequency_secs.load();
    next_expiry_ = now + std::chrono::seconds(every);
    expire(context, now);
  }
  if (is_short) evict(context, now);
  end_standstill(context, now);
}

bool CursorKeeper::memory_is_short(Context& context) {
  const Services& shared = context.shared;
  std::uint64_t refusals = 0;
  for (const MemoryBudget* budget : {&shared.memory.process, &shared.memory.requests, &shared.memory.writes,
                                     &shared.memory.replies, &shared.memory.cursors}) {
    refusals += budget->usage().refusals;
  }
  const BudgetUsage usage = shared.memory.payload_usage();
  // A request that could never fit is refused without any load, too: such refusals say nothing about memory.
  const bool refused = std::exchange(refusals_seen_, refusals) != refusals && usage.used_bytes > usage.limit_bytes / 2;
  if (shared.pressure.at_least(PressureLevel::critical)) return true;
  if (!shared.pressure.at_least(PressureLevel::tight)) return refused;
  return refused || shared.memory.request_queue.usage().waiting > 0 || shared.memory.work_queue.usage().waiting > 0;
}

void CursorKeeper::expire(Context& context, TimePoint now) {
  const Parameters& parameters = context.shared.parameters;
  const Duration timeout = std::chrono::milliseconds(parameters.cursor_timeout_ms.load());
  end_cursors(context,
              context.shared.cursors.expire(ns_of(now - timeout), parameters.timeout_of_session_cursors.load()),
              CursorEnd::expired);
}

void CursorKeeper::end_orphans(Context& context, TimePoint now, bool memory_is_short) {
  std::int64_t grace_ms = context.shared.parameters.orphan_grace_ms.load();
  if (grace_ms < 0) return;
  if (memory_is_short) grace_ms = std::min(grace_ms, short_orphan_grace_ms);
  const OpenClients& clients = context.shared.open_clients;
  const std::uint64_t departures = clients.departures();
  if (!memory_is_short && departures == departures_seen_ && !clientless_ && now < next_full_orphans_) return;
  departures_seen_ = departures;
  next_full_orphans_ = now + full_orphan_interval;
  // While memory is short, a copy of the client's program keeps no cursor of a connection that has gone.
  const auto has_client = [&clients, memory_is_short](const ClusterCursor& cursor) {
    return clients.has_client(cursor) && (!memory_is_short || clients.has_connection(cursor));
  };
  auto orphans = context.shared.cursors.end_orphans(has_client, ns_of(now), grace_ms * 1'000'000);
  clientless_ = orphans.clientless > 0;
  if (orphans.ended.empty()) return;
  log::info("{} cursors ended: their clients have been gone for {} ms; they held {} bytes", orphans.ended.size(),
            grace_ms, buffered_bytes(orphans.ended));
  end_cursors(context, std::move(orphans.ended), CursorEnd::orphaned);
}

// All of them, whether their clients still ask or not.
void CursorKeeper::end_change_streams(Context& context, TimePoint now) {
  const auto stays = [](const ClusterCursor& cursor) { return !cursor.change_stream; };
  auto streams = context.shared.cursors.end_orphans(stays, ns_of(now), 0);
  if (streams.ended.empty()) return;
  log::info("{} change streams ended: another process serves their clients", streams.ended.size());
  end_cursors(context, std::move(streams.ended), CursorEnd::orphaned);
}

void CursorKeeper::evict(Context& context, TimePoint now) {
  const Services& shared = context.shared;
  const std::int64_t idle_ms = shared.parameters.evict_idle_ms.load();
  const BudgetUsage usage = shared.memory.payload_usage();
  const std::uint64_t held = shared.memory.cursors.usage().used_bytes;
  if (held < shared.pressure.state().last.group_missing_bytes() / real_share_parts) return;
  std::uint64_t wanted = std::max<std::uint64_t>(1, held / evict_parts);
  const auto enough = static_cast<std::uint64_t>(static_cast<double>(usage.limit_bytes) * evict_down_to);
  if (usage.limit_bytes > 0 && usage.used_bytes > enough) {
    wanted = std::max(wanted, usage.used_bytes - enough);
  }
  auto evicted = shared.cursors.evict(ns_of(now - std::chrono::milliseconds(idle_ms)), wanted);
  if (evicted.empty()) return;
  log::warning("memory is short: {} cursors that were idle for over {} ms ended; they held {} bytes", evicted.size(),
               idle_ms, buffered_bytes(evicted));
  end_cursors(context, std::move(evicted), CursorEnd::evicted);
}

namespace {

// Of one worker's getMores that merge, and have been at work for all the standstill, ends those that came last. Returns
// their number.
std::size_t end_last_merges(const Context& worker) {
  std::vector<Client*> waiting;
  const TimePoint latest = Clock::now() - standstill;
  for (Client* client : worker.clients) {
    if (client->merges && client->running_since <= latest) waiting.push_back(client);
  }
  if (waiting.size() < 2) return 0;  // it would wait for none of its like
  std::sort(waiting.begin(), waiting.end(),
            [](const Client* a, const Client* b) { return a->running_since > b->running_since; });
  waiting.resize((waiting.size() + evict_parts - 1) / evict_parts);
  for (Client* client : waiting) {
    const std::int64_t id = client->cursor_at_work;
    client->interrupt.request(
        Error(ErrorCode::cursor_killed,
              fmt::format("memory is short: cursor id {} has ended, since others wait for what it holds", id)));
  }
  return waiting.size();
}

Task<void> end_merges(Context* context) {
  auto ending = ask_workers<std::size_t>(*context, end_last_merges);
  const auto ended = co_await ending;
  const std::size_t count = std::accumulate(ended.begin(), ended.end(), std::size_t{0});
  if (count == 0) co_return;
  log::warning("memory is short, and getMores wait for one another's: {} of them ended with their cursors", count);
}

}  // namespace

// One merge at a time goes on with the reserve. Where that does not hold what it needs, all would wait until they are
// refused.
void CursorKeeper::end_standstill(Context& context, TimePoint now) {
  const MemoryQueue& queue = context.shared.memory.work_queue;
  bool stands = false;
  for (auto& [line, progress] : {std::pair{&queue.merges(), &merges_}, std::pair{&queue.others(), &others_}}) {
    const std::uint64_t served = line->served.load(std::memory_order_relaxed);
    if (std::exchange(progress->served, served) != served || !line->waits()) progress->at = now;
    stands = stands || now - progress->at >= standstill;
  }
  if (!stands || !context.shared.pressure.at_least(PressureLevel::critical)) return;
  // What ends takes a while to give its memory back.
  merges_.at = others_.at = now - standstill / 2;
  context.background.start(end_merges(&context));
}

bool take_from_large_holders(Context& context, const CursorClient& client) {
  const Services& shared = context.shared;
  const TimePoint now = Clock::now();
  std::int64_t next = shared.memory.next_share_check_ns.load(std::memory_order_relaxed);
  if (ns_of(now) < next) return false;
  if (!shared.memory.next_share_check_ns.compare_exchange_strong(next, ns_of(now + share_interval))) return false;
  const std::uint64_t budget = shared.memory.cursors.ceiling_bytes();
  if (budget == 0) return false;
  auto evicted =
      shared.cursors.evict_beyond_share(&client, budget / 2, ns_of(now - share_idle));
  if (evicted.empty()) return false;
  shared.metrics.cursors_beyond_share.add(evicted.size());
  log::warning(
      "memory is short, and one client's cursors hold over half of it: {} that held {} bytes ended for {} ({})",
      evicted.size(), buffered_bytes(evicted), client.address, client.application);
  end_cursors(context, std::move(evicted), CursorEnd::evicted);
  return true;
}

}  // namespace spillway::exec
