// Read-ahead: while a client works on a batch, its cursor's next one is fetched.
// It changes nothing that a client sees but the time: a getMore that comes too early waits for the
// cursor, and what fails waits for the getMore that asks.
#pragma once

#include "cursor/cursor.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"

namespace spillway::exec {

// Checks a cursor out for a getMore; waits for it while it is being filled. Errors: those of
// CursorRegistry::check_out(), CursorKilled(237), the request's interrupt, and what reading ahead met
// (the cursor is gone then).
Task<Result<CursorPtr>> take_cursor(Context& context, Client& client, const Request& request,
                                    std::int64_t id, std::string_view ns);

// Gives a cursor back after a getMore's batch, or goes on filling it in the background, if that is
// likely to be of use and memory is plenty. Returned: it was killed meanwhile, end it.
CursorPtr give_back(Context& context, CursorPtr cursor);

}  // namespace spillway::exec
