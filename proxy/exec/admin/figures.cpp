#include "proxy/exec/admin/figures.h"

#include <dirent.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "allocator/mutex.h"
#include "proxy/exec/access/audit.h"
#include "proxy/exec/access/transactions.h"
#include "proxy/exec/admin/live_status.h"
#include "proxy/exec/cluster/cluster_table.h"
#include "proxy/exec/core/life_cycle.h"
#include "proxy/exec/counters/connection_counts.h"
#include "proxy/exec/counters/process_facts.h"
#include "proxy/exec/counters/slow_shapes.h"
#include "proxy/exec/sharding/router_answers.h"
#include "proxy/exec/tables/failed_logins.h"
#include "proxy/exec/tables/limits.h"
#include "proxy/exec/tables/transaction_table.h"

namespace spillway::exec {

namespace {

// A figure's value; monostate: there is none. Texts outlive the Status. serverStatus shows unsigned ones as int64.
using Value = std::variant<std::monostate, std::uint64_t, std::int64_t, std::int32_t, double, bool, std::string_view>;

template <class T>
Value value_of(const T& value) {
  return value;
}
Value value_of(const Counter& counter) { return counter.value(); }

// What is no single value, as each of the two shows it; null: one does not.
struct Part {
  void (*append)(BsonWriter& out, const Status& status);
  void (*write)(MetricsText& out, const Status& status) = nullptr;
};

// A figure of a Row: of the Status, or of one shard, one budget and the like.
template <class Row>
struct Figure {
  std::string_view path;  // in serverStatus; empty: only /metrics has it. Of a part: the document that it is added to.
  std::variant<Value (*)(const Row& in), Part> get;
  // In /metrics, name{label=value}; empty: only serverStatus has it. A counter's name ends with _total.
  std::string_view metric = {};
  std::string_view help = {};  // of the family, which begins with this figure
};

template <class Row>
using RowsOf = std::vector<std::pair<std::string_view, const Row*>>;

// Rows with the same figures: in serverStatus a document by the row's name, in /metrics a label.
template <class Row>
struct Table {
  std::string_view label;
  std::span<const Figure<Row>> figures;
  RowsOf<Row> (*rows)(const Status& status);
};

template <class Row>
RowsOf<Row> by_name(const std::vector<Row>& all) {
  RowsOf<Row> rows;
  for (const Row& row : all) rows.emplace_back(row.name, &row);
  return rows;
}

// Closes and opens documents: from `open` to `to`, which are paths.
void go_to(BsonWriter& out, std::string_view& open, std::string_view to) {
  while (!open.empty() && !(to.starts_with(open) && (to.size() == open.size() || to[open.size()] == '.'))) {
    out.end();
    open = open.substr(0, open.find('.') == open.npos ? 0 : open.rfind('.'));
  }
  while (open.size() < to.size()) {
    const std::size_t from = open.empty() ? 0 : open.size() + 1;
    open = to.substr(0, to.find('.', from));
    out.begin_document(open.substr(from));
  }
}

// `command`: {section: false} leaves a section out.
template <class Row>
void append_figures(BsonWriter& out, std::span<const Figure<Row>> figures, const Row& row, DocView command = {}) {
  std::string_view open, section;
  bool wanted = true;
  for (const Figure<Row>& figure : figures) {
    if (figure.path.empty()) continue;
    if (const auto of = figure.path.substr(0, figure.path.find('.')); of != section) {
      section = of;
      wanted = !command[section].exists() || command[section].truthy();
    }
    if (!wanted) continue;
    if (const Part* part = std::get_if<Part>(&figure.get)) {
      go_to(out, open, figure.path);
      if constexpr (std::is_same_v<Row, Status>) part->append(out, row);
      continue;
    }
    const Value value = std::get<0>(figure.get)(row);
    if (std::holds_alternative<std::monostate>(value)) continue;
    const std::size_t name = figure.path.rfind('.') + 1;
    go_to(out, open, figure.path.substr(0, name == 0 ? 0 : name - 1));
    const auto append = [&]<class T>(const T& shown) {
      if constexpr (std::is_same_v<T, std::uint64_t>) {
        out.append(figure.path.substr(name), as_long(shown));
      } else if constexpr (!std::is_same_v<T, std::monostate>) {
        out.append(figure.path.substr(name), shown);
      }
    };
    std::visit(append, value);
  }
  go_to(out, open, {});
}

template <const auto& table, std::size_t first = 0, std::size_t last = SIZE_MAX>
void append_rows(BsonWriter& out, const Status& status) {
  const auto rows = table.rows(status);
  for (std::size_t i = first; i < std::min(last, rows.size()); ++i) {
    out.begin_document(rows[i].first);
    append_figures(out, table.figures, *rows[i].second);
    out.end();
  }
}

std::string_view family_of(std::string_view metric) { return metric.substr(0, metric.find('{')); }

// The figures of a family, of one row.
template <class Row>
void write_family(MetricsText& out, std::string_view family, std::span<const Figure<Row>> figures, const Row& row,
                  MetricsText::Label row_label) {
  for (const Figure<Row>& figure : figures) {
    if (family_of(figure.metric) != family) continue;
    std::string_view label = figure.metric.substr(family.size());  // {name=value}
    if (!label.empty()) label = label.substr(1, label.size() - 2);
    const std::size_t equals = std::min(label.find('='), label.size());
    const MetricsText::Label own{label.substr(0, equals), label.substr(std::min(equals + 1, label.size()))};
    const auto write = [&]<class T>(const T& shown) {
      if constexpr (std::is_arithmetic_v<T>) out.value({row_label, own}, shown);
    };
    std::visit(write, std::get<0>(figure.get)(row));
  }
}
// Of the figures of Status.
void write_family(MetricsText& out, std::string_view family, const Status& status);

template <class Row>
void write_figures(MetricsText& out, std::span<const Figure<Row>> figures, std::string_view label,
                   const RowsOf<Row>& rows, const Status& status) {
  for (const Figure<Row>& first : figures) {
    const Part* part = std::get_if<Part>(&first.get);
    if (part != nullptr && part->write != nullptr) part->write(out, status);
    if (first.help.empty()) continue;
    const std::string_view family = family_of(first.metric);
    out.family(family, family.ends_with("_total") ? MetricType::counter : MetricType::gauge, first.help);
    for (const auto& [name, row] : rows) write_family(out, family, figures, *row, {label, name});
    if constexpr (!std::is_same_v<Row, Status>) write_family(out, family, status);
  }
}

template <const auto& table>
void write_rows(MetricsText& out, const Status& status) {
  write_figures(out, table.figures, table.label, table.rows(status), status);
}

template <const auto& table>
constexpr Part rows_of{append_rows<table>, write_rows<table>};

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): 200 times a lambda's head would hide the figures
#define GET(figure) []([[maybe_unused]] const auto& in) -> Value { return value_of(figure); }

Value zero(const Status&) { return std::int64_t{0}; }

double as_ms(std::uint64_t us) noexcept { return static_cast<double>(us) / 1000; }
template <class T>
double seconds(T us) noexcept {
  return static_cast<double>(us) / 1e6;
}

Value in_cluster(const Status& status, std::uint64_t value) { return status.shared.cluster ? Value(value) : Value(); }

constexpr Figure<MemoryBudget> budget_figures[] = {
    {"usedBytes", GET(in.usage().used_bytes), "spillway_memory_budget_used_bytes", "Bytes reserved, by budget."},
    {"peakBytes", GET(in.usage().peak_bytes), "spillway_memory_budget_peak_bytes",
     "Most bytes ever reserved, by budget."},
    {"limitBytes", GET(in.usage().limit_bytes), "spillway_memory_budget_limit_bytes",
     "Limits of budgets; 0: none of its own."},
    {"refusals", GET(in.usage().refusals), "spillway_memory_budget_refusals_total", "Reservations refused, by budget."},
};
constexpr Table<MemoryBudget> budget_table{"budget", budget_figures, [](const Status& status) {
  RowsOf<MemoryBudget> rows;
  for (const MemoryBudget* budget : budgets_of(status.shared.memory)) rows.emplace_back(budget->name(), budget);
  return rows;
}};

constexpr Figure<MemoryQueueUsage> queue_figures[] = {
    {"waiting", GET(in.waiting), "spillway_memory_queue_waiting", "Requests that wait for memory now."},
    {"waits", GET(in.waits), "spillway_memory_queue_waits_total", "Waits for memory."},
    {"inVain", GET(in.in_vain), "spillway_memory_queue_waits_in_vain_total", "Waits for memory that ended without it."},
    {"reserveUsedBytes", GET(in.large.used_bytes + in.small.used_bytes), "spillway_memory_reserve_used_bytes",
     "Bytes in use of the reserves for waiting requests."},
    {"reservePeakBytes", GET(in.large.peak_bytes + in.small.peak_bytes)},
    {"reserveLimitBytes", GET(in.large.limit_bytes + in.small.limit_bytes), "spillway_memory_reserve_limit_bytes",
     "The reserves for waiting requests."},
};
constexpr Table<MemoryQueueUsage> queue_table{"queue", queue_figures, [](const Status& status) {
  return RowsOf<MemoryQueueUsage>{{"requests", &status.queues[0]}, {"work", &status.queues[1]}};
}};

// The families have malloc, too.
constexpr Figure<HeapAccount> heap_figures[] = {
    {"inUseBytes", GET(in.usage.in_use_bytes), "spillway_heap_in_use_bytes",
     "Bytes in blocks on loan, by heap; malloc serves everything else."},
    {"keptBytes", GET(in.usage.kept_bytes), "spillway_heap_kept_bytes",
     "Free bytes that a heap keeps from the system."},
    {"givenBackBytes", GET(in.usage.given_back_bytes), "spillway_heap_given_back_bytes_total",
     "Bytes given back to the system."},
    {"takenBytes", GET(in.usage.taken_bytes), "spillway_heap_taken_bytes_total", "Bytes of all blocks ever taken."},
    {"", GET(in.current), "spillway_heap_serving", "1 for the heap that new buffers come from."},
};
constexpr Table<HeapAccount> heap_table{"heap", heap_figures, [](auto& in) { return by_name(in.memory.heaps); }};

constexpr Figure<Metrics::Command> command_figures[] = {
    {"failed", GET(in.failed), "spillway_commands_failed_total", "Commands answered with ok: 0, by name."},
    {"total", GET(in.total), "spillway_commands_total", "Commands received, by name."},
};
constexpr Table<Metrics::Command> command_table{"command", command_figures, [](const Status& status) {
  RowsOf<Metrics::Command> rows;
  for (const CommandSpec& spec : all_commands()) {
    if (spec.is(Trait::cluster_only) && !status.shared.cluster) continue;
    rows.emplace_back(spec.name, &status.all.commands[spec.index]);
  }
  return rows;
}};

std::uint64_t inactive_transactions(const Services& shared) {
  const std::uint64_t open = shared.transactions->active();
  return open - std::min<std::uint64_t>(open, shared.transactions->turns().size());
}

constexpr Figure<Metrics::Commit> commit_figures[] = {
    {"initiated", GET(in.initiated)},
    {"successful", GET(in.successful)},
};
constexpr Table<Metrics::Commit> commit_table{"commitType", commit_figures, [](const Status& status) {
  constexpr std::string_view types[] = {"noShards", "singleShard", "readOnly", "singleWriteShard", "twoPhaseCommit",
                                        "recoverWithToken"};
  RowsOf<Metrics::Commit> rows;
  for (std::size_t i = 0; i < std::size(types); ++i) rows.emplace_back(types[i], &status.all.commits[i]);
  return rows;
}};

constexpr Figure<Metrics::Mechanism> mechanism_figures[] = {
    {"speculativeAuthenticate.received", GET(in.speculative_received), "spillway_logins_speculative_total",
     "Logins begun within hello."},
    {"speculativeAuthenticate.successful", GET(in.speculative_successful),
     "spillway_logins_speculative_successful_total", "Of them, those that succeeded."},
    {"authenticate.received", GET(in.received), "spillway_logins_total", "Logins begun, speculative ones included."},
    {"authenticate.successful", GET(in.successful), "spillway_logins_successful_total", "Logins that succeeded."},
};
constexpr Table<Metrics::Mechanism> mechanism_table{"mechanism", mechanism_figures, [](const Status& status) {
  const auto& all = status.all.mechanisms;
  return RowsOf<Metrics::Mechanism>{{"SCRAM-SHA-1", &all[Metrics::scram_sha_1]},
                                    {"SCRAM-SHA-256", &all[Metrics::scram_sha_256]},
                                    {"MONGODB-X509", &all[Metrics::x509]}};
}};

constexpr Figure<HostsTargeted> targeted_figures[] = {
    {"allShards", GET(in.all_shards), "spillway_commands_targeted_total{shards=all}",
     "Commands by how many shards they were sent to."},
    {"manyShards", GET(in.many_shards), "spillway_commands_targeted_total{shards=many}"},
    {"oneShard", GET(in.one_shard), "spillway_commands_targeted_total{shards=one}"},
    {"unsharded", GET(in.unsharded), "spillway_commands_targeted_total{shards=unsharded}"},
};
constexpr Table<HostsTargeted> targeted_table{"command", targeted_figures, [](const Status& status) {
  const Metrics& all = status.all;
  return RowsOf<HostsTargeted>{{"find", &all.find}, {"insert", &all.insert}, {"update", &all.update},
                               {"delete", &all.delete_}, {"aggregate", &all.aggregate}};
}};

constexpr Figure<ShardFacts> shard_figures[] = {
    {"reachable", GET(in.reachable), "spillway_shard_reachable",
     "1: every worker knows a host of the shard that answers."},
    {"writable", GET(in.writable), "spillway_shard_writable",
     "1: every worker knows a host of the shard that takes writes."},
    {"", GET(in.hosts), "spillway_shard_hosts", "Hosts of the shard."},
    {"", GET(in.hosts_known), "spillway_shard_hosts_known", "Hosts of the shard that answer."},
    {"", GET(static_cast<double>(in.ping_ms) / 1e3), "spillway_shard_ping_seconds",
     "Round trip to the slowest host that answers, smoothed."},
    {"connectionsInUse", GET(in.in_use), "spillway_shard_connections{state=in_use}",
     "Connections to the shard, over all workers."},
    {"connectionsAvailable", GET(in.available), "spillway_shard_connections{state=available}"},
    {"connectionsCreated", GET(in.created), "spillway_shard_connections_created_total",
     "Connections opened to the shard."},
    {"requestsWaiting", GET(in.waiting), "spillway_shard_requests_waiting", "Requests that wait for a connection."},
    {"roundTrips", GET(in.round_trips.total())},
    {"roundTripMicros", GET(in.round_trips.sum_us)},
    {"failedCalls", GET(in.failed_calls), "spillway_shard_calls_failed_total",
     "Commands to the shard that brought no reply."},
    {"retriedCalls", GET(in.retried_calls), "spillway_shard_retries_total", "Attempts after a command's first."},
};
constexpr Table<ShardFacts> shard_table{"shard", shard_figures, [](auto& in) { return by_name(in.facts.shards); }};

Value count_open_files() {
  static Mutex mutex;
  const MutexLock lock(mutex);
  static DIR* files = nullptr;  // kept open for when files run out
  if (files == nullptr) files = ::opendir("/proc/self/fd");
  if (files == nullptr) return {};
  ::rewinddir(files);
  std::int64_t count = -2;  // "." and ".."
  while (::readdir(files) != nullptr) ++count;
  return count;
}

void append_limits(BsonWriter& out, const Status& status) {
  for (std::size_t i = 0; i < limit_keys; ++i) {
    const auto key = static_cast<LimitKey>(i);
    const LimitUsage usage = status.shared.limits.usage(key);
    out.begin_document(section_of(key)).append("tracked", as_long(usage.tracked)).begin_document("refused");
    for (std::size_t thing = 0; thing < limited_things; ++thing) {
      out.append(name_of(static_cast<LimitOf>(thing)), as_long(usage.refused[thing]));
    }
    out.end().end();
  }
}

// {"<50": n, "<100": n, …, ">=5000": n}, by microseconds.
void append_histogram(BsonWriter& out, const SliceHistogram& histogram) {
  out.begin_document("slicesByMicros");
  constexpr auto& bounds = SliceHistogram::bounds_us;
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    out.append(fmt::format("<{}", bounds[i]), as_long(histogram.counts[i]));
  }
  out.append(fmt::format(">={}", bounds.back()), as_long(histogram.counts.back()));
  out.end();
  out.append("longestSliceMicros", as_long(histogram.longest_us));
  out.append("longestSliceCpuMicros", as_long(histogram.longest_cpu_us));
}

