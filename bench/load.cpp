// load: a load generator for any MongoDB endpoint that checks every document it gets. `load --help`
// tells its options; bench/README.md shows it at work. Exits 0 if the run was clean, 1 if anything
// was lost, doubled, changed, refused or cut, 2 if it could not run.
#include <cstdio>
#include <memory>

#include "bench/load_client.h"
#include "bench/load_options.h"
#include "bench/load_report.h"

int main(int argc, char** argv) {
  int exit_code = 0;
  const auto options = spillway::bench::parse_load_options(argc, argv, exit_code);
  if (!options) return exit_code;
  const auto report = std::make_unique<spillway::bench::LoadReport>();
  spillway::bench::LoadClient client(*options);
  client.run(*report);
  if (!report->fatal.empty()) {
    std::fprintf(stderr, "load: %s\n", report->fatal.c_str());
    return 2;
  }
  const auto text = options->json ? spillway::bench::json_report(*options, *report)
                                  : spillway::bench::text_report(*options, *report);
  std::fputs(text.c_str(), stdout);
  return report->clean() ? 0 : 1;
}
