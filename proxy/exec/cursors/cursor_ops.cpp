#include "proxy/exec/cursors/cursor_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "allocator/memory_layer.h"
#include "cursor/loser_tree.h"
#include "cursor/strip_fields.h"
#include "proxy/base/memory_wait.h"
#include "proxy/base/time_slice.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/cursors/compressed_batches.h"
#include "proxy/exec/cursors/take_memory.h"

namespace spillway::exec {

namespace {

// A batch that no size was asked for and that is this large goes out without waiting for more.
constexpr std::size_t unsized_batch_bytes_min = 256 * limits::kib;

// How long an empty batch waits for room.
constexpr Duration room_wait_max = std::chrono::seconds(10);

// What a cursor may keep of its request without paying for it: most keep less, and there may be 100,000.
constexpr std::size_t kept_free_bytes = 1024;

// What a worker keeps to make the next document's sort key in.
constexpr std::size_t key_room_kept_max = 16 * limits::kib;

// `cut`: of a document that ends with what is to be taken out, what stands before that, if this is known already.
Result<void> append_document(const ClusterCursor& cursor, BatchBuilder& out, DocView document,
                             std::optional<Bytes> cut) {
  const std::vector<std::string>& strip = cursor.strip_fields;
  if (strip.empty()) return out.append(document);
  if (!cut && strip.size() == 1 && strip[0].find('.') == std::string::npos) {
    cut = elements_before_last(document, document.find(strip[0]));
  }
  if (cut) return out.append_elements(*cut);
  // Copied field by field: of a damaged one only the beginning would be left.
  if (document.validate().has_error()) return malformed_reply("a document");
  const BsonDoc stripped = copy_without(document, strip);
  return out.append(stripped);
}

// Pays for the key that was just made. False: there is no room, and the key is gone.
bool pay_for_key(RemoteCursor& remote, MemoryBudget& budget, std::size_t& needed) {
  needed = remote.key_bytes();
  const std::uint64_t paid = remote.key_room.bytes();
  if (needed <= paid) return true;
  if (paid > 0 && remote.key_room.try_grow(needed - paid)) return true;
  remote.key_room.release();
  if (auto room = reserve_now(budget, needed)) {
    remote.key_room = *std::move(room);
    return true;
  }
  remote.drop_key();
  return false;
}

// `cut` becomes the head without its $sortKey if a shard put that last, which is where it does.
Result<void> key_head(const ClusterCursor& cursor, RemoteCursor& remote, std::optional<Bytes>& cut) {
  if (remote.head_keyed) return {};
  cut.reset();
  thread_local std::string key;  // one at a time per worker is made before it is paid for
  key.clear();
  const DocView document = *remote.front()->peek();
  Result<void> keyed;
  if (cursor.sort_keys == SortKeySource::sort_key_field) {
    const Element sort_key = document.find("$sortKey");
    if (!sort_key.exists()) {
      return Error(ErrorCode::internal_error, "a shard's document lacks $sortKey");
    }
    cut = elements_before_last(document, sort_key);
    keyed = cursor.sort->append_key_from_sort_key(key, sort_key);
  } else {
    keyed = cursor.sort->append_key(key, document);
  }
  if (keyed.has_value() && key.size() <= key_room_kept_max) {
    remote.set_key(key);
  } else {
    remote.head_key.swap(key);
    std::string().swap(key);
  }
  if (keyed.has_error()) return keyed.error();
  remote.head_keyed = true;
  return {};
}

// What the cursor's remotes offer now.
struct NextInput {
  enum class Kind { document, fetch, key_room, end } kind = Kind::end;
  RemoteCursor* remote = nullptr;
  std::size_t bytes = 0;  // key_room: what its next document's key needs, and is not there
  std::optional<Bytes> cut{};  // document: without its $sortKey, where that is known
};

// A sorted cursor's heads while a batch is filled.
class SortedHeads {
 public:
  // Since the last call, only the head that it gave may have been taken; after anything else it gave, all may differ.
  Result<NextInput> next(ClusterCursor& cursor, MemoryBudget& budget) {
    if (cursor.remotes.empty()) return NextInput{};
    const auto order = [&remotes = cursor.remotes](std::size_t a, std::size_t b) {
      const RemoteCursor& left = remotes[a];
      const RemoteCursor& right = remotes[b];
      // Without a document here it is exhausted: what is to be fetched was told before.
      if (!left.head_keyed || !right.head_keyed) {
        return static_cast<int>(!left.head_keyed) - static_cast<int>(!right.head_keyed);
      }
      return left.head_key.compare(right.head_key);
    };
    cuts_.resize(cursor.remotes.size());
    if (tree_.built()) {
      auto missing = look_at(cursor, tree_.winner(), budget);
      if (missing.has_error() || *missing) return told(std::move(missing));
      tree_.replay(order);
    } else {
      for (std::size_t i = 0; i < cursor.remotes.size(); ++i) {
        auto missing = look_at(cursor, i, budget);
        if (missing.has_error() || *missing) return told(std::move(missing));
      }
      tree_.build(cursor.remotes.size(), order);
    }
    RemoteCursor& best = cursor.remotes[tree_.winner()];
    if (!best.head_keyed) return NextInput{};
    return NextInput{.kind = NextInput::Kind::document, .remote = &best, .cut = cuts_[tree_.winner()]};
  }

