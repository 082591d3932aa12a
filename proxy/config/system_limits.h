// The resources that this process may use: CPUs and memory, by its cgroup (version 2 or 1), its CPU mask and the
// machine; open files. Read once at start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

struct SystemLimits {
  double cpus = 1;                                   // quota or mask, the lower; may be a fraction
  std::uint64_t memory_bytes = 0;                    // of the machine; 0: not known
  std::optional<std::uint64_t> cgroup_memory_bytes;  // the lowest limit on the way to the root
};

// `root` stands before /proc and /sys, so that a test can bring its own. `mask_cpus` is the number of CPUs that
// sched_getaffinity allows. An unreadable value counts as no limit.
SystemLimits read_system_limits(const std::string& root, int mask_cpus);
// Of this process, on this machine.
SystemLimits read_system_limits();

// A line of /proc/meminfo, such as "MemAvailable:"; 0: there is none.
std::uint64_t meminfo_bytes(const std::string& root, std::string_view name);

// Raises the soft limit of open files to the hard one: the soft one is low only for programs that use select().
// Returns the limit; 0: none, or unknown.
std::int64_t raise_open_files() noexcept;

}  // namespace spillway
