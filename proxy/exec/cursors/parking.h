// Parking: what idle cursors hold is compressed, and spilled if memory.spill.path is set, until a
// getMore asks for it. (allocator/spill.h does the work, on a thread of its own.)
#pragma once

#include "cursor/cursor.h"
#include "proxy/exec/core/context.h"

namespace spillway::exec {

// A getMore waits so long for a file that does not answer, and for room in the budget.
inline constexpr Duration unpark_wait_max = std::chrono::seconds(30);

// Brings the next parked piece of a remote back as its first batch, room reserved first. The worker
// is free meanwhile. REQUIRES no batches, something parked, and that `remote` stays where it is.
// Errors are final for the cursor, so that no document is left out silently: OperationFailed(96)
// when the file gives errors or other bytes, or does not answer;
// IngressRequestRateLimitExceeded(462) when the budget has no room for a piece for unpark_wait_max.
// `interrupt` (null: none) ends it with its own error within a tenth of a second.
Task<Result<void>> unpark(Context& context, RemoteCursor& remote, shard::Interrupt* interrupt);

// The same for the next piece of any ticket, room for it reserved of `budget`.
Task<Result<SpillFetched>> fetch_parked(Context& context, SpillTicket& ticket,
                                        MemoryBudget& budget, const shard::Interrupt* interrupt);

// One round of the housekeeping: parks the heaviest of the cursors that have been idle for
// memory.spill.idleMillis; when memory is tight, for a second; when it is critical, for a quarter.
// While memory is plenty only a file is worth it. Never blocks.
void park_idle_cursors(Context& context, TimePoint now);

}  // namespace spillway::exec
