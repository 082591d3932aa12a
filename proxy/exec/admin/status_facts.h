// StatusFacts: the figures of serverStatus and /metrics beside the shared counters: each worker's own, and the
// system's about the process. Both show the same figures, because both use this.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <string>
#include <vector>

#include "proxy/cluster/catalog_cache.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/counters/metrics.h"

namespace spillway::exec {

struct ClientCounts {
  std::int64_t active = 0;  // with an operation under way
  std::int64_t load_balanced = 0;
};

// One worker's answer. Made on its thread.
struct WorkerFacts {
  ClientCounts clients;
  std::size_t databases = 0, collections = 0;  // of its routing table
  std::vector<shard::ShardState> shards;
  std::int64_t certificate_ends_s = 0;         // for clients; 0: none
};
WorkerFacts look_at_worker(const Context& context);

// A shard as seen by all workers together.
struct ShardFacts {
  std::size_t index = 0;  // of the gateways
  std::string name;       // a cluster may have a shard "config": its config servers are "config servers"
  bool retired = false;    // no shard any more
  bool reachable = false;  // every worker that answered knows a reachable host of it
  bool writable = false;   // and one that takes writes
  std::uint64_t hosts = 0, hosts_known = 0;  // as seen by the worker that knows the fewest
  std::uint64_t in_use = 0, available = 0, created = 0, waiting = 0;  // connections, and requests in line
  std::int64_t ping_ms = 0;                                           // of the slowest known host
  LatencyReading round_trips;
  std::uint64_t failed_calls = 0, retried_calls = 0;
};

// Since the start.
struct ProcessUsage {
  std::int64_t resident_bytes = 0, virtual_bytes = 0;
  std::int64_t user_us = 0, system_us = 0;
  std::int64_t files_max = 0;  // 0: not known
  rusage used{};
};
ProcessUsage read_process_usage();

struct StatusFacts {
  std::size_t workers_answered = 0;
  ClientCounts clients;
  std::size_t databases = 0, collections = 0;
  std::vector<ShardFacts> shards;
  cluster::CatalogCache::Counts table_reads;  // in a cluster
  ProcessUsage process;
  std::int64_t connections_available = 0;
  std::int64_t certificate_ends_s = 0;
  bool serves = false;  // the start has come to its end: the admin port sets it, which answers before
};
// Any thread, while the workers' contexts live: `shared` must have its workers.
StatusFacts make_status_facts(const Services& shared, const std::vector<WorkerFacts>& workers);

// The duration of a command, over all workers. Any thread, while they live.
LatencyReading command_times(const Services& shared, std::size_t command);

// The time of operations inside the proxy, over all workers. Likewise.
FineReading inside_time(const Services& shared, OperationClass of);

// An error's code name; one without a name is Location<code>, and a reply without a code Unknown.
std::string error_name(std::int32_t code);

// Commands by their names in serverStatus.opLatencies.
enum class OperationKind : std::uint8_t { reads, writes, commands };
OperationKind operation_kind(const CommandSpec& command) noexcept;

}  // namespace spillway::exec
