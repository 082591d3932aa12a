// load: a load generator for any MongoDB endpoint that checks every document it gets. `load --help`
// tells its options; bench/README.md shows it at work. Exits 0 if the run was clean, 1 if anything
// was lost, doubled, changed, refused or cut, 2 if it could not run.
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "bench/load_account.h"
#include "bench/load_client.h"
#include "bench/load_hdr.h"
#include "bench/load_options.h"
#include "bench/load_report.h"

namespace {

using namespace spillway::bench;

// False: a file could not be written.
bool write_distribution(const std::string& prefix, const char* name, const Histogram& latency_ns) {
  if (latency_ns.count() == 0) return true;
  const std::string path = prefix + "-" + name + ".hgrm";
  const std::string text = percentile_distribution(latency_ns);
  std::FILE* file = std::fopen(path.c_str(), "w");
  const bool written =
      file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if ((file == nullptr || std::fclose(file) != 0) || !written) {
    std::fprintf(stderr, "load: cannot write %s\n", path.c_str());
    return false;
  }
  return true;
}

bool write_distributions(const std::string& prefix, const LoadReport& report) {
  if (prefix.empty()) return true;
  return write_distribution(prefix, "point", report.point.latency_ns) &&
         write_distribution(prefix, "batch", report.scan.latency_ns) &&
         write_distribution(prefix, "scan", report.scan.whole_scan_ns) &&
         write_distribution(prefix, "insert", report.insert.latency_ns);
}

}  // namespace

int main(int argc, char** argv) {
  int exit_code = 0;
  auto options = parse_load_options(argc, argv, exit_code);
  if (!options) return exit_code;
  if (isatty(STDERR_FILENO) != 0 && !options->json) options->progress = options->live = true;
  std::unique_ptr<ProxyAccount> account;
  if (options->account && !options->json) account = std::make_unique<ProxyAccount>(*options);
  const auto report = std::make_unique<LoadReport>();
  LoadClient client(*options);
  client.run(*report);
  if (!report->fatal.empty()) {
    std::fprintf(stderr, "load: %s\n", report->fatal.c_str());
    return 2;
  }
  const auto text = options->json ? json_report(*options, *report) : text_report(*options, *report);
  std::fputs(text.c_str(), stdout);
  if (account) std::fputs(account->finish().c_str(), stdout);
  if (!write_distributions(options->hdr, *report)) return 2;
  return report->clean() ? 0 : 1;
}
