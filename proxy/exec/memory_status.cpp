#include "proxy/exec/memory_status.h"

namespace spillway::exec {

namespace {
std::int64_t as_long(std::uint64_t value) noexcept { return static_cast<std::int64_t>(value); }
}  // namespace

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
