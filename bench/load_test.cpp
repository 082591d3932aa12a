#include <unistd.h>
#include <catch2/catch.hpp>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "bench/load_account.h"
#include "bench/load_checks.h"
#include "bench/load_client.h"
#include "bench/load_hdr.h"
#include "bench/load_peer.h"
#include "bench/load_progress.h"
#include "bench/load_report.h"
#include "proxy/canned/canned.h"

using namespace spillway::bench;

namespace {

std::string bare_document(std::size_t doc_bytes, std::int64_t number) {
  DocumentImages::Options options;
  options.doc_bytes = doc_bytes;
  options.pool_bytes = 8 * doc_bytes;
  DocumentImages images(options);
  const auto run = images.stamp_bare(number, 1, doc_bytes);
  return {run.bytes, run.element_bytes};
}

std::unique_ptr<LoadReport> run_against(const CannedShard& shard, LoadOptions options) {
  options.port = shard.port();
  options.duration_s = 0.2;
  options.warmup_s = 0.02;
  auto report = std::make_unique<LoadReport>();
  LoadClient client(options);
  client.run(*report);
  INFO(text_report(options, *report));
  REQUIRE(report->fatal.empty());
  return report;
}

std::unique_ptr<CannedShard> start_shard(int index = 0, int shard_count = 1) {
  CannedOptions options;
  options.index = index;
  options.shard_count = shard_count;
  std::string error;
  auto shard = CannedShard::start(options, error);
  REQUIRE(shard);
  return shard;
}

}  // namespace

TEST_CASE("a scan's check counts what is lost, doubled, unexpected and out of order", "[load]") {
  ScanCheck scan(100, true);
  CheckCounts counts;
  for (std::int64_t number = 0; number < 100; ++number) {
    if (number != 40 && number != 70) scan.see(number, counts);
  }
  REQUIRE(counts.faults() == 0);
  scan.see(99, counts);   // again
  scan.see(40, counts);   // late
  scan.see(100, counts);  // there is no such number
  scan.see(-1, counts);
  scan.finish(counts);
  REQUIRE(counts.doubled == 1);
  REQUIRE(counts.out_of_order == 1);
  REQUIRE(counts.unexpected == 2);
  REQUIRE(counts.lost == 1);
  scan.restart();
  CheckCounts again;
  for (std::int64_t number = 0; number < 100; ++number) scan.see(number, again);
  scan.finish(again);
  REQUIRE(again.faults() == 0);
}

TEST_CASE("a document with any byte changed is noticed, wherever it stands among its neighbours",
          "[load]") {
  std::vector<std::string> documents;
  for (std::int64_t number = 0; number < 4; ++number)
    documents.push_back(bare_document(120, number));
  for (std::size_t victim = 0; victim < 4; ++victim) {
    for (std::size_t byte = 0; byte < 120; ++byte) {
      auto changed = documents;
      changed[victim][byte] = static_cast<char>(changed[victim][byte] ^ 0x20);
      DocumentCheck check(CheckDepth::full, 120);
      CheckCounts counts;
      std::vector<std::int64_t> numbers;
      const auto sink = [&](std::int64_t number) { numbers.push_back(number); };
      for (const auto& document : changed) check.add(document, counts, sink);
      check.flush(counts, sink);
      CAPTURE(victim, byte);
      REQUIRE(counts.changed == 1);
      REQUIRE(counts.documents == 4);
      REQUIRE(numbers.size() == 3);
    }
  }
  DocumentCheck other_size(CheckDepth::numbers, 121);
  CheckCounts counts;
  other_size.add(documents[0], counts, [](std::int64_t) {});
  other_size.flush(counts, [](std::int64_t) {});
  REQUIRE(counts.changed == 1);
}

TEST_CASE("every scenario runs clean against a canned shard and leaves no cursor", "[load]") {
  const auto shard = start_shard();
  for (const auto scenario : {Scenario::point, Scenario::scan, Scenario::sorted, Scenario::mixed,
                              Scenario::storm, Scenario::insert, Scenario::fill}) {
    LoadOptions options;
    options.scenario = scenario;
    options.connections = 3;
    options.scan_connections = 2;
    options.scan_collection = "docs_500x5000";
    options.sessions = true;
    options.peer_pid = getpid();
    const auto report = run_against(*shard, options);
    CAPTURE(static_cast<int>(scenario), text_report(options, *report));
    REQUIRE(report->clean());
    REQUIRE(report->peer_rss_bytes_max > 0);
    if (scenario == Scenario::scan) REQUIRE(report->scan.scans > 0);
    if (scenario == Scenario::mixed) REQUIRE(report->point.operations > 0);
    if (scenario == Scenario::storm) {
      REQUIRE(report->scan.scans == 0);
      REQUIRE(report->scan.checks.documents == 3 * 101);  // a first batch each
    }
    if (scenario == Scenario::fill) REQUIRE(report->insert.latency_ns.count() == 3);
    REQUIRE(shard->open_cursors() == 0);
  }
}

