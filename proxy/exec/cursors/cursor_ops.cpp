#include "proxy/exec/cursors/cursor_ops.h"

#include <fmt/format.h>

#include <utility>

#include "proxy/base/memory_wait.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/cursors/compressed_batches.h"
#include "proxy/exec/cursors/take_memory.h"

namespace spillway::exec {

namespace {

// A cursor keeps up to this much of its request without a charge. Most cursors keep less, and there may be 100,000.
constexpr std::size_t kept_free_bytes = 1024;

}  // namespace

std::int64_t steady_ns() noexcept { return Clock::now().time_since_epoch().count(); }

Result<Reservation> reserve_kept(Context& context, const Request& request, std::string_view collection,
                                 std::size_t more_bytes, Reservation held) {
  const std::size_t ns_bytes = request.db.size() + 1 + collection.size();
  // The registry keeps a second copy of the namespace.
  const std::size_t bytes = 2 * ns_bytes + request.comment.bytes.size() + more_bytes;
  if (bytes <= kept_free_bytes) return Reservation();
  MemoryBudget& budget = context.shared.memory.cursors;
  if (held.budget() == &budget) {
    if (held.bytes() > bytes) held.shrink_to(bytes);
    if (held.bytes() == bytes || held.try_grow(bytes - held.bytes())) return held;
  } else if (auto kept = reserve_now(budget, bytes)) {
    return *std::move(kept);
  }
  return memory_refused(budget, bytes, "what a cursor keeps of its command");
}

CursorPtr make_cursor(Client& client, const Request& request, std::string_view collection, Reservation kept) {
  auto cursor = std::make_unique<ClusterCursor>();
  cursor->kept = std::move(kept);
  cursor->ns = fmt::format("{}.{}", request.db, request.view.empty() ? collection : request.view);
  if (!request.view.empty()) cursor->below_view = std::make_unique<const std::string>(collection);
  cursor->at_cluster_time = request.at_cluster_time;
  cursor->session.lsid = request.lsid;
  cursor->session.api = request.api;
  if (request.in_transaction) {
    cursor->session.txn_number = request.txn_number;
    cursor->session.in_transaction = true;
  }
  cursor->owner = client.user;
  cursor->owner_then = client.login.user;
  cursor->client = client.presence.facts();
  cursor->charge.assign(client.limits.account());
  cursor->created_ms = wall_clock_ms();
  if (request.deadline != time_point_never) {
    cursor->deadline_ns = request.deadline.time_since_epoch().count();
  }
  if (request.body.size() <= limits::originating_command_bytes_max) {
    cursor->originating_command.assign(reinterpret_cast<const char*>(request.body.data()),
                                       request.body.size());
  }
  if (request.comment.exists()) {
    BsonWriter comment;
    comment.append("comment", request.comment);
    const BsonDoc document = std::move(comment).finish();
    cursor->comment.assign(reinterpret_cast<const char*>(document.view().data()), document.size());
  }
  return cursor;
}

Task<Result<Response>> answer_first_batch(Context& context, ActiveCursor cursor, FirstBatch first,
                                          const Request& request) {
  BatchBuilder batch(context.shared.memory.replies, batch_bytes_max(request, first.size || first.single));
  const bool only_opens = first.size == 0;
  if (!only_opens) {
    const FillLimits limits{.documents_max = first.documents_max(),
                            .deadline = request.deadline,
                            .interrupt = request.interrupt,
                            .whole = first.single,
                            .time = request.shard_time,
                            .user = request.asks};
    auto filled = co_await fill_batch(context, *cursor, limits, batch);
    if (filled.has_error()) co_return try_again(cursor.fail(filled.error()));
  }
  const Keep keep = first.single ? Keep::never : only_opens ? Keep::always : Keep::unless_exhausted;
  co_return cursor.answer(std::move(batch), "firstBatch", BatchOrigin::merged, keep);
}

}  // namespace spillway::exec
