#include "bench/load_progress.h"

#include <array>
#include <cinttypes>
#include <cstdio>

namespace spillway::bench {
namespace {

constexpr std::array<double, 5> percents{50, 90, 99, 99.9, 100};

template <class... Values>
void print(std::string& out, const char* format, Values... values) {
  std::array<char, 200> line{};
  std::snprintf(line.data(), line.size(), format, values...);
  out += line.data();
}

void print_latencies(std::string& out, const Histogram& latency_ns, const char* format) {
  for (const double percent : percents) {
    print(out, format, static_cast<double>(latency_ns.percentile(percent)) / 1e6);
  }
}

}  // namespace

std::string Progress::tick(LoadReport& report, double elapsed_s) {
  const double stretch_s = elapsed_s - last_s_;
  last_s_ = elapsed_s;
  std::string out;
  std::size_t lines = 0;
  if (in_place_) {
    if (lines_ > 0) print(out, "\033[%zuA\033[J", lines_);
    print(out, "%6.0f s   %10s %9s %9s %9s %9s %9s ms %8s\n", elapsed_s, "ops/s", "p50", "p90",
          "p99", "p99.9", "max", "errors");
    ++lines;
  }
  const auto kinds = {std::pair{"point", &report.point}, std::pair{"scan", &report.scan},
                      std::pair{"insert", &report.insert}};
  for (const auto& [name, kind] : kinds) {
    if (kind->latency_ns.count() + kind->errors + kind->broken == 0) continue;
    const double rate =
        stretch_s > 0 ? static_cast<double>(kind->recent_ns.count()) / stretch_s : 0;
    const std::uint64_t bad = kind->errors + kind->broken;
    if (in_place_) {
      print(out, "  %-8s %10.0f", name, rate);
      print_latencies(out, kind->recent_ns, " %9.3f");
      print(out, "    %8" PRIu64 "\n    so far %10" PRIu64, bad, kind->latency_ns.count());
      print_latencies(out, kind->latency_ns, " %9.3f");
      out += "\n";
      lines += 2;
    } else {
      print(out, "load: %.0f s: %s %.0f/s, ms p50/p90/p99/p99.9/max", elapsed_s, name, rate);
      print_latencies(out, kind->recent_ns, " %.3f");
      if (bad > 0) print(out, ", errors %" PRIu64, bad);
      out += "\n";
    }
    kind->recent_ns = Histogram{};
  }
  lines_ = lines;
  return out;
}

}  // namespace spillway::bench
