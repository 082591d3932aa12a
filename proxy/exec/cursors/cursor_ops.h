// Working on a checked-out cursor: fetching from its shards, filling a client's batch, ending it.
#pragma once

#include "cursor/cursor.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/cursors/active_cursor.h"
#include "proxy/exec/cursors/batch_builder.h"

namespace spillway::exec {

struct ShardOutcome;  // forward.h

struct FillLimits {
  std::int64_t documents_max = 0;  // 0: as many as fit into 16 MiB
  TimePoint deadline = time_point_never;
  shard::Interrupt* interrupt = nullptr;
  bool whole = false;  // singleBatch: what is left out now is lost
  // What one shard sent at once is a batch, as if it had passed through.
  bool one_batch = false;
  shard::ShardTime* time = nullptr;
};

// Moves documents from the cursor (buffers, then its shards) into `out`: until documents_max, 16 MiB, the end, or,
// without documents_max and sort, until what the shards have sent is used up and was not little. Where memory is short,
// a batch ends early; an empty one waits. An error is final for the cursor, unless it is a refusal of memory
// (IngressRequestRateLimitExceeded), `out` is empty and it is not `broken`: then it may be tried again.
Task<Result<void>> fill_batch(Context& context, ClusterCursor& cursor, FillLimits limits, BatchBuilder& out);

// Asks every open remote that has no document for its next batch, in parallel.
Task<Result<void>> fetch_more(Context& context, ClusterCursor& cursor, TimePoint deadline,
                              shard::Interrupt* interrupt, shard::ShardTime* time);

// The same ahead of the client, up to cursor.ahead.depth batches of each; what is parked stays so.
Task<Result<void>> fetch_ahead(Context& context, ClusterCursor& cursor, shard::Interrupt* interrupt);

// The command {getMore: …} for one remote; `batch_size` 0 leaves the field out.
BsonDoc remote_get_more(const Context& context, const ClusterCursor& cursor, const RemoteCursor& remote,
                        std::int64_t batch_size, std::optional<std::int64_t> max_time_ms);
// How many documents to ask of a shard, by what the cursor has learnt; 0: let the shard decide.
// `passes`: the reply becomes the client's, and is not buffered.
std::int64_t remote_batch_size(const Context& context, const ClusterCursor& cursor, std::uint16_t shard,
                               bool passes);
// So many documents fit into what may be asked of one of several shards at once; at least 1. Mean 0: not known.
std::int64_t documents_in_window(const Context& context, double mean_document_bytes, bool sorted);

// allowPartialResults: may a cursor do without this shard, whose call failed? Without one that is not reached; and
// without what an open one would have sent, whatever it answers instead. What we refuse ourselves (for want
// of memory or time, or because the operation was ended) would be missing though the shard has it.
enum class ShardLoss : std::uint8_t { opening, getting_more };
bool may_be_missing(const ShardOutcome& outcome, ShardLoss when) noexcept;

// Takes a shard's cursor reply into a remote: id, host, batch. Errors: InternalError for a malformed reply.
Result<void> take_reply(ClusterCursor& cursor, RemoteCursor& remote, shard::Reply reply);

// Why a cursor ends: what it held goes back to the operating system at once, or when the load is over.
enum class CursorEnd : std::uint8_t { finished, killed, expired, orphaned, evicted };
// Ends a cursor that is in no registry: its buffers are freed at once; its shard cursors are killed in the background.
void end_cursor(Context& context, CursorPtr cursor, CursorEnd end = CursorEnd::finished);
// Ends many: their shard cursors are killed with one command for each host and namespace.
void end_cursors(Context& context, std::vector<CursorPtr> cursors, CursorEnd end);
// Kills the shard cursors only, in the background, and marks them closed.
void kill_remotes(Context& context, ClusterCursor& cursor);
// The same for one of them.
void kill_remote(Context& context, const ClusterCursor& cursor, RemoteCursor& remote);
// For a shutdown: waits for the kills, at most until `deadline`.
Task<void> kill_and_wait(Context& context, std::vector<CursorPtr> cursors, TimePoint deadline);

// The registry's clock.
std::int64_t steady_ns() noexcept;

// Fills the first batch of a cursor whose remotes are open, registers it if anything is left, and answers.
// Ends the cursor on failure.
Task<Result<Response>> answer_first_batch(Context& context, ActiveCursor cursor, std::int64_t batch_size,
                                          bool batch_size_given, bool single_batch, const Request& request);

// Pays for what a cursor for this request will keep of it: comment and namespace, and `more_bytes` of sort, stages or
// documents. A little is free. To be asked before the shards are: an error is a refusal, and nothing has happened.
Result<Reservation> reserve_kept(Context& context, const Request& request, std::string_view collection,
                                 std::size_t more_bytes = 0);
// What a cursor keeps of a sort: its fields, and those that are stripped again.
inline std::size_t kept_sort_bytes(DocView sort) noexcept {
  return 2 * (sort.size() + sort.count() * sizeof(SortPattern::Part));
}
// A cursor for this request, without remotes: namespace, session, owner, originating command. `kept`: of
// reserve_kept(); empty for one that does not outlive the command.
CursorPtr make_cursor(Client& client, const Request& request, std::string_view collection, Reservation kept);

}  // namespace spillway::exec
