#include "proxy/exec/cursors/working_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "allocator/pressure.h"
#include "allocator/small_blocks.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/cursors/cursor_keeper.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/pipeline/split/shape.h"

namespace spillway::exec {

namespace {

constexpr double envelope_bytes = 4096;
constexpr double slack = 1.1;
// What is left to others when a merge is opened, as a part of the payload.
constexpr std::uint64_t left_parts = 4;
constexpr std::uint64_t whole_documents_shape = 1;

// A rare one that is larger than that finds the reserve.
constexpr double means_in_largest = 16;

double one_document_bytes(const DocumentSize& size) noexcept {
  return std::max(size.mean_bytes * slack, std::min(size.largest_bytes, size.mean_bytes * means_in_largest));
}

// In a context's document_sizes, or in its output_sizes. Views the cursor's name; allocates nothing.
class OutputKey {
 public:
  explicit OutputKey(const ClusterCursor& cursor) : view_(cursor.ns) {
    if (cursor.output_shape == whole_documents_shape) return;
    fmt::format_to(std::back_inserter(text_), "{}#{:x}", cursor.ns, cursor.output_shape);
    view_ = {text_.data(), text_.size()};
  }
  std::string_view view() const noexcept { return view_; }

 private:
  fmt::memory_buffer text_;
  std::string_view view_;
};

// For one shard's reply.
std::size_t least_reply_bytes(const ClusterCursor& cursor) noexcept {
  return Buffer::charged_bytes(reply_bytes(cursor.document_size, 1));
}

// Do the largest first batches of all shards fit into a quarter of the memory?
bool has_plenty(const Context& context, std::size_t shards) noexcept {
  if (context.shared.pressure.at_least(PressureLevel::tight)) return false;
  const BudgetUsage usage = context.shared.memory.payload_usage();
  return usage.limit_bytes == 0 || usage.used_bytes + shards * limits::document_bytes_max <= usage.limit_bytes / 4;
}

bool is_limited(const Context& context) noexcept { return context.shared.memory.cursors.ceiling_bytes() != 0; }

std::uint64_t working_set_bytes(std::size_t reply_bytes_each, std::size_t shards) noexcept {
  return shards * Buffer::charged_bytes(reply_bytes_each);
}

// It may be taken while memory is critical.
constexpr bool is_little(std::uint64_t working_set_bytes) noexcept {
  return working_set_bytes <= MemoryQueue::small_bytes_max;
}

std::uint64_t working_set_most(const Context& context) noexcept {
  const std::uint64_t ceiling = context.shared.memory.cursors.ceiling_bytes();
  return ceiling - ceiling / left_parts;
}

// Of a working set, what its replies do not use.
std::uint64_t unused_bytes(const ClusterCursor& cursor) noexcept {
  const std::uint64_t each = least_reply_bytes(cursor);
  std::uint64_t bytes = 0;
  for (const RemoteCursor& remote : cursor.remotes) {
    if (remote.id == 0 || !remote.parked.empty()) continue;
    std::uint64_t held = 0;
    for (const Batch& batch : remote.batches) held += batch.held_bytes();
    bytes += each - std::min(each, held);
  }
  return bytes;
}

DocumentSizes& sizes_of(Context& context, const ClusterCursor& cursor) noexcept {
  return cursor.output_shape == whole_documents_shape ? context.document_sizes : context.output_sizes;
}

bool grow(MemoryBudget& budget, Reservation& taken, std::uint64_t more_bytes) noexcept {
  if (!budget.has_room(more_bytes)) return false;  // no refusal to count: it can do without
  if (taken.budget() != nullptr) return taken.try_grow(more_bytes);
  auto first = budget.try_reserve(more_bytes);
  if (!first) return false;
  taken = *std::move(first);
  return true;
}

void set_working_set(const Context& context, ClusterCursor& cursor, std::uint64_t bytes) noexcept {
  Reservation& taken = cursor.working_set;
  if (bytes > taken.bytes()) {
    if (context.shared.memory.work_queue.must_join(&cursor)) return;
    static_cast<void>(grow(context.shared.memory.cursors, taken, bytes - taken.bytes()));
  } else if (bytes < taken.bytes()) {
    taken.shrink_to(bytes);
  }
}

}  // namespace

std::size_t reply_bytes(const DocumentSize& size, std::int64_t documents) noexcept {
  if (documents == 0) return static_cast<std::size_t>(envelope_bytes);
  if (!size.known()) return limits::reply_complete_bytes_max;
  return static_cast<std::size_t>(size.mean_bytes * slack * static_cast<double>(documents - 1) +
                                  one_document_bytes(size) + envelope_bytes);
}

void expect_output(Context& context, ClusterCursor& cursor, DocView made_by) {
  cursor.output_shape = made_by.empty() ? whole_documents_shape : pipeline::shape_of(made_by);
  cursor.document_size = sizes_of(context, cursor).of(OutputKey(cursor).view());
}

void learn_output(Context& context, const ClusterCursor& cursor) {
  if (cursor.output_shape != 0) sizes_of(context, cursor).learn(OutputKey(cursor).view(), cursor.document_size);
}

FirstReplies first_replies(const Context& context, const ClusterCursor& cursor, std::int64_t wanted,
                           std::size_t shards) noexcept {
  if (wanted == 0) return FirstReplies::none();
  const DocumentSize& size = cursor.document_size;
  if (!size.known()) {
    if (wanted > 1 && has_plenty(context, shards)) return {wanted, limits::document_bytes_max};
    return {1, reply_bytes(size, 1)};
  }
  const std::int64_t documents =
      std::min(wanted, documents_in_window(context, size, cursor.merge.sorted(), shards));
  return {documents, reply_bytes(size, documents)};
}

std::optional<Error> refuse_new_merge(Context& context, Client& client, const ClusterCursor& cursor,
                                      const FirstReplies& first, std::size_t shards) {
  const bool takes_little = !cursor.stage && is_little(working_set_bytes(first.bytes_each, shards));
  return cursor.passes_through() || takes_little ? std::nullopt : refuse_new_cursor(context, client);
}

Task<Result<void>> take_working_set(Context& context, const Request& request, ClusterCursor& cursor,
                                    std::size_t shards, std::size_t reply_bytes_each) {
  if (!is_limited(context)) co_return Result<void>();
  MemoryBudget& budget = context.shared.memory.cursors;
  const MemoryQueue& queue = context.shared.memory.work_queue;
  const std::uint64_t bytes = working_set_bytes(reply_bytes_each, shards);
  // Replies that are so large may still find memory, one after the other.
  if (bytes > working_set_most(context)) co_return Result<void>();
  // What others have taken of the reserve is theirs to give back first. A little needs nothing beside it.
  const std::uint64_t ceiling = budget.ceiling_bytes();
  const std::uint64_t left =
      is_little(bytes) ? 0 : std::min(ceiling / left_parts + queue.usage().large.used_bytes, ceiling - bytes);
  std::optional<Reservation> taken;
  const bool scarce = is_scarce(context);
  if (!(scarce && queue.somebody_waits()) && budget.has_room(bytes + left)) taken = budget.try_reserve(bytes);
  if (!taken && !scarce) co_return Result<void>();
  if (!taken) {
    if (cursor.client) take_from_large_holders(context, *cursor.client);
    auto waiting = wait_to_open(context, request, budget, bytes, left, "a cursor over several shards");
    auto waited = co_await waiting;
    if (waited.has_error()) {
      context.shared.metrics.cursors_refused.add();
      co_return waited.error();
    }
    taken = *std::move(waited);
  }
  cursor.working_set = *std::move(taken);
  co_return Result<void>();
}

std::optional<Reservation> room_for_reply(const Context& context, ClusterCursor& cursor, std::int64_t& documents) {
  MemoryBudget& budget = context.shared.memory.cursors;
  const std::uint64_t least = least_reply_bytes(cursor);
  const DocumentSize& size = cursor.document_size;
  const std::uint64_t wanted = Buffer::charged_bytes(reply_bytes(size, documents));
  Reservation room = cursor.working_set.split(std::min(least, cursor.working_set.bytes()));
  // The first in line has been waiting for the same memory.
  const bool others_wait = context.shared.memory.work_queue.must_join(&cursor);
  if (room.bytes() >= wanted || (!others_wait && grow(budget, room, wanted - room.bytes()))) return room;
  if (room.bytes() < least && (others_wait || !grow(budget, room, least - room.bytes()))) {
    give_back(context, cursor, std::move(room));
    return std::nullopt;
  }
  const double beside_one = static_cast<double>(room.bytes()) - envelope_bytes - one_document_bytes(size);
  const double fitting = 1 + std::max(beside_one, 0.0) / slack / std::max(size.mean_bytes, 1.0);
  documents = std::clamp<std::int64_t>(static_cast<std::int64_t>(fitting), 1, documents);
  return room;
}

MemoryQueue::Holder holder_of(const ClusterCursor& cursor) noexcept {
  return cursor.remotes.size() > 1 && !cursor.from_one_shard ? &cursor : nullptr;
}

bool found_no_memory(const Error& error) noexcept {
  return error.is(ErrorCode::ingress_request_rate_limit_exceeded) || error.is(ErrorCode::exceeded_memory_limit);
}

void distrust_sizes(Context& context, ClusterCursor& cursor) {
  cursor.document_size.distrust();
  sizes_of(context, cursor).distrust(OutputKey(cursor).view());
}

shard::HeldReplies held_replies(const Context& context, const ClusterCursor& cursor) noexcept {
  shard::HeldReplies held;
  for (const RemoteCursor& remote : cursor.remotes) {
    for (const Batch& batch : remote.batches) {
      if (auto* part = held.part_of(batch.owner(), context.shared.memory.cursors)) *part += batch.held_bytes();
    }
  }
  return held;
}

void give_back(const Context& context, ClusterCursor& cursor, Reservation room) noexcept {
  if (room.budget() == &context.shared.memory.cursors) cursor.working_set.merge(std::move(room));
}

void keep_working_set(const Context& context, ClusterCursor& cursor) noexcept {
  if (!is_limited(context)) return;
  for (RemoteCursor& remote : cursor.remotes) {
    for (Batch& batch : remote.batches) batch.charge_to(context.shared.memory.cursors);
  }
  const bool is_merge = !cursor.changes && !cursor.from_one_shard && !cursor.passes_through();
  const std::uint64_t bytes = is_merge && !cursor.exhausted() ? unused_bytes(cursor) : 0;
  set_working_set(context, cursor, bytes <= working_set_most(context) ? bytes : 0);
}

void keep_idle_working_set(const Context& context, ClusterCursor& cursor) noexcept {
  const std::size_t mean_reply_bytes = reply_bytes({.mean_bytes = cursor.document_size.mean_bytes}, 1);
  if (mean_reply_bytes > small_blocks::block_bytes_max) return keep_working_set(context, cursor);
  cursor.working_set.release();
}

}  // namespace spillway::exec
