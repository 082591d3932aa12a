#include "proxy/exec/admin/memory_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cursor/utf8.h"
#include "proxy/exec/core/metrics.h"

namespace spillway::exec {

namespace {

double as_ms(std::uint64_t us) noexcept { return static_cast<double>(us) / 1000; }

void append_usage(BsonWriter& out, const HeapUsage& usage) {
  out.append("inUseBytes", as_long(usage.in_use_bytes));
  out.append("keptBytes", as_long(usage.kept_bytes));
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

void append_policy(BsonWriter& out, const MemoryAccount& account) {
  out.begin_document("allocator");
  out.append("setting", allocator_choice_name(account.choice));
  for (const HeapAccount& heap : account.heaps) {
    if (heap.current) out.append("current", heap.name);
  }
  out.append("reason", account.policy_reason);
  out.append("freeShare", account.policy_inputs.free_share);
  out.append("trials", as_long(account.policy_inputs.trials));
  out.append("jemallocCpuMicrosPerMB", account.policy_inputs.jemalloc_cpu_us_per_mb);
  out.append("tcmallocCpuMicrosPerMB", account.policy_inputs.tcmalloc_cpu_us_per_mb);
  out.append("keepsFreed", account.keeps_freed);
  out.append("timesKeptNothing", as_long(account.times_kept_nothing));
  out.append("evaluations", as_long(account.policy_evaluations));
  out.append("switches", as_long(account.switches));
  if (account.last_switch_ns) {
    out.append("millisSinceSwitch", (steady_now_ns() - *account.last_switch_ns) / 1'000'000);
  }
  out.end();
}

void append_releases(BsonWriter& out, const MemoryAccount& account) {
  const ReleaserStatistics& all = account.releases;
  out.begin_document("release");
  out.append("thresholdBytes", as_long(account.release_threshold_bytes));
  out.append("releases", as_long(all.releases));
  out.append("givenBackBytes", as_long(all.given_back_bytes));
  out.append("totalMillis", as_ms(all.total_us));
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
  out.end();
}

// The most names that are shown of each kind.
constexpr std::size_t holders_max = 10;
constexpr std::size_t holder_bytes_max = 160;

struct Held {
  std::uint64_t cursors = 0;
  std::uint64_t bytes = 0;
};
using Holders = absl::flat_hash_map<std::string, Held>;

void append_holders(BsonWriter& out, std::string_view name, const Holders& holders) {
  std::vector<std::pair<std::string, Held>> rows(holders.begin(), holders.end());
  const std::size_t count = std::min(holders_max, rows.size());
  std::partial_sort(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count), rows.end(),
                    [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  out.begin_array(name);
  for (std::size_t i = 0; i < count; ++i) {
    out.begin_document_item();
    out.append("name", clean_text(rows[i].first, holder_bytes_max));
    out.append("cursors", as_long(rows[i].second.cursors));
    out.append("bytes", as_long(rows[i].second.bytes));
    out.end();
  }
  out.end();
}

}  // namespace

void append_cursor_memory(BsonWriter& out, const CursorRegistry& cursors) {
  Holders by_namespace, by_client, by_application, by_user;
  const auto add = [](Holders& holders, std::string_view name, std::uint64_t bytes) {
    Held& held = holders[std::string(name)];
    ++held.cursors;
    held.bytes += bytes;
  };
  cursors.for_each_idle([&](const ClusterCursor& cursor, std::int64_t) {
    const std::uint64_t bytes = cursor.buffered_bytes();
    if (bytes == 0) return;
    add(by_namespace, cursor.ns, bytes);
    add(by_client, cursor.client ? std::string_view(cursor.client->address) : "", bytes);
    add(by_application, cursor.client ? std::string_view(cursor.client->application) : "", bytes);
    add(by_user, cursor.owner, bytes);
  });
  out.begin_document("idleCursors");
  append_holders(out, "byNamespace", by_namespace);
  append_holders(out, "byClient", by_client);
  append_holders(out, "byApplication", by_application);
  append_holders(out, "byUser", by_user);
  out.end();
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

void append_memory_account(BsonWriter& out, const MemoryAccount& account) {
  out.begin_document("malloc");
  out.append("library", account.malloc_library).append("kind", account.malloc_kind);
  append_usage(out, account.malloc_usage);
  out.end();
  out.begin_document("heaps");
  for (const HeapAccount& heap : account.heaps) {
    out.begin_document(heap.name);
    append_usage(out, heap.usage);
    out.append("givenBackBytes", as_long(heap.usage.given_back_bytes));
    out.append("takenBytes", as_long(heap.usage.taken_bytes));
    out.end();
  }
  out.end();
  append_policy(out, account);
  append_releases(out, account);
}

void append_pressure(BsonWriter& out, const Pressure& pressure) {
  const PressureState state = pressure.state();
  const PressureInputs& last = state.last;
  out.begin_document("pressure");
  out.append("level", pressure_level_name(state.level))
      .append("cause", pressure_cause_name(state.cause));
  out.append("samples", as_long(state.samples)).append("changes", as_long(state.changes));
  out.append("timesTight", as_long(state.times_tight));
  out.append("timesCritical", as_long(state.times_critical));
  out.append("signals", as_long(state.signals));
  out.append("budgetShare", last.budget_share());
  out.begin_document("cgroup");
  out.append("version", cgroup_version_name(state.cgroup_version));
  out.append("usageBytes", as_long(last.cgroup.usage_bytes));
  // 0: none, as for budgets.
  out.append("limitBytes", as_long(last.cgroup.max_bytes.value_or(0)));
  out.append("highBytes", as_long(last.cgroup.high_bytes.value_or(0)));
  out.append("limitShare", last.cgroup.max_share).append("highShare", last.cgroup.high_share);
  out.end();
  out.begin_document("stall");
  const Psi psi = last.psi.value_or(Psi{});
  out.append("known", last.psi.has_value());
  out.append("someAvg10", psi.some_avg10).append("fullAvg10", psi.full_avg10);
  out.end();
  out.end();
}

void append_spill(BsonWriter& out, const SpillStore* store) {
  const SpillStats stats = store != nullptr ? store->stats() : SpillStats{};
  out.begin_document("spill");
  out.append("file", stats.has_file).append("onTmpfs", stats.on_tmpfs);
  const auto append = [&](std::string_view name, std::uint64_t value) {
    out.append(name, as_long(value));
  };
  append("limitBytes", stats.limit_bytes);
  append("parkedBytes", stats.parked_bytes);
  append("memoryBytes", stats.memory_bytes);
  append("diskBytes", stats.disk_bytes);
  append("queued", stats.queued);
  append("parks", stats.parks);
  append("refused", stats.refused);
  append("givenUp", stats.given_up);
  append("withdrawn", stats.withdrawn);
  append("fetches", stats.fetches);
  append("rawBytes", stats.raw_bytes);
  append("storedBytes", stats.stored_bytes);
  append("writtenBytes", stats.written_bytes);
  append("readBytes", stats.read_bytes);
  append("noRoom", stats.no_room);
  append("writeErrors", stats.write_errors);
  append("readErrors", stats.read_errors);
  append("corrupt", stats.corrupt);
  out.end();
}

}  // namespace spillway::exec
