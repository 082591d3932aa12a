// The resources of a command. One Context per worker; it lives as long as the worker.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "allocator/pressure.h"
#include "allocator/spill.h"
#include "cursor/registry.h"
#include "proxy/auth/logical_clock.h"
#include "proxy/auth/users.h"
#include "proxy/base/loop.h"
#include "proxy/base/pump.h"
#include "proxy/base/splice.h"
#include "proxy/base/tls_context.h"
#include "proxy/catalog/routing.h"
#include "proxy/config/parameters.h"
#include "proxy/exec/core/document_sizes.h"
#include "proxy/exec/core/inside_times.h"
#include "proxy/exec/core/limits.h"
#include "proxy/exec/core/login.h"
#include "proxy/exec/core/metrics.h"
#include "proxy/exec/core/open_clients.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/routes.h"
#include "proxy/exec/core/session_owners.h"
#include "proxy/exec/core/splice_choice.h"
#include "proxy/exec/core/stalled_clients.h"
#include "proxy/shard/gateway.h"
#include "proxy/shard/interrupt.h"

namespace spillway {
class MemoryLayer;  // allocator/memory_layer.h
}

namespace spillway::exec {

class TransactionTable;  // transactions.h
class FailedLogins;      // failed_logins.h
class AuditLog;          // audit.h
class ClusterTable;      // cluster/cluster_table.h
struct Context;
struct Request;

// Facts of the process, fixed at start. Shared by all workers.
struct ProcessFacts {
  std::string version = "0.1.0";
  std::string host_name;                   // "host:port", as serverStatus names it
  std::vector<std::string> arguments;      // argv, passwords censored
  BsonDoc parsed_options;                  // getCmdLineOpts
  std::uint64_t memory_limit_bytes = 0;    // memory.limit; 0: none
  std::uint64_t base_bytes = 0;            // resident before the first client
  std::array<std::uint8_t, 12> process_id{};  // topologyVersion
  std::array<std::uint8_t, 12> cluster_id{};
  std::int64_t start_wall_ms = 0;
  TimePoint start_time{};
  std::size_t workers = 1;
};

// How far a shutdown is. Any thread.
struct LifeCycle {
  // A shutdown was announced: hello fails, the rest goes on until `stopping`.
  std::atomic<bool> quiescing{false};
  std::atomic<std::int64_t> quiesce_end_ns{0};  // steady clock; set before `quiescing`
  std::atomic<bool> stopping{false};            // only requests under way go on
  // The shutdown command: asks the process to end. Empty: not supported.
  std::function<void(std::chrono::milliseconds announce)> request_shutdown;
};

// Clients' connections. Any thread.
struct ConnectionCounts {
  std::atomic<std::int64_t> current{0};
  std::atomic<std::int64_t> total{0};
  std::atomic<std::int64_t> busy{0};  // that have sent more than hello
  std::atomic<std::int64_t> max{0};   // admitted at once; 0: not set
};

// Everything the workers share; thread-safe member by member. Owned by the server.
struct Shared {
  std::shared_ptr<const catalog::RoutingSnapshot> routing;  // the start's; later ones: Context::router
  Parameters parameters;
  ProcessFacts facts;
  Metrics metrics;
  const std::unique_ptr<MemoryLayer> memory_layer;  // never null; started by the server
  bool authorization = false;  // security.authorization: enabled; fixed at start
  auth::UserDirectory users;
  std::optional<std::uint16_t> users_from;  // the shard whose users log in here, too; fixed at start
  bool users_of_cluster = false;            // users_from are the config servers, which resolve roles; fixed at start
  SessionOwners session_owners;  // kept with authorization only
  const std::unique_ptr<FailedLogins> failed_logins;  // never null
  std::unique_ptr<AuditLog> audit;  // null: nothing is audited; fixed at start
  ProcessMemory memory;
  std::unique_ptr<SpillStore> spill;  // null: idle cursors' documents stay as they are
  Limits limits;                      // of users and addresses
  auth::LogicalClock clock;           // in a cluster: what servers and clients say of its time
  bool shards_trust_us = true;        // in a cluster: we are __system, or nobody logs in; fixed at start
  CursorRegistry cursors;             // destroyed before the members that its cursors refer to
  OpenClients open_clients;
  std::atomic<std::int64_t> next_share_check_ns{0};
  Pressure pressure;  // published by the server; ask level() anywhere
  std::unique_ptr<TransactionTable> transactions;
  std::unique_ptr<ClusterTable> cluster;  // the first worker's; null: the table is the configuration's
  // Every worker's context, in order; set before the first client connects. To look at another worker's clients
  // (currentOp), post to its loop.
  std::vector<Context*> workers;
  std::atomic<std::int64_t> next_operation_id{1};
  std::atomic<std::int64_t> topology_counter{0};  // hello's topologyVersion.counter
  LifeCycle life;
  ConnectionCounts connections;

