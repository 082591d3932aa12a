#include "proxy/exec/cursors/active_cursor.h"

#include <fmt/format.h>

#include "cursor/registry.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/cursors/batch_builder.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/cursors/read_ahead.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/cursors/working_set.h"
#include "proxy/exec/tables/limits.h"

namespace spillway::exec {

void ActiveCursor::enroll() { cursor_->id = context_->shared.cursors.insert_checked_out(*cursor_, steady_ns()); }

Result<std::int64_t> ActiveCursor::finish(std::size_t documents, BatchOrigin origin, Keep keep) {
  cursor_->documents_returned += documents;
  if (++cursor_->batches_returned == 2) context_->shared.metrics.cursors_more_than_one_batch.add();
  cursor_->ahead.answered_ns = steady_ns();
  if (keep == Keep::never || (keep == Keep::unless_exhausted && cursor_->exhausted())) {
    end();
    return 0;
  }
  const bool is_new = cursor_->id == 0;
  if (is_new) {
    if (auto refusal = charge_cursor(cursor_->charge)) return fail(*std::move(refusal));
  }
  cursor_->compact(context_->shared.memory.cursors);
  if (is_new) {
    keep_idle_working_set(*context_, *cursor_);
    return context_->shared.cursors.insert(std::move(cursor_), steady_ns());
  }
  const std::int64_t id = cursor_->id;
  if (origin != BatchOrigin::streamed && read_ahead(*context_, *this)) return id;
  if (put_back() || origin != BatchOrigin::merged) return id;
  return Error(ErrorCode::cursor_killed, fmt::format("cursor id {} was killed", id));
}

Result<Response> ActiveCursor::answer(BatchBuilder batch, std::string_view batch_name, BatchOrigin origin, Keep keep) {
  const NamespaceText ns(cursor_->database(), cursor_->collection());
  const bool partial = cursor_->partial;
  const BsonDoc resume_token(cursor_->changes ? cursor_->changes->high_water() : DocView());
  const CursorFacts facts{resume_token.view(), cursor_->at_cluster_time};
  SPILLWAY_TRY(id, finish(batch.count(), origin, keep));
  return std::move(batch).finish(batch_name, *id, ns.view(), partial, facts);
}

Error ActiveCursor::fail(Error error) {
  if (cursor_->id != 0) error = do_not_try_again(std::move(error));
  end();
  return error;
}

Error ActiveCursor::refuse(Error error) {
  cursor_->ahead.answered_ns = steady_ns();
  put_back();
  return error;
}

bool ActiveCursor::put_back() {
  keep_idle_working_set(*context_, *cursor_);
  CursorPtr killed = context_->shared.cursors.check_in(std::move(cursor_), steady_ns());
  if (!killed) return true;
  end_cursor(*context_, std::move(killed), CursorEnd::killed);
  return false;
}

void ActiveCursor::end() noexcept {
  if (!cursor_) return;
  if (cursor_->id != 0) context_->shared.cursors.forget(cursor_->id);
  end_cursor(*context_, std::move(cursor_));
}

}  // namespace spillway::exec