 private:
  // What is needed before this remote's head can be compared, if anything is.
  Result<std::optional<NextInput>> look_at(ClusterCursor& cursor, std::size_t at, MemoryBudget& budget) {
    RemoteCursor& remote = cursor.remotes[at];
    if (remote.damaged()) return malformed_reply("the batch");
    if (!remote.has_document()) {
      if (remote.id != 0 || remote.must_unpark()) return NextInput{.kind = NextInput::Kind::fetch};
      return std::optional<NextInput>();
    }
    if (auto keyed = key_head(cursor, remote, cuts_[at]); keyed.has_error()) return keyed.error();
    std::size_t needed = 0;
    if (!pay_for_key(remote, budget, needed)) return NextInput{NextInput::Kind::key_room, &remote, needed};
    return std::optional<NextInput>();
  }
  Result<NextInput> told(Result<std::optional<NextInput>> missing) {
    tree_.forget();
    if (missing.has_error()) return std::move(missing.error());
    return **missing;
  }

  LoserTree tree_;
  absl::InlinedVector<std::optional<Bytes>, 16> cuts_;  // of heads that were keyed here
};

Result<NextInput> next_unsorted(ClusterCursor& cursor) {
  bool open = false;
  const std::size_t n = cursor.remotes.size();
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t at = (cursor.next_remote + i) % n;
    RemoteCursor& remote = cursor.remotes[at];
    if (remote.damaged()) return malformed_reply("the batch");
    if (remote.has_document()) {
      cursor.next_remote = at;
      return NextInput{.kind = NextInput::Kind::document, .remote = &remote};
    }
    open = open || remote.id != 0 || remote.must_unpark();
  }
  return NextInput{.kind = open ? NextInput::Kind::fetch : NextInput::Kind::end};
}

Result<NextInput> next_input(ClusterCursor& cursor, SortedHeads& heads, MemoryBudget& budget) {
  if (cursor.limit_remaining && *cursor.limit_remaining <= 0) return NextInput{};
  return cursor.sort_keys == SortKeySource::none ? next_unsorted(cursor) : heads.next(cursor, budget);
}

bool is_memory_refusal(const Error& error) noexcept {
  return error.is(ErrorCode::ingress_request_rate_limit_exceeded);
}

Patience patience_of(const FillLimits& limits) noexcept {
  return {limits.interrupt, limits.deadline, room_wait_max};
}

// What is in the batch may go out without the next document: it need not wait for room.
bool may_end(const FillLimits& limits, const BatchBuilder& out) noexcept {
  return out.count() > 0 && !limits.whole;
}

// There is no room for the next document of a batch. True: now there is, go on; false: the batch ends.
Task<Result<bool>> room_or_end(Context& context, const FillLimits& limits, BatchBuilder& out, std::size_t bytes) {
  if (may_end(limits, out)) co_return false;
  auto taking = take_buffer(context, patience_of(limits), context.shared.reply_memory, BatchBuilder::room_for(bytes),
                            "a document of the reply");
  auto chunk = co_await taking;
  if (chunk.has_error()) co_return chunk.error();
  out.add_room(*std::move(chunk));
  co_return true;
}

// The same for a document's sort key.
Task<Result<bool>> key_room_or_end(Context& context, const FillLimits& limits, const BatchBuilder& out,
                                   const NextInput& input) {
  if (may_end(limits, out)) co_return false;
  auto taking = take_reservation(context, patience_of(limits), context.shared.cursor_memory, input.bytes,
                                 "a document's sort key");
  auto room = co_await taking;
  if (room.has_error()) co_return room.error();
  input.remote->key_room = *std::move(room);
  co_return true;
}

// Takes one document out of the cursor's stage, if it has one now.
Result<bool> drain_stage(ClusterCursor& cursor, BatchBuilder& out, bool& full) {
  if (!cursor.stashed) {
    auto next = cursor.stage->next();
    if (next.has_error()) return next.error();
    cursor.stashed = *std::move(next);
  }
  if (!cursor.stashed) return false;
  if (!out.fits(cursor.stashed->size())) {
    full = true;
    return true;
  }
  if (auto appended = out.append(*cursor.stashed); appended.has_error()) return appended.error();
  cursor.stashed.reset();
  return true;
}

}  // namespace

