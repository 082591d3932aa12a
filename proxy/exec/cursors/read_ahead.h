// Read-ahead: while a client works on a batch, the router fetches the cursor's next one.
//
// The client sees a difference in time only: a getMore that comes early waits for the cursor, and an error of
// read-ahead is the answer to the next getMore.
#pragma once

#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/cursors/active_cursor.h"

namespace spillway::exec {

// Checks a cursor out for a getMore. Waits while read-ahead fills it. Errors: those of CursorRegistry::check_out(),
// CursorKilled(237), the request's interrupt, and errors of read-ahead (after which the cursor is gone).
Task<Result<ActiveCursor>> take_cursor(Context& context, Client& client, const Request& request, std::int64_t id,
                                       std::string_view ns);

// After a getMore's batch: starts to fill the cursor in the background, if that is likely to help and there is enough
// memory. False: nothing was started.
bool read_ahead(Context& context, ActiveCursor& cursor);

}  // namespace spillway::exec
