// Asks the shards of a cursor for more documents.
#include <algorithm>

#include "allocator/small_blocks.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/cursors/parking.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/cursors/working_set.h"
#include "proxy/shard/topology.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::exec {

namespace {

// The size of a shard's reply when the client gave no batchSize.
constexpr double sorted_fetch_bytes = 1.0 * limits::mib;
constexpr double unsorted_fetch_bytes = 4.0 * limits::mib;
// The same while memory is short, or if larger replies pass through. (Clients see no difference: several replies fill a
// batch.)
constexpr double small_fetch_bytes = 0.25 * limits::mib;
constexpr double fetch_bytes_least = 32.0 * limits::kib;
// Of the free memory, one cursor's replies may take this part, so that many cursors leave one another something.
constexpr double free_parts = 32;
constexpr double passthrough_fetch_bytes = 15.0 * limits::mib;
constexpr std::int64_t fetch_documents_max = 100'000;
// The first documents of a collection say little about those that follow.
constexpr double documents_per_seen = 4;
constexpr std::size_t counted_batch_bytes_max = 64 * limits::kib;
// The first version whose getMore has a comment (4.4).
constexpr std::int32_t comment_wire_version = 9;

std::int64_t documents_in(double window_bytes, double mean_document_bytes) noexcept {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(window_bytes / std::max(mean_document_bytes, 1.0)));
}

}  // namespace

BsonDoc remote_get_more(const Context& context, const ClusterCursor& cursor,
                        const RemoteCursor& remote, std::int64_t batch_size,
                        std::optional<std::int64_t> max_time_ms) {
  BsonWriter command;
  command.append("getMore", remote.id);
  command.append("collection", cursor.remote_collection());
  if (batch_size > 0) command.append("batchSize", batch_size);
  if (max_time_ms) command.append("maxTimeMS", *max_time_ms);
  if (!cursor.session.lsid.empty())
    command.append("lsid", DocView::trusted(cursor.session.lsid.data()));
  if (cursor.session.txn_number) command.append("txnNumber", *cursor.session.txn_number);
  if (cursor.session.in_transaction) command.append("autocommit", false);
  if (!cursor.comment.empty() &&
      context.gateway.capabilities(remote.shard).max_wire_version >= comment_wire_version) {
    command.append_elements(DocView::trusted(cursor.comment.data()));
  }
  command.append("$db", cursor.database());
  return std::move(command).finish();
}

std::int64_t documents_in_window(const Context& context, const DocumentSize& size, bool sorted, std::size_t shards) {
  double window = is_scarce(context) ? small_fetch_bytes : sorted ? sorted_fetch_bytes : unsorted_fetch_bytes;
  double most = fetch_documents_max;
  const BudgetUsage usage = context.shared.memory.payload_usage();
  if (usage.limit_bytes > 0) {
    const auto free = static_cast<double>(usage.limit_bytes - std::min(usage.limit_bytes, usage.used_bytes));
    const double share = free / free_parts / static_cast<double>(shards);
    window = std::min(window, std::max(share, fetch_bytes_least));
    if (size.seen > 0) most = std::max(size.seen * documents_per_seen, 1.0);
  }
  return std::min(documents_in(window, size.mean_bytes), static_cast<std::int64_t>(most));
}

std::int64_t remote_batch_size(const Context& context, const ClusterCursor& cursor,
                               std::uint16_t shard, bool passes) {
  const bool caps_by_bytes = context.gateway.capabilities(shard).offers_sort_key;  // a mongod
  // A mongod stops by itself at 16 MiB; other shards need a number.
  if (caps_by_bytes && passes) return cursor.batch_size;
  const std::int64_t wanted = cursor.batch_size > 0 ? cursor.batch_size : fetch_documents_max;
  if (!cursor.document_size.known()) {
    if (!passes && is_scarce(context)) return 1;
    return cursor.batch_size > 0 ? cursor.batch_size : limits::first_batch_documents_default;
  }
  const double mean_bytes = cursor.document_size.mean_bytes;
  const std::int64_t fitting =
      passes ? documents_in(passthrough_fetch_bytes, mean_bytes)
             : documents_in_window(context, cursor.document_size, cursor.merge.sorted(), cursor.remotes.size());
  return std::clamp<std::int64_t>(fitting, 1, wanted);
}

bool is_unreachable(const Error& error) noexcept {
  return error.is(ErrorCode::host_unreachable) || error.is(ErrorCode::host_not_found) ||
         error.is(ErrorCode::network_timeout) ||
         error.is(ErrorCode::failed_to_satisfy_read_preference);
}

// As by a mongos, at opening after the shard was tried again.
bool may_be_missing(const ShardOutcome& outcome, ShardLoss when) noexcept {
  if (!outcome.answered()) return is_unreachable(*outcome.error);
  return when == ShardLoss::getting_more || is_unreachable(*outcome.error) || shard::is_retriable(outcome.error->code);
}

Result<void> take_reply(ClusterCursor& cursor, RemoteCursor& remote, shard::Reply reply) {
  SPILLWAY_TRY(parsed, wire::parse_cursor_reply(reply.body()));
  remote.id = parsed->id;
  remote.host = reply.host.host;
  remote.port = reply.host.port;
  // To count is to touch every document before its time; fill_batch() counts what it moves.
  if (!cursor.document_size.known() || parsed->batch.size() <= counted_batch_bytes_max) {
    cursor.document_size.learn(parsed->batch.size(), parsed->batch.count());
  }
  if (cursor.changes) {
    const auto at = static_cast<std::size_t>(&remote - cursor.remotes.data());
    SPILLWAY_TRY(promised, cursor.changes->promise(at, parsed->post_batch_resume_token));
  }
  // A batch without a readable document stays, too: the cursor sees that it is damaged().
  if (!parsed->batch.empty()) {
    const DocView batch = parsed->batch;
    remote.batches.emplace_back(std::move(reply.bytes), batch);
  }
  return {};
}

