// Read-ahead: while a client works on a batch, its cursor's next one is fetched.
// It changes nothing that a client sees but the time: a getMore that comes too early waits for the
// cursor, and what fails waits for the getMore that asks.
#pragma once

#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/cursors/active_cursor.h"

namespace spillway::exec {

// Checks a cursor out for a getMore; waits for it while it is being filled. Errors: those of
// CursorRegistry::check_out(), CursorKilled(237), the request's interrupt, and what reading ahead met
// (the cursor is gone then).
Task<Result<ActiveCursor>> take_cursor(Context& context, Client& client, const Request& request, std::int64_t id,
                                       std::string_view ns);

// After a getMore's batch: goes on filling the cursor in the background, if that is likely to be of use and memory is
// plenty. False: it is as it was.
bool read_ahead(Context& context, ActiveCursor& cursor);

}  // namespace spillway::exec
