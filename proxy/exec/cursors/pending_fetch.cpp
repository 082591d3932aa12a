#include "proxy/exec/cursors/pending_fetch.h"

#include <algorithm>
#include <utility>

#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/shard/waiter.h"

namespace spillway::exec {

// One wait of a getMore, on its own loop. A reply that comes later wakes no other getMore.
struct PendingFetch::Waiting {
  Loop& loop;
  shard::WaiterLine line{};
};

bool PendingFetch::may_ask(std::size_t remote, TimePoint now) const {
  const MutexLock lock(mutex_);
  return remote >= slots_.size() || (!slots_[remote].asked && now >= slots_[remote].not_before);
}

TimePoint PendingFetch::next_ask(TimePoint now) const {
  const MutexLock lock(mutex_);
  TimePoint next = time_point_never;
  for (const Slot& slot : slots_) {
    if (!slot.asked && slot.not_before > now) next = std::min(next, slot.not_before);
  }
  return next;
}

void PendingFetch::ask(Context& context, const ClusterCursor& cursor, std::size_t remote, std::int64_t await_ms) {
  {
    const MutexLock lock(mutex_);
    if (slots_.size() <= remote) slots_.resize(remote + 1);
    slots_[remote].asked = true;
  }
  const RemoteCursor& of = cursor.remotes[remote];
  const std::int64_t size = remote_batch_size(context, cursor, of.shard, false);
  context.background.start(fetch(&context, shared_from_this(), remote, of.shard, {of.host, of.port},
                                 remote_get_more(context, cursor, of, size, await_ms)));
}

Task<void> PendingFetch::fetch(Context* context, std::shared_ptr<PendingFetch> self, std::size_t remote,
                               std::uint16_t shard, shard::HostAddress host, BsonDoc body) {
  ShardCommand command(shard, RoutedBy::nothing(), shard::Command::of_body(body));
  command.host = std::move(host);
  shard::CallOptions options;
  options.budget = &context->shared.memory.cursors;
  options.interrupt = &context->read_ahead;
  options.use = shard::Use::waiting;
  options.host = command.host;
  ShardOutcome outcome = co_await call_shard(*context, command, options);
  self->arrive(remote, std::move(outcome));
}

void PendingFetch::arrive(std::size_t remote, ShardOutcome outcome) {
  std::shared_ptr<Waiting> waiting;
  {
    const MutexLock lock(mutex_);
    held_bytes_.fetch_add(outcome.reply.bytes.capacity(), std::memory_order_relaxed);
    slots_[remote].outcome = std::move(outcome);
    waiting = waiting_;
  }
  if (waiting) {
    Loop& loop = waiting->loop;
    loop.post([waiting = std::move(waiting)] { shard::wake_all(waiting->line); });
  }
}

std::vector<PendingFetch::Arrived> PendingFetch::take() {
  std::vector<Arrived> arrived;
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].outcome) continue;
    arrived.push_back({i, *std::move(slots_[i].outcome)});
    slots_[i] = {};
  }
  held_bytes_.store(0, std::memory_order_relaxed);
  return arrived;
}

Task<void> PendingFetch::wait(Context& context, TimePoint until, shard::Interrupt* interrupt) {
  auto waiting = std::make_shared<Waiting>(context.loop);
  {
    const MutexLock lock(mutex_);
    for (const Slot& slot : slots_) {
      if (slot.outcome) co_return;
    }
    waiting_ = waiting;
  }
  {
    shard::Waiter waiter(context.loop, until);
    waiting->line.push_back(waiter);
    const shard::Interruptible interruptible(interrupt, waiter);
    co_await waiter;
  }
  const MutexLock lock(mutex_);
  waiting_.reset();
}

void PendingFetch::note_empty(std::size_t remote, TimePoint now) {
  const MutexLock lock(mutex_);
  slots_[remote].not_before = now + empty_pause;
}

}  // namespace spillway::exec