TEST_CASE("an open loop keeps its rate, and says what it could not send", "[load][.timed]") {
  const auto shard = start_shard();
  LoadOptions options;
  options.connections = 4;
  options.rate = 500;
  const auto report = run_against(*shard, options);
  REQUIRE(report->clean());
  REQUIRE(report->point.operations >= 80);
  REQUIRE(report->point.operations <= 120);
  REQUIRE(report->not_sent == 0);
  options.rate = 50e6;  // more than any router can
  const auto late = run_against(*shard, options);
  REQUIRE(late->not_sent > 1'000'000);
  REQUIRE(late->point.latency_ns.percentile(50) > 1'000'000);
}

TEST_CASE("scans of an open loop begin when they are due, and their whole time is told",
          "[load][.timed]") {
  const auto shard = start_shard();
  LoadOptions options;
  options.scenario = Scenario::scan;
  options.scan_collection = "docs_500x500";
  options.connections = 4;
  options.rate = 100;
  const auto report = run_against(*shard, options);
  REQUIRE(report->clean());
  REQUIRE(report->scan.scans >= 12);
  REQUIRE(report->scan.scans <= 26);
  REQUIRE(report->scan.whole_scan_ns.count() >= 10);
  REQUIRE(report->scan.whole_scan_ns.count() <= report->scan.scans);
}

TEST_CASE("scans that are paced move no more together than they may, points go on beside them", "[load]") {
  const auto shard = start_shard();
  LoadOptions options;
  options.scenario = Scenario::mixed;
  options.scan_collection = "docs_1000x2000";
  options.batch_size = 100;
  options.connections = 2;
  options.scan_connections = 4;
  options.rate = 500;
  options.scan_mb_per_s = 20;
  const auto paced = run_against(*shard, options);
  REQUIRE(paced->clean());
  REQUIRE(paced->point.operations > 0);
  // Each may be one batch ahead.
  constexpr double ahead_bytes = 4 * 100 * 1'100, before_s = 0.1;
  REQUIRE(static_cast<double>(paced->scan.bytes) <= 20e6 * (paced->window_s + before_s) + ahead_bytes);
  REQUIRE(paced->scan.bytes > 0);
  options.scan_mb_per_s = 0;
  const auto free = run_against(*shard, options);
  REQUIRE(free->clean());
  REQUIRE(free->scan.bytes > paced->scan.bytes);
}

TEST_CASE("a percentile distribution ascends to the greatest value and ends with its summary",
          "[load]") {
  Histogram latency_ns;
  for (std::uint64_t at = 1; at <= 1000; ++at) latency_ns.record(at * 1'000'000);
  std::istringstream text(percentile_distribution(latency_ns));
  std::string line;
  std::getline(text, line);
  REQUIRE(line == "       Value     Percentile TotalCount 1/(1-Percentile)");
  double value = 0, share = -1, last_value = 0, half_value = 0;
  std::uint64_t count = 0, lines = 0;
  while (std::getline(text, line) && (line.empty() || line[0] != '#')) {
    if (line.empty()) continue;
    std::istringstream fields(line);
    double next_value = 0, next_share = 0;
    REQUIRE(fields >> next_value >> next_share >> count);
    REQUIRE(next_value >= value);
    REQUIRE(next_share > share);
    if (next_share == 0.5) half_value = next_value;
    value = last_value = next_value;
    share = next_share;
    ++lines;
  }
  REQUIRE(lines > 20);
  REQUIRE(share == 1.0);
  REQUIRE(count == 1000);
  REQUIRE(last_value == Approx(1000));
  REQUIRE(half_value == Approx(500).epsilon(0.01));
  REQUIRE(line.starts_with("#[Mean    =      500.500, StdDeviation"));
  REQUIRE(percentile_distribution(Histogram{}).find("Total count    =            0") !=
          std::string::npos);
}

