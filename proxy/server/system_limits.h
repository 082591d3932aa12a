// What this process may use: CPUs and memory, by its cgroup (version 2 or 1), its CPU mask and the
// machine. Read once at start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace spillway::server {

struct SystemLimits {
  double cpus = 1;                                   // quota or mask, the lower; may be a fraction
  std::uint64_t memory_bytes = 0;                    // of the machine; 0: not known
  std::optional<std::uint64_t> cgroup_memory_bytes;  // the lowest limit on the way to the root
};

// `root` stands before /proc and /sys, so that a test can bring its own. `mask_cpus` is what
// sched_getaffinity allows. What cannot be read counts as no limit.
SystemLimits read_system_limits(const std::string& root, int mask_cpus);
// Of this process, on this machine.
SystemLimits read_system_limits();

}  // namespace spillway::server
