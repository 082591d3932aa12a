// serverStatus: the sections that tools read from a router. Counters are int64 and only grow: tools
// take differences.
#include <unistd.h>

#include <algorithm>

#include "allocator/memory_layer.h"
#include "allocator/pressure.h"
#include "allocator/spill.h"
#include "cursor/registry.h"
#include "proxy/exec/access/limits_status.h"
#include "proxy/exec/access/transactions.h"
#include "proxy/exec/admin/live_status.h"
#include "proxy/exec/admin/memory_status.h"
#include "proxy/exec/admin/status_facts.h"
#include "proxy/exec/core/ask_workers.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/connection_counts.h"
#include "proxy/exec/core/metrics.h"
#include "proxy/exec/core/process_facts.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/slow_shapes.h"
#include "proxy/exec/core/transaction_table.h"
#include "proxy/exec/core/wire_version.h"
#include "proxy/exec/sharding/router_answers.h"

namespace spillway::exec {

Task<Result<Response>> server_status_command(Context& context, Client& client,
                                             const Request& request);

namespace {


struct Facts : StatusFacts {
  bool histograms = false;  // {serverStatus: 1, metrics: {histograms: true}}
};

void asserts(BsonWriter& out, const Context& context, const Facts&) {
  for (const std::string_view name : {"regular", "warning", "msg"})
    out.append(name, std::int64_t{0});
  out.append("user", as_long(context.shared.metrics.asserts_user.value()));
  out.append("tripwire", std::int64_t{0}).append("rollovers", std::int64_t{0});
}

void connections(BsonWriter& out, const Context& context, const Facts& facts) {
  const std::int64_t current = context.shared.connections.current.load();
  out.append("current", current);
  out.append("available", facts.connections_available);
  out.append("totalCreated", context.shared.connections.total.load());
  out.append("active", facts.clients.active);
  out.append("threaded", std::int64_t{0});
  out.append("loadBalanced", facts.clients.load_balanced);
  for (const std::string_view name :
       {"exhaustIsMaster", "exhaustHello", "awaitingTopologyChanges"}) {
    out.append(name, std::int64_t{0});
  }
  append_connection_limits(out, context.shared);
}

void client_limits(BsonWriter& out, const Context& context, const Facts&) { append_limits(out, context.shared); }

void extra_info(BsonWriter& out, const Context&, const Facts& facts) {
  const ProcessUsage& usage = facts.process;
  out.append("note", "fields vary by platform");
  out.append("user_time_us", usage.user_us).append("system_time_us", usage.system_us);
  out.append("maximum_resident_set_kb", usage.max_resident_kib);
  out.append("input_blocks", usage.blocks_in);
  out.append("output_blocks", usage.blocks_out);
  out.append("page_reclaims", usage.minor_faults);
  out.append("page_faults", usage.major_faults);
  out.append("voluntary_context_switches", usage.switches_voluntary);
  out.append("involuntary_context_switches", usage.switches_forced);
}

void mem(BsonWriter& out, const Context&, const Facts& facts) {
  constexpr std::int64_t mib = limits::mib;
  out.append("bits", std::int32_t{64});
  out.append("resident", static_cast<std::int32_t>(facts.process.resident_bytes / mib));
  out.append("virtual", static_cast<std::int32_t>(facts.process.virtual_bytes / mib));
  out.append("supported", true);
}

void append_budget(BsonWriter& out, const MemoryBudget& budget) {
  const BudgetUsage usage = budget.usage();
  out.begin_document(budget.name());
  out.append("usedBytes", as_long(usage.used_bytes)).append("peakBytes", as_long(usage.peak_bytes));
  out.append("limitBytes", as_long(usage.limit_bytes)).append("refusals", as_long(usage.refusals));
  out.end();
}

void append_queue(BsonWriter& out, std::string_view name, const MemoryQueue& queue) {
  const MemoryQueueUsage usage = queue.usage();
  out.begin_document(name);
  out.append("waiting", as_long(usage.waiting)).append("waits", as_long(usage.waits));
  out.append("inVain", as_long(usage.in_vain));
  out.append("reserveUsedBytes", as_long(usage.large.used_bytes + usage.small.used_bytes));
  out.append("reservePeakBytes", as_long(usage.large.peak_bytes + usage.small.peak_bytes));
  out.append("reserveLimitBytes", as_long(usage.large.limit_bytes + usage.small.limit_bytes));
  out.end();
}

// Requests that had to wait for memory, and requests that were refused.
void append_queues(BsonWriter& out, const Context& context) {
  const Metrics& all = context.shared.metrics;
  out.begin_document("queues");
  append_queue(out, "requests", context.shared.memory.request_queue);
  append_queue(out, "work", context.shared.memory.work_queue);
  out.end();
  out.begin_document("refused");
  out.append("requests", as_long(all.requests_refused.value()));
  out.append("cursors", as_long(all.cursors_refused.value()));
  out.append("sendersStopped", as_long(all.senders_stopped.value()));
  out.end();
  out.begin_document("backpressureClients");
  out.append("yes", as_long(all.hellos_with_backpressure.value()));
  out.append("no", as_long(all.hellos_without_backpressure.value()));
  out.end();
}

// Spillway's own: the bytes in the memory budgets, beside the process's real memory.
void memory(BsonWriter& out, const Context& context, const Facts& facts) {
  out.append("residentBytes", facts.process.resident_bytes);
  out.append("limitBytes", as_long(context.shared.facts.memory_limit_bytes));
  out.append("baseBytes", as_long(context.shared.facts.base_bytes));
  out.begin_document("budgets");
  append_budget(out, context.shared.memory.process);
  append_budget(out, context.shared.memory.requests);
  append_budget(out, context.shared.memory.writes);
  append_budget(out, context.shared.memory.replies);
  append_budget(out, context.shared.memory.cursors);
  append_budget(out, context.shared.memory.spill);
  append_budget(out, context.shared.memory.routing);
  append_budget(out, context.shared.memory.sockets.borrowed());
  out.end();
  append_budget(out, context.shared.memory.links);
  append_budget(out, context.shared.memory.connections);
  append_budget(out, context.shared.memory.strangers);
  append_budget(out, context.shared.memory.sockets.own());
  append_budget(out, context.shared.memory.admin);
  append_budget(out, context.shared.memory.traces);
  append_queues(out, context);
  append_pressure(out, context.shared.pressure);
  append_spill(out, context.shared.spill.get());
  append_cursor_memory(out, context.shared.cursors);
  append_memory_account(out, context.shared.memory_layer->account());
}

// By code name; a code without a name is Location<code>.
void append_errors(BsonWriter& out, const ErrorCounts& errors) {
  out.begin_document("errors");
  for (const auto& [code, count] : errors.by_code()) out.append(error_name(code), as_long(count));
  if (errors.others() > 0) out.append("others", as_long(errors.others()));
  out.end();
}

void append_open_cursors(BsonWriter& out, const CursorCounts& counts) {
  out.begin_document("open");
  out.append("multiTarget", as_long(counts.open_multi_target));
  out.append("singleTarget", as_long(counts.open_single_target));
  out.append("queuedData", std::int64_t{0});
  out.append("pinned", as_long(counts.pinned));
  out.append("noTimeout", as_long(counts.no_timeout));
  out.append("total", as_long(counts.open_total));
  out.end();
}

// Non-empty cells, by their bounds, so that tools can take differences; the cell beyond all bounds has none.
void append_cells(BsonWriter& out, const FineReading& times) {
  out.begin_array("histogram");
  for (std::size_t i = 0; i < times.counts.size(); ++i) {
    if (times.counts[i] == 0) continue;
    out.begin_document_item();
    if (i + 1 < times.counts.size()) out.append("upToMicros", as_long(fine_bound_us(i)));
    out.append("count", as_long(times.counts[i]));
    out.end();
  }
  out.end();
}

// Ours: time inside the proxy (inside_times.h).
void append_inside(BsonWriter& out, const Services& shared, bool cells) {
  out.begin_document("inside");
  for (std::size_t i = 0; i < operation_class_names.size(); ++i) {
    const FineReading times = inside_time(shared, static_cast<OperationClass>(i));
    out.begin_document(operation_class_names[i]);
    out.append("count", as_long(times.total())).append("sumMicros", as_long(times.sum_ns / 1000));
    out.append("p50Micros", as_long(times.quantile_us(0.5)));
    out.append("p99Micros", as_long(times.quantile_us(0.99)));
    out.append("p999Micros", as_long(times.quantile_us(0.999)));
    if (cells) append_cells(out, times);
    out.end();
  }
  out.end();
}

void metrics(BsonWriter& out, const Context& context, const Facts& facts) {
  const Metrics& all = context.shared.metrics;
  out.begin_document("commands");
  out.append("<UNKNOWN>", as_long(all.unknown_commands.value()));
  for (const CommandSpec& spec : all_commands()) {
    if (spec.is(Trait::cluster_only) && !context.in_cluster()) continue;
    const Metrics::Command& command = all.commands[spec.index];
    out.begin_document(spec.name);
    out.append("failed", as_long(command.failed.value()))
        .append("total", as_long(command.total.value()));
    out.end();
  }
  out.end();
  const CursorCounts counts = context.shared.cursors.counts();
  out.begin_document("cursor");
  out.append("moreThanOneBatch", as_long(all.cursors_more_than_one_batch.value()));
  out.append("timedOut", as_long(counts.timed_out))
      .append("totalOpened", as_long(counts.total_opened));
  append_open_cursors(out, counts);
  out.append("bufferedBytes", as_long(counts.buffered_bytes));
  out.append("filling", as_long(counts.filling)).append("clientless", as_long(counts.clientless));
  out.append("killed", as_long(all.cursors_killed.value()));
  out.append("orphaned", as_long(counts.orphaned)).append("evicted", as_long(counts.evicted));
  out.append("evictedBytes", as_long(counts.evicted_bytes));
  out.append("evictedBeyondShare", as_long(all.cursors_beyond_share.value()));
  out.begin_document("readAhead");
  out.append("started", as_long(all.read_ahead_started.value()));
  out.append("hits", as_long(all.read_ahead_hits.value()));
  out.append("waits", as_long(all.read_ahead_waits.value()));
  out.append("wasted", as_long(all.read_ahead_wasted.value()));
  out.end();
  out.end();
  out.begin_document("operation");
  out.append("killedDueToClientDisconnect",
             as_long(all.killed_due_to_client_disconnect.value()));
  out.end();
  append_errors(out, all.errors);
  append_inside(out, context.shared, facts.histograms);
  // Replies that passed from a shard to a client in pieces.
  out.begin_document("streams");
  out.append("replies", as_long(all.streamed_replies.value()));
  out.append("bytes", as_long(all.streamed_bytes.value()));
  out.append("splicedBytes", as_long(all.spliced_bytes.value()));
  out.append("failures", as_long(all.stream_failures.value()));
  out.append("withoutMemory", as_long(all.stream_refusals.value()));
  out.append("moved", as_long(all.streams_moved.value()));
  out.append("stalledClosed", as_long(all.stalled_clients_closed.value()));
  out.append("uncompressed", as_long(all.uncompressed_replies.value()));
  out.end();
  out.begin_document("spans");
  out.append("exported", as_long(all.spans_exported.value()));
  out.append("dropped", as_long(all.spans_dropped.value()));
  out.append("failed", as_long(all.spans_failed.value()));
  out.end();
}

void network(BsonWriter& out, const Context& context, const Facts&) {
  const Metrics& all = context.shared.metrics;
  const std::int64_t in = as_long(all.bytes_in.value()), from = as_long(all.bytes_out.value());
  out.append("bytesIn", in).append("bytesOut", from);
  out.append("physicalBytesIn", in).append("physicalBytesOut", from);
  out.append("numSlowDNSOperations", std::int64_t{0})
      .append("numSlowSSLOperations", std::int64_t{0});
  out.append("numRequests", as_long(all.requests.value()));
}

void opcounters(BsonWriter& out, const Context& context, const Facts&) {
  const Metrics& all = context.shared.metrics;
  out.append("insert", as_long(all.op_insert.value()))
      .append("query", as_long(all.op_query.value()));
  out.append("update", as_long(all.op_update.value()))
      .append("delete", as_long(all.op_delete.value()));
  out.append("getmore", as_long(all.op_getmore.value()))
      .append("command", as_long(all.op_command.value()));
}

std::string config_servers_of(const Context& context) {
  return context.in_cluster() ? connection_string_of(context.gateway.states().front()) : std::string();
}

// Shards as all workers see them. A static table has no config servers to name.
void sharding(BsonWriter& out, const Context& context, const Facts& facts) {
  out.append("configsvrConnectionString", std::string_view(config_servers_of(context)));
  out.append("maxChunkSizeInBytes", as_long(128 * limits::mib));
  out.begin_document("shards");
  for (const ShardFacts& shard : facts.shards) {
    out.begin_document(shard.name);
    out.append("reachable", shard.reachable).append("writable", shard.writable);
    out.append("connectionsInUse", as_long(shard.in_use)).append("connectionsAvailable", as_long(shard.available));
    out.append("connectionsCreated", as_long(shard.created)).append("requestsWaiting", as_long(shard.waiting));
    out.append("roundTrips", as_long(shard.round_trips.total()));
    out.append("roundTripMicros", as_long(shard.round_trips.sum_us));
    out.append("failedCalls", as_long(shard.failed_calls)).append("retriedCalls", as_long(shard.retried_calls));
    out.end();
  }
  out.end();
}

// Microseconds and operations; a streamed reply counts up to its first bytes.
void op_latencies(BsonWriter& out, const Context& context, const Facts&) {
  constexpr std::string_view names[] = {"reads", "writes", "commands"};
  LatencyReading sums[std::size(names)];
  for (const CommandSpec& spec : all_commands()) {
    sums[static_cast<std::size_t>(operation_kind(spec))] += command_times(context.shared, spec.index);
  }
  for (std::size_t i = 0; i < std::size(names); ++i) {
    out.begin_document(names[i]);
    out.append("latency", as_long(sums[i].sum_us)).append("ops", as_long(sums[i].total()));
    out.end();
  }
}

void append_hosts_targeted(BsonWriter& out, std::string_view name, const HostsTargeted& targeted) {
  out.begin_document(name);
  out.append("allShards", as_long(targeted.all_shards.value()));
  out.append("manyShards", as_long(targeted.many_shards.value()));
  out.append("oneShard", as_long(targeted.one_shard.value()));
  out.append("unsharded", as_long(targeted.unsharded.value()));
  out.end();
}

void sharding_statistics(BsonWriter& out, const Context& context, const Facts& facts) {
  const Metrics& all = context.shared.metrics;
  out.begin_document("numHostsTargeted");
  append_hosts_targeted(out, "find", all.find);
  append_hosts_targeted(out, "insert", all.insert);
  append_hosts_targeted(out, "update", all.update);
  append_hosts_targeted(out, "delete", all.delete_);
  append_hosts_targeted(out, "aggregate", all.aggregate);
  out.end();
  out.begin_document("catalogCache");
  out.append("numDatabaseEntries", as_long(facts.databases));
  out.append("numCollectionEntries", as_long(facts.collections));
  out.append("countStaleConfigErrors", as_long(all.stale_refusals.value()));
  if (context.in_cluster()) {
    const cluster::CatalogCache::Counts& reads = facts.table_reads;
    out.append("countIncrementalRefreshesStarted", as_long(reads.reads_in_part));
    out.append("countFullRefreshesStarted", as_long(reads.reads - reads.reads_in_part));
    out.append("countFailedRefreshes", as_long(reads.failed_reads));
  }
  out.end();
}

void transactions(BsonWriter& out, const Context& context, const Facts&) {
  // Sessions whose latest transaction is remembered; ended ones stay until they expire.
  out.append("tracked", as_long(context.shared.transactions->size()));
}

// Logins; the others include those that `speculative` counts.
void security(BsonWriter& out, const Context& context, const Facts&) {
  constexpr std::string_view names[] = {"SCRAM-SHA-1", "SCRAM-SHA-256", "MONGODB-X509"};
  if (context.tls && context.tls->certificate()) {
    const TlsCertificate& certificate = *context.tls->certificate();
    out.append("SSLServerSubjectName", certificate.subject);
    out.append("SSLServerHasCertificateAuthority", context.tls->has_authorities());
    out.append_date("SSLServerCertificateExpirationDate", certificate.not_after_s * 1000);
  }
  const Metrics& all = context.shared.metrics;
  const auto append = [&](std::string_view name, const Counter& received, const Counter& successful) {
    out.begin_document(name);
    out.append("received", as_long(received.value())).append("successful", as_long(successful.value()));
    out.end();
  };
  out.begin_document("authentication").begin_document("mechanisms");
  for (std::size_t i = 0; i < Metrics::mechanism_count; ++i) {
    const Metrics::Mechanism& mechanism = all.mechanisms[i];
    out.begin_document(names[i]);
    append("speculativeAuthenticate", mechanism.speculative_received, mechanism.speculative_successful);
    append("authenticate", mechanism.received, mechanism.successful);
    out.end();
  }
  out.end().end();
  out.begin_document("tlsHandshakes");
  out.append("successful", as_long(all.tls_handshakes.value()));
  out.append("failed", as_long(all.tls_handshakes_failed.value()));
  out.end();
  out.begin_document("refusedCommands");
  out.append("unauthenticated", as_long(all.unauthenticated_commands.value()));
  out.append("unauthorized", as_long(all.unauthorized_commands.value()));
  out.end();
  append_login_limits(out, context.shared);
}

void slow_shapes(BsonWriter& out, const Context& context, const Facts&) {
  append_slow_shapes(out, context.shared.slow_shapes, live_rows_max);
}

struct Section {
  std::string_view name;
  void (*append)(BsonWriter& out, const Context& context, const Facts& facts);
};

constexpr Section sections[] = {
    {"asserts", asserts},
    {"connections", connections},
    {"extra_info", extra_info},
    {"limits", client_limits},
    {"mem", mem},
    {"memory", memory},
    {"metrics", metrics},
    {"network", network},
    {"opLatencies", op_latencies},
    {"opcounters", opcounters},
    {"security", security},
    {"sharding", sharding},
    {"shardingStatistics", sharding_statistics},
    {"slowShapes", slow_shapes},
    {"transactions", transactions},
};

void append_head(BsonWriter& out, const Context& context) {
  const ProcessFacts& process = context.shared.facts;
  const Duration up = Clock::now() - process.start_time;
  const std::int64_t up_ms = std::chrono::duration_cast<std::chrono::milliseconds>(up).count();
  out.append("host", process.host_name);
  out.append("version", emulated_version(context.gateway));
  out.append("process", "mongos");
  out.append("pid", std::int64_t{::getpid()});
  out.append("uptime", static_cast<double>(up_ms / 1000));
  out.append("uptimeMillis", up_ms);
  out.append("uptimeEstimate", up_ms / 1000);
  out.append_date("localTime", wall_clock_ms());
}

}  // namespace

Task<Result<Response>> server_status_command(Context& context, Client&, const Request& request) {
  auto asking = ask_workers<WorkerFacts>(context, look_at_worker);
  const std::vector<WorkerFacts> answers = co_await asking;
  const ValueView metrics_asked = request.body["metrics"];
  const Facts facts{make_status_facts(context.shared, answers),
                    metrics_asked.is_document() && metrics_asked.as_document()["histograms"].truthy()};
  BsonWriter reply;
  append_head(reply, context);
  for (const Section& section : sections) {
    const ValueView wanted = request.body[section.name];
    if (wanted.exists() && !wanted.truthy()) continue;
    reply.begin_document(section.name);
    section.append(reply, context, facts);
    reply.end();
  }
  co_return ok_response(std::move(reply));
}

}  // namespace spillway::exec
