#include "proxy/server/system_limits.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string_view>
#include <utility>
#include <vector>

#include "proxy/server/words.h"

namespace spillway::server {

namespace {

constexpr std::size_t small_file_bytes_max = 64UL * 1024;

std::string read_small_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(small_file_bytes_max, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

std::int64_t read_number(const std::string& path) {
  return parse_number<std::int64_t>(read_small_file(path)).value_or(0);
}

void lower_memory(SystemLimits& limits, const std::string& text) {
  const auto bytes = parse_number<std::uint64_t>(text);
  // Version 1 writes "no limit" as a number near 2^63.
  if (!bytes || *bytes == 0 || *bytes >= (1ULL << 62)) return;
  limits.cgroup_memory_bytes = std::min(limits.cgroup_memory_bytes.value_or(*bytes), *bytes);
}

void lower_cpus(SystemLimits& limits, std::int64_t quota_us, std::int64_t period_us) {
  if (quota_us <= 0 || period_us <= 0) return;
  limits.cpus =
      std::min(limits.cpus, static_cast<double>(quota_us) / static_cast<double>(period_us));
}

// The group and its ancestors, as paths below the mount, the root ("") last: a limit anywhere on
// the way holds. In a container the group's own path may not exist below the mount; the root does
// then.
std::vector<std::string> with_ancestors(std::string path) {
  std::vector<std::string> paths;
  while (path.size() > 1) {
    paths.push_back(path);
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  paths.emplace_back();
  return paths;
}

void apply_v2(SystemLimits& limits, const std::string& mount, const std::string& group) {
  for (const std::string& path : with_ancestors(group)) {
    const std::string folder = mount + path;
    const std::string cpu_max =
        read_small_file(folder + "/cpu.max");  // "max 100000", "150000 100000"
    const std::vector<std::string_view> parts = split(cpu_max, " ");
    if (parts.size() == 2) {
      lower_cpus(limits, parse_number<std::int64_t>(parts[0]).value_or(0),
                 parse_number<std::int64_t>(parts[1]).value_or(0));
    }
    lower_memory(limits, read_small_file(folder + "/memory.max"));
  }
}

void apply_v1(SystemLimits& limits, const std::string& mount, std::string_view controllers,
              const std::string& group) {
  const std::vector<std::string_view> names = split(controllers, ",");
  const auto has = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const std::string& path : with_ancestors(group)) {
    if (has("cpu")) {
      // The folder is named after all controllers of the mount, with links for each alone.
      const std::string folder = mount + "/cpu" + path;
      lower_cpus(limits, read_number(folder + "/cpu.cfs_quota_us"),
                 read_number(folder + "/cpu.cfs_period_us"));
    }
    if (has("memory")) {
      lower_memory(limits, read_small_file(mount + "/memory" + path + "/memory.limit_in_bytes"));
    }
  }
}

std::uint64_t machine_memory(const std::string& root) {
  const std::string text = read_small_file(root + "/proc/meminfo");
  for (const std::string_view line : split(text, "\n")) {
    constexpr std::string_view name = "MemTotal:";
    if (!line.starts_with(name)) continue;
    const std::string_view number = split(trim(line.substr(name.size())), " ")[0];
    return parse_number<std::uint64_t>(number).value_or(0) * 1024;
  }
  return 0;
}

int cpus_of_mask() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace

SystemLimits read_system_limits(const std::string& root, int mask_cpus) {
  SystemLimits limits;
  limits.cpus = std::max(1, mask_cpus);
  limits.memory_bytes = machine_memory(root);
  const std::string mount = root + "/sys/fs/cgroup";
  // Lines "<id>:<controllers>:<path>"; version 2's is "0::<path>".
  const std::string groups = read_small_file(root + "/proc/self/cgroup");
  for (const std::string_view line : split(groups, "\n")) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string path(line.substr(second + 1));
    if (controllers.empty()) {
      apply_v2(limits, mount, path);
    } else {
      apply_v1(limits, mount, controllers, path);
    }
  }
  return limits;
}

SystemLimits read_system_limits() { return read_system_limits("", cpus_of_mask()); }

}  // namespace spillway::server
