// ProcessMemory: what memory.limit is divided into. Every worker charges the same budgets.
//
//   limit ── process, heaps, sockets (the server's)
//         └─ payload ── reserves of the two queues, links, connections, session owners
//                    └─ process ── requests, writes, replies, cursors, spill, routing; lent to sockets
//
// Thread-safe, but for divide().
//
// Which bytes each budget pays for, and what happens without room. "Waits": in a MemoryQueue, while the socket stays
// unread. "Little": up to 64 KiB, which has a reserve.
//
//   requests      a request, until its reply was written. Waits; then it is read, dropped, and refused with 462 (if it
//                 is compressed with zstd, the connection closes). Bytes behind it and a piece of a header (at most
//                 16 KiB per read; or little), until they are parsed: the connection closes.
//   writes        a decompressed request, by its declared size, before a byte is inflated: as a request. The list of a
//                 write's operations and the documents copied for a shard's part: waits; then 462 and
//                 NoWritesPerformed; after the first part was sent, an error of these operations.
//   replies       a shard's reply, plain or decompressed, and the head of a stream (at most 256 KiB), until the
//                 client's reply was written: waits, unread; then 462 or 6. A piece that the client did not take (at
//                 most 128 KiB; under pressure 32 KiB, reserved before): waits 30 s under pressure, else not at all;
//                 then the connection closes. A merged batch and the order keys of its heads (or cursors, or little):
//                 the batch ends early; an empty one waits, then 462. A message to be compressed, and compressed: it
//                 leaves uncompressed.
//   cursors       a merge's working set (exec/cursors/working_set.h): waits 5 s, then 462. Batches of a merged
//                 cursor, on their way to the spill file and back too, until they are consumed or
//                 parked: as a reply; on the way back 462, and the getMore may be retried. A merging stage's contents
//                 (pipeline::Meter), until the cursor ends: 462.
//   spill         batches compressed in memory, as stored: the batches stay as they are.
//   links         a monitor's or handshake's reply; then replies. As a reply; never makes a host look lost.
//   connections   idle connections, with their TLS state.
//   sockets       larger socket buffers, a sixteenth of the limit for receive buffers of clients; of the rest, a
//                 sixteenth for one shard connection and for one full client socket: the buffer stays small.
//
// In no budget: contexts of zlib and zstd (one per worker and direction), client metadata (at most 512 B), the kernel's
// socket buffers (bounded by proxy/server/connections/socket_buffers.h).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "allocator/budget.h"
#include "allocator/limits.h"
#include "allocator/memory_queue.h"
#include "cursor/error.h"
#include "proxy/base/socket_growth.h"

namespace spillway::exec {

// Of an idle connection, and of OpenSSL for it: 17 KiB measured, more during the handshake.
inline constexpr std::uint64_t connection_bytes = 2 * limits::kib, tls_connection_bytes = 20 * limits::kib;

struct ProcessMemory {
  // `limit_bytes`: of `process`; there are no reserves until divide(). 0: no limit.
  explicit ProcessMemory(std::uint64_t limit_bytes);

  struct Division {
    std::uint64_t payload_bytes = 0;         // for clients
    std::uint64_t links = 1;                 // workers, for each of them the shards
    std::uint64_t session_bytes_most = 0;    // that the table of sessions may use
  };
  // Before workers start. Returns the bytes for the table of sessions. BadValue(2): too little for the largest
  // messages.
  Result<std::uint64_t> divide(const Division& division);
  // Of `process`, without what sockets have borrowed.
  BudgetUsage payload_usage() const noexcept;

  MemoryBudget process;  // without the queues' reserves, which stand beside it
  // Requests without memory wait in the first; requests that hold memory and need more wait in the second.
  MemoryQueue request_queue{"requestReserve"};
  MemoryQueue work_queue{"workReserve"};
  MemoryQueue stranger_queue{"strangerReserve"};  // has none
  std::atomic<int> refusals_under_way{0};         // large messages that are being read and dropped
  std::atomic<std::int64_t> next_share_check_ns{0};  // take_from_large_holders
  std::uint32_t message_bytes_max = limits::message_bytes_max;  // hello's maxMessageSizeBytes; divide() sets it
  MemoryBudget requests{"requests", 0, &process};
  MemoryBudget writes{"writes", 0, &process};  // what is made of requests
  MemoryBudget replies{"replies", 0, &process};
  MemoryBudget cursors{"cursors", 0, &process};
  MemoryBudget spill{"spill", 0, &process};
  MemoryBudget routing{"routing", 0, &process};  // in a cluster: chunks
  MemoryBudget links{"links", 0};                // beside them: monitors' and handshakes' replies
  // Beside them, too: the memory of idle connections. At most half of it is for clients that have not logged in:
  // pieces of messages, and handshakes. A peer that fills that half blocks other clients before their login, but none
  // after it.
  MemoryBudget connections{"connections", 0};
  MemoryBudget strangers{"strangers", 0, &connections};
  SocketGrowth sockets{&process};  // what sockets' buffers grow by: beside them, and borrowed from `process`
  MemoryBudget admin{"admin", 0};  // and what the admin port holds
  MemoryBudget traces{"traces", 0};  // and traced commands, until the collector has them
};

// For the status, the whole first.
std::array<const MemoryBudget*, 14> budgets_of(const ProcessMemory& memory) noexcept;

}  // namespace spillway::exec
