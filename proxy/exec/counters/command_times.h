// CommandTimes: durations of commands on one worker, from arrival to the reply, or to the first bytes of a streamed
// one. The worker's thread adds, any thread reads. By CommandSpec::index.
#pragma once

#include <array>
#include <cstddef>

#include "proxy/base/latency.h"

namespace spillway::exec {

inline constexpr std::size_t commands_max = 192;

struct CommandTimes {
  std::array<LatencyHistogram, commands_max> by_command;
};

}  // namespace spillway::exec