TEST_CASE("progress tells of what is new, and of all", "[load]") {
  LoadReport* const bare = new LoadReport;
  const std::unique_ptr<LoadReport> report(bare);
  const auto record = [&](std::uint64_t ms) {
    report->point.latency_ns.record(ms * 1'000'000);
    report->point.recent_ns.record(ms * 1'000'000);
  };
  for (int at = 0; at < 50; ++at) record(1);
  Progress lines(false);
  REQUIRE(lines.tick(*report, 0.5).find("point 100/s") != std::string::npos);
  REQUIRE(report->point.recent_ns.count() == 0);
  record(9);
  const std::string second = lines.tick(*report, 1.5);
  REQUIRE(second.find("point 1/s") != std::string::npos);
  REQUIRE(second.find("scan") == std::string::npos);
  REQUIRE(second.find("9.0") != std::string::npos);
  Progress table(true);
  REQUIRE(table.tick(*report, 2).find("so far         51") != std::string::npos);
  REQUIRE(table.tick(*report, 3).starts_with("\033[3A"));  // over the three lines of the first
}

TEST_CASE("only a Spillway's serverStatus has an account", "[load]") {
  REQUIRE_FALSE(figures_of(DocWriter().add_double("ok", 1).take()));
  REQUIRE_FALSE(figures_of("\x01"));
  const std::string status = DocWriter()
                                 .open_document("memory")
                                 .add_int64("residentBytes", 50)
                                 .open_document("budgets")
                                 .open_document("process")
                                 .add_int64("usedBytes", 7)
                                 .close()
                                 .close()
                                 .open_document("heaps")
                                 .open_document("jemalloc")
                                 .add_int64("keptBytes", 3)
                                 .close()
                                 .open_document("system")
                                 .add_int64("keptBytes", 4)
                                 .close()
                                 .close()
                                 .close()
                                 .take();
  auto figures = figures_of(status);
  REQUIRE(figures);
  REQUIRE((*figures)["1 resident"] == 50);
  REQUIRE((*figures)["2 used"] == 7);
  REQUIRE((*figures)["3 kept"] == 7);
  const auto shard = start_shard();
  LoadOptions options;
  options.port = shard->port();
  ProxyAccount account(options);
  REQUIRE_FALSE(account.known());
  REQUIRE(account.finish().find("not a Spillway") != std::string::npos);
}

TEST_CASE("a series tells when points were slow, and adds up to the whole", "[load]") {
  const auto shard = start_shard();
  LoadOptions options;
  options.scenario = Scenario::mixed;
  options.scan_connections = 2;
  options.scan_collection = "docs_500x5000";
  options.sort_scans = true;
  options.rate = 500;
  options.series_s = 0.05;
  const auto report = run_against(*shard, options);
  REQUIRE(report->clean());
  REQUIRE(report->point.series_ns.size() >= 3);
  Histogram whole;
  for (const Histogram& stretch : report->point.series_ns) whole.add(stretch);
  REQUIRE(whole.count() == report->point.latency_ns.count());
  REQUIRE(whole.max() == report->point.latency_ns.max());
  REQUIRE(report->scan.series_ns.empty());
  const std::string json = json_report(options, *report);
  const std::size_t first = json.find("\"series_us\": [");
  REQUIRE(first != std::string::npos);
  REQUIRE(json.find("series_us", first + 5) == std::string::npos);
}

TEST_CASE("a shard that lacks documents is found out", "[load]") {
  const auto shard = start_shard(0, 2);  // holds the even numbers only
  LoadOptions options;
  options.scenario = Scenario::scan;
  options.connections = 1;
  options.scan_collection = "docs_500x5000";
  const auto scans = run_against(*shard, options);
  REQUIRE(scans->scan.scans > 0);
  REQUIRE(scans->scan.checks.lost == scans->scan.scans * 2500);
  REQUIRE_FALSE(scans->clean());
  options.scenario = Scenario::point;
  const auto points = run_against(*shard, options);
  REQUIRE(points->point.checks.lost > 0);
}

TEST_CASE("a server that is not there, and one that goes away, are reported", "[load]") {
  auto shard = start_shard();
  LoadOptions options;
  options.port = shard->port();
  shard->stop();
  LoadReport* const refused = new LoadReport;
  const std::unique_ptr<LoadReport> owner(refused);
  LoadClient client(options);
  client.run(*refused);
  REQUIRE(refused->fatal.find("connect") == 0);
  REQUIRE_FALSE(sample_peer(-1));
}
