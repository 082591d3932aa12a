// Working on a checked-out cursor: fetching from its shards, filling a client's batch, ending it.
#pragma once

#include "cursor/cursor.h"
#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/cursors/active_cursor.h"
#include "proxy/exec/cursors/batch_builder.h"

namespace spillway::exec {

struct ShardOutcome;  // forward.h

struct FillLimits {
  std::int64_t documents_max = 0;  // 0: as many as fit (batch_bytes_max())
  TimePoint deadline = time_point_never;
  shard::Interrupt* interrupt = nullptr;
  bool whole = false;  // singleBatch: no later batch can bring what this one leaves out
  // The documents that one shard has sent in one reply are a batch, as if the reply had passed through.
  bool one_batch = false;
  shard::ShardTime* time = nullptr;
  const auth::User* user = nullptr;  // CallOptions::user
};

// Moves documents from the cursor (its buffers, then its shards) into `out`. Stops at documents_max, when `out` is
// full, or at the end of the cursor. Without documents_max and sort it also stops when the buffers are empty and `out`
// has enough. If memory is short, a batch ends early, and an empty one waits.
// An error is final for the cursor, with one exception: after a refusal of memory (IngressRequestRateLimitExceeded) the
// client may try again if `out` is empty and the cursor is not `broken`.
Task<Result<void>> fill_batch(Context& context, ClusterCursor& cursor, FillLimits limits, BatchBuilder& out);

struct FetchOptions {
  TimePoint deadline = time_point_never;
  shard::Interrupt* interrupt = nullptr;
  shard::ShardTime* time = nullptr;
  const auth::User* user = nullptr;  // CallOptions::user
  // Before the client asks: up to cursor.ahead.depth batches of each remote. Parked batches stay parked.
  bool ahead = false;
  bool tops_up = false;  // a batch of any size will do, and those behind it pass through
};

// Sends getMore to every open remote that has no document, in parallel.
Task<Result<void>> fetch_more(Context& context, ClusterCursor& cursor, FetchOptions how);

// What a getMore of this cursor wants its connection for.
inline shard::Use use_of_get_more(const ClusterCursor& cursor) noexcept {
  return cursor.await_data ? shard::Use::waiting : shard::Use::bulk;
}

// The command {getMore: …} for one remote; `batch_size` 0 leaves the field out.
BsonDoc remote_get_more(const Context& context, const ClusterCursor& cursor, const RemoteCursor& remote,
                        std::int64_t batch_size, std::optional<std::int64_t> max_time_ms);
// The batchSize of a shard's getMore, from the sizes that the cursor has seen; 0: the shard decides.
// `passes`: the reply goes to the client and is not buffered.
std::int64_t remote_batch_size(const Context& context, const ClusterCursor& cursor, std::uint16_t shard,
                               bool passes);
// How many documents of this size one of `shards` shards may send at once; at least 1.
std::int64_t documents_in_window(const Context& context, const DocumentSize& size, bool sorted, std::size_t shards);

// allowPartialResults: may a cursor go on without this shard, whose call failed? Yes for a shard that was not reached,
// and for any failed getMore of an open shard cursor. No for the router's own refusals (no memory, no time, the
// operation was killed): the shard has those documents.
enum class ShardLoss : std::uint8_t { opening, getting_more };
bool may_be_missing(const ShardOutcome& outcome, ShardLoss when) noexcept;
// An error without an answer.
bool is_unreachable(const Error& error) noexcept;

// Takes a shard's cursor reply into a remote: id, host, batch. Errors: InternalError for a malformed reply.
Result<void> take_reply(ClusterCursor& cursor, RemoteCursor& remote, shard::Reply reply);

// Why a cursor ends. It decides whether its memory goes back to the operating system at once or after the load.
enum class CursorEnd : std::uint8_t { finished, killed, expired, orphaned, evicted };
// Ends a cursor that is in no registry: its buffers are freed at once; its shard cursors are killed in the background.
void end_cursor(Context& context, CursorPtr cursor, CursorEnd end = CursorEnd::finished);
// Ends many cursors. Their shard cursors are killed with one command for each host and namespace.
void end_cursors(Context& context, std::vector<CursorPtr> cursors, CursorEnd end);
// Kills the shard cursors only, in the background, and marks them closed.
void kill_remotes(Context& context, ClusterCursor& cursor);
// The same for one of them.
void kill_remote(Context& context, const ClusterCursor& cursor, RemoteCursor& remote);
// A cursor that a shard has opened beside its reply, and that is not read. `id` 0: there is none.
void kill_unread(Context& context, const ShardOutcome& outcome, std::string_view ns, std::int64_t id);
// For a shutdown: waits for the kills, at most until `deadline`.
Task<void> kill_and_wait(Context& context, std::vector<CursorPtr> cursors, TimePoint deadline);

// The registry's clock.
std::int64_t steady_ns() noexcept;

// Fills the first batch of a cursor whose remotes are open, and answers. Registers the cursor if documents are left. On
// failure the cursor ends.
Task<Result<Response>> answer_first_batch(Context& context, ActiveCursor cursor, FirstBatch first,
                                          const Request& request);

// Charges for what a cursor keeps of its request: comment, namespace, and `more_bytes` of sort, stages or documents. A
// small amount is free. Call it before the shards are asked: its error is a refusal, so nothing may be done yet.
// `held`: what the documents have taken already, for the same cursors.
Result<Reservation> reserve_kept(Context& context, const Request& request, std::string_view collection,
                                 std::size_t more_bytes = 0, Reservation held = {});
// What a cursor keeps of a sort: its fields, and the fields that the router removes from documents.
inline std::size_t kept_sort_bytes(DocView sort) noexcept {
  return 2 * (sort.size() + sort.count() * sizeof(SortPattern::Part));
}
// A cursor for this request, with namespace, session, owner and originating command, but without remotes. `kept`: of
// reserve_kept(); empty if the cursor does not outlive the command.
CursorPtr make_cursor(Client& client, const Request& request, std::string_view collection, Reservation kept);

}  // namespace spillway::exec
