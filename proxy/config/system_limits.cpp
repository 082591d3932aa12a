#include "proxy/config/system_limits.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>

#include "allocator/cgroup.h"
#include "proxy/base/number.h"
#include "proxy/config/text.h"

namespace spillway {

namespace {

int cpus_of_mask() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace

std::uint64_t meminfo_bytes(const std::string& root, std::string_view name) {
  const std::string text = read_small_file(root + "/proc/meminfo");
  for (const std::string_view line : split(text, "\n")) {
    if (!line.starts_with(name)) continue;
    const std::string_view number = split(trim(line.substr(name.size())), " ")[0];
    return parse_number<std::uint64_t>(number).value_or(0) * 1024;
  }
  return 0;
}

SystemLimits read_system_limits(const std::string& root, int mask_cpus) {
  const Cgroup group = Cgroup::find(root);
  SystemLimits limits;
  limits.cpus = std::max(1, mask_cpus);
  if (const auto quota = group.cpu_quota()) limits.cpus = std::min(limits.cpus, *quota);
  limits.memory_bytes = meminfo_bytes(root, "MemTotal:");
  limits.cgroup_memory_bytes = group.memory_limit_bytes();
  return limits;
}

SystemLimits read_system_limits() { return read_system_limits("", cpus_of_mask()); }

std::int64_t raise_open_files() noexcept {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  const rlimit raised{.rlim_cur = files.rlim_max, .rlim_max = files.rlim_max};
  if (files.rlim_cur != files.rlim_max && ::setrlimit(RLIMIT_NOFILE, &raised) == 0) files = raised;
  return files.rlim_cur == RLIM_INFINITY ? 0 : static_cast<std::int64_t>(files.rlim_cur);
}

}  // namespace spillway