// The second half of memory.release.
constexpr Part releases{
    [](BsonWriter& out, const Status& status) {
      const ReleaserStatistics& all = status.memory.releases;
      out.begin_document("byReason");
      for (std::size_t i = 0; i < release_reasons; ++i) {
        out.append(release_reason_name(static_cast<ReleaseReason>(i)), as_long(all.by_reason[i]));
      }
      out.end();
      append_histogram(out, all.slices);
      out.begin_array("history");
      for (const ReleaseRecord& record : all.history) {
        out.begin_document_item();
        append_release(out, record);
        out.end();
      }
      out.end();
    },
    [](MetricsText& out, const Status& status) {
      out.family("spillway_memory_releases_total", MetricType::counter,
                 "Times that free memory was given back by force, by reason; one may have several.");
      for (std::size_t i = 0; i < release_reasons; ++i) {
        const std::string_view reason = release_reason_name(static_cast<ReleaseReason>(i));
        out.value({{"reason", reason}}, status.memory.releases.by_reason[i]);
      }
    }};

void write_commands(MetricsText& out, const Status& status) {
  write_rows<command_table>(out, status);
  out.family("spillway_command_duration_seconds", MetricType::histogram,
             "Time from a command's arrival to its reply, or to the first bytes of one that streams; commands that "
             "ran.");
  for (const CommandSpec& spec : all_commands()) {
    const LatencyReading times = command_times(status.shared, spec.index);
    if (times.total() > 0) out.histogram({{"command", spec.name}}, times);
  }
}

