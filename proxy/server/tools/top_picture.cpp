#include "proxy/server/tools/top_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "cursor/utf8.h"

namespace spillway::server {

namespace {

constexpr std::size_t bar_columns = 40;
constexpr std::size_t cell_bytes_max = 400;

std::int64_t number(DocView from, std::string_view path) { return from.find_path(path).to_int64().value_or(0); }

DocView part(DocView from, std::string_view name) {
  const ValueView value = from[name];
  return value.is_document() || value.is_array() ? value.as_document() : DocView();
}

std::vector<DocView> rows_of(DocView from, std::string_view name) {
  std::vector<DocView> rows;
  for (const Element& row : part(from, name)) {
    if (row.is_document()) rows.push_back(row.as_document());
  }
  return rows;
}

// Clients choose such texts: control characters must not reach the terminal.
std::string text(DocView from, std::string_view name) {
  const ValueView value = from[name];
  return value.is_string() ? clean_text(value.as_string(), cell_bytes_max) : std::string();
}

// The first characters of a line. A character counts as one column.
std::string_view fitting(std::string_view line, std::size_t columns) {
  std::size_t end = 0;
  for (; end < line.size(); ++end) {
    if ((static_cast<unsigned char>(line[end]) & 0xc0U) != 0x80U && columns-- == 0) break;
  }
  return line.substr(0, end);
}

std::string bytes_text(std::int64_t bytes) {
  static constexpr std::string_view units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 || value >= 100 ? fmt::format("{:.0f} {}", value, units[unit])
                                   : fmt::format("{:.1f} {}", value, units[unit]);
}

std::string time_text(std::int64_t us) {
  if (us < 1'000) return fmt::format("{} us", us);
  if (us < 1'000'000) return fmt::format("{:.1f} ms", static_cast<double>(us) / 1e3);
  if (us < 120'000'000) return fmt::format("{:.1f} s", static_cast<double>(us) / 1e6);
  const std::int64_t minutes = us / 60'000'000;
  if (minutes < 120) return fmt::format("{} min", minutes);
  return minutes < 48 * 60 ? fmt::format("{} h", minutes / 60) : fmt::format("{} d", minutes / (24 * 60));
}

// Two documents, or one since its process began.
class Picture {
 public:
  Picture(DocView now, const DocView* before) : now_(now) {
    const std::int64_t up_ms = number(now, "upMillis");
    // A process that began meanwhile has nothing in common with the one before.
    if (before != nullptr && number(*before, "upMillis") < up_ms) before_ = *before;
    const std::int64_t ms = up_ms - number(before_, "upMillis");
    seconds_ = std::max(static_cast<double>(ms) / 1'000, 0.001);
  }

  std::string draw(PictureSize size) {
    head();
    memory();
    operations();
    shards();
    if (now_["details"].truthy()) {
      holders();
      running();
      slow();
      cursors();
      warnings();
    } else {
      line("operations and clients are shown on the router's own machine only, by a loopback address");
    }
    std::string all;
    for (std::size_t i = 0; i < std::min(lines_.size(), size.rows); ++i) {
      all += fitting(lines_[i], size.columns);
      all += '\n';
    }
    return all;
  }

 private:
  void line(std::string text) { lines_.push_back(std::move(text)); }
  void title(std::string text) {
    line("");
    line(std::move(text));
  }
  std::int64_t grown(std::string_view path) const {
    return std::max<std::int64_t>(number(now_, path) - number(before_, path), 0);
  }
  std::int64_t rate(std::int64_t grown) const {
    return static_cast<std::int64_t>(static_cast<double>(grown) / seconds_ + 0.5);
  }
  std::int64_t rate(std::string_view path) const { return rate(grown(path)); }

  void head() {
    const std::int64_t cpu = rate("cpuMicros") / 10'000;
    line(fmt::format("spillway {} on {}, up {}, cpu {} %, {} of {} workers answer", text(now_, "version"),
                     text(now_, "host"), time_text(number(now_, "upMillis") * 1'000), cpu, number(now_, "answered"),
                     number(now_, "workers")));
  }

  void memory() {
    const DocView memory = part(now_, "memory");
    const std::int64_t resident = number(memory, "resident"), limit = number(memory, "limit");
    const auto filled = static_cast<std::size_t>(
        limit > 0 ? std::clamp(static_cast<double>(resident) / static_cast<double>(limit), 0.0, 1.0) * bar_columns : 0);
    title(fmt::format("MEMORY  [{}{}] {} of {}, pressure {}", std::string(filled, '#'),
                      std::string(bar_columns - filled, '.'), bytes_text(resident), bytes_text(limit),
                      text(memory, "level")));
    line(fmt::format("released {} times, {}   cursors ended {}, {}   requests waiting {}, refused {}",
                     number(memory, "releases"), bytes_text(number(memory, "releasedBytes")),
                     number(memory, "evictedCursors"), bytes_text(number(memory, "evictedBytes")),
                     number(memory, "waiting"), number(memory, "refused")));
    line(fmt::format("{:<20} {:>12} {:>12} {:>12} {:>9}", "budget", "used", "most", "limit", "refused"));
    for (const DocView budget : rows_of(memory, "budgets")) {
      if (number(budget, "peak") == 0) continue;
      const std::int64_t most = number(budget, "limit");
      line(fmt::format("{:<20} {:>12} {:>12} {:>12} {:>9}", text(budget, "name"), bytes_text(number(budget, "used")),
                       bytes_text(number(budget, "peak")), most == 0 ? "" : bytes_text(most),
                       number(budget, "refusals")));
    }
  }

  void operations() {
    title(fmt::format("OPERATIONS/S  insert {}  query {}  update {}  delete {}  getmore {}  command {}   in {}/s  "
                      "out {}/s",
                      rate("operations.insert"), rate("operations.query"), rate("operations.update"),
                      rate("operations.delete"), rate("operations.getmore"), rate("operations.command"),
                      bytes_text(rate("bytesIn")), bytes_text(rate("bytesOut"))));
    line(fmt::format("clients {}, {} active, room for {}   cursors {}, {} in use, holding {}",
                     number(now_, "connections.current"), number(now_, "connections.active"),
                     number(now_, "connections.available"), number(now_, "cursors.open"),
                     number(now_, "cursors.pinned"), bytes_text(number(now_, "cursors.bufferedBytes"))));
    line(fmt::format("{:<20} {:>9} {:>9}   since the start: {:>9} {:>9}", "time inside", "a second", "mean", "median",
                     "99 %"));
    for (const Element& kind : part(now_, "inside")) {
      if (!kind.is_document()) continue;
      const std::string path = fmt::format("inside.{}.", kind.name);
      const std::int64_t count = grown(path + "count");
      line(fmt::format("{:<20} {:>9} {:>9}                    {:>9} {:>9}", clean_text(kind.name, 20), rate(count),
                       count == 0 ? "" : time_text(grown(path + "sumMicros") / count),
                       time_text(number(now_, path + "p50")), time_text(number(now_, path + "p99"))));
    }
  }

  void shards() {
    title(fmt::format("{:<20} {:>9} {:>9} {:>7} {:>6} {:>6} {:>8} {:>9}  {}", "SHARD", "calls/s", "a call", "in use",
                      "idle", "queue", "failed", "chunks", "members"));
    const auto earlier = rows_of(before_, "shards");
    for (const DocView shard : rows_of(now_, "shards")) {
      const std::string name = text(shard, "name");
      const auto same = std::find_if(earlier.begin(), earlier.end(),
                                     [&](DocView other) { return text(other, "name") == name; });
      const DocView old = same == earlier.end() ? DocView() : *same;
      const std::int64_t calls = std::max<std::int64_t>(number(shard, "calls") - number(old, "calls"), 0);
      const std::int64_t micros = std::max<std::int64_t>(number(shard, "micros") - number(old, "micros"), 0);
      std::string members = !shard["reachable"].truthy() ? "UNREACHABLE "
                            : shard["writable"].truthy() ? ""
                                                         : "NO PRIMARY ";
      for (const DocView host : rows_of(shard, "hosts")) {
        members += fmt::format("{} {}  ", text(host, "host"), text(host, "is"));
      }
      line(fmt::format("{:<20} {:>9} {:>9} {:>7} {:>6} {:>6} {:>8} {:>9}  {}", name, rate(calls),
                       calls == 0 ? "" : time_text(micros / calls), number(shard, "inUse"), number(shard, "available"),
                       number(shard, "waiting"), number(shard, "failed"), number(shard, "chunks"), members));
    }
  }

  void holders() {
    const DocView idle = part(now_, "idleCursors");
    bool first = true;
    for (const auto& [field, word] : {std::pair("byClient", "client"), std::pair("byApplication", "application"),
                                      std::pair("byUser", "user"), std::pair("byNamespace", "collection")}) {
      for (const DocView holder : rows_of(idle, field)) {
        if (std::exchange(first, false)) title("HELD BY IDLE CURSORS");
        line(fmt::format("{:>12} in {:>6} cursors of {} {}", bytes_text(number(holder, "bytes")),
                         number(holder, "cursors"), word, text(holder, "name")));
      }
    }
  }

  void running() {
    const auto rows = rows_of(now_, "operationsByAge");
    if (!rows.empty()) title("OLDEST OPERATIONS");
    for (const DocView row : rows) {
      line(fmt::format("{:>9}  {:<22} {:<16} {:<12} {}  {}", time_text(number(row, "ageMicros")), text(row, "client"),
                       text(row, "application"), text(row, "command"), text(row, "ns"), text(row, "shape")));
    }
  }

  void slow() {
    const auto rows = rows_of(part(now_, "slowShapes"), "shapes");
    if (!rows.empty()) title("SLOWEST SHAPES SINCE THE START");
    for (const DocView row : rows) {
      line(fmt::format("{:>9} in {:>7}, at most {:>9}, of shards {:>9}  {}  {}", time_text(number(row, "totalMicros")),
                       number(row, "count"), time_text(number(row, "maxMicros")),
                       time_text(number(row, "shardMicros")), text(row, "ns"), text(row, "shape")));
    }
  }

  void cursors() {
    const auto rows = rows_of(now_, "cursorsByAge");
    if (!rows.empty()) title("OLDEST IDLE CURSORS");
    for (const DocView row : rows) {
      line(fmt::format("{:>9}  unused {:>8}  {:>10}  {:<22} {:<16} {}  {}", time_text(number(row, "ageMillis") * 1'000),
                       time_text(number(row, "unusedMillis") * 1'000), bytes_text(number(row, "bytes")),
                       text(row, "client"), text(row, "application"), text(row, "ns"), text(row, "shape")));
    }
  }

  void warnings() {
    bool first = true;
    for (const Element& warning : part(now_, "warnings")) {
      if (!warning.is_string()) continue;
      if (std::exchange(first, false)) title("LAST WARNINGS");
      line(clean_text(warning.as_string(), 2 * cell_bytes_max));
    }
  }

  DocView now_, before_;
  double seconds_ = 1;
  std::vector<std::string> lines_;
};

}  // namespace

std::string draw_top(DocView now, const DocView* before, PictureSize size) { return Picture(now, before).draw(size); }

}  // namespace spillway::server
