#include "bench/load_report.h"

#include <array>
#include <cinttypes>
#include <cstdio>

namespace spillway::bench {
namespace {

struct Named {
  const char* name;
  const OperationReport* report;
};

std::array<Named, 3> kinds_of(const LoadReport& report) {
  return {{{"point", &report.point}, {"scan", &report.scan}, {"insert", &report.insert}}};
}

bool used(const OperationReport& report) {
  return report.operations + report.errors + report.broken + report.unanswered +
             report.checks.documents >
         0;
}

double latency_us(const OperationReport& report, double percent) {
  return static_cast<double>(report.latency_ns.percentile(percent)) / 1e3;
}

template <class... Values>
void print(std::string& out, const char* format, Values... values) {
  std::array<char, 512> line{};
  std::snprintf(line.data(), line.size(), format, values...);
  out += line.data();
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') out += '\\';
    out += static_cast<unsigned char>(letter) < 0x20 ? ' ' : letter;
  }
  return out;
}

void print_kind(std::string& out, const char* name, const OperationReport& kind, double window_s) {
  const CheckCounts& checks = kind.checks;
  print(out, "%-7s %12.0f ops/s  %9.1f MB/s  (%" PRIu64 " operations)\n", name,
        static_cast<double>(kind.operations) / window_s,
        static_cast<double>(kind.bytes) / 1e6 / window_s, kind.operations);
  print(out, "        latency us: p50 %.1f  p99 %.1f  p99.9 %.1f  max %.1f  mean %.1f\n",
        latency_us(kind, 50), latency_us(kind, 99), latency_us(kind, 99.9), latency_us(kind, 100),
        kind.latency_ns.mean() / 1e3);
  print(out,
        "        documents %" PRIu64 ": lost %" PRIu64 ", doubled %" PRIu64 ", changed %" PRIu64
        ", unexpected %" PRIu64 ", out of order %" PRIu64 "\n",
        checks.documents, checks.lost, checks.doubled, checks.changed, checks.unexpected,
        checks.out_of_order);
  print(out, "        errors %" PRIu64 ", cut %" PRIu64 ", unanswered %" PRIu64, kind.errors,
        kind.broken, kind.unanswered);
  if (kind.scans > 0) print(out, ", scans completed %" PRIu64, kind.scans);
  if (kind.whole_scan_ns.count() > 0) {
    print(out, " (whole ms: p50 %.1f  p99 %.1f)",
          static_cast<double>(kind.whole_scan_ns.percentile(50)) / 1e6,
          static_cast<double>(kind.whole_scan_ns.percentile(99)) / 1e6);
  }
  out += "\n";
  for (const auto& [text, count] : kind.error_texts) {
    out += "        " + std::to_string(count) + " x " + text + "\n";
  }
}

void json_counts(std::string& out, const char* name,
                 const std::map<std::string, std::uint64_t>& counts) {
  out += std::string(", \"") + name + "\": {";
  const char* comma = "";
  for (const auto& [text, count] : counts) {
    out += comma;
    out += "\"" + escaped(text) + "\": " + std::to_string(count);
    comma = ", ";
  }
  out += "}";
}

// For each stretch its latencies as [microseconds, how many].
void json_series(std::string& out, const OperationReport& kind) {
  if (kind.series_ns.empty()) return;
  out += ", \"series_us\": [";
  const char* between = "";
  for (const Histogram& stretch : kind.series_ns) {
    out += between;
    out += "[";
    const char* comma = "";
    stretch.for_each([&](std::uint64_t value, std::uint64_t count) {
      print(out, "%s[%.1f, %" PRIu64 "]", comma, static_cast<double>(value) / 1e3, count);
      comma = ", ";
    });
    out += "]";
    between = ", ";
  }
  out += "]";
}

void json_kind(std::string& out, const char* name, const OperationReport& kind, double window_s) {
  const CheckCounts& checks = kind.checks;
  print(out,
        ", \"%s\": {\"operations\": %" PRIu64 ", \"ops_per_s\": %.1f, \"bytes\": %" PRIu64
        ", \"mb_per_s\": %.2f",
        name, kind.operations, static_cast<double>(kind.operations) / window_s, kind.bytes,
        static_cast<double>(kind.bytes) / 1e6 / window_s);
  print(out, ", \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f",
        latency_us(kind, 50), latency_us(kind, 99), latency_us(kind, 99.9), latency_us(kind, 100));
  print(out,
        ", \"documents\": %" PRIu64 ", \"lost\": %" PRIu64 ", \"doubled\": %" PRIu64
        ", \"changed\": %" PRIu64 ", \"unexpected\": %" PRIu64 ", \"out_of_order\": %" PRIu64,
        checks.documents, checks.lost, checks.doubled, checks.changed, checks.unexpected,
        checks.out_of_order);
  print(out,
        ", \"errors\": %" PRIu64 ", \"cut\": %" PRIu64 ", \"unanswered\": %" PRIu64
        ", \"scans\": %" PRIu64,
        kind.errors, kind.broken, kind.unanswered, kind.scans);
  json_series(out, kind);
  json_counts(out, "error_codes", kind.error_codes);
  json_counts(out, "error_texts", kind.error_texts);
  out += "}";
}

}  // namespace

bool LoadReport::clean() const noexcept {
  for (const auto* kind : {&point, &scan, &insert}) {
    if (kind->errors + kind->broken + kind->unanswered + kind->checks.faults() > 0) return false;
  }
  return fatal.empty() && point.bytes + scan.bytes + insert.bytes > 0;
}

std::string text_report(const LoadOptions& options, const LoadReport& report) {
  std::string out;
  print(out, "%s, %.2f s measured\n", options.closed() ? "closed loop" : "open loop",
        report.window_s);
  for (const auto& [name, kind] : kinds_of(report)) {
    if (used(*kind)) print_kind(out, name, *kind, report.window_s);
  }
  if (report.not_sent > 0) print(out, "due but never sent: %" PRIu64 "\n", report.not_sent);
  print(out, "own CPU %.2f s", report.own_cpu_s);
  if (report.peer_cpu_s) {
    print(out, "; peer CPU %.2f s, RSS up to %.1f MB", *report.peer_cpu_s,
          static_cast<double>(report.peer_rss_bytes_max) / 1e6);
  }
  out += report.clean() ? "\nclean\n" : "\nNOT CLEAN\n";
  return out;
}

std::string json_report(const LoadOptions& options, const LoadReport& report) {
  std::string out;
  print(out, "{\"closed\": %s, \"rate\": %.1f, \"connections\": %d, \"window_s\": %.4f",
        options.closed() ? "true" : "false", options.rate, options.connections, report.window_s);
  for (const auto& [name, kind] : kinds_of(report)) {
    if (used(*kind)) json_kind(out, name, *kind, report.window_s);
  }
  print(out, ", \"not_sent\": %" PRIu64 ", \"own_cpu_s\": %.4f", report.not_sent, report.own_cpu_s);
  if (report.peer_cpu_s) {
    print(out, ", \"peer_cpu_s\": %.4f, \"peer_rss_bytes_max\": %" PRIu64, *report.peer_cpu_s,
          report.peer_rss_bytes_max);
  }
  print(out, ", \"clean\": %s}\n", report.clean() ? "true" : "false");
  return out;
}

}  // namespace spillway::bench