// By code name; a code without a name is Location<code>.
constexpr Part errors{
    [](BsonWriter& out, const Status& status) {
      const ErrorCounts& counts = status.all.errors;
      for (const auto& [code, count] : counts.by_code()) out.append(error_name(code), as_long(count));
      if (counts.others() > 0) out.append("others", as_long(counts.others()));
    },
    [](MetricsText& out, const Status& status) {
      const ErrorCounts& counts = status.all.errors;
      out.family("spillway_errors_total", MetricType::counter,
                 "Replies with ok: 0, by code name, of shards and of the proxy.");
      for (const auto& [code, count] : counts.by_code()) out.value({{"code", error_name(code)}}, count);
      out.value({{"code", "others"}}, counts.others());
    }};

// Non-empty cells, by their bounds, so that tools can take differences; the cell beyond all bounds has none.
void append_cells(BsonWriter& out, const FineReading& times) {
  out.begin_array("histogram");
  for (std::size_t i = 0; i < times.counts.size(); ++i) {
    if (times.counts[i] == 0) continue;
    out.begin_document_item();
    if (i + 1 < times.counts.size()) out.append("upToMicros", as_long(fine_bound_us(i)));
    out.append("count", as_long(times.counts[i])).end();
  }
  out.end();
}

// Ours: time inside the proxy (inside_times.h).
constexpr Part inside{
    [](BsonWriter& out, const Status& status) {
      for (std::size_t i = 0; i < operation_class_names.size(); ++i) {
        const FineReading times = inside_time(status.shared, static_cast<OperationClass>(i));
        out.begin_document(operation_class_names[i]);
        out.append("count", as_long(times.total())).append("sumMicros", as_long(times.sum_ns / 1000));
        out.append("p50Micros", as_long(times.quantile_us(0.5)));
        out.append("p99Micros", as_long(times.quantile_us(0.99)));
        out.append("p999Micros", as_long(times.quantile_us(0.999)));
        if (status.histograms) append_cells(out, times);
        out.end();
      }
    },
    [](MetricsText& out, const Status& status) {
      out.family("spillway_inside_seconds", MetricType::histogram,
                 "Time inside the proxy, from the last byte of a request to the first byte of its reply, less the "
                 "time of the shards, by kind of operation.");
      for (std::size_t i = 0; i < operation_class_names.size(); ++i) {
        const FineReading times = inside_time(status.shared, static_cast<OperationClass>(i));
        out.histogram({{"class", operation_class_names[i]}}, times);
      }
    }};

