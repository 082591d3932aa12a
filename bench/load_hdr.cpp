#include "bench/load_hdr.h"

#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdio>

namespace spillway::bench {
namespace {

constexpr double ns_per_ms = 1e6;
// Lines for each halving of what is left to 100 %.
constexpr double ticks_per_half = 5;

template <class... Values>
void print(std::string& out, const char* format, Values... values) {
  std::array<char, 160> line{};
  std::snprintf(line.data(), line.size(), format, values...);
  out += line.data();
}

double standard_deviation(const Histogram& histogram) {
  double squares = 0;
  histogram.for_each([&](std::uint64_t value, std::uint64_t count) {
    const double off = static_cast<double>(value) - histogram.mean();
    squares += off * off * static_cast<double>(count);
  });
  return histogram.count() == 0 ? 0 : std::sqrt(squares / static_cast<double>(histogram.count()));
}

}  // namespace

std::string percentile_distribution(const Histogram& latency_ns) {
  std::string out = "       Value     Percentile TotalCount 1/(1-Percentile)\n\n";
  const auto total = static_cast<double>(latency_ns.count());
  std::uint64_t seen = 0;
  double next_percent = 0;
  const auto line = [&](std::uint64_t value, double percent) {
    const double left = 1 - percent / 100;
    if (left > 0) {
      print(out, "%12.3f %2.12f %10" PRIu64 " %14.2f\n", static_cast<double>(value) / ns_per_ms,
            percent / 100, seen, 1 / left);
    } else {
      print(out, "%12.3f %2.12f %10" PRIu64 "\n", static_cast<double>(value) / ns_per_ms, 1.0,
            seen);
    }
  };
  latency_ns.for_each([&](std::uint64_t value, std::uint64_t count) {
    seen += count;
    const double reached = 100 * static_cast<double>(seen) / total;
    while (next_percent <= reached && seen < latency_ns.count()) {
      line(value, next_percent);
      // Half as far again for each halving of the rest.
      const double halvings = std::floor(std::log2(100 / (100 - next_percent))) + 1;
      next_percent += 100 / (ticks_per_half * std::exp2(halvings));
    }
    if (seen == latency_ns.count()) {
      if (next_percent < 100) line(value, next_percent);
      line(value, 100);
    }
  });
  print(out, "#[Mean    = %12.3f, StdDeviation   = %12.3f]\n", latency_ns.mean() / ns_per_ms,
        standard_deviation(latency_ns) / ns_per_ms);
  print(out, "#[Max     = %12.3f, Total count    = %12" PRIu64 "]\n",
        static_cast<double>(latency_ns.max()) / ns_per_ms, latency_ns.count());
  print(out, "#[Buckets = %12u, SubBuckets     = %12u]\n", 64 - Histogram::sub_bits + 1,
        1U << Histogram::sub_bits);
  return out;
}

}  // namespace spillway::bench
