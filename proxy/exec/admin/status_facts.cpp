#include "proxy/exec/admin/status_facts.h"

#include <algorithm>

#include "allocator/release.h"
#include "proxy/exec/cluster/cluster_table.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/counters/connection_counts.h"

namespace spillway::exec {

namespace {

std::int64_t files_allowed() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return 0;
  return static_cast<std::int64_t>(files.rlim_cur);
}

void add_shard(ShardFacts& sum, const shard::ShardState& seen, bool first) {
  const auto count = [&](bool shard::HostState::*what) {
    return static_cast<std::uint64_t>(std::ranges::count(seen.hosts, true, what));
  };
  const std::uint64_t known = count(&shard::HostState::known);
  const bool writable = count(&shard::HostState::primary) > 0;
  sum.reachable = (first || sum.reachable) && known > 0;
  sum.writable = (first || sum.writable) && writable;
  if (first || known < sum.hosts_known) {
    sum.hosts = seen.hosts.size();
    sum.hosts_known = known;
  }
  for (const shard::HostState& host : seen.hosts) {
    sum.in_use += host.in_use;
    sum.available += host.available;
    sum.waiting += host.waiting;
    if (host.known) sum.ping_ms = std::max(sum.ping_ms, host.ping_ms);
  }
}

void add_counts(std::vector<ShardFacts>& shards, const Services& shared) {
  for (const Context* worker : shared.workers) {
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const shard::CallCounts* counts = worker->gateway.call_counts(i);
      if (counts == nullptr) continue;
      shards[i].round_trips += counts->round_trips.read();
      shards[i].failed_calls += counts->failed.value();
      shards[i].retried_calls += counts->retries.value();
      shards[i].created += counts->opened.value();
    }
  }
}

}  // namespace

WorkerFacts look_at_worker(const Context& context) {
  WorkerFacts facts;
  for (const Client* client : context.clients) {
    facts.clients.active += client->running != nullptr;
    facts.clients.load_balanced += client->presence.load_balanced();
  }
  facts.databases = context.router->databases();
  facts.collections = context.router->collections();
  facts.shards = context.gateway.states();
  if (context.tls && context.tls->certificate()) facts.certificate_ends_s = context.tls->certificate()->not_after_s;
  return facts;
}

ProcessUsage read_process_usage() {
  ProcessUsage usage;
  const ProcessBytes bytes = process_bytes();
  usage.resident_bytes = as_long(bytes.resident);
  usage.virtual_bytes = as_long(bytes.size);
  ::getrusage(RUSAGE_SELF, &usage.used);
  const auto micros = [](const timeval& time) { return std::int64_t{time.tv_sec} * 1'000'000 + time.tv_usec; };
  usage.user_us = micros(usage.used.ru_utime);
  usage.system_us = micros(usage.used.ru_stime);
  usage.files_max = files_allowed();
  return usage;
}

StatusFacts make_status_facts(const Services& shared, const std::vector<WorkerFacts>& workers) {
  StatusFacts facts;
  facts.workers_answered = workers.size();
  bool first = true;
  for (const WorkerFacts& worker : workers) {
    facts.clients.active += worker.clients.active;
    facts.clients.load_balanced += worker.clients.load_balanced;
    facts.databases = std::max(facts.databases, worker.databases);
    facts.collections = std::max(facts.collections, worker.collections);
    facts.certificate_ends_s = worker.certificate_ends_s;
    if (facts.shards.size() < worker.shards.size()) facts.shards.resize(worker.shards.size());
    for (std::size_t i = 0; i < worker.shards.size(); ++i) {
      facts.shards[i].index = i;
      facts.shards[i].name = worker.shards[i].name;
      facts.shards[i].retired |= worker.shards[i].retired;
      add_shard(facts.shards[i], worker.shards[i], first);
    }
    first = false;
  }
  add_counts(facts.shards, shared);
  if (shared.cluster) {
    facts.table_reads = shared.cluster->cache().counts();
    if (!facts.shards.empty()) facts.shards[cluster::config_shard].name = "config servers";
  }
  std::erase_if(facts.shards, [](const ShardFacts& shard) { return shard.retired; });
  facts.process = read_process_usage();
  const std::int64_t most = shared.connections.max.load();
  const std::int64_t allowed = most > 0 ? most : static_cast<std::int64_t>(limits::client_connections_max);
  facts.connections_available = std::max<std::int64_t>(allowed - shared.connections.current.load(), 0);
  if (const BudgetUsage room = shared.memory.connections.usage(); room.limit_bytes > 0) {
    const std::uint64_t each = connection_bytes + (facts.certificate_ends_s != 0 ? tls_connection_bytes : 0);
    const std::uint64_t left = (room.limit_bytes - std::min(room.limit_bytes, room.used_bytes)) / each;
    facts.connections_available = std::min(facts.connections_available, static_cast<std::int64_t>(left));
  }
  return facts;
}

LatencyReading command_times(const Services& shared, std::size_t command) {
  LatencyReading all;
  for (const Context* worker : shared.workers) all += worker->command_times->by_command[command].read();
  return all;
}

FineReading inside_time(const Services& shared, OperationClass of) {
  FineReading all;
  for (const Context* worker : shared.workers) {
    all += worker->inside_times->by_class[static_cast<std::size_t>(of)].read();
  }
  return all;
}

std::string error_name(std::int32_t code) { return code == 0 ? "Unknown" : error_code_name(code); }

OperationKind operation_kind(const CommandSpec& command) noexcept {
  for (const std::string_view read : {"find", "getMore", "aggregate", "count", "distinct"}) {
    if (command.name == read) return OperationKind::reads;
  }
  return command.is(Trait::writes) ? OperationKind::writes : OperationKind::commands;
}

}  // namespace spillway::exec