// Microseconds and operations; a streamed reply counts up to its first bytes.
void append_op_latencies(BsonWriter& out, const Status& status) {
  constexpr std::string_view names[] = {"reads", "writes", "commands"};
  LatencyReading sums[std::size(names)];
  for (const CommandSpec& spec : all_commands()) {
    sums[static_cast<std::size_t>(operation_kind(spec))] += command_times(status.shared, spec.index);
  }
  for (std::size_t i = 0; i < std::size(names); ++i) {
    out.begin_document(names[i]).append("latency", as_long(sums[i].sum_us));
    out.append("ops", as_long(sums[i].total())).end();
  }
}

void append_certificate(BsonWriter& out, const Status& status) {
  const TlsContext::Ptr& tls = status.worker->tls;
  if (!tls || !tls->certificate()) return;
  out.append("SSLServerSubjectName", tls->certificate()->subject);
  out.append("SSLServerHasCertificateAuthority", tls->has_authorities());
  out.append_date("SSLServerCertificateExpirationDate", tls->certificate()->not_after_s * 1000);
}

void write_certificate(MetricsText& out, const Status& status) {
  if (status.facts.certificate_ends_s == 0) return;
  out.family("spillway_certificate_expiry_timestamp_seconds", MetricType::gauge,
             "When the certificate for clients ends.");
  out.value({}, status.facts.certificate_ends_s);
}

// A static table has no config servers to name.
void append_config_servers(BsonWriter& out, const Status& status) {
  const Context& worker = *status.worker;
  const std::string servers = worker.in_cluster() ? connection_string_of(worker.gateway.states().front()) : "";
  out.append("configsvrConnectionString", std::string_view(servers));
}

void write_shards(MetricsText& out, const Status& status) {
  write_rows<shard_table>(out, status);
  out.family("spillway_shard_round_trip_seconds", MetricType::histogram,
             "Time from the last byte sent of a command to the first byte received of its reply.");
  for (const ShardFacts& shard : status.facts.shards) out.histogram({{"shard", shard.name}}, shard.round_trips);
}

