// ProcessMemory: what memory.limit is divided into. Every worker charges the same budgets.
//
//   limit ── process, heaps, sockets (the server's)
//         └─ payload ── reserves of the two queues, links, connections, session owners
//                    └─ process ── requests, writes, replies, cursors, spill, routing; lent to sockets
//
// Thread-safe, but for divide().
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
  std::atomic<std::uint64_t> opening_bytes{0};    // expected, not reserved: OpeningShare
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
