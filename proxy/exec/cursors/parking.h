// Parking: the documents of idle cursors are compressed, and written to a file if memory.spill.path is set, until a
// getMore needs them. allocator/spill.h does the work on a thread of its own.
#pragma once

#include "cursor/cursor.h"
#include "proxy/exec/core/context.h"

namespace spillway::exec {

// How long a getMore waits for a slow file, and for memory.
inline constexpr Duration unpark_wait_max = std::chrono::seconds(30);

// Brings the next parked piece of a remote back as its first batch. Reserves the memory first, and does not block the
// worker. REQUIRES no batches, a parked piece, and that `remote` does not move in memory.
// Every error is final for the cursor, so that no document is left out silently. OperationFailed(96): the file has
// errors or wrong bytes, or does not answer. IngressRequestRateLimitExceeded(462): no memory for unpark_wait_max.
// `interrupt` (null: none) ends the wait with its error within 100 ms.
Task<Result<void>> unpark(Context& context, RemoteCursor& remote, shard::Interrupt* interrupt);

// The same for the next piece of any ticket; `budget` pays for it.
Task<Result<SpillFetched>> fetch_parked(Context& context, SpillTicket& ticket,
                                        MemoryBudget& budget, const shard::Interrupt* interrupt);

// One round of housekeeping: parks the heaviest cursors that have been idle for memory.spill.idleMillis (1 s while
// memory is tight, 250 ms while it is critical). Without a file it parks nothing while there is enough memory. Never
// blocks.
void park_idle_cursors(Context& context, TimePoint now);

}  // namespace spillway::exec