// In the order of serverStatus, whose counters only grow: tools take differences.
constexpr Figure<Status> status_figures[] = {
    {"", GET(seconds(in.facts.process.user_us + in.facts.process.system_us)), "process_cpu_seconds_total",
     "CPU time of the process, user and system."},
    {"", GET(in.facts.process.virtual_bytes), "process_virtual_memory_bytes", "Virtual memory of the process."},
    {"", GET(static_cast<double>(in.shared.facts.start_wall_ms) / 1e3), "process_start_time_seconds",
     "When the process began, in seconds since the Unix epoch."},
    {"", GET(count_open_files()), "process_open_fds", "File descriptors in use."},
    {"", GET(in.facts.process.files_max), "process_max_fds",
     "File descriptors that the process may have; 0: not limited."},
    {"", Part{nullptr, [](MetricsText& out, const Status& status) {
       out.family("spillway_build_info", MetricType::gauge, "1; the version stands in the label.");
       out.value({{"version", status.shared.facts.version}}, 1);
     }}},
    {"", GET(in.shared.facts.workers), "spillway_workers", "Worker threads."},
    {"", GET(in.facts.workers_answered), "spillway_workers_answering", "Worker threads that answered this scrape."},
    {"", GET(in.shared.life.quiescing.load() || in.shared.life.stopping.load()), "spillway_draining",
     "1 since a shutdown was announced."},
    {"", GET(in.facts.serves && !in.shared.life.quiescing.load() && !in.shared.life.stopping.load()),
     "spillway_serving", "1 while clients are served: 0 during the start, and since a shutdown was announced."},

    {"asserts.regular", zero},
    {"asserts.warning", zero},
    {"asserts.msg", zero},
    {"asserts.user", GET(in.all.asserts_user)},
    {"asserts.tripwire", zero},
    {"asserts.rollovers", zero},

    {"connections.current", GET(in.shared.connections.current.load()), "spillway_client_connections",
     "Client connections open."},
    {"connections.available", GET(in.facts.connections_available), "spillway_client_connections_available",
     "Client connections that file descriptors are left for."},
    {"connections.totalCreated", GET(in.shared.connections.total.load()), "spillway_client_connections_opened_total",
     "Client connections accepted."},
    {"connections.active", GET(in.facts.clients.active), "spillway_client_connections_active",
     "Client connections with an operation under way."},
    {"connections.threaded", zero},
    {"connections.loadBalanced", GET(in.facts.clients.load_balanced), "spillway_client_connections_load_balanced",
     "Client connections on the load balancers' port."},
    {"connections.exhaustIsMaster", zero},
    {"connections.exhaustHello", zero},
    {"connections.awaitingTopologyChanges", zero},
    {"connections.rejected", GET(in.all.connections_rejected), "spillway_client_connections_refused_total",
     "Client connections over net.maxIncomingConnections."},
    {"connections.idleClosed", GET(in.all.idle_clients_closed)},
    {"connections.silentClosed", GET(in.all.silent_clients_closed)},
    {"connections.timedOut", GET(in.all.clients_timed_out), "spillway_client_timed_out_total",
     "Connections that broke because the client took or answered nothing for 45 s."},

    {"extra_info.note", GET("fields vary by platform")},
    {"extra_info.user_time_us", GET(in.facts.process.user_us)},
    {"extra_info.system_time_us", GET(in.facts.process.system_us)},
    {"extra_info.maximum_resident_set_kb", GET(in.facts.process.used.ru_maxrss)},
    {"extra_info.input_blocks", GET(in.facts.process.used.ru_inblock)},
    {"extra_info.output_blocks", GET(in.facts.process.used.ru_oublock)},
    {"extra_info.page_reclaims", GET(in.facts.process.used.ru_minflt)},
    {"extra_info.page_faults", GET(in.facts.process.used.ru_majflt)},
    {"extra_info.voluntary_context_switches", GET(in.facts.process.used.ru_nvcsw)},
    {"extra_info.involuntary_context_switches", GET(in.facts.process.used.ru_nivcsw)},

    {"limits", Part{append_limits}},

    {"mem.bits", GET(64)},
    {"mem.resident", GET(static_cast<std::int32_t>(in.facts.process.resident_bytes / limits::mib))},
    {"mem.virtual", GET(static_cast<std::int32_t>(in.facts.process.virtual_bytes / limits::mib))},
    {"mem.supported", GET(true)},

    // Spillway's own: the bytes in the memory budgets, beside the process's real memory.
    {"memory.residentBytes", GET(in.facts.process.resident_bytes), "process_resident_memory_bytes",
     "Resident memory of the process."},
    {"memory.limitBytes", GET(in.shared.facts.memory_limit_bytes), "spillway_memory_limit_bytes",
     "memory.limit: what the process and its sockets may take; 0: none."},
    {"memory.baseBytes", GET(in.shared.facts.base_bytes), "spillway_memory_base_bytes",
     "What the process took at its start."},
    // By the places in budgets_of(): first `process` and what it is divided into, then those beside it.
    {"memory.budgets", Part{append_rows<budget_table, 0, 7>, write_rows<budget_table>}},
    {"memory.budgets", Part{append_rows<budget_table, 11, 12>}},
    {"memory", Part{append_rows<budget_table, 7, 11>}},
    {"memory", Part{append_rows<budget_table, 12>}},
    {"memory.queues", rows_of<queue_table>},
    {"memory.refused.requests", GET(in.all.requests_refused), "spillway_memory_refused_total{what=requests}",
     "Requests and cursors refused for want of memory."},
    {"memory.refused.cursors", GET(in.all.cursors_refused), "spillway_memory_refused_total{what=cursors}"},
    {"memory.refused.sendersStopped", GET(in.all.senders_stopped), "spillway_client_senders_stopped_total",
     "Connections closed for stopping in the middle of a message."},
    {"memory.backpressureClients.yes", GET(in.all.hellos_with_backpressure),
     "spillway_client_greetings_total{backpressure=yes}",
     "First hellos of connections, by whether the driver takes part in back-pressure."},
    {"memory.backpressureClients.no", GET(in.all.hellos_without_backpressure),
     "spillway_client_greetings_total{backpressure=no}"},

    {"memory.pressure.level", GET(pressure_level_name(in.pressure.level))},
    {"", GET(static_cast<std::uint64_t>(in.pressure.level)), "spillway_memory_pressure_level",
     "How scarce memory is: 0 normal, 1 tight, 2 critical."},
    {"memory.pressure.cause", GET(pressure_cause_name(in.pressure.cause))},
    {"memory.pressure.samples", GET(in.pressure.samples)},
    {"memory.pressure.changes", GET(in.pressure.changes), "spillway_memory_pressure_changes_total",
     "Changes of the level."},
    {"memory.pressure.timesTight", GET(in.pressure.times_tight), "spillway_memory_pressure_entered_total{level=tight}",
     "Times that a level was entered from below."},
    {"memory.pressure.timesCritical", GET(in.pressure.times_critical),
     "spillway_memory_pressure_entered_total{level=critical}"},
    {"memory.pressure.signals", GET(in.pressure.signals)},
    {"memory.pressure.budgetShare", GET(in.pressure.last.budget_share())},
    {"memory.pressure.cgroup.version", GET(cgroup_version_name(in.pressure.cgroup_version))},
    {"memory.pressure.cgroup.usageBytes", GET(in.pressure.last.cgroup.usage_bytes),
     "spillway_cgroup_memory_usage_bytes", "Memory charged to the cgroup; 0: there is none."},
    {"memory.pressure.cgroup.limitBytes", GET(in.pressure.last.cgroup.max_bytes.value_or(0)),
     "spillway_cgroup_memory_limit_bytes", "Beyond this the kernel kills; 0: no limit."},
    {"memory.pressure.cgroup.highBytes", GET(in.pressure.last.cgroup.high_bytes.value_or(0)),
     "spillway_cgroup_memory_high_bytes", "Beyond this the kernel throttles; 0: no limit."},
    {"memory.pressure.cgroup.limitShare", GET(in.pressure.last.cgroup.max_share)},
    {"memory.pressure.cgroup.highShare", GET(in.pressure.last.cgroup.high_share)},
    {"memory.pressure.stall.known", GET(in.pressure.last.psi.has_value())},
    {"memory.pressure.stall.someAvg10", GET(in.stall.some_avg10)},
    {"memory.pressure.stall.fullAvg10", GET(in.stall.full_avg10)},
    {"", GET(in.stall.some_avg10 / 100), "spillway_memory_stall_ratio{tasks=some}",
     "Share of the last 10 s in which some or all tasks waited for memory."},
    {"", GET(in.stall.full_avg10 / 100), "spillway_memory_stall_ratio{tasks=all}"},

    {"memory.spill.file", GET(in.spill.has_file)},
    {"memory.spill.onTmpfs", GET(in.spill.on_tmpfs)},
    {"memory.spill.limitBytes", GET(in.spill.limit_bytes), "spillway_spill_limit_bytes",
     "What the spill file may take; 0: there is none."},
    {"memory.spill.parkedBytes", GET(in.spill.parked_bytes), "spillway_spill_parked_bytes",
     "Documents of idle cursors that are parked, uncompressed size."},
    {"memory.spill.memoryBytes", GET(in.spill.memory_bytes), "spillway_spill_memory_bytes",
     "What is parked in memory, compressed."},
    {"memory.spill.diskBytes", GET(in.spill.disk_bytes), "spillway_spill_disk_bytes", "What is parked in the file."},
    {"memory.spill.queued", GET(in.spill.queued), "spillway_spill_queued", "Buffers that wait to be parked."},
    {"memory.spill.parks", GET(in.spill.parks), "spillway_spill_parks_total", "Buffers parked."},
    {"memory.spill.refused", GET(in.spill.refused), "spillway_spill_not_parked_total{reason=queue_full}",
     "Buffers that stayed as they were, by reason."},
    {"memory.spill.givenUp", GET(in.spill.given_up), "spillway_spill_not_parked_total{reason=given_up}"},
    {"memory.spill.withdrawn", GET(in.spill.withdrawn), "spillway_spill_not_parked_total{reason=withdrawn}"},
    {"memory.spill.fetches", GET(in.spill.fetches), "spillway_spill_fetches_total", "Pieces fetched back."},
    {"memory.spill.rawBytes", GET(in.spill.raw_bytes), "spillway_spill_raw_bytes_total",
     "Bytes parked, before compression."},
    {"memory.spill.storedBytes", GET(in.spill.stored_bytes), "spillway_spill_stored_bytes_total", "And after."},
    {"memory.spill.writtenBytes", GET(in.spill.written_bytes), "spillway_spill_written_bytes_total",
     "Bytes written to the file."},
    {"memory.spill.readBytes", GET(in.spill.read_bytes), "spillway_spill_read_bytes_total",
     "Bytes read from the file."},
    {"memory.spill.noRoom", GET(in.spill.no_room), "spillway_spill_no_room_total",
     "Blocks that the file's limit had no room for."},
    {"memory.spill.writeErrors", GET(in.spill.write_errors), "spillway_spill_errors_total{kind=write}",
     "What went wrong with the file."},
    {"memory.spill.readErrors", GET(in.spill.read_errors), "spillway_spill_errors_total{kind=read}"},
    {"memory.spill.corrupt", GET(in.spill.corrupt), "spillway_spill_errors_total{kind=corrupt}"},

    {"memory", Part{[](BsonWriter& out, const Status& status) { append_cursor_memory(out, status.shared.cursors); }}},
    {"memory.malloc.library", GET(in.memory.malloc_library)},
    {"memory.malloc.kind", GET(in.memory.malloc_kind)},
    {"memory.malloc.inUseBytes", GET(in.memory.malloc_usage.in_use_bytes), "spillway_heap_in_use_bytes{heap=malloc}"},
    {"memory.malloc.keptBytes", GET(in.memory.malloc_usage.kept_bytes), "spillway_heap_kept_bytes{heap=malloc}"},
    {"memory.heaps", rows_of<heap_table>},
    {"memory.allocator.setting", GET(allocator_choice_name(in.memory.choice))},
    {"memory.allocator.current",
     [](const auto& in) -> Value {
       for (const HeapAccount& heap : in.memory.heaps) {
         if (heap.current) return heap.name;
       }
       return {};
     }},
    {"memory.allocator.reason", GET(in.memory.policy_reason)},
    {"memory.allocator.freeShare", GET(in.memory.policy_inputs.free_share)},
    {"memory.allocator.trials", GET(in.memory.policy_inputs.trials)},
    {"memory.allocator.jemallocCpuMicrosPerMB", GET(in.memory.policy_inputs.jemalloc_cpu_us_per_mb)},
    {"memory.allocator.tcmallocCpuMicrosPerMB", GET(in.memory.policy_inputs.tcmalloc_cpu_us_per_mb)},
    {"memory.allocator.keepsFreed", GET(in.memory.keeps_freed)},
    {"memory.allocator.timesKeptNothing", GET(in.memory.times_kept_nothing)},
    {"memory.allocator.evaluations", GET(in.memory.policy_evaluations)},
    {"memory.allocator.switches", GET(in.memory.switches), "spillway_heap_switches_total",
     "Times that another heap began to serve."},
    {"memory.allocator.millisSinceSwitch",
     [](const auto& in) -> Value {
       if (!in.memory.last_switch_ns) return {};
       return (steady_now_ns() - *in.memory.last_switch_ns) / 1'000'000;
     }},
    {"memory.release.thresholdBytes", GET(in.memory.release_threshold_bytes)},
    {"memory.release.releases", GET(in.memory.releases.releases)},
    {"memory.release.givenBackBytes", GET(in.memory.releases.given_back_bytes), "spillway_memory_released_bytes_total",
     "Bytes given back so."},
    {"memory.release.totalMillis", GET(as_ms(in.memory.releases.total_us))},
    {"", GET(seconds(in.memory.releases.total_us)), "spillway_memory_release_seconds_total", "Time that it took."},
    {"memory.release", releases},

    {"metrics.commands.<UNKNOWN>", GET(in.all.unknown_commands), "spillway_commands_unknown_total",
     "Commands that do not exist."},
    {"metrics.commands", Part{append_rows<command_table>, write_commands}},
    {"metrics.cursor.moreThanOneBatch", GET(in.all.cursors_more_than_one_batch),
     "spillway_cursors_beyond_one_batch_total", "Cursors that had a second batch."},
    {"metrics.cursor.timedOut", GET(in.cursors.timed_out), "spillway_cursors_ended_total{reason=timed_out}",
     "Cursors that ended before they were exhausted, by reason."},
    {"metrics.cursor.totalOpened", GET(in.cursors.total_opened), "spillway_cursors_opened_total", "Cursors opened."},
    {"metrics.cursor.open.multiTarget", GET(in.cursors.open_multi_target), "spillway_cursors_open{shards=many}",
     "Open cursors, by how many shards they read from."},
    {"metrics.cursor.open.singleTarget", GET(in.cursors.open_single_target), "spillway_cursors_open{shards=one}"},
    {"metrics.cursor.open.queuedData", zero},
    {"metrics.cursor.open.pinned", GET(in.cursors.pinned), "spillway_cursors_pinned",
     "Cursors that a request is working on."},
    {"metrics.cursor.open.noTimeout", GET(in.cursors.no_timeout), "spillway_cursors_no_timeout",
     "Open cursors with noCursorTimeout."},
    {"metrics.cursor.open.total", GET(in.cursors.open_total)},
    {"metrics.cursor.bufferedBytes", GET(in.cursors.buffered_bytes), "spillway_cursors_buffered_bytes",
     "What idle cursors hold in memory."},
    {"metrics.cursor.filling", GET(in.cursors.filling), "spillway_cursors_filling",
     "Of those pinned, cursors being read ahead."},
    {"metrics.cursor.clientless", GET(in.cursors.clientless), "spillway_cursors_clientless",
     "Open cursors whose client is gone."},
    {"metrics.cursor.killed", GET(in.all.cursors_killed), "spillway_cursors_ended_total{reason=killed}"},
    {"metrics.cursor.orphaned", GET(in.cursors.orphaned), "spillway_cursors_ended_total{reason=orphaned}"},
    {"metrics.cursor.evicted", GET(in.cursors.evicted), "spillway_cursors_ended_total{reason=evicted}"},
    {"metrics.cursor.evictedBytes", GET(in.cursors.evicted_bytes), "spillway_cursors_evicted_bytes_total",
     "What evicted cursors held."},
    {"metrics.cursor.evictedBeyondShare", GET(in.all.cursors_beyond_share),
     "spillway_cursors_evicted_beyond_share_total",
     "Of those evicted, cursors of a client that held over half of the cursors' memory."},
    {"metrics.cursor.readAhead.started", GET(in.all.read_ahead_started), "spillway_read_ahead_started_total",
     "Batches fetched before a client asked for them."},
    {"metrics.cursor.readAhead.hits", GET(in.all.read_ahead_hits), "spillway_read_ahead_ended_total{outcome=hit}",
     "What became of them: taken at once, waited for, or never taken."},
    {"metrics.cursor.readAhead.waits", GET(in.all.read_ahead_waits), "spillway_read_ahead_ended_total{outcome=wait}"},
    {"metrics.cursor.readAhead.wasted", GET(in.all.read_ahead_wasted),
     "spillway_read_ahead_ended_total{outcome=wasted}"},
    {"metrics.operation.killedDueToClientDisconnect", GET(in.all.killed_due_to_client_disconnect),
     "spillway_client_disconnects_total", "Operations ended because their client had left."},
    {"metrics.errors", errors},
    {"metrics.inside", inside},
    // Replies that passed from a shard to a client in pieces.
    {"metrics.streams.replies", GET(in.all.streamed_replies), "spillway_streams_total",
     "Replies that passed from a shard to a client in pieces."},
    {"metrics.streams.bytes", GET(in.all.streamed_bytes), "spillway_streamed_bytes_total", "Bytes of them."},
    {"metrics.streams.splicedBytes", GET(in.all.spliced_bytes), "spillway_spliced_bytes_total",
     "Of these, bytes that the kernel moved by itself."},
    {"metrics.streams.failures", GET(in.all.stream_failures), "spillway_streams_failed_total",
     "Replies cut off after their first byte: the client was closed."},
    {"metrics.streams.withoutMemory", GET(in.all.stream_refusals), "spillway_streams_without_memory_total",
     "Large replies for which there was no memory."},
    {"metrics.streams.moved", GET(in.all.streams_moved), "spillway_streams_moved_total",
     "Replies whose rest moved to memory or a file: the client stalled."},
    {"metrics.streams.stalledClosed", GET(in.all.stalled_clients_closed), "spillway_client_stalled_closed_total",
     "Clients closed that did not read a reply."},
    {"metrics.streams.uncompressed", GET(in.all.uncompressed_replies), "spillway_replies_uncompressed_total",
     "Uncompressed replies to compressed requests."},
    {"metrics.spans.exported", GET(in.all.spans_exported), "spillway_spans_total{outcome=exported}",
     "Spans of traced commands, by what became of them: taken by the collector, without room, refused or not taken by "
     "it."},
    {"metrics.spans.dropped", GET(in.all.spans_dropped), "spillway_spans_total{outcome=dropped}"},
    {"metrics.spans.failed", GET(in.all.spans_failed), "spillway_spans_total{outcome=failed}"},

    {"network.bytesIn", GET(in.all.bytes_in), "spillway_client_received_bytes_total",
     "Bytes of messages received from clients."},
    {"network.bytesOut", GET(in.all.bytes_out), "spillway_client_sent_bytes_total",
     "Bytes of messages sent to clients."},
    {"network.physicalBytesIn", GET(in.all.bytes_in)},
    {"network.physicalBytesOut", GET(in.all.bytes_out)},
    {"network.numSlowDNSOperations", zero},
    {"network.numSlowSSLOperations", zero},
    {"network.numRequests", GET(in.all.requests), "spillway_client_requests_total", "Messages received from clients."},

    {"opLatencies", Part{append_op_latencies}},

    {"opcounters.insert", GET(in.all.op_insert), "spillway_operations_total{type=insert}",
     "Operations as opcounters count them: documents inserted, updates, deletes, finds, getMores, others."},
    {"opcounters.query", GET(in.all.op_query), "spillway_operations_total{type=query}"},
    {"opcounters.update", GET(in.all.op_update), "spillway_operations_total{type=update}"},
    {"opcounters.delete", GET(in.all.op_delete), "spillway_operations_total{type=delete}"},
    {"opcounters.getmore", GET(in.all.op_getmore), "spillway_operations_total{type=getmore}"},
    {"opcounters.command", GET(in.all.op_command), "spillway_operations_total{type=command}"},

    {"security", Part{append_certificate, write_certificate}},
    {"security.authentication.mechanisms", rows_of<mechanism_table>},
    {"security.tlsHandshakes.successful", GET(in.all.tls_handshakes), "spillway_tls_handshakes_total",
     "TLS handshakes with clients that succeeded."},
    {"security.tlsHandshakes.failed", GET(in.all.tls_handshakes_failed), "spillway_tls_handshakes_failed_total",
     "Those that failed, and clients refused for plain text."},
    {"security.refusedCommands.unauthenticated", GET(in.all.unauthenticated_commands),
     "spillway_commands_denied_total{reason=unauthenticated}", "Commands refused for want of a login or of a right."},
    {"security.refusedCommands.unauthorized", GET(in.all.unauthorized_commands),
     "spillway_commands_denied_total{reason=unauthorized}"},
    {"security.failedLogins.refused", GET(in.shared.failed_logins->refused()), "spillway_logins_refused_total",
     "Logins refused without a look at the password, after failures in a row."},
    {"security.failedLogins.tracked", GET(in.shared.failed_logins->tracked())},
    {"security.auditLog.written", GET(in.shared.audit ? Value(in.shared.audit->written()) : Value())},
    {"security.auditLog.lost", GET(in.shared.audit ? Value(in.shared.audit->lost()) : Value()),
     "spillway_audit_lines_lost_total", "Lines that the audit log lacks."},

    {"sharding", Part{append_config_servers}},
    {"sharding.maxChunkSizeInBytes", GET(as_long(128 * limits::mib))},
    {"sharding.shards", Part{append_rows<shard_table>, write_shards}},

    {"shardingStatistics.numHostsTargeted", rows_of<targeted_table>},
    {"shardingStatistics.catalogCache.numDatabaseEntries", GET(in.facts.databases), "spillway_routing_databases",
     "Databases that the routing table names."},
    {"shardingStatistics.catalogCache.numCollectionEntries", GET(in.facts.collections), "spillway_routing_collections",
     "Sharded collections of the routing table."},
    {"shardingStatistics.catalogCache.countStaleConfigErrors", GET(in.all.stale_refusals)},
    {"shardingStatistics.catalogCache.countIncrementalRefreshesStarted",
     GET(in_cluster(in, in.facts.table_reads.reads_in_part))},
    {"shardingStatistics.catalogCache.countFullRefreshesStarted",
     GET(in_cluster(in, in.facts.table_reads.reads - in.facts.table_reads.reads_in_part))},
    {"shardingStatistics.catalogCache.countFailedRefreshes", GET(in_cluster(in, in.facts.table_reads.failed_reads))},

    {"slowShapes", Part{[](BsonWriter& out, const Status& status) {
       append_slow_shapes(out, status.shared.slow_shapes, live_rows_max);
     }}},

    {"transactions.currentOpen", GET(in.shared.transactions->active()), "spillway_transactions_open",
     "Transactions that have begun and not ended."},
    {"transactions.currentActive", GET(in.shared.transactions->turns().size())},
    {"transactions.currentInactive", GET(inactive_transactions(in.shared))},
    {"transactions.totalStarted", GET(in.shared.transactions->started()), "spillway_transactions_started_total",
     "Transactions that clients began."},
    {"transactions.totalCommitted", GET(in.shared.transactions->committed()),
     "spillway_transactions_committed_total", "Commits that succeeded."},
    {"transactions.totalAborted", GET(in.shared.transactions->aborted()), "spillway_transactions_aborted_total",
     "Transactions that a client, an error or the end of its session aborted."},
    {"transactions.totalParticipantsAtCommit", GET(in.all.participants_at_commit)},
    {"transactions.commitTypes", Part{append_rows<commit_table>}},
    // Sessions whose latest transaction is remembered; ended ones stay until they expire.
    {"transactions.tracked", GET(in.shared.transactions->size()), "spillway_transactions_tracked",
     "Sessions whose latest transaction is remembered."},
};

