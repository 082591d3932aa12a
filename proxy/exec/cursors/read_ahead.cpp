#include "proxy/exec/cursors/read_ahead.h"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "allocator/pressure.h"
#include "allocator/small_blocks.h"
#include "cursor/registry.h"
#include "proxy/config/parameters.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/life_cycle.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/tables/limits.h"

namespace spillway::exec {

namespace {

// A client that works longer on a batch gains nothing from read-ahead.
constexpr Duration pause_max = std::chrono::seconds(1);
constexpr auto interrupt_check = std::chrono::milliseconds(100);
// Part of the memory limit. Above it there is no read-ahead; below half of it a second batch per shard may be fetched.
constexpr double used_share_max = 0.60;
// Larger replies that need no merge pass through in pieces: that is cheaper than buffering them.
constexpr double passthrough_bytes_max = static_cast<double>(limits::reply_complete_bytes_max);
constexpr std::uint8_t depth_max = 2;

class FillWaiter final : public CursorWaiter, public std::enable_shared_from_this<FillWaiter> {
 public:
  struct Wake final : Timer {
    Event event;
    void on_timer() override { event.set(); }
  };

  FillWaiter(const CursorCaller& caller, Loop& loop) : CursorWaiter(caller), loop_(loop) {}
  void deliver(Result<CursorPtr> cursor) override {
    result_ = std::move(cursor);
    loop_.post([self = shared_from_this()] {
      self->delivered_ = true;
      self->wake_.event.set();
    });
  }
  // This and the following members: on the loop's thread.
  bool delivered() const noexcept { return delivered_; }
  Result<CursorPtr> take() { return *std::exchange(result_, std::nullopt); }
  Wake& wake() noexcept { return wake_; }

