#include "proxy/exec/admin/live_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "cursor/registry.h"
#include "cursor/utf8.h"
#include "proxy/base/log.h"
#include "proxy/exec/access/authentication.h"
#include "proxy/exec/admin/figures.h"
#include "proxy/exec/cluster/cluster_table.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/life_cycle.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/counters/process_facts.h"
#include "proxy/exec/cursors/cursor_ops.h"

namespace spillway::exec {

namespace {

constexpr std::size_t shape_bytes_max = 200;
constexpr int shape_depth_max = 6;
constexpr std::size_t text_bytes_max = 160;
constexpr std::size_t hosts_max = 7;  // of a shard

// Clients choose names: what is no text would spoil the document.
std::string clean(std::string_view text, std::size_t most = text_bytes_max) { return clean_text(text, most); }

void append_shape(std::string& out, DocView document, bool array, int depth) {
  out += array ? '[' : '{';
  bool first = true;
  for (const Element& field : document) {
    const std::string_view name = field.name;
    // What every command has.
    if (depth == 0 && (name == "lsid" || name == "txnNumber" || name.starts_with('$'))) continue;
    if (out.size() > shape_bytes_max) break;
    if (!first) out += ", ";
    first = false;
    if (!array) out += std::string(name.substr(0, shape_bytes_max)) + ": ";
    const bool deeper = (field.is_document() || field.is_array()) && depth < shape_depth_max;
    if (deeper) {
      append_shape(out, field.as_document(), field.is_array(), depth + 1);
    } else {
      out += '?';
    }
    if (array && !deeper) {  // values alike say nothing
      out += ", …";
      break;
    }
  }
  out += array ? ']' : '}';
}

std::string_view kind_of(const shard::HostState& host) noexcept {
  if (!host.known) return "unknown";
  return host.primary ? "primary" : host.secondary ? "secondary" : "other";
}

std::vector<LiveOperation> oldest_operations(const Context& context) {
  std::vector<const Client*> running;
  for (const Client* client : context.clients) {
    if (client->running != nullptr) running.push_back(client);
  }
  const std::size_t count = std::min(live_rows_max, running.size());
  std::partial_sort(running.begin(), running.begin() + static_cast<std::ptrdiff_t>(count), running.end(),
                    [](const Client* a, const Client* b) { return a->running_since < b->running_since; });
  std::vector<LiveOperation> oldest;
  const TimePoint now = Clock::now();
  for (std::size_t i = 0; i < count; ++i) {
    const Client& client = *running[i];
    const auto age = std::chrono::duration_cast<std::chrono::microseconds>(now - client.running_since);
    oldest.push_back({client.operation_id, age.count(), client.peer, client.application_name,
                      std::string(client.running->name), clean(client.running->ns()), shape_of(client.running->body)});
  }
  return oldest;
}

constexpr Shown memory_shown[] = {
    {"limit", "memory.limitBytes"},               {"base", "memory.baseBytes"},
    {"resident", "memory.residentBytes"},         {"level", "memory.pressure.level"},
    {"releases", "memory.release.releases"},      {"releasedBytes", "memory.release.givenBackBytes"},
    {"evictedCursors", "metrics.cursor.evicted"}, {"evictedBytes", "metrics.cursor.evictedBytes"}};
constexpr Shown counts_shown[] = {
    {"cursors.open", "metrics.cursor.open.total"},       {"cursors.pinned", "metrics.cursor.open.pinned"},
    {"cursors.clientless", "metrics.cursor.clientless"}, {"cursors.bufferedBytes", "metrics.cursor.bufferedBytes"},
    {"connections.current", "connections.current"},      {"connections.active", "connections.active"},
    {"connections.available", "connections.available"},  {"operations.insert", "opcounters.insert"},
    {"operations.query", "opcounters.query"},            {"operations.update", "opcounters.update"},
    {"operations.delete", "opcounters.delete"},          {"operations.getmore", "opcounters.getmore"},
    {"operations.command", "opcounters.command"},        {"bytesIn", "network.bytesIn"},
    {"bytesOut", "network.bytesOut"}};

void append_memory(BsonWriter& out, const Status& status) {
  out.begin_document("memory");
  append_shown(out, status, memory_shown);
  out.append("waiting", as_long(status.queues[0].waiting + status.queues[1].waiting));
  out.append("refused", as_long(status.all.requests_refused.value() + status.all.cursors_refused.value()));
  out.begin_array("budgets");
  for (const MemoryBudget* budget : budgets_of(status.shared.memory)) {
    const BudgetUsage usage = budget->usage();
    out.begin_document_item().append("name", budget->name());
    out.append("used", as_long(usage.used_bytes)).append("limit", as_long(usage.limit_bytes));
    out.append("peak", as_long(usage.peak_bytes)).append("refusals", as_long(usage.refusals)).end();
  }
  out.end().end();
}

void append_times(BsonWriter& out, const Services& shared) {
  out.begin_document("inside");
  for (std::size_t i = 0; i < operation_class_names.size(); ++i) {
    const FineReading reading = inside_time(shared, static_cast<OperationClass>(i));
    out.begin_document(operation_class_names[i]).append("count", as_long(reading.total()));
    out.append("sumMicros", as_long(reading.sum_ns / 1'000));
    out.append("p50", as_long(reading.quantile_us(0.5))).append("p99", as_long(reading.quantile_us(0.99))).end();
  }
  out.end();
  // A row for each doubling of the time inside, in it a number for each doubling of the time of the shards.
  std::array<std::uint64_t, TimeMap::cells> cells{};
  for (const Context* worker : shared.workers) worker->inside_times->map.add_to(cells);
  out.append("mapSide", static_cast<std::int32_t>(TimeMap::side)).begin_array("map");
  for (const std::uint64_t count : cells) out.append_item(as_long(count));
  out.end();
}

// How many chunks each shard owns, of the tables that are known; in a static table adjacent ones may count as one.
std::vector<std::int64_t> count_chunks(const std::vector<LiveFacts>& workers) {
  std::vector<std::int64_t> chunks;
  for (const LiveFacts& facts : workers) {
    if (facts.tables.empty()) continue;
    chunks.resize(std::max(chunks.size(), facts.worker.shards.size()));
    for (const auto& table : facts.tables) {
      const catalog::ChunkMap& map = table->chunks;
      for (std::size_t i = 0; i < map.size();) {
        const std::size_t next = map.next_owner_change(i);
        if (map.owner(i) < chunks.size()) chunks[map.owner(i)] += static_cast<std::int64_t>(next - i);
        i = next;
      }
    }
  }
  return chunks;
}

// As one worker sees them. REQUIRES a worker.
void append_hosts(BsonWriter& out, const std::vector<LiveFacts>& workers, std::size_t index) {
  out.begin_array("hosts");
  const auto& shards = workers.front().worker.shards;
  const std::size_t known = index < shards.size() ? shards[index].hosts.size() : 0;
  for (std::size_t i = 0; i < std::min(hosts_max, known); ++i) {
    const shard::HostState& host = shards[index].hosts[i];
    out.begin_document_item().append("host", clean(host.address.text(), 80));
    out.append("is", kind_of(host)).append("pingMs", host.ping_ms).end();
  }
  out.end();
}

void append_shards(BsonWriter& out, const StatusFacts& facts, const std::vector<LiveFacts>& workers) {
  const std::vector<std::int64_t> chunks = count_chunks(workers);
  out.begin_array("shards");
  for (const ShardFacts& shard : facts.shards) {
    out.begin_document_item().append("name", clean(shard.name, 80));
    out.append("reachable", shard.reachable).append("writable", shard.writable).append("pingMs", shard.ping_ms);
    out.append("inUse", as_long(shard.in_use)).append("available", as_long(shard.available));
    out.append("waiting", as_long(shard.waiting)).append("created", as_long(shard.created));
    out.append("calls", as_long(shard.round_trips.total())).append("micros", as_long(shard.round_trips.sum_us));
    out.append("failed", as_long(shard.failed_calls));
    out.append("chunks", shard.index < chunks.size() ? chunks[shard.index] : 0);
    append_hosts(out, workers, shard.index);
    out.end();
  }
  out.end();
}

void append_operations_by_age(BsonWriter& out, std::vector<LiveFacts>& workers) {
  std::vector<LiveOperation> all;
  for (LiveFacts& facts : workers) std::move(facts.operations.begin(), facts.operations.end(), std::back_inserter(all));
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.age_us > b.age_us; });
  if (all.size() > live_rows_max) all.resize(live_rows_max);
  out.begin_array("operationsByAge");
  for (const LiveOperation& operation : all) {
    out.begin_document_item().append("opid", operation.id).append("ageMicros", operation.age_us);
    out.append("client", clean(operation.client));
    out.append("application", clean(operation.application)).append("command", clean(operation.name));
    out.append("ns", clean(operation.ns)).append("shape", clean(operation.shape, shape_bytes_max)).end();
  }
  out.end();
}

struct LiveCursor {
  std::int64_t id = 0, created_ms = 0, unused_ms = 0, returned = 0, bytes = 0;
  std::string client, application, ns, command;
};

void append_cursors_by_age(BsonWriter& out, const CursorRegistry& cursors) {
  const auto older = [](const LiveCursor& a, const LiveCursor& b) { return a.created_ms < b.created_ms; };
  std::vector<LiveCursor> oldest;  // a heap, the youngest first
  const std::int64_t now = steady_ns();
  cursors.for_each_idle([&](const ClusterCursor& cursor, std::int64_t last_used) {
    if (oldest.size() == live_rows_max && cursor.created_ms >= oldest.front().created_ms) return;
    if (oldest.size() == live_rows_max) {
      std::pop_heap(oldest.begin(), oldest.end(), older);
      oldest.pop_back();
    }
    LiveCursor& row = oldest.emplace_back();
    row = {cursor.id, cursor.created_ms, (now - last_used) / 1'000'000,
           static_cast<std::int64_t>(cursor.documents_returned),
           static_cast<std::int64_t>(cursor.buffered_bytes()), {}, {}, cursor.ns, cursor.originating_command};
    if (cursor.client) {
      row.client = cursor.client->address;
      row.application = cursor.client->application;
    }
    std::push_heap(oldest.begin(), oldest.end(), older);
  });
  std::sort_heap(oldest.begin(), oldest.end(), older);
  out.begin_array("cursorsByAge");
  for (const LiveCursor& row : oldest) {
    out.begin_document_item().append("id", fmt::format("{}", row.id));  // too long for a number of a browser
    out.append("ageMillis", wall_clock_ms() - row.created_ms);
    out.append("unusedMillis", row.unused_ms).append("returned", row.returned).append("bytes", row.bytes);
    out.append("client", clean(row.client)).append("application", clean(row.application)).append("ns", clean(row.ns));
    const bool known = !row.command.empty();
    const std::string shape =
        known ? shape_of(DocView::trusted(reinterpret_cast<const std::uint8_t*>(row.command.data()))) : std::string();
    out.append("shape", clean(shape, shape_bytes_max)).end();
  }
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

void append_warnings(BsonWriter& out) {
  const std::vector<std::string> last = log::last_warnings();
  out.begin_array("warnings");
  for (std::size_t i = 0; i < std::min(live_log_lines_max, last.size()); ++i) {
    out.append_item(std::string_view(last[i]));
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

void append_slow_shapes(BsonWriter& out, const SlowShapes& slow, std::size_t most) {
  out.append("forgotten", slow.forgotten()).begin_array("shapes");
  for (const SlowShape& each : slow.slowest(most)) {
    out.begin_document_item().append("ns", clean(each.ns)).append("shape", clean(each.shape, shape_bytes_max));
    out.append("count", each.count).append("failed", each.failed);
    out.append("totalMicros", each.total_us).append("maxMicros", each.max_us).append("shardMicros", each.shards_us);
    out.append("shardCalls", each.shard_calls).append("replyBytes", each.reply_bytes).end();
  }
  out.end();
}

std::string shape_of(DocView command) {
  if (is_sensitive(command)) return std::string(command.first().name);
  std::string out;
  append_shape(out, command, false, 0);
  if (out.size() > shape_bytes_max) out = out.substr(0, shape_bytes_max - 3) + "…";
  return out;
}

LiveFacts look_at_live(const Context& context, bool details) {
  LiveFacts facts;
  facts.worker = look_at_worker(context);
  if (details) facts.operations = oldest_operations(context);
  if (context.worker != 0) return facts;
  if (context.shared.cluster) {
    facts.tables = context.shared.cluster->cache().routings(live_tables_max);
  } else {
    const auto& table = context.static_router.table();
    for (const catalog::CollectionRouting& each : table->collections()) {
      if (facts.tables.size() < live_tables_max) facts.tables.emplace_back(table, &each);
    }
    if (const auto* preset = table->default_collection()) facts.tables.emplace_back(table, preset);
  }
  return facts;
}

BsonDoc live_status(const Services& shared, std::vector<LiveFacts> workers, bool details) {
  std::vector<WorkerFacts> answers;
  for (const LiveFacts& each : workers) answers.push_back(each.worker);
  const StatusFacts facts = make_status_facts(shared, answers);
  BsonWriter out;
  out.append("at", wall_clock_ms()).append("version", std::string_view(shared.facts.version));
  out.append("host", clean(shared.facts.host_name)).append("upMillis", wall_clock_ms() - shared.facts.start_wall_ms);
  out.append("workers", as_long(shared.facts.workers)).append("answered", as_long(facts.workers_answered));
  out.append("cpuMicros", facts.process.user_us + facts.process.system_us).append("details", details);
  out.append("draining", shared.life.quiescing.load() || shared.life.stopping.load());
  const Status status{shared, facts};
  append_memory(out, status);
  append_shown(out, status, counts_shown);
  append_times(out, shared);
  append_shards(out, facts, workers);
  if (details) {
    out.append("authorization", shared.authorization);
    append_cursor_memory(out, shared.cursors);
    append_operations_by_age(out, workers);
    out.begin_document("slowShapes");
    append_slow_shapes(out, shared.slow_shapes, live_rows_max);
    out.end();
    append_cursors_by_age(out, shared.cursors);
    append_warnings(out);
  }
  return std::move(out).finish();
}

}  // namespace spillway::exec
