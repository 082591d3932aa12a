#include "allocator/memory_layer.h"
#include "proxy/exec/access/audit.h"
#include "proxy/exec/access/transactions.h"
#include "proxy/exec/cluster/cluster_table.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/failed_logins.h"

namespace spillway::exec {

namespace {

constexpr std::size_t cluster_shards_expected = 32;  // read later, and they may become more

}  // namespace

Shared::Shared(std::uint64_t memory_limit_bytes)
    : memory_layer(std::make_unique<MemoryLayer>()),
      failed_logins(std::make_unique<FailedLogins>()),
      memory(memory_limit_bytes),
      transactions(std::make_unique<TransactionTable>()) {}

Shared::~Shared() = default;

std::optional<std::string> Shared::divide_memory(std::uint64_t payload_bytes, std::size_t worker_total) {
  if (payload_bytes == 0) return std::nullopt;
  const bool in_cluster = routing && !routing->shards().front().holds_data;
  const std::size_t shard_total = in_cluster ? cluster_shards_expected : routing ? routing->shards().size() : 1;
  const auto sessions = memory.divide(
      {.payload_bytes = payload_bytes,
       .links = worker_total * shard_total,
       .session_bytes_most = authorization ? SessionOwners::entries_max * SessionOwners::entry_bytes : 0});
  if (sessions.has_error()) return sessions.error().message;
  if (authorization) session_owners.set_capacity(*sessions / SessionOwners::entry_bytes);
  return std::nullopt;
}

}  // namespace spillway::exec
