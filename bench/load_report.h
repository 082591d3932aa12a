// What a run of the load generator found, and how it is printed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/histogram.h"
#include "bench/load_checks.h"
#include "bench/load_options.h"

namespace spillway::bench {

// One kind of operation: point finds, batches of scans, inserts.
struct OperationReport {
  std::uint64_t operations = 0;      // answered within the window
  std::uint64_t bytes = 0;           // received within the window (inserts: sent)
  std::uint64_t scans = 0;           // completed, over the whole run
  std::uint64_t errors = 0;          // answers that were errors, over the whole run
  std::uint64_t broken = 0;          // operations whose connection ended under them
  std::uint64_t unanswered = 0;      // still waiting when the run was given up
  CheckCounts checks;                // over the whole run
  Histogram latency_ns;              // within the window
  Histogram recent_ns;               // the same since the last line of progress
  Histogram whole_scan_ns;           // scans that came to their end, from the moment of their due
  std::vector<Histogram> series_ns;  // the same by when each was due, for --series: points only
  std::map<std::string, std::uint64_t> error_texts;
  std::map<std::string, std::uint64_t> error_codes;  // "462 [labels]", answers only
};

struct LoadReport {
  std::string fatal;  // the run could not take place
  double window_s = 0;
  OperationReport point;
  OperationReport scan;
  OperationReport insert;
  std::uint64_t not_sent = 0;  // open loop: due within the window, never sent
  double own_cpu_s = 0;
  std::optional<double> peer_cpu_s;
  std::uint64_t peer_rss_bytes_max = 0;

  // Nothing lost, doubled, changed, refused or cut.
  bool clean() const noexcept;
};

std::string text_report(const LoadOptions& options, const LoadReport& report);
std::string json_report(const LoadOptions& options, const LoadReport& report);

}  // namespace spillway::bench