namespace {

// What failed of a cursor's remotes. A refusal of memory leaves the documents where they are, so that the client may
// try again: it must not hide an error after which the cursor cannot go on.
class Failures {
 public:
  explicit Failures(ClusterCursor& cursor) : cursor_(cursor) {}
  void add(const Error& error) {
    const bool refused = error.is(ErrorCode::ingress_request_rate_limit_exceeded);
    if (!refused) cursor_.broken = true;
    if (!error_ || !refused) error_ = error;
  }
  const std::optional<Error>& error() const noexcept { return error_; }

 private:
  ClusterCursor& cursor_;
  std::optional<Error> error_;
};

Task<void> unpark_into(Context* context, RemoteCursor* remote, shard::Interrupt* interrupt, Failures* failures) {
  auto unparked = co_await unpark(*context, *remote, interrupt);
  if (unparked.has_error()) failures->add(unparked.error());
}

}  // namespace

Task<Result<void>> fetch_more(Context& context, ClusterCursor& cursor, FetchOptions how) {
  Failures failures(cursor);
  TaskGroup unparking;
  RecycledVector<BsonDoc> bodies;
  RecycledVector<ShardCommand> commands;
  RecycledVector<std::size_t> remotes;
  RecycledVector<shard::ReplyRoom> rooms;
  shard::HeldReplies held = held_replies(context, cursor);
  rooms.reserve(cursor.remotes.size());
  bodies.reserve(cursor.remotes.size());
  commands.reserve(cursor.remotes.size());
  remotes.reserve(cursor.remotes.size());
  keep_working_set(context, cursor);
  const bool limited = context.shared.memory.cursors.ceiling_bytes() != 0;
  // Other documents must not wait with what waits for memory.
  const bool scarce = !how.ahead && is_scarce(context);
  bool waits = false, unparks = false;
  for (std::size_t n = 0; n < cursor.remotes.size() && !waits; ++n) {
    const std::size_t i = (cursor.merge.next_remote + n) % cursor.remotes.size();
    RemoteCursor& remote = cursor.remotes[i];
    if (remote.must_unpark() && !how.ahead) {
      if (scarce && !remotes.empty()) break;
      waits = scarce;
      unparks = true;
      unparking.start(unpark_into(&context, &remote, how.interrupt, &failures));
      continue;
    }
    if (remote.id == 0 || !remote.parked.empty()) continue;
    if (how.ahead ? remote.batches.size() >= cursor.ahead.depth : remote.has_document()) continue;
    const bool as_before = how.ahead && cursor.from_one_shard;
    std::int64_t size = as_before ? cursor.ahead.batch_size : remote_batch_size(context, cursor, remote.shard, false);
    if (how.tops_up) size = std::min(size, documents_in(small_fetch_bytes, cursor.document_size.mean_bytes));
    // The memory is there before the batch is requested: a batch without memory is lost.
    Reservation room;
    if (limited && !as_before) {
      auto taken = room_for_reply(context, cursor, size);
      if (!taken && (how.ahead || unparks || !remotes.empty())) break;
      if (!taken) {
        size = std::min(size, documents_in(fetch_bytes_least, cursor.document_size.mean_bytes));
        Patience patience(how.interrupt, how.deadline);
        patience.holder = holder_of(cursor);
        SPILLWAY_AWAIT(waited, take_reservation(context, patience, context.shared.memory.cursors,
                                                Buffer::charged_bytes(reply_bytes(cursor.document_size, size)),
                                                "a shard's batch"));
        taken = *std::move(waited);
        waits = true;
      }
      room = *std::move(taken);
    }
    rooms.push_back({std::move(room), holder_of(cursor), &held});
    bodies.push_back(remote_get_more(context, cursor, remote, size, {}));
    commands.emplace_back(remote.shard, RoutedBy::nothing(), shard::Command::of_body(bodies.back()));
    commands.back().host = shard::HostAddress{remote.host, remote.port};
    if (limited) commands.back().room = &rooms.back();
    remotes.push_back(i);
  }
  shard::CallOptions options;
  options.budget = &context.shared.memory.cursors;
  options.deadline = how.deadline;
  options.interrupt = how.interrupt;
  options.time = how.time;
  options.user = how.user;
  options.use = use_of_get_more(cursor);
  auto outcomes = co_await call_shards(context, commands, options);
  for (shard::ReplyRoom& room : rooms) give_back(context, cursor, std::move(room.paid));
  co_await unparking.wait();
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    RemoteCursor& remote = cursor.remotes[remotes[i]];
    if (outcomes[i].ok()) {
      auto taken = take_reply(cursor, remote, std::move(outcomes[i].reply));
      if (taken.has_error()) failures.add(taken.error());
      continue;
    }
    if (outcomes[i].error->is(ErrorCode::cursor_not_found)) remote.id = 0;
    if (cursor.allow_partial && may_be_missing(outcomes[i], ShardLoss::getting_more)) {
      // A shard that answered is told that the cursor ends. A command to an unreachable shard would only cost time.
      if (is_unreachable(*outcomes[i].error)) remote.id = 0;
      kill_remote(context, cursor, remote);
      cursor.partial = true;
      continue;
    }
    cursor.broken = true;  // whatever it is: the batch is lost
    if (found_no_memory(*outcomes[i].error)) distrust_sizes(context, cursor);
    failures.add(*outcomes[i].error);
  }
  keep_working_set(context, cursor);
  if (failures.error()) co_return *failures.error();
  co_return Result<void>();
}

}  // namespace spillway::exec
