// Cursors that live on one shard. Their replies pass through, whole or as a stream; only the cursor id is replaced.
#pragma once

#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"
#include "proxy/exec/core/shard_call.h"
#include "proxy/exec/cursors/active_cursor.h"

namespace spillway::exec {

// What the client's cursor needs if the shard keeps one open. Views into the request.
struct CursorSeed {
  Client& client;
  const Request& request;
  std::string_view collection;
  std::int64_t batch_size = 0;
  std::int64_t first_batch_documents = 0;  // at most
  bool whole_documents = false;            // the collection's own, not projected
  bool no_timeout = false, tailable = false, await_data = false, allow_partial = false;
  bool writes = false;  // it is sent once, and not killed if the client leaves
  bool merges = false;  // it is sent once: what a first try has taken from other shards' cursors is gone
  bool change_stream = false;  // also tailable and await_data
  CursorPtr make(Reservation kept) const;  // reserve_kept()'s
};

// Sends a command that returns a cursor (find, aggregate, listCollections, listIndexes) to one shard. The shard's reply
// becomes the client's. If the shard keeps a cursor open, `seed` becomes the client's cursor. `stream`: the reply may
// pass in pieces. `body`: the command's, if it was made for this call.
Task<Result<Response>> open_on_one_shard(Context& context, CursorSeed seed, ShardCommand command, bool stream,
                                         BsonDoc body = {});

// A getMore on a checked-out cursor with one remote that passes through. Puts the cursor back or ends it. After a
// refusal of memory with the labels that say "try again", the cursor is still there.
Task<Result<Response>> get_more_on_one_shard(Context& context, const Request& request,
                                             ActiveCursor cursor, std::int64_t batch_size,
                                             std::optional<std::int64_t> await_ms);

// Sends a getMore to one shard of a cursor over several. The reply becomes the client's next batch (`first`: its first
// batch). REQUIRES cursor->passes_through(), and that the cursor is checked out.
// nullopt: the reply was small, or needs another name; its documents are in the cursor, which is still checked out.
// Otherwise the cursor was put back or has ended, as above, and `cursor` is empty.
Task<Result<std::optional<Response>>> pass_one_batch(Context& context, const Request& request,
                                                     ActiveCursor& cursor, std::int64_t batch_size,
                                                     bool first);

// May this request's reply pass in pieces? Not with a checksum, which stands before the bytes that it covers.
bool may_stream(const Request& request) noexcept;

}  // namespace spillway::exec
