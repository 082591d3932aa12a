// Shared: the services of a process. The server owns it; commands see it as Services.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allocator/pressure.h"
#include "allocator/spill.h"
#include "cursor/registry.h"
#include "proxy/auth/logical_clock.h"
#include "proxy/auth/users.h"
#include "proxy/catalog/routing.h"
#include "proxy/config/parameters.h"
#include "proxy/exec/core/fail_command.h"
#include "proxy/exec/core/life_cycle.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/services.h"
#include "proxy/exec/counters/connection_counts.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/counters/process_facts.h"
#include "proxy/exec/counters/slow_shapes.h"
#include "proxy/exec/tables/limits.h"
#include "proxy/exec/tables/open_clients.h"
#include "proxy/exec/tables/session_owners.h"

namespace spillway::exec {

struct Shared {
  std::shared_ptr<const catalog::RoutingSnapshot> routing;
  Parameters parameters;
  ProcessFacts facts;
  Metrics metrics;
  const std::unique_ptr<MemoryLayer> memory_layer;  // started by the server
  bool authorization = false;  // this and the next two: fixed at start
  auth::UserDirectory users;
  std::optional<std::uint16_t> users_from;
  bool users_of_cluster = false;
  SessionOwners session_owners;
  const std::unique_ptr<FailedLogins> failed_logins;
  std::unique_ptr<AuditLog> audit;  // fixed at start
  ProcessMemory memory;
  std::unique_ptr<SpillStore> spill;
  Limits limits;
  auth::LogicalClock clock;
  bool shards_trust_us = true;  // fixed at start
  CursorRegistry cursors;       // destroyed before the members that its cursors refer to
  OpenClients open_clients;
  Pressure pressure;  // published by the server
  std::unique_ptr<TransactionTable> transactions;
  std::unique_ptr<ClusterTable> cluster;  // the first worker's
  std::vector<Context*> workers;          // set before the first client connects
  std::atomic<std::int64_t> next_operation_id{1};
  LifeCycle life;
  FailCommand fail_command, fail_get_more{"getMore"};
  SlowShapes slow_shapes;
  std::unique_ptr<Tracer> tracer;  // fixed at start
  ConnectionCounts connections;

  explicit Shared(std::uint64_t memory_limit_bytes);
  // Memory is divided for this number of a cluster's shards before their list is read. There may be more.
  static constexpr std::size_t cluster_shards_expected = 32;
  // Divides the bytes that clients may use; 0: no limit. Call before workers start: the numbers of workers and shards
  // give the memory of monitors and handshakes. An error's text: too little for the largest messages.
  std::optional<std::string> divide_memory(std::uint64_t payload_bytes, std::size_t worker_total = 1);
  ~Shared();
};

}  // namespace spillway::exec
