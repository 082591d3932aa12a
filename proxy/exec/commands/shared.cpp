#include "proxy/exec/core/shared.h"

#include "allocator/memory_layer.h"
#include "proxy/exec/access/audit.h"
#include "proxy/exec/cluster/cluster_table.h"
#include "proxy/exec/core/tracer.h"
#include "proxy/exec/tables/failed_logins.h"
#include "proxy/exec/tables/transaction_table.h"

namespace spillway::exec {

Services::Services(Shared& shared)
    : memory(shared.memory),
      memory_layer(shared.memory_layer),
      pressure(shared.pressure),
      spill(shared.spill),
      cursors(shared.cursors),
      parameters(shared.parameters),
      facts(shared.facts),
      metrics(shared.metrics),
      life(shared.life),
      fail_command(shared.fail_command),
      fail_get_more(shared.fail_get_more),
      slow_shapes(shared.slow_shapes),
      tracer(shared.tracer),
      connections(shared.connections),
      open_clients(shared.open_clients),
      limits(shared.limits),
      next_operation_id(shared.next_operation_id),
      authorization(shared.authorization),
      users(shared.users),
      users_from(shared.users_from),
      users_of_cluster(shared.users_of_cluster),
      session_owners(shared.session_owners),
      failed_logins(shared.failed_logins),
      audit(shared.audit),
      transactions(shared.transactions),
      routing(shared.routing),
      clock(shared.clock),
      shards_trust_us(shared.shards_trust_us),
      cluster(shared.cluster),
      workers(shared.workers) {}

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