#undef GET

void write_family(MetricsText& out, std::string_view family, const Status& status) {
  write_family<Status>(out, family, status_figures, status, {});
}

}  // namespace

void append_sections(BsonWriter& out, const Status& status, DocView command) {
  append_figures<Status>(out, status_figures, status, command);
}

void append_release(BsonWriter& out, const ReleaseRecord& record) {
  out.append("number", as_long(record.number));
  out.begin_array("reasons");
  for (std::size_t i = 0; i < release_reasons; ++i) {
    const auto reason = static_cast<ReleaseReason>(i);
    if ((record.reasons & reason_bit(reason)) != 0) out.append_item(release_reason_name(reason));
  }
  out.end();
  out.append("millisAgo", (steady_now_ns() - record.started_ns) / 1'000'000);
  out.append("givenBackBytes", as_long(record.given_back_bytes));
  out.append("residentBeforeBytes", as_long(record.resident_before_bytes));
  out.append("residentAfterBytes", as_long(record.resident_after_bytes));
  out.append("millis", as_ms(record.total_us)).append("flushMillis", as_ms(record.flush_us));
  append_histogram(out, record.slices);
}

void append_shown(BsonWriter& out, const Status& status, std::span<const Shown> shown) {
  std::vector<Figure<Status>> figures;
  for (const Shown& each : shown) {
    figures.push_back(*std::ranges::find(status_figures, each.path, &Figure<Status>::path));
    figures.back().path = each.as;
  }
  append_figures<Status>(out, figures, status);
}

void write_metrics(MetricsText& out, const Services& shared, const StatusFacts& facts) {
  const Status status{shared, facts};
  write_figures<Status>(out, status_figures, {}, {{{}, &status}}, status);
}

}  // namespace spillway::exec