std::int64_t steady_ns() noexcept { return Clock::now().time_since_epoch().count(); }

Task<Result<void>> fill_batch(Context& context, ClusterCursor& cursor, FillLimits limits,
                              BatchBuilder& out) {
  bool ignored = false;
  bool& broken = limits.broken != nullptr ? *limits.broken : ignored;
  bool batch_ended = false;
  SortedHeads heads;
  TimeSlice slice(context.pump);
  for (std::size_t step_bytes = 0;;) {
    if (limits.one_batch && batch_ended) break;
    if (slice.is_over(std::exchange(step_bytes, 0))) {
      co_await slice.next();
      if (Clock::now() >= limits.deadline) {
        co_return Error(ErrorCode::max_time_ms_expired, "operation exceeded time limit");
      }
    }
    if (const Error* why = shard::requested_of(limits.interrupt)) co_return *why;
    if (limits.documents_max > 0 && static_cast<std::int64_t>(out.count()) >= limits.documents_max) break;
    if (cursor.stage) {
      bool full = false;
      auto drained = drain_stage(cursor, out, full);
      if (drained.has_error() && is_memory_refusal(drained.error()) && cursor.stashed) {
        auto finding = room_or_end(context, limits, out, cursor.stashed->size());
        auto found = co_await finding;
        if (found.has_error()) co_return found.error();
        if (!*found) break;
        continue;
      }
      if (drained.has_error()) {
        broken = true;
        co_return drained.error();
      }
      if (full) break;
      if (*drained || cursor.stage->busy()) continue;
      if (cursor.stage_finished) break;
    }
    const bool stage_full = cursor.stage && !cursor.stage->wants_more();
    auto input = stage_full ? NextInput{} : next_input(cursor, heads, context.shared.cursor_memory);
    if (input.has_error()) co_return input.error();
    if (input->kind == NextInput::Kind::fetch) {
      // Without a size to reach, what the shards have sent so far is a batch, if there is much of it. A little is
      // worth asking for more: then the last batch mostly says that it is the last.
      const bool enough = limits.documents_max == 0 && out.document_bytes() >= unsized_batch_bytes_min;
      if (enough && cursor.sort_keys == SortKeySource::none) break;
      // Where memory is short, a shorter batch goes out rather than hold it and wait for more.
      if (out.count() > 0 && !limits.whole && is_scarce(context)) break;
      auto fetch = fetch_more(context, cursor, limits.deadline, limits.interrupt, &broken, limits.time);
      auto fetched = co_await fetch;
      slice.renew();
      if (fetched.has_error()) {
        const bool may_wait = is_memory_refusal(fetched.error()) && !broken;
        if (may_wait && out.count() > 0 && !limits.whole) break;
        co_return fetched.error();
      }
      continue;
    }
    if (input->kind == NextInput::Kind::key_room) {
      auto finding = key_room_or_end(context, limits, out, *input);
      auto found = co_await finding;
      if (found.has_error()) co_return found.error();
      if (!*found) break;
      continue;
    }
    if (input->kind == NextInput::Kind::end) {
      if (!cursor.stage) break;
      if (auto finished = cursor.stage->finish(); finished.has_error()) {
        broken = true;
        co_return finished.error();
      }
      cursor.stage_finished = true;
      kill_remotes(context, cursor);
      for (RemoteCursor& remote : cursor.remotes) {
        remote.batches.clear();
        remote.parked.clear();
        remote.parked_rest = 0;
      }
      continue;
    }
    RemoteCursor& remote = *input->remote;
    const DocView document = *remote.front()->peek();
    step_bytes = document.size();
    if (cursor.skip_remaining > 0) {
      --cursor.skip_remaining;
      remote.pop();
      continue;
    }
    if (cursor.stage) {
      // A stage would take damage for a document's end, too.
      const bool damaged = document.validate().has_error();
      auto pushed = damaged ? malformed_reply("a document") : cursor.stage->push(document);
      if (pushed.has_error()) {
        broken = true;
        co_return pushed.error();
      }
    } else {
      if (!out.fits(document.size())) break;
      if (auto added = append_document(cursor, out, document, input->cut); added.has_error()) {
        if (!is_memory_refusal(added.error())) co_return added.error();
        auto finding = room_or_end(context, limits, out, document.size());
        auto found = co_await finding;
        if (found.has_error()) co_return found.error();
        if (!*found) break;
        continue;
      }
      if (cursor.limit_remaining) --*cursor.limit_remaining;
    }
    batch_ended = remote.pop();
  }
  co_return Result<void>();
}

