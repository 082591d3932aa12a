// What a run shows while it runs: a line a second, or, on a terminal, a small table of percentiles
// that is drawn over itself.
#pragma once

#include <cstddef>
#include <string>

#include "bench/load_report.h"

namespace spillway::bench {

class Progress {
 public:
  // `in_place`: the terminal understands cursor movements.
  explicit Progress(bool in_place) : in_place_(in_place) {}

  // What to write now. Takes what was recorded since the last call out of the report's `recent_ns`.
  // `elapsed_s` counts from the start of the window.
  std::string tick(LoadReport& report, double elapsed_s);

 private:
  bool in_place_;
  double last_s_ = 0;
  std::size_t lines_ = 0;  // drawn last time
};

}  // namespace spillway::bench
