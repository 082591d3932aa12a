#include "bench/load_options.h"

#include <CLI/CLI.hpp>
#include <map>

namespace spillway::bench {
namespace {

// mongodb://HOST:PORT/… or HOST:PORT; one host, no credentials.
bool parse_endpoint(std::string text, LoadOptions& options) {
  constexpr std::string_view scheme = "mongodb://";
  if (text.starts_with(scheme)) text.erase(0, scheme.size());
  text = text.substr(0, text.find('/'));
  const auto colon = text.rfind(':');
  if (text.empty() || text.find_first_of("@,") != std::string::npos) return false;
  options.host = text.substr(0, colon);
  if (options.host == "localhost") options.host = "127.0.0.1";
  if (colon == std::string::npos) return true;
  const std::string port = text.substr(colon + 1);
  if (port.empty() || port.size() > 5 ||
      port.find_first_not_of("0123456789") != std::string::npos) {
    return false;
  }
  const int value = std::stoi(port);
  options.port = static_cast<std::uint16_t>(value);
  return value >= 1 && value <= 65535;
}

constexpr double series_max = 10'000;  // a histogram each

// A complaint about options that do not go together, or nothing.
std::string mistake_in(const LoadOptions& options, bool closed_given) {
  if (options.rate > 0 && closed_given) return "--rate and --closed exclude each other";
  if (!parse_shape(options.point_collection) || !parse_shape(options.scan_collection)) {
    return "a collection's name must be its shape, such as point_200 or docs_1024x300000";
  }
  const bool scans = options.scans_only() || options.scenario == Scenario::mixed;
  if (scans && parse_shape(options.scan_collection)->count > (std::int64_t{1} << 30)) {
    return "a scan of more than 2^30 documents cannot be checked";
  }
  if (options.series_s > 0 && options.duration_s / options.series_s > series_max) {
    return "--series would cut --duration into more than 10,000 stretches";
  }
  if (static_cast<double>(options.insert_batch) * static_cast<double>(options.insert_doc_bytes) >
      40e6) {
    return "an insert of more than 40 MB does not fit one message";
  }
  return {};
}

constexpr double points_per_s = 1000, inserts_per_s = 100;
constexpr int storm_cursors = 250;

// What is not said: points and inserts are open loops, a storm is one of many large cursors.
void fill_in(const CLI::App& app, LoadOptions& options, bool closed) {
  const bool points = options.scenario == Scenario::point || options.scenario == Scenario::mixed;
  const bool inserts = options.scenario == Scenario::insert;
  if (!closed && app.count("--rate") == 0 && (points || inserts)) {
    options.rate = points ? points_per_s : inserts_per_s;
  }
  if (options.scenario != Scenario::storm) return;
  if (app.count("--connections") == 0) options.connections = storm_cursors;
  if (app.count("--scan-collection") == 0) options.scan_collection = "docs_168000x270";
}

}  // namespace

std::optional<LoadOptions> parse_load_options(int argc, char** argv, int& exit_code) {
  LoadOptions options;
  std::string endpoint = "127.0.0.1:27017";
  bool closed = false;
  pid_t peer_pid = 0;
  const std::map<std::string, Scenario> scenarios{
      {"point", Scenario::point}, {"scan", Scenario::scan},     {"sorted", Scenario::sorted},
      {"mixed", Scenario::mixed}, {"insert", Scenario::insert}, {"fill", Scenario::fill},
      {"storm", Scenario::storm}};
  const std::map<std::string, CheckDepth> depths{
      {"none", CheckDepth::none}, {"numbers", CheckDepth::numbers}, {"full", CheckDepth::full}};
  CLI::App app("A load generator for MongoDB endpoints that checks every document.");
  app.add_option("endpoint", endpoint, "mongodb://HOST:PORT/ or HOST:PORT")->capture_default_str();
  app.add_option("--scenario", options.scenario, "point, scan, sorted, mixed, storm, insert or fill")
      ->transform(CLI::CheckedTransformer(scenarios));
  app.add_option("--connections", options.connections, "for points, inserts; scans but in mixed")
      ->check(CLI::Range(1, 20'000))
      ->capture_default_str();
  app.add_option("--scan-connections", options.scan_connections, "scans of --scenario mixed")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  app.add_option("--duration", options.duration_s, "seconds measured")
      ->check(CLI::Range(0.1, 86'400.0))
      ->capture_default_str();
  app.add_option("--warmup", options.warmup_s, "seconds before")
      ->check(CLI::Range(0.0, 3'600.0))
      ->capture_default_str();
  app.add_option("--rate", options.rate,
                 "open loop: operations per second, latency counted from the moment at which each "
                 "was due; of scan, sorted and storm, scans begun. Default: 1,000 points, 100 "
                 "inserts; scans follow one another");
  app.add_flag("--closed", closed, "closed loop: the next operation follows the last one's answer");
  app.add_option("--scan-mb-per-s", options.scan_mb_per_s, "pace of all scans together");
  app.add_option(
         "--scans-each", options.scans_each,
         "complete scans of each connection; the run ends with the last, or with --duration")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--hold", options.hold_s, "seconds that each scan waits after its first batch")
      ->check(CLI::Range(0.0, 86'400.0));
  app.add_option("--db", options.db)->capture_default_str();
  app.add_option("--point-collection", options.point_collection)->capture_default_str();
  app.add_option("--scan-collection", options.scan_collection)->capture_default_str();
  app.add_option("--insert-collection", options.insert_collection)->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "of find and getMore; unset: the server's")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
  app.add_option("--insert-batch", options.insert_batch, "documents per insert")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--insert-doc-bytes", options.insert_doc_bytes)
      ->check(CLI::Range(doc_overhead_bytes, doc_bytes_max))
      ->capture_default_str();
  app.add_flag("--unordered", options.unordered, "inserts with ordered: false");
  app.add_option("--check", options.check, "none, numbers or full (and CRC)")
      ->transform(CLI::CheckedTransformer(depths));
  app.add_flag("--sort-scans", options.sort_scans, "scans of --scenario mixed are sorted by _id");
  app.add_option(
         "--series", options.series_s,
         "with --json: latencies of points also for each stretch of so many seconds, by the "
         "moment at which they were due")
      ->check(CLI::Range(0.01, 3'600.0));
  app.add_flag("--sessions", options.sessions, "send an lsid with each command");
  app.add_option("--seed", options.seed)->capture_default_str();
  app.add_flag("--json", options.json, "one JSON object instead of text");
  app.add_flag("--progress", options.progress,
               "a line a second on standard error; the default on a terminal, there as a live "
               "table of percentiles");
  app.add_flag("!--no-account", options.account,
               "leave out what the proxy says of its memory before, at most and after");
  app.add_option("--hdr", options.hdr,
                 "prefix of files PREFIX-point.hgrm and so on: percentile distributions as "
                 "HdrHistogram prints them, in ms");
  app.add_option("--peer-pid", peer_pid, "process whose CPU and RSS are measured meanwhile");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& parse_error) {
    exit_code = app.exit(parse_error) == 0 ? 0 : 2;
    return std::nullopt;
  }
  fill_in(app, options, closed);
  std::string mistake = mistake_in(options, closed);
  if (!parse_endpoint(endpoint, options)) mistake = "not an endpoint: " + endpoint;
  if (!mistake.empty()) {
    std::fprintf(stderr, "load: %s\n", mistake.c_str());
    exit_code = 2;
    return std::nullopt;
  }
  if (peer_pid > 0) options.peer_pid = peer_pid;
  return options;
}

}  // namespace spillway::bench
