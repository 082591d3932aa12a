// Fills a client's batch: does the steps that the merge asks for.
#include <algorithm>
#include <chrono>
#include <utility>

#include "cursor/merge.h"
#include "proxy/base/memory_wait.h"
#include "proxy/base/time_slice.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/cursors/working_set.h"

namespace spillway::exec {

namespace {

// A batch without a requested size is sent as soon as it is this large.
constexpr std::size_t unsized_batch_bytes_min = 256 * limits::kib;

// How long an empty batch waits for room.
constexpr Duration room_wait_max = std::chrono::seconds(10);

bool is_memory_refusal(const Error& error) noexcept {
  return error.is(ErrorCode::ingress_request_rate_limit_exceeded);
}

// Moves merged documents into the batch, or into the cursor's stage and the stage's output into the batch.
struct BatchFill {
  // What is missing for the next document of the batch.
  enum class Step : std::uint8_t { nothing, stage_input, shards, document_room, key_room, full };

  Context& context;
  ClusterCursor& cursor;
  const FillLimits& limits;
  BatchBuilder& out;
  Merge merge{cursor.remotes, cursor.merge, context.shared.memory.cursors};
  std::size_t step_bytes = 0;        // of the document that the last step moved
  std::size_t wanted_bytes = 0;      // document_room, key_room
  RemoteCursor* keyless = nullptr;  // key_room
  std::size_t moved_bytes = 0, moved_documents = 0, largest_moved = 0;  // since the cursor was told of them

  // Moves at most one document, without a wait.
  Result<Step> step() {
    if (limits.documents_max > 0 && static_cast<std::int64_t>(out.count()) >= limits.documents_max) {
      return Step::full;
    }
    if (cursor.stage) {
      auto drained = drain_stage();
      if (drained.has_error() || *drained != Step::stage_input) return drained;
    }
    SPILLWAY_TRY(next, cursor.stage && !cursor.stage->wants_more() ? Merge::Next() : merge.next());
    switch (next->kind) {
      case Merge::Next::Kind::document:
        step_bytes = next->bytes;
        return cursor.stage ? push_to_stage() : append();
      case Merge::Next::Kind::skipped:
        step_bytes = next->bytes;
        note_moved();
        if (!next->remote->has_document()) keep_working_set(context, cursor);
        return Step::nothing;
      case Merge::Next::Kind::fetch:
        return is_batch_without_more() ? Step::full : Step::shards;
      case Merge::Next::Kind::room:
        wanted_bytes = next->bytes;
        keyless = next->remote;
        return Step::key_room;
      case Merge::Next::Kind::end:
        break;
    }
    return cursor.stage ? finish_stage() : Step::full;
  }

  Task<Result<Step>> get(Step lacking) {
    if (lacking == Step::shards) return fetch();
    return lacking == Step::key_room ? find_key_room() : find_document_room();
  }

  // The batch may be sent without the next document, so that it need not wait for memory.
  bool may_end() const noexcept { return out.count() > 0 && !limits.whole; }
  Patience patience() const noexcept { return {limits.interrupt, limits.deadline, room_wait_max}; }

  Error stage_failed(Error error) {
    cursor.broken = true;
    return error;
  }

  Result<Step> drain_stage() {
    DocumentStage& stage = *cursor.stage;
    const auto next = stage.front();
    if (next.has_error()) return stage_failed(next.error());
    if (*next == nullptr) {
      if (stage.busy()) return Step::nothing;
      return cursor.stage_finished ? Step::full : Step::stage_input;
    }
    const DocView document = (*next)->view();
    if (!out.fits(document.size())) return Step::full;
    auto put = put_in({document.data() + 4, document.size() - 5}, document.size());
    if (put.has_value() && *put == Step::nothing) stage.pop();
    return put;
  }

  Result<Step> push_to_stage() {
    // A stage would read a damaged document as a shorter one.
    const bool damaged = merge.document().validate().has_error();
    auto pushed = damaged ? malformed_reply("a document") : cursor.stage->push(merge.document());
    if (pushed.has_error()) return stage_failed(pushed.error());
    take();
    return Step::nothing;
  }

  // The merge has ended, or the stage has enough.
  Result<Step> finish_stage() {
    if (auto finished = cursor.stage->finish(); finished.has_error()) return stage_failed(finished.error());
    cursor.stage_finished = true;
    kill_remotes(context, cursor);
    for (RemoteCursor& remote : cursor.remotes) remote.drop_documents();
    return Step::nothing;
  }