 private:
  Loop& loop_;
  Wake wake_;
  std::optional<Result<CursorPtr>> result_;  // belongs to the delivering thread until delivered_ is set
  bool delivered_ = false;
};

// Waits until the cursor is delivered, or for an interrupt. A cursor that is delivered after the interrupt is put back.
Task<Result<CursorPtr>> wait_for_fill(Context& context, const Request& request, std::int64_t id,
                                      std::shared_ptr<FillWaiter> waiter) {
  bool waits = true;
  while (!waiter->delivered()) {
    const bool interrupted = shard::requested_of(request.interrupt) != nullptr;
    if (interrupted && waits) {
      if (context.shared.cursors.stop_waiting(id, *waiter)) co_return *request.interrupt->requested();
      waits = false;  // deliver() is being called
    }
    FillWaiter::Wake& wake = waiter->wake();
    context.loop.arm(wake, Clock::now() + interrupt_check);
    co_await wake.event;
    context.loop.disarm(wake);
    wake.event.clear();
  }
  auto result = waiter->take();
  if (waits || result.has_error()) co_return std::move(result);
  co_return ActiveCursor(context, *std::move(result)).refuse(*request.interrupt->requested());
}

// Would a fetch send a getMore to this shard now?
bool wants_batch(const ClusterCursor& cursor, const RemoteCursor& remote) noexcept {
  return remote.id != 0 && remote.parked.empty() && remote.batches.size() < cursor.ahead.depth;
}

double expected_bytes(const Context& context, const ClusterCursor& cursor) {
  double bytes = 0;
  for (const RemoteCursor& remote : cursor.remotes) {
    if (!wants_batch(cursor, remote)) continue;
    const std::int64_t documents = cursor.from_one_shard && cursor.ahead.batch_size > 0
                                       ? cursor.ahead.batch_size
                                       : remote_batch_size(context, cursor, remote.shard, false);
    bytes += cursor.document_size.mean_bytes *
             static_cast<double>(documents > 0 ? documents : limits::first_batch_documents_default);
  }
  return bytes;
}

bool may_read_ahead(const ClusterCursor& cursor) noexcept {
  if (cursor.tailable || cursor.await_data || cursor.session.in_transaction || cursor.stage_finished) return false;
  if (cursor.stage && !cursor.stage->wants_more()) return false;
  if (cursor.batches_returned < 2 || cursor.ahead.pause_ns > pause_max.count()) return false;
  if (!cursor.merge.limit_remaining) return true;
  // Not for the last batch.
  const std::uint64_t batch = cursor.documents_returned / cursor.batches_returned;
  return *cursor.merge.limit_remaining > static_cast<std::int64_t>(batch);
}

bool is_worth_reading_ahead(Context& context, ClusterCursor& cursor) {
  const Services& shared = context.shared;
  if (!shared.parameters.read_ahead.load(std::memory_order_relaxed) || !may_read_ahead(cursor)) return false;
  // No read-ahead for a client that has reached its limit of buffered bytes.
  const auto* const account = static_cast<const LimitAccount*>(cursor.charge.account());
  if (shared.limits.looks_at_bytes() && account != nullptr && account->full_of_bytes() != nullptr) return false;
  if (shared.pressure.level() != PressureLevel::normal || shared.life.quiescing) return false;
  const BudgetUsage usage = shared.memory.payload_usage();
  const double limit = static_cast<double>(usage.limit_bytes) * used_share_max;
  const double used = static_cast<double>(usage.used_bytes);
  if (limit > 0 && used > limit / 2) cursor.ahead.depth = 1;
  const double expected = expected_bytes(context, cursor);
  if (expected <= 0 || (limit > 0 && used + expected > limit)) return false;
  if (cursor.merge.sorted() || cursor.stage) return true;
  // Without a batchSize the shard decides how much it sends.
  if (cursor.from_one_shard && cursor.ahead.batch_size == 0) return false;
  return expected <= passthrough_bytes_max * static_cast<double>(cursor.remotes.size());
}

Task<void> fill(Context* context, ActiveCursor cursor) {
  // The time that the find has left, as if the client were waiting already: no shard that hangs outlives it.
  const TimePoint deadline =
      cursor->deadline_ns != 0 ? TimePoint(std::chrono::nanoseconds(cursor->deadline_ns)) : time_point_never;
  auto fetching =
      fetch_more(*context, *cursor, {.deadline = deadline, .interrupt = &context->read_ahead, .ahead = true});
  auto fetched = co_await fetching;
  if (fetched.has_error()) cursor->ahead.failed = std::make_unique<Error>(fetched.error());
  cursor.put_back();
}

// More read-ahead for a client that had to wait, less for one that did not.
void learn_pace(Context& context, ClusterCursor& cursor, bool waited, TimePoint arrived) {
  cursor.ahead.pause_ns = arrived.time_since_epoch().count() - cursor.ahead.answered_ns;
  if (cursor.deadline_ns != 0) cursor.deadline_ns += cursor.ahead.pause_ns;
  if (!std::exchange(cursor.ahead.begun, false)) return;
  (waited ? context.shared.metrics.read_ahead_waits : context.shared.metrics.read_ahead_hits).add();
  cursor.ahead.depth = waited ? depth_max : std::uint8_t{1};
}

}  // namespace

Task<Result<ActiveCursor>> take_cursor(Context& context, Client& client, const Request& request, std::int64_t id,
                                       std::string_view ns) {
  if (request.shard_time != nullptr) request.shard_time->note_bulk();
  const CursorCaller caller{request.lsid, request.txn_number, request.in_transaction, client.user, request.api};
  std::shared_ptr<FillWaiter> waiter;
  const auto make_waiter = [&] {
    waiter =
        std::allocate_shared<FillWaiter>(RecyclingAllocator<FillWaiter>(), caller, context.loop);
    return waiter;
  };
  auto taken = context.shared.cursors.check_out(id, ns, caller, std::ref(make_waiter));
  const bool waited = waiter != nullptr;
  if (waited) {
    shard::ShardWait shards(request.shard_time);
    shards.begin();
    auto waiting = wait_for_fill(context, request, id, std::move(waiter));
    taken = co_await waiting;
  }
  if (taken.has_error()) co_return std::move(taken.error());
  ActiveCursor cursor(context, *std::move(taken));
  cursor->client = client.presence.facts();
  learn_pace(context, *cursor, waited, request.arrived);
  if (cursor->ahead.failed) co_return cursor.fail(*cursor->ahead.failed);
  co_return std::move(cursor);
}

bool read_ahead(Context& context, ActiveCursor& cursor) {
  if (!is_worth_reading_ahead(context, *cursor) || !context.shared.cursors.begin_filling(*cursor)) return false;
  cursor->ahead.begun = true;
  context.shared.metrics.read_ahead_started.add();
  context.background.start(fill(&context, std::move(cursor)));
  return true;
}

}  // namespace spillway::exec
