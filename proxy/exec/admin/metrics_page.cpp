#include "proxy/exec/admin/metrics_page.h"

#include <dirent.h>

#include <array>
#include <iterator>

#include "allocator/memory_layer.h"
#include "allocator/pressure.h"
#include "allocator/spill.h"
#include "cursor/registry.h"
#include "proxy/exec/access/transactions.h"
#include "proxy/exec/cluster/cluster_table.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/connection_counts.h"
#include "proxy/exec/core/life_cycle.h"
#include "proxy/exec/core/metrics.h"
#include "proxy/exec/core/process_facts.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/transaction_table.h"

namespace spillway::exec {

namespace {

constexpr MetricType counter = MetricType::counter;
constexpr MetricType gauge = MetricType::gauge;

double seconds(std::int64_t us) noexcept { return static_cast<double>(us) / 1e6; }
double seconds(std::uint64_t us) noexcept { return static_cast<double>(us) / 1e6; }
std::uint64_t flag(bool set) noexcept { return set ? 1 : 0; }

// 0: unknown.
std::int64_t count_open_files() {
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  std::int64_t count = -1;  // the folder itself does not count
  while (const dirent* entry = ::readdir(folder)) count += entry->d_name[0] != '.';
  ::closedir(folder);
  return count;
}

void write_process(MetricsText& out, const Services& shared, const StatusFacts& facts) {
  const ProcessUsage& usage = facts.process;
  out.counter("process_cpu_seconds_total", "CPU time of the process, user and system.",
              seconds(usage.user_us + usage.system_us));
  out.gauge("process_resident_memory_bytes", "Resident memory of the process.",
            usage.resident_bytes);
  out.gauge("process_virtual_memory_bytes", "Virtual memory of the process.", usage.virtual_bytes);
  out.gauge("process_start_time_seconds",
            "When the process began, in seconds since the Unix epoch.",
            static_cast<double>(shared.facts.start_wall_ms) / 1e3);
  out.gauge("process_open_fds", "File descriptors in use.", count_open_files());
  out.gauge("process_max_fds", "File descriptors that the process may have; 0: not limited.",
            usage.files_max);
  out.family("spillway_build_info", gauge, "1; the version stands in the label.");
  out.value({{"version", shared.facts.version}}, std::uint64_t{1});
  out.gauge("spillway_workers", "Worker threads.", std::uint64_t{shared.facts.workers});
  out.gauge("spillway_workers_answering", "Worker threads that answered this scrape.",
            std::uint64_t{facts.workers_answered});
  out.gauge("spillway_draining", "1 since a shutdown was announced.",
            flag(shared.life.quiescing.load() || shared.life.stopping.load()));
  out.gauge("spillway_routing_databases", "Databases that the routing table names.",
            std::uint64_t{facts.databases});
  out.gauge("spillway_routing_collections", "Sharded collections of the routing table.",
            std::uint64_t{facts.collections});
  out.gauge("spillway_transactions_tracked", "Sessions whose latest transaction is remembered.",
            std::uint64_t{shared.transactions->size()});
}

void write_clients(MetricsText& out, const Services& shared, const StatusFacts& facts) {
  const Metrics& all = shared.metrics;
  out.gauge("spillway_client_connections", "Client connections open.",
            shared.connections.current.load());
  out.gauge("spillway_client_connections_available",
            "Client connections that file descriptors are left for.", facts.connections_available);
  out.gauge("spillway_client_connections_active", "Client connections with an operation under way.",
            facts.clients.active);
  out.gauge("spillway_client_connections_load_balanced",
            "Client connections on the load balancers' port.", facts.clients.load_balanced);
  out.counter("spillway_client_connections_opened_total", "Client connections accepted.",
              shared.connections.total.load());
  out.counter("spillway_client_connections_refused_total",
              "Client connections over net.maxIncomingConnections.",
              all.connections_rejected.value());
  out.counter("spillway_client_received_bytes_total", "Bytes of messages received from clients.",
              all.bytes_in.value());
  out.counter("spillway_client_sent_bytes_total", "Bytes of messages sent to clients.",
              all.bytes_out.value());
  out.counter("spillway_client_requests_total", "Messages received from clients.",
              all.requests.value());
  out.family("spillway_client_greetings_total", counter,
             "First hellos of connections, by whether the driver takes part in back-pressure.");
  out.value({{"backpressure", "yes"}}, all.hellos_with_backpressure.value());
  out.value({{"backpressure", "no"}}, all.hellos_without_backpressure.value());
  out.counter("spillway_client_senders_stopped_total",
              "Connections closed for stopping in the middle of a message.",
              all.senders_stopped.value());
  out.counter("spillway_client_stalled_closed_total", "Clients closed that did not read a reply.",
              all.stalled_clients_closed.value());
  out.counter("spillway_client_timed_out_total",
              "Connections that broke because the client took or answered nothing for 45 s.",
              all.clients_timed_out.value());
  out.counter("spillway_client_disconnects_total",
              "Operations ended because their client had left.",
              all.killed_due_to_client_disconnect.value());
}

void write_hosts_targeted(MetricsText& out, std::string_view command,
                          const HostsTargeted& targeted) {
  out.value({{"command", command}, {"shards", "all"}}, targeted.all_shards.value());
  out.value({{"command", command}, {"shards", "many"}}, targeted.many_shards.value());
  out.value({{"command", command}, {"shards", "one"}}, targeted.one_shard.value());
  out.value({{"command", command}, {"shards", "unsharded"}}, targeted.unsharded.value());
}

void write_operations(MetricsText& out, const Metrics& all) {
  out.family("spillway_operations_total", counter,
             "Operations as opcounters count them: documents inserted, updates, deletes, finds, "
             "getMores, others.");
  out.value({{"type", "insert"}}, all.op_insert.value());
  out.value({{"type", "query"}}, all.op_query.value());
  out.value({{"type", "update"}}, all.op_update.value());
  out.value({{"type", "delete"}}, all.op_delete.value());
  out.value({{"type", "getmore"}}, all.op_getmore.value());
  out.value({{"type", "command"}}, all.op_command.value());
  out.family("spillway_commands_targeted_total", counter,
             "Commands by how many shards they were sent to.");
  write_hosts_targeted(out, "find", all.find);
  write_hosts_targeted(out, "insert", all.insert);
  write_hosts_targeted(out, "update", all.update);
  write_hosts_targeted(out, "delete", all.delete_);
  write_hosts_targeted(out, "aggregate", all.aggregate);
}

void write_commands(MetricsText& out, const Services& shared) {
  const Metrics& all = shared.metrics;
  out.family("spillway_commands_total", counter, "Commands received, by name.");
  const bool in_cluster = shared.cluster != nullptr;
  for (const CommandSpec& spec : all_commands()) {
    if (spec.is(Trait::cluster_only) && !in_cluster) continue;
    out.value({{"command", spec.name}}, all.commands[spec.index].total.value());
  }
  out.family("spillway_commands_failed_total", counter, "Commands answered with ok: 0, by name.");
  for (const CommandSpec& spec : all_commands()) {
    if (spec.is(Trait::cluster_only) && !in_cluster) continue;
    out.value({{"command", spec.name}}, all.commands[spec.index].failed.value());
  }
  out.counter("spillway_commands_unknown_total", "Commands that do not exist.",
              all.unknown_commands.value());
  out.family("spillway_errors_total", counter,
             "Replies with ok: 0, by code name, of shards and of the proxy.");
  for (const auto& [code, count] : all.errors.by_code())
    out.value({{"code", error_name(code)}}, count);
  out.value({{"code", "others"}}, all.errors.others());
  out.family("spillway_command_duration_seconds", MetricType::histogram,
             "Time from a command's arrival to its reply, or to the first bytes of one that "
             "streams; commands that ran.");
  for (const CommandSpec& spec : all_commands()) {
    const LatencyReading times = command_times(shared, spec.index);
    if (times.total() > 0) out.histogram({{"command", spec.name}}, times);
  }
}

void write_inside(MetricsText& out, const Services& shared) {
  out.family("spillway_inside_seconds", MetricType::histogram,
             "Time inside the proxy, from the last byte of a request to the first byte of its reply, less the "
             "time of the shards, by kind of operation.");
  for (std::size_t i = 0; i < operation_class_names.size(); ++i) {
    out.histogram({{"class", operation_class_names[i]}}, inside_time(shared, static_cast<OperationClass>(i)));
  }
}

void write_cursors(MetricsText& out, const Services& shared) {
  const Metrics& all = shared.metrics;
  const CursorCounts counts = shared.cursors.counts();
  out.family("spillway_cursors_open", gauge, "Open cursors, by how many shards they read from.");
  out.value({{"shards", "one"}}, counts.open_single_target);
  out.value({{"shards", "many"}}, counts.open_multi_target);
  out.gauge("spillway_cursors_pinned", "Cursors that a request is working on.", counts.pinned);
  out.gauge("spillway_cursors_filling", "Of those pinned, cursors being read ahead.",
            counts.filling);
  out.gauge("spillway_cursors_no_timeout", "Open cursors with noCursorTimeout.", counts.no_timeout);
  out.gauge("spillway_cursors_clientless", "Open cursors whose client is gone.", counts.clientless);
  out.gauge("spillway_cursors_buffered_bytes", "What idle cursors hold in memory.",
            counts.buffered_bytes);
  out.counter("spillway_cursors_opened_total", "Cursors opened.", counts.total_opened);
  out.counter("spillway_cursors_beyond_one_batch_total", "Cursors that had a second batch.",
              all.cursors_more_than_one_batch.value());
  out.family("spillway_cursors_ended_total", counter,
             "Cursors that ended before they were exhausted, by reason.");
  out.value({{"reason", "timed_out"}}, counts.timed_out);
  out.value({{"reason", "killed"}}, all.cursors_killed.value());
  out.value({{"reason", "orphaned"}}, counts.orphaned);
  out.value({{"reason", "evicted"}}, counts.evicted);
  out.counter("spillway_cursors_evicted_bytes_total", "What evicted cursors held.",
              counts.evicted_bytes);
  out.counter("spillway_cursors_evicted_beyond_share_total",
              "Of those evicted, cursors of a client that held over half of the cursors' memory.",
              all.cursors_beyond_share.value());
  out.counter("spillway_read_ahead_started_total",
              "Batches fetched before a client asked for them.", all.read_ahead_started.value());
  out.family("spillway_read_ahead_ended_total", counter,
             "What became of them: taken at once, waited for, or never taken.");
  out.value({{"outcome", "hit"}}, all.read_ahead_hits.value());
  out.value({{"outcome", "wait"}}, all.read_ahead_waits.value());
  out.value({{"outcome", "wasted"}}, all.read_ahead_wasted.value());
}

void write_streams(MetricsText& out, const Metrics& all) {
  out.counter("spillway_streams_total", "Replies that passed from a shard to a client in pieces.",
              all.streamed_replies.value());
  out.counter("spillway_streamed_bytes_total", "Bytes of them.", all.streamed_bytes.value());
  out.counter("spillway_spliced_bytes_total", "Of these, bytes that the kernel moved by itself.",
              all.spliced_bytes.value());
  out.counter("spillway_streams_failed_total",
              "Replies cut off after their first byte: the client was closed.",
              all.stream_failures.value());
  out.counter("spillway_streams_without_memory_total",
              "Large replies for which there was no memory.", all.stream_refusals.value());
  out.counter("spillway_streams_moved_total",
              "Replies whose rest moved to memory or a file: the client stalled.",
              all.streams_moved.value());
  out.counter("spillway_replies_uncompressed_total", "Uncompressed replies to compressed requests.",
              all.uncompressed_replies.value());
}

void write_budgets(MetricsText& out, const Services& shared) {
  const auto budgets = budgets_of(shared.memory);
  std::array<BudgetUsage, 14> usages;
  for (std::size_t i = 0; i < budgets.size(); ++i) usages[i] = budgets[i]->usage();
  const auto each = [&](std::uint64_t BudgetUsage::*what) {
    for (std::size_t i = 0; i < budgets.size(); ++i)
      out.value({{"budget", budgets[i]->name()}}, usages[i].*what);
  };
  out.family("spillway_memory_budget_used_bytes", gauge, "Bytes reserved, by budget.");
  each(&BudgetUsage::used_bytes);
  out.family("spillway_memory_budget_peak_bytes", gauge, "Most bytes ever reserved, by budget.");
  each(&BudgetUsage::peak_bytes);
  out.family("spillway_memory_budget_limit_bytes", gauge, "Limits of budgets; 0: none of its own.");
  each(&BudgetUsage::limit_bytes);
  out.family("spillway_memory_budget_refusals_total", counter, "Reservations refused, by budget.");
  each(&BudgetUsage::refusals);
}

void write_queues(MetricsText& out, const Services& shared) {
  constexpr std::array<std::string_view, 2> names{"requests", "work"};
  const std::array<MemoryQueueUsage, 2> usages{shared.memory.request_queue.usage(),
                                               shared.memory.work_queue.usage()};
  const auto each = [&](auto value_of) {
    for (std::size_t i = 0; i < names.size(); ++i)
      out.value({{"queue", names[i]}}, value_of(usages[i]));
  };
  out.family("spillway_memory_queue_waiting", gauge, "Requests that wait for memory now.");
  each([](const MemoryQueueUsage& usage) { return usage.waiting; });
  out.family("spillway_memory_queue_waits_total", counter, "Waits for memory.");
  each([](const MemoryQueueUsage& usage) { return usage.waits; });
  out.family("spillway_memory_queue_waits_in_vain_total", counter,
             "Waits for memory that ended without it.");
  each([](const MemoryQueueUsage& usage) { return usage.in_vain; });
  out.family("spillway_memory_reserve_used_bytes", gauge,
             "Bytes in use of the reserves for waiting requests.");
  each([](const MemoryQueueUsage& usage) {
    return usage.large.used_bytes + usage.small.used_bytes;
  });
  out.family("spillway_memory_reserve_limit_bytes", gauge, "The reserves for waiting requests.");
  each([](const MemoryQueueUsage& usage) {
    return usage.large.limit_bytes + usage.small.limit_bytes;
  });
  out.family("spillway_memory_refused_total", counter,
             "Requests and cursors refused for want of memory.");
  out.value({{"what", "requests"}}, shared.metrics.requests_refused.value());
  out.value({{"what", "cursors"}}, shared.metrics.cursors_refused.value());
}

void write_pressure(MetricsText& out, const Pressure& pressure) {
  const PressureState state = pressure.state();
  out.gauge("spillway_memory_pressure_level",
            "How scarce memory is: 0 normal, 1 tight, 2 critical.",
            std::uint64_t{static_cast<std::uint8_t>(state.level)});
  out.family("spillway_memory_pressure_entered_total", counter,
             "Times that a level was entered from below.");
  out.value({{"level", "tight"}}, state.times_tight);
  out.value({{"level", "critical"}}, state.times_critical);
  out.counter("spillway_memory_pressure_changes_total", "Changes of the level.", state.changes);
  out.gauge("spillway_cgroup_memory_usage_bytes", "Memory charged to the cgroup; 0: there is none.",
            state.last.cgroup.usage_bytes);
  out.gauge("spillway_cgroup_memory_limit_bytes", "Beyond this the kernel kills; 0: no limit.",
            state.last.cgroup.max_bytes.value_or(0));
  out.gauge("spillway_cgroup_memory_high_bytes", "Beyond this the kernel throttles; 0: no limit.",
            state.last.cgroup.high_bytes.value_or(0));
  const Psi psi = state.last.psi.value_or(Psi{});
  out.family("spillway_memory_stall_ratio", gauge,
             "Share of the last 10 s in which some or all tasks waited for memory.");
  out.value({{"tasks", "some"}}, psi.some_avg10 / 100);
  out.value({{"tasks", "all"}}, psi.full_avg10 / 100);
}

void write_heaps(MetricsText& out, const MemoryAccount& account) {
  out.family("spillway_heap_in_use_bytes", gauge,
             "Bytes in blocks on loan, by heap; malloc serves everything else.");
  for (const HeapAccount& heap : account.heaps)
    out.value({{"heap", heap.name}}, heap.usage.in_use_bytes);
  out.value({{"heap", "malloc"}}, account.malloc_usage.in_use_bytes);
  out.family("spillway_heap_kept_bytes", gauge, "Free bytes that a heap keeps from the system.");
  for (const HeapAccount& heap : account.heaps)
    out.value({{"heap", heap.name}}, heap.usage.kept_bytes);
  out.value({{"heap", "malloc"}}, account.malloc_usage.kept_bytes);
  out.family("spillway_heap_given_back_bytes_total", counter, "Bytes given back to the system.");
  for (const HeapAccount& heap : account.heaps)
    out.value({{"heap", heap.name}}, heap.usage.given_back_bytes);
  out.family("spillway_heap_taken_bytes_total", counter, "Bytes of all blocks ever taken.");
  for (const HeapAccount& heap : account.heaps)
    out.value({{"heap", heap.name}}, heap.usage.taken_bytes);
  out.family("spillway_heap_serving", gauge, "1 for the heap that new buffers come from.");
  for (const HeapAccount& heap : account.heaps)
    out.value({{"heap", heap.name}}, flag(heap.current));
  out.counter("spillway_heap_switches_total", "Times that another heap began to serve.",
              account.switches);
}

void write_releases(MetricsText& out, const ReleaserStatistics& all) {
  out.family("spillway_memory_releases_total", counter,
             "Times that free memory was given back by force, by reason; one may have several.");
  for (std::size_t i = 0; i < release_reasons; ++i) {
    out.value({{"reason", release_reason_name(static_cast<ReleaseReason>(i))}}, all.by_reason[i]);
  }
  out.counter("spillway_memory_released_bytes_total", "Bytes given back so.", all.given_back_bytes);
  out.counter("spillway_memory_release_seconds_total", "Time that it took.", seconds(all.total_us));
}

void write_spill(MetricsText& out, const SpillStore* store) {
  const SpillStats stats = store != nullptr ? store->stats() : SpillStats{};
  out.gauge("spillway_spill_limit_bytes", "What the spill file may take; 0: there is none.",
            stats.limit_bytes);
  out.gauge("spillway_spill_parked_bytes",
            "Documents of idle cursors that are parked, uncompressed size.", stats.parked_bytes);
  out.gauge("spillway_spill_memory_bytes", "What is parked in memory, compressed.",
            stats.memory_bytes);
  out.gauge("spillway_spill_disk_bytes", "What is parked in the file.", stats.disk_bytes);
  out.gauge("spillway_spill_queued", "Buffers that wait to be parked.", stats.queued);
  out.counter("spillway_spill_parks_total", "Buffers parked.", stats.parks);
  out.counter("spillway_spill_fetches_total", "Pieces fetched back.", stats.fetches);
  out.family("spillway_spill_not_parked_total", counter,
             "Buffers that stayed as they were, by reason.");
  out.value({{"reason", "queue_full"}}, stats.refused);
  out.value({{"reason", "given_up"}}, stats.given_up);
  out.value({{"reason", "withdrawn"}}, stats.withdrawn);
  out.counter("spillway_spill_raw_bytes_total", "Bytes parked, before compression.",
              stats.raw_bytes);
  out.counter("spillway_spill_stored_bytes_total", "And after.", stats.stored_bytes);
  out.counter("spillway_spill_written_bytes_total", "Bytes written to the file.",
              stats.written_bytes);
  out.counter("spillway_spill_read_bytes_total", "Bytes read from the file.", stats.read_bytes);
  out.counter("spillway_spill_no_room_total", "Blocks that the file's limit had no room for.",
              stats.no_room);
  out.family("spillway_spill_errors_total", counter, "What went wrong with the file.");
  out.value({{"kind", "write"}}, stats.write_errors);
  out.value({{"kind", "read"}}, stats.read_errors);
  out.value({{"kind", "corrupt"}}, stats.corrupt);
}

void write_memory(MetricsText& out, const Services& shared) {
  out.gauge("spillway_memory_limit_bytes",
            "memory.limit: what the process and its sockets may take; 0: none.",
            shared.facts.memory_limit_bytes);
  out.gauge("spillway_memory_base_bytes", "What the process took at its start.",
            shared.facts.base_bytes);
  write_budgets(out, shared);
  write_queues(out, shared);
  write_pressure(out, shared.pressure);
  const MemoryAccount account = shared.memory_layer->account();
  write_heaps(out, account);
  write_releases(out, account.releases);
  write_spill(out, shared.spill.get());
}

void write_shard_states(MetricsText& out, const std::vector<ShardFacts>& shards) {
  const auto each = [&](std::string_view name, MetricType type, std::string_view help,
                        auto value_of) {
    out.family(name, type, help);
    for (const ShardFacts& shard : shards) out.value({{"shard", shard.name}}, value_of(shard));
  };
  using Facts = const ShardFacts&;
  each("spillway_shard_reachable", gauge, "1: every worker knows a host of the shard that answers.",
       [](Facts shard) { return flag(shard.reachable); });
  each("spillway_shard_writable", gauge,
       "1: every worker knows a host of the shard that takes writes.",
       [](Facts shard) { return flag(shard.writable); });
  each("spillway_shard_hosts", gauge, "Hosts of the shard.",
       [](Facts shard) { return shard.hosts; });
  each("spillway_shard_hosts_known", gauge, "Hosts of the shard that answer.",
       [](Facts shard) { return shard.hosts_known; });
  each("spillway_shard_ping_seconds", gauge,
       "Round trip to the slowest host that answers, smoothed.",
       [](Facts shard) { return static_cast<double>(shard.ping_ms) / 1e3; });
  out.family("spillway_shard_connections", gauge, "Connections to the shard, over all workers.");
  for (const ShardFacts& shard : shards) {
    out.value({{"shard", shard.name}, {"state", "in_use"}}, shard.in_use);
    out.value({{"shard", shard.name}, {"state", "available"}}, shard.available);
  }
  each("spillway_shard_connections_created_total", counter, "Connections opened to the shard.",
       [](Facts shard) { return shard.created; });
  each("spillway_shard_requests_waiting", gauge, "Requests that wait for a connection.",
       [](Facts shard) { return shard.waiting; });
  each("spillway_shard_calls_failed_total", counter, "Commands to the shard that brought no reply.",
       [](Facts shard) { return shard.failed_calls; });
  each("spillway_shard_retries_total", counter, "Attempts after a command's first.",
       [](Facts shard) { return shard.retried_calls; });
  out.family(
      "spillway_shard_round_trip_seconds", MetricType::histogram,
      "Time from the last byte sent of a command to the first byte received of its reply.");
  for (const ShardFacts& shard : shards) out.histogram({{"shard", shard.name}}, shard.round_trips);
}

void write_traces(MetricsText& out, const Metrics& all) {
  out.family("spillway_spans_total", counter,
             "Spans of traced commands, by what became of them: taken by the collector, without room, refused or not "
             "taken by it.");
  out.value({{"outcome", "exported"}}, all.spans_exported.value());
  out.value({{"outcome", "dropped"}}, all.spans_dropped.value());
  out.value({{"outcome", "failed"}}, all.spans_failed.value());
}

void write_security(MetricsText& out, const Metrics& all) {
  constexpr std::array<std::string_view, Metrics::mechanism_count> names{
      "SCRAM-SHA-1", "SCRAM-SHA-256", "MONGODB-X509"};
  const auto each = [&](std::string_view name, std::string_view help,
                        Counter Metrics::Mechanism::*what) {
    out.family(name, counter, help);
    for (std::size_t i = 0; i < names.size(); ++i) {
      out.value({{"mechanism", names[i]}}, (all.mechanisms[i].*what).value());
    }
  };
  each("spillway_logins_total", "Logins begun, speculative ones included.",
       &Metrics::Mechanism::received);
  each("spillway_logins_successful_total", "Logins that succeeded.",
       &Metrics::Mechanism::successful);
  each("spillway_logins_speculative_total", "Logins begun within hello.",
       &Metrics::Mechanism::speculative_received);
  each("spillway_logins_speculative_successful_total", "Of them, those that succeeded.",
       &Metrics::Mechanism::speculative_successful);
  out.family("spillway_commands_denied_total", counter,
             "Commands refused for want of a login or of a right.");
  out.value({{"reason", "unauthenticated"}}, all.unauthenticated_commands.value());
  out.value({{"reason", "unauthorized"}}, all.unauthorized_commands.value());
  out.counter("spillway_tls_handshakes_total", "TLS handshakes with clients that succeeded.",
              all.tls_handshakes.value());
  out.counter("spillway_tls_handshakes_failed_total",
              "Those that failed, and clients refused for plain text.",
              all.tls_handshakes_failed.value());
}

}  // namespace

void write_metrics(MetricsText& out, const Services& shared, const StatusFacts& facts) {
  write_process(out, shared, facts);
  write_clients(out, shared, facts);
  write_operations(out, shared.metrics);
  write_commands(out, shared);
  write_inside(out, shared);
  write_cursors(out, shared);
  write_streams(out, shared.metrics);
  write_memory(out, shared);
  write_shard_states(out, facts.shards);
  write_security(out, shared.metrics);
  write_traces(out, shared.metrics);
}

}  // namespace spillway::exec
