// Services: what the workers share, as commands see it. A file that uses a service includes the service's header, which
// stands beside it here; tests/tidy/tidy.py compares. The server owns them: shared.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace spillway {
class CursorRegistry;
class MemoryLayer;
class Pressure;
class SpillStore;
struct Parameters;
}  // namespace spillway

namespace spillway::auth {
class LogicalClock;
class UserDirectory;
}  // namespace spillway::auth

namespace spillway::catalog {
class RoutingSnapshot;
}  // namespace spillway::catalog

namespace spillway::exec {

class AuditLog;
class ClusterTable;
class FailCommand;
class FailedLogins;
class Limits;
class OpenClients;
class SessionOwners;
class SlowShapes;
class Tracer;
class TransactionTable;
struct ConnectionCounts;
struct Context;
struct LifeCycle;
struct Metrics;
struct ProcessFacts;
struct ProcessMemory;
struct Shared;

// References: a copy is as good. Thread-safe service by service.
struct Services {
  Services(Shared& shared);

  // Memory
  ProcessMemory& memory;                             // exec/core/process_memory.h
  const std::unique_ptr<MemoryLayer>& memory_layer;  // allocator/memory_layer.h; never null
  const Pressure& pressure;                          // allocator/pressure.h; level() may be asked anywhere
  const std::unique_ptr<SpillStore>& spill;  // allocator/spill.h; null: idle cursors' documents stay as they are
  CursorRegistry& cursors;                   // cursor/registry.h

  // Settings, counters, the process
  Parameters& parameters;     // config/parameters.h
  const ProcessFacts& facts;  // exec/counters/process_facts.h
  Metrics& metrics;           // exec/counters/metrics.h
  LifeCycle& life;            // exec/core/life_cycle.h
  FailCommand& fail_command;  // exec/core/fail_command.h; off unless test commands are enabled
  FailCommand& fail_get_more;  // failGetMoreAfterCursorCheckout, likewise
  SlowShapes& slow_shapes;    // exec/counters/slow_shapes.h
  const std::unique_ptr<Tracer>& tracer;  // exec/core/tracer.h; null: no command is traced

  // Connections
  ConnectionCounts& connections;  // exec/counters/connection_counts.h
  OpenClients& open_clients;      // exec/tables/open_clients.h
  Limits& limits;                 // exec/tables/limits.h; of users and addresses
  std::atomic<std::int64_t>& next_operation_id;

  // Users and sessions
  const bool& authorization;  // security.authorization: enabled
  auth::UserDirectory& users;                       // auth/users.h
  const std::optional<std::uint16_t>& users_from;   // the shard whose users log in here, too
  const bool& users_of_cluster;                     // users_from are the config servers
  SessionOwners& session_owners;                    // exec/tables/session_owners.h; kept with authorization only
  const std::unique_ptr<FailedLogins>& failed_logins;      // exec/tables/failed_logins.h; never null
  const std::unique_ptr<AuditLog>& audit;                  // exec/access/audit.h; null: nothing is audited
  const std::unique_ptr<TransactionTable>& transactions;   // exec/tables/transaction_table.h; never null

  // The cluster
  const std::shared_ptr<const catalog::RoutingSnapshot>& routing;  // the start's; later ones: Context::router
  auth::LogicalClock& clock;    // auth/logical_clock.h; what servers and clients say of the cluster's time
  const bool& shards_trust_us;  // this router is __system, or there is no authorization
  const std::unique_ptr<ClusterTable>& cluster;  // exec/cluster/cluster_table.h; null: the configuration's table
  const std::vector<Context*>& workers;  // in order. To look at another worker's clients, post to its loop.
};

}  // namespace spillway::exec
