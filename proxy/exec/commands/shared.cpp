#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "allocator/memory_layer.h"
#include "proxy/exec/access/audit.h"
#include "proxy/exec/access/transactions.h"
#include "proxy/exec/cluster/cluster_table.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/failed_logins.h"

namespace spillway::exec {

namespace {

// hello's maxMessageSizeBytes: at least a document of the largest size and its command.
constexpr std::uint64_t message_bytes_least = limits::document_bytes_max + 64 * limits::kib;
// Parts of the payload: how many of the largest messages, and of small reserves, fit into it.
constexpr std::uint64_t messages_in_payload = 8;
constexpr std::uint64_t small_reserves_in_payload = 64;
constexpr std::uint64_t small_reserve_least = limits::mib;
constexpr std::uint64_t small_reserve_most = 16 * limits::mib;
// Monitors' and handshakes' replies: three members of a set, two connections being opened to each, for every worker.
constexpr std::uint64_t link_bytes_per_shard = 9 * limits::handshake_reply_bytes;
constexpr std::size_t cluster_shards_expected = 32;  // read later, and they may become more
constexpr std::uint64_t link_bytes_least = limits::mib / 4;
// The memory of connections themselves: a part of the payload, and of the unreserved rest.
constexpr std::uint64_t connections_in_payload = 8;
constexpr std::uint64_t connections_in_general = 4;
constexpr std::uint64_t connection_bytes_most = 256 * limits::mib;
// The same for the table of sessions.
constexpr std::uint64_t sessions_in_payload = 64;
constexpr std::uint64_t sessions_in_general = 32;
// The least that must be left unreserved.
constexpr std::uint64_t general_bytes_least = 4 * limits::mib;

}  // namespace

Shared::Shared(std::uint64_t memory_limit_bytes)
    : memory_layer(std::make_unique<MemoryLayer>()),
      failed_logins(std::make_unique<FailedLogins>()),
      memory("process", memory_limit_bytes),
      transactions(std::make_unique<TransactionTable>()) {
  request_memory.set_queue(&request_queue);
  for (MemoryBudget* budget : {&write_memory, &reply_memory, &cursor_memory}) {
    budget->set_queue(&work_queue);
  }
  stranger_memory.set_queue(&stranger_queue);
  memory.set_wakes({&request_queue, &work_queue});
  connection_memory.set_wakes({&stranger_queue});
}

Shared::~Shared() = default;

std::optional<std::string> Shared::divide_memory(std::uint64_t payload_bytes, std::size_t worker_total) {
  if (payload_bytes == 0) return std::nullopt;
  const std::uint64_t message = std::clamp<std::uint64_t>(
      payload_bytes / messages_in_payload, message_bytes_least, limits::message_bytes_max);
  const std::uint64_t small = std::clamp(payload_bytes / small_reserves_in_payload,
                                         small_reserve_least, small_reserve_most);
  // Heaps have four block sizes to a doubling, and the whole block is charged.
  const std::uint64_t step = std::bit_ceil(message) / 8;
  const std::uint64_t large = (message + step - 1) / step * step;
  const bool in_cluster = routing && !routing->shards().front().holds_data;
  const std::size_t shard_total = in_cluster ? cluster_shards_expected : routing ? routing->shards().size() : 1;
  const std::uint64_t links =
      std::clamp(worker_total * shard_total * link_bytes_per_shard, link_bytes_least, payload_bytes / 32);
  const std::uint64_t reserves = 2 * (large + small) + links;
  if (payload_bytes < reserves + general_bytes_least) {
    return fmt::format("{} MiB for what clients send and ask for are too little: {} MiB are needed",
                       payload_bytes / limits::mib,
                       (reserves + general_bytes_least) / limits::mib + 1);
  }
  message_bytes_max = static_cast<std::uint32_t>(message);
  request_queue.set_reserves(large, small);
  work_queue.set_reserves(large, small);
  link_memory.set_limit(links);
  const std::uint64_t general = payload_bytes - reserves;
  const std::uint64_t connections =
      std::min({payload_bytes / connections_in_payload, general / connections_in_general, connection_bytes_most});
  connection_memory.set_limit(connections);
  stranger_memory.set_limit(connections / 2);
  std::uint64_t sessions = 0;
  if (authorization) {
    sessions = std::min<std::uint64_t>({payload_bytes / sessions_in_payload, general / sessions_in_general,
                                        SessionOwners::entries_max * SessionOwners::entry_bytes});
    session_owners.set_capacity(sessions / SessionOwners::entry_bytes);
  }
  memory.set_limit(general - connections - sessions);
  return std::nullopt;
}

}  // namespace spillway::exec
