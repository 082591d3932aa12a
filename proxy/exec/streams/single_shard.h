// Cursors that live on one shard: replies pass through with the cursor's id replaced, complete or
// as a stream.
#pragma once

#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"
#include "proxy/exec/core/shard_call.h"
#include "proxy/exec/cursors/active_cursor.h"

namespace spillway::exec {

// What a client's cursor is made of, should the shard keep one open. Views, as those of the
// request.
struct CursorSeed {
  Client& client;
  const Request& request;
  std::string_view collection;
  std::int64_t batch_size = 0;
  std::int64_t first_batch_documents = 0;  // at most
  bool whole_documents = false;            // the collection's own, not projected
  bool no_timeout = false, tailable = false, await_data = false;
  bool writes = false;  // is sent once, and ended by nobody
  bool change_stream = false;  // tailable and await_data, too
  CursorPtr make(Reservation kept) const;  // reserve_kept()'s
};

// Sends a command that answers with a cursor (find, aggregate, listCollections, listIndexes) to one
// shard, and turns its reply into the client's. `seed` becomes the client's cursor if the shard
// keeps one open. `stream`: the reply may be cut through.
Task<Result<Response>> open_on_one_shard(Context& context, CursorSeed seed, ShardCommand command, bool stream);

// A getMore on a checked-out cursor whose only remote passes through. Checks the cursor in or ends
// it; a refusal of memory that may be tried again, as its labels say, has not ended it.
Task<Result<Response>> get_more_on_one_shard(Context& context, const Request& request,
                                             ActiveCursor cursor, std::int64_t batch_size,
                                             std::optional<std::int64_t> await_ms);

// A getMore to one shard of a checked-out cursor over several, whose reply becomes the client's
// next batch, or, with `first`, its first one. REQUIRES cursor->passes_through(). nullopt: what
// came is little, or must be renamed; it lies in the cursor, which is still checked out. Else the
// cursor was checked in or ended, as above, and `cursor` is empty.
Task<Result<std::optional<Response>>> pass_one_batch(Context& context, const Request& request,
                                                     ActiveCursor& cursor, std::int64_t batch_size,
                                                     bool first);

// May this request's reply be cut through? Not with a checksum: it would have to be known before
// the bytes.
bool may_stream(const Request& request) noexcept;

}  // namespace spillway::exec
