#include "proxy/exec/core/process_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace spillway::exec {

namespace {

// hello's maxMessageSizeBytes: at least a document of the largest size and its command.
constexpr std::uint64_t message_bytes_least = limits::document_bytes_max + 64 * limits::kib;
// Parts of the payload: how many of the largest messages, and of small reserves, fit into it.
constexpr std::uint64_t messages_in_payload = 8;
constexpr std::uint64_t small_reserves_in_payload = 64;
constexpr std::uint64_t small_reserve_least = limits::mib;
constexpr std::uint64_t small_reserve_most = 16 * limits::mib;
// Monitors' and handshakes' replies: three members of a set, two connections being opened to each.
constexpr std::uint64_t bytes_per_link = 9 * limits::handshake_reply_bytes;
constexpr std::uint64_t link_bytes_least = limits::mib / 4;
// The receive buffer of a shard's connection takes up to a 1536th of the limit
// (proxy/server/connections/socket_buffers.cpp): all
// that wait hold a quarter of it in the kernel. Twelve hundred once held as much as the whole limit.
constexpr std::size_t waiting_most = 384;
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

ProcessMemory::ProcessMemory(std::uint64_t limit_bytes) : process("process", limit_bytes) {
  requests.set_queue(&request_queue);
  for (MemoryBudget* budget : {&writes, &replies, &cursors}) budget->set_queue(&work_queue);
  strangers.set_queue(&stranger_queue);
  process.set_wakes({&request_queue, &work_queue});
  connections.set_wakes({&stranger_queue});
}

Result<std::uint64_t> ProcessMemory::divide(const Division& division) {
  const std::uint64_t payload_bytes = division.payload_bytes;
  const std::uint64_t message =
      std::clamp<std::uint64_t>(payload_bytes / messages_in_payload, message_bytes_least, limits::message_bytes_max);
  const std::uint64_t small =
      std::clamp(payload_bytes / small_reserves_in_payload, small_reserve_least, small_reserve_most);
  // Heaps have four block sizes to a doubling, and the whole block is charged.
  const std::uint64_t step = std::bit_ceil(message) / 8;
  const std::uint64_t large = (message + step - 1) / step * step;
  const std::uint64_t link_bytes = std::clamp(division.links * bytes_per_link, link_bytes_least, payload_bytes / 32);
  const std::uint64_t reserves = 2 * (large + small) + link_bytes;
  if (payload_bytes < reserves + general_bytes_least) {
    return Error(ErrorCode::bad_value,
                 fmt::format("{} MiB for what clients send and ask for are too little: {} MiB are needed",
                             payload_bytes / limits::mib, (reserves + general_bytes_least) / limits::mib + 1));
  }
  message_bytes_max = static_cast<std::uint32_t>(message);
  request_queue.set_reserves(large, small);
  work_queue.set_reserves(large, small);
  work_queue.set_waiting_max(waiting_most);
  links.set_limit(link_bytes);
  const std::uint64_t general = payload_bytes - reserves;
  const std::uint64_t idle_bytes =
      std::min({payload_bytes / connections_in_payload, general / connections_in_general, connection_bytes_most});
  connections.set_limit(idle_bytes);
  strangers.set_limit(idle_bytes / 2);
  const std::uint64_t session_bytes =
      std::min({payload_bytes / sessions_in_payload, general / sessions_in_general, division.session_bytes_most});
  process.set_limit(general - idle_bytes - session_bytes);
  return session_bytes;
}

BudgetUsage ProcessMemory::payload_usage() const noexcept {
  BudgetUsage usage = process.usage();
  usage.used_bytes -= std::min(usage.used_bytes, sockets.borrowed().usage().used_bytes);
  return usage;
}

std::array<const MemoryBudget*, 14> budgets_of(const ProcessMemory& memory) noexcept {
  return {&memory.process, &memory.requests,    &memory.writes,    &memory.replies,       &memory.cursors,
          &memory.spill,   &memory.routing,     &memory.links,     &memory.connections,   &memory.strangers,
          &memory.sockets.own(), &memory.sockets.borrowed(), &memory.admin, &memory.traces};
}

}  // namespace spillway::exec
