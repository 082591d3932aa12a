// A latency histogram as the HdrHistogram family prints it: the percentile distribution, in
// milliseconds, that its plotters read (.hgrm).
#pragma once

#include <string>

#include "bench/histogram.h"

namespace spillway::bench {

std::string percentile_distribution(const Histogram& latency_ns);

}  // namespace spillway::bench