  Result<Step> append() {
    const std::size_t bytes = step_bytes;
    if (!out.fits(bytes)) return Step::full;
    SPILLWAY_TRY(elements, merge.elements());
    auto put = put_in(*elements, bytes);
    if (put.has_error() || *put != Step::nothing) return put;
    return take() && limits.one_batch ? Step::full : Step::nothing;
  }

  void note_moved() noexcept {
    moved_bytes += step_bytes;
    ++moved_documents;
    largest_moved = std::max(largest_moved, step_bytes);
  }
  bool take() {
    note_moved();
    const bool last_of_reply = merge.take();
    if (last_of_reply) keep_working_set(context, cursor);
    return last_of_reply;
  }
  void tell_size() noexcept {
    cursor.document_size.learn(std::exchange(moved_bytes, 0), std::exchange(moved_documents, 0),
                               std::exchange(largest_moved, 0));
  }

  Result<Step> put_in(Bytes elements, std::size_t document_bytes) {
    auto added = out.append_elements(elements);
    if (added.has_value()) return Step::nothing;
    if (!is_memory_refusal(added.error())) return std::move(added.error());
    wanted_bytes = document_bytes;
    return Step::document_room;
  }

  bool is_batch_without_more() const {
    // Without a requested size, a large part is sent as a batch. A small part waits for more documents: then the last
    // batch mostly tells the client that it is the last one.
    const bool enough = limits.documents_max == 0 && out.document_bytes() >= unsized_batch_bytes_min;
    // While memory is short, a shorter batch is sent: a waiting batch would hold memory.
    return (enough && !cursor.merge.sorted()) || (may_end() && is_scarce(context));
  }

  Task<Result<Step>> fetch() {
    tell_size();
    const bool tops_up = limits.documents_max == 0 && !limits.whole && cursor.passes_through();
    auto fetching = fetch_more(context, cursor, {.deadline = limits.deadline,
                                                 .interrupt = limits.interrupt,
                                                 .time = limits.time,
                                                 .user = limits.user,
                                                 .tops_up = tops_up});
    auto fetched = co_await fetching;
    if (fetched.has_value()) co_return Step::nothing;
    if (is_memory_refusal(fetched.error()) && !cursor.broken && may_end()) co_return Step::full;
    co_return std::move(fetched.error());
  }

  Task<Result<Step>> find_document_room() {
    if (may_end()) co_return Step::full;
    SPILLWAY_AWAIT(chunk, take_buffer(context, patience(), context.shared.memory.replies,
                                      BatchBuilder::room_for(wanted_bytes), "a document of the reply"));
    out.add_room(*std::move(chunk));
    co_return Step::nothing;
  }

  Task<Result<Step>> find_key_room() {
    MemoryBudget& budget = context.shared.memory.cursors;
    auto little = reserve_now(budget, wanted_bytes);
    if (!little && may_end()) co_return Step::full;
    if (!little) {
      Patience kept = patience();
      kept.holder = holder_of(cursor);
      SPILLWAY_AWAIT(taken, take_reservation(context, kept, budget, wanted_bytes, "a document's sort key"));
      little = *std::move(taken);
    }
    keyless->key_room = *std::move(little);
    co_return Step::nothing;
  }
};

}  // namespace

Task<Result<void>> fill_batch(Context& context, ClusterCursor& cursor, FillLimits limits, BatchBuilder& out) {
  using Step = BatchFill::Step;
  BatchFill fill{context, cursor, limits, out};
  TimeSlice slice(context.pump);
  for (;;) {
    if (slice.is_over(std::exchange(fill.step_bytes, 0))) {
      co_await slice.next();
      if (Clock::now() >= limits.deadline) co_return time_limit_exceeded();
    }
    if (const Error* why = shard::requested_of(limits.interrupt)) co_return *why;
    auto step = fill.step();
    if (step.has_value() && *step != Step::nothing && *step != Step::full) {
      step = co_await fill.get(*step);
      slice.renew();
    }
    if (step.has_error()) co_return std::move(step.error());
    if (*step == Step::full) break;
  }
  fill.tell_size();
  learn_output(context, cursor);
  co_return Result<void>();
}

}  // namespace spillway::exec