  explicit Shared(std::uint64_t memory_limit_bytes);
  // Divides the bytes that clients may use; 0: no limit. Call before workers start: the numbers of workers and shards
  // give the memory of monitors and handshakes. An error's text: too little for the largest messages.
  std::optional<std::string> divide_memory(std::uint64_t payload_bytes, std::size_t worker_total = 1);
  ~Shared();
};

struct Client;

struct Context {
  Loop& loop;
  Pump& pump;
  shard::Gateway& gateway;
  Shared& shared;
  std::size_t worker = 0;
  absl::flat_hash_set<Client*> clients;  // connected to this worker; its own thread only
  TaskGroup background{};                // ends before the worker does, without a waiter: kills of shard cursors
  DocumentSizes document_sizes{};
  StalledClients stalled_clients{};
  SplicePipes pipes{};
  SpliceChoice splice_choice{};
  shard::Interrupt read_ahead{};         // ends fetches ahead of clients' requests: for the shutdown
  std::unique_ptr<CommandTimes> command_times = std::make_unique<CommandTimes>();
  std::unique_ptr<InsideTimes> inside_times = std::make_unique<InsideTimes>();
  absl::flat_hash_set<std::uint64_t> accepted_stages{};  // that aggregate.cpp asked a shard about; own thread only

  StaticRouter static_router{shared.routing};
  // The source of Request::routes; another one in a cluster.
  Router* router = &static_router;
  bool in_cluster() const noexcept { return router != &static_router; }
  // For clients' connections; null: none. A reload replaces it, on the worker's thread.
  TlsContext::Ptr tls{};
};

// Counts one in a counter while it lives.
class Counted {
 public:
  Counted() = default;
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { leave(); }
  void enter(std::atomic<std::int64_t>& counter) noexcept {
    if (counter_ != nullptr) return;
    counter_ = &counter;
    counter.fetch_add(1, std::memory_order_relaxed);
  }
  void leave() noexcept {
    if (counter_ != nullptr) std::exchange(counter_, nullptr)->fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::int64_t>* counter_ = nullptr;
};

// One client connection as commands see it. Belongs to its worker.
struct Client {
  std::int64_t connection_id = 0;
  std::string peer;
  std::string local;
  std::string application_name;
  std::vector<std::uint8_t> metadata;  // hello's client document, BSON; empty: none
  std::string user;                    // its user's id, "db.name"; empty: not logged in
  Login login;
  ClientPresence presence;
  ClientLimits limits;
  Counted busy;  // in ConnectionCounts::busy

  // The operation under way, for currentOp and killOp: read and written on the connection's worker only.
  const Request* running = nullptr;
  TimePoint running_since{};
  std::int64_t operation_id = 0;
  // For killOp and clients that left: reads end at once, writes before their next statement.
  shard::Interrupt interrupt;
};

}  // namespace spillway::exec