void count_batch(Context& context, ClusterCursor& cursor, std::size_t documents) {
  cursor.documents_returned += documents;
  if (++cursor.batches_returned == 2) context.shared.metrics.cursors_more_than_one_batch.add();
  cursor.answered_ns = steady_ns();
}

Result<Reservation> reserve_kept(Context& context, const Request& request, std::string_view collection,
                                 std::size_t more_bytes) {
  const std::size_t ns_bytes = request.db.size() + 1 + collection.size();
  // The registry has the namespace, too.
  const std::size_t bytes = 2 * ns_bytes + request.comment.bytes.size() + more_bytes;
  if (bytes <= kept_free_bytes) return Reservation();
  MemoryBudget& budget = context.shared.cursor_memory;
  if (auto kept = reserve_now(budget, bytes)) return *std::move(kept);
  return memory_refused(budget, bytes, "what a cursor keeps of its command");
}

CursorPtr make_cursor(Client& client, const Request& request, std::string_view collection, Reservation kept) {
  auto cursor = std::make_unique<ClusterCursor>();
  cursor->kept = std::move(kept);
  cursor->ns = fmt::format("{}.{}", request.db, collection);
  cursor->session.lsid = request.lsid;
  cursor->session.api = request.api;
  if (request.in_transaction) {
    cursor->session.txn_number = request.txn_number;
    cursor->session.in_transaction = true;
  }
  cursor->owner = client.user;
  cursor->client = client.presence.facts();
  cursor->charge.assign(client.limits.account());
  cursor->created_ms = wall_clock_ms();
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

Task<Result<Response>> answer_first_batch(Context& context, CursorPtr cursor, std::int64_t batch_size,
                                          bool batch_size_given, bool single_batch, const Request& request) {
  BatchBuilder batch(context.shared.reply_memory, batch_bytes_max(request, batch_size_given || single_batch));
  if (!batch_size_given || batch_size > 0) {
    const FillLimits limits{batch_size_given ? batch_size : limits::first_batch_documents_default,
                            request.deadline, request.interrupt, single_batch, nullptr, false,
                            request.shard_time};
    auto filling = fill_batch(context, *cursor, limits, batch);
    auto filled = co_await filling;
    if (filled.has_error()) {
      end_cursor(context, std::move(cursor));
      co_return try_again(std::move(filled.error()));
    }
  }
  count_batch(context, *cursor, batch.count());
  std::int64_t id = 0;
  const std::string ns = cursor->ns;
  const bool partial = cursor->partial;
  const bool keep = !single_batch && (!cursor->exhausted() || (batch_size_given && batch_size == 0));
  if (keep) {
    if (auto refusal = charge_cursor(cursor->charge)) {
      end_cursor(context, std::move(cursor));
      co_return *std::move(refusal);
    }
    cursor->compact(context.shared.cursor_memory);
    id = context.shared.cursors.insert(std::move(cursor), steady_ns());
  } else {
    end_cursor(context, std::move(cursor));
  }
  co_return std::move(batch).finish("firstBatch", id, ns, partial);
}

}  // namespace spillway::exec
