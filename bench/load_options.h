// What the load generator is asked to do: its command line.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "bench/load_checks.h"

namespace spillway::bench {

enum class Scenario {
  point,   // find by _id, one document
  scan,    // find everything, getMore after getMore
  sorted,  // the same, sorted by _id
  mixed,   // point on `connections`, scans on `scan_connections`
  insert,  // inserts of insert_batch documents
  storm,   // scans that stay open after their first batch, to the end of the run
  fill,    // inserts a whole collection once, then ends: data for real servers
};

struct LoadOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 27017;
  Scenario scenario = Scenario::point;
  int connections = 16;
  int scan_connections = 30;
  double duration_s = 10;
  double warmup_s = 1;
  // Operations per second, all connections together (of scan, sorted and storm: scans begun); 0:
  // closed loop.
  double rate = 0;
  double scan_mb_per_s = 0;  // pace of all scans together; 0: unpaced
  std::string db = "bench";
  std::string point_collection = "point_200";
  std::string scan_collection = "docs_1024x300000";
  std::string insert_collection = "inserts";
  std::int64_t batch_size = -1;  // of getMore and find; -1: not sent
  std::size_t insert_batch = 1;
  std::size_t insert_doc_bytes = 1024;
  bool unordered = false;  // inserts, so that a router may send all of its parts at once
  int scans_each =
      0;  // complete scans of each connection, then the run ends; 0: until the time is up
  double hold_s = 0;  // each scan waits so long after its first batch, its cursor open
  CheckDepth check = CheckDepth::full;
  bool sort_scans = false;  // of mixed, as those of `sorted` are
  double series_s = 0;      // points are also reported for each stretch of this length; 0: not
  bool sessions = false;    // send an lsid, as drivers do
  std::uint64_t seed = 1;
  bool json = false;
  bool progress = false;  // a line a second on stderr
  bool live = false;      // on a terminal: drawn over itself
  bool account = true;    // of a Spillway's memory, with the text report
  std::string hdr;        // prefix of files for latencies; empty: none
  std::optional<pid_t> peer_pid;  // whose CPU and RSS are measured over the same window

  bool closed() const noexcept { return rate <= 0; }
  // Scans are begun by the clock, not by the end of others.
  bool open_scans() const noexcept { return rate > 0 && scans_only(); }
  bool scans_only() const noexcept {
    return scenario == Scenario::scan || scenario == Scenario::sorted ||
           scenario == Scenario::storm;
  }
  bool sorted() const noexcept { return scenario == Scenario::sorted || sort_scans; }
};

// Reads the command line. On --help or a mistake prints to stdout or stderr and returns nullopt,
// with the exit code in `exit_code`.
std::optional<LoadOptions> parse_load_options(int argc, char** argv, int& exit_code);

}  // namespace spillway::bench
