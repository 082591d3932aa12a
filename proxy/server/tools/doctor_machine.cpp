#include "proxy/server/tools/doctor_machine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "allocator/cgroup.h"
#include "allocator/limits.h"
#include "proxy/base/number.h"
#include "proxy/config/text.h"
#include "proxy/server/connections/listener.h"

namespace spillway::server {

namespace {

std::int64_t number_in(const std::string& path) {
  return parse_number<std::int64_t>(trim(read_small_file(path))).value_or(0);
}

std::string mib(std::uint64_t bytes) { return fmt::format("{} MiB", bytes / limits::mib); }

Finding check_memory(const Config& config, const MachineFacts& facts) {
  const std::uint64_t limit = memory_limit_bytes(config.memory_limit, facts.limits);
  const std::string said = describe_memory_limit(config.memory_limit, facts.limits);
  const char* const remedy = "set memory.limit lower, or give the service more (systemd: MemoryHigh= and MemoryMax=)";
  if (limit == UINT64_MAX) {
    return {Severity::warning, "memory.limit", "there is none: clients may take all of the machine's memory",
            "write memory: {limit: 512MiB}"};
  }
  if (auto beyond = memory_beyond_cgroup(config.memory_limit, facts.limits)) {
    return {Severity::error, "memory.limit", *std::move(beyond), remedy};
  }
  if (facts.memory_available_bytes > 0 && limit > facts.memory_available_bytes) {
    return {Severity::warning, "memory.limit",
            fmt::format("{} is more than is available now ({}): other processes would be swapped out or killed", said,
                        mib(facts.memory_available_bytes)),
            remedy};
  }
  return {Severity::ok, "memory.limit", said, {}};
}

Finding check_files(const Config& config, const MachineFacts& facts) {
  const std::int64_t allowed = clients_of_files(facts.files_max);
  const std::int64_t wanted = config.net.max_incoming_connections;
  if (allowed >= wanted) {
    return {Severity::ok, "net.maxIncomingConnections", fmt::format("{} clients, files suffice", wanted), {}};
  }
  Finding found{Severity::ok, "net.maxIncomingConnections",
                fmt::format("{} clients are let in, not {}: this process may open {} files, and shards need some",
                            allowed, wanted, facts.files_max),
                {}};
  if (wanted == static_cast<std::int64_t>(limits::client_connections_max)) return found;  // the default, not written
  found.severity = Severity::warning;
  found.remedy = fmt::format("systemctl edit spillway: [Service] LimitNOFILE={0}; in a shell: ulimit -n {0}",
                             files_for_clients(wanted));
  return found;
}

Findings check_kernel(const Config& config, const MachineFacts& facts) {
  Findings found;
  if (facts.connections_queued_max > 0 && facts.connections_queued_max < listen_backlog) {
    found.push_back({Severity::warning, "net.core.somaxconn",
                     fmt::format("it is {}: when many clients connect at once, the kernel drops those beyond it, and "
                                 "they try again after a second",
                                 facts.connections_queued_max),
                     fmt::format("sysctl -w net.core.somaxconn={}", listen_backlog)});
  }
  const std::int64_t ports = facts.ports_last - facts.ports_first + 1;
  const std::int64_t wanted = config.pool_max * worker_count(config, facts.limits);
  if (facts.ports_last > 0 && wanted > ports) {
    found.push_back({Severity::warning, "net.ipv4.ip_local_port_range",
                     fmt::format("{} ports, and up to {} connections to one host of a shard: the last ones fail", ports,
                                 wanted),
                     "sysctl -w net.ipv4.ip_local_port_range=\"10240 65535\", or a lower "
                     "setParameter.ShardingTaskExecutorPoolMaxSize"});
  }
  if (facts.overcommit == 2) {
    found.push_back({Severity::warning, "vm.overcommit_memory",
                     "it is 2: address space that the heaps only reserve counts as used, and memory may be refused "
                     "below memory.limit",
                     "sysctl -w vm.overcommit_memory=0"});
  }
  if (facts.huge_pages_always) {
    found.push_back({Severity::warning, "transparent huge pages",
                     "they are always used: the kernel may fill memory that a heap has given back, and RSS then "
                     "exceeds what is in use",
                     "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"});
  }
  if (found.empty()) found.push_back({Severity::ok, "kernel", "its settings suffice", {}});
  return found;
}

// Where systemd makes the service's own folders when it starts (RuntimeDirectory=, LogsDirectory=, StateDirectory=).
bool systemd_makes_folders_in(const std::filesystem::path& parent) {
  return parent == "/run" || parent == "/var/run" || parent == "/var/log" || parent == "/var/lib";
}

// Whether this process can write this file, which need not exist. No remedy changes a folder that is there: it may be
// shared, such as /run, or another service's.
Finding check_place(const std::string& key, const std::string& path) {
  constexpr const char* make = "install -d -o spillway -g spillway -m 0750";
  const std::filesystem::path file(path);
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  std::error_code failed;
  if (!std::filesystem::is_directory(folder, failed)) {
    const bool later = systemd_makes_folders_in(folder.parent_path());
    return {later ? Severity::warning : Severity::error, key,
            fmt::format("{}: there is no folder {}{}", path, folder.string(),
                        later ? ", unless systemd makes it when the service starts" : ""),
            fmt::format("{} {}", make, folder.string())};
  }
  if (std::filesystem::exists(file, failed)) {
    if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0) return {Severity::ok, key, path, {}};
    return {Severity::error, key, fmt::format("{}: it may not be written", path),
            fmt::format("chown spillway: {}", path)};
  }
  if (::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return {Severity::ok, key, path, {}};
  const std::filesystem::path own = folder / "spillway";
  return {Severity::error, key, fmt::format("{}: the folder {} may not be written", path, folder.string()),
          fmt::format("{} {}; and {}: {}", make, own.string(), key, (own / file.filename()).string())};
}

bool is_below(const std::filesystem::path& path, const std::filesystem::path& folder) {
  const auto common = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return common.first == folder.end();
}

// Each port that a start opens, as a filter of ss.
std::string filter_of_ports(const NetConfig& net) {
  std::string all = fmt::format("sport = :{}", net.port);
  for (const auto& port : {net.load_balancer_port, net.admin.port}) {
    if (port.value_or(0) != 0) all += fmt::format(" or sport = :{}", *port);
  }
  return all;
}

}  // namespace

MachineFacts read_machine(const std::string& root, const SystemLimits& limits, std::int64_t files_max) {
  MachineFacts facts;
  facts.limits = limits;
  facts.files_max = files_max;
  facts.memory_available_bytes = meminfo_bytes(root, "MemAvailable:");
  facts.connections_queued_max = number_in(root + "/proc/sys/net/core/somaxconn");
  facts.overcommit = number_in(root + "/proc/sys/vm/overcommit_memory");
  const std::string range = read_small_file(root + "/proc/sys/net/ipv4/ip_local_port_range");
  if (const std::size_t gap = range.find_first_of("\t "); gap != std::string::npos) {
    facts.ports_first = parse_number<std::int64_t>(range.substr(0, gap)).value_or(0);
    facts.ports_last = parse_number<std::int64_t>(trim(range.substr(gap))).value_or(0);
  }
  facts.huge_pages_always =
      read_small_file(root + "/sys/kernel/mm/transparent_hugepage/enabled").find("[always]") != std::string::npos;
  return facts;
}

Findings check_machine(const Config& config, const MachineFacts& facts) {
  Findings found{check_memory(config, facts), check_files(config, facts)};
  add_all(found, check_kernel(config, facts));
  return found;
}

Findings check_places(const Config& config) {
  Findings found;
  const bool to_file = config.system_log.destination == LogDestination::file;
  const bool audits = config.audit.destination == AuditDestination::file;
  for (const auto& [key, path] : {std::pair("systemLog.path", to_file ? config.system_log.path : ""),
                                  std::pair("auditLog.path", audits ? config.audit.path : ""),
                                  std::pair("processManagement.pidFilePath", config.pid_file_path)}) {
    if (!path.empty()) found.push_back(check_place(key, path));
  }
  if (::geteuid() == 0 && ::getpwnam("spillway") != nullptr) {
    found.push_back({Severity::warning, "user", "this is root, which may read and write what the service may not",
                     "sudo -u spillway spillway doctor --config FILE"});
  }
  return found;
}

std::optional<std::string> read_units(const std::string& root) {
  std::error_code failed;
  if (!std::filesystem::is_directory(root + "/run/systemd/system", failed)) return std::nullopt;
  const std::string unit = root + "/etc/systemd/system/spillway.service";
  std::string text = read_small_file(unit);
  for (const auto& drop_in : std::filesystem::directory_iterator(unit + ".d", failed)) {
    text += "\n" + read_small_file(drop_in.path().string());
  }
  return text;
}

Findings check_sandbox(const Config& config, const std::string& units) {
  // The unit's own folders; /tmp and /var/tmp are private, not read-only.
  std::vector<std::filesystem::path> writable{"/run/spillway",     "/var/run/spillway", "/var/log/spillway",
                                              "/var/lib/spillway", "/tmp",              "/var/tmp", "/dev"};
  constexpr std::string_view setting = "ReadWritePaths=";
  for (const std::string_view line : split(units, "\n")) {
    if (!line.starts_with(setting)) continue;
    for (std::string_view word : split(line.substr(setting.size()), " ")) {
      word = trim(word);
      if (word.starts_with('-')) word.remove_prefix(1);
      if (word.size() > 1 && word.ends_with('/')) word.remove_suffix(1);
      if (!word.empty()) writable.emplace_back(word);
    }
  }
  struct Place {
    const char* key;
    std::filesystem::path path, folder;
    const char* own;
  };
  std::vector<Place> places;
  const auto add_file = [&](const char* key, const std::string& path, const char* own) {
    const std::filesystem::path file(path);
    if (!path.empty()) places.push_back({key, file, file.parent_path(), own});
  };
  if (config.system_log.destination == LogDestination::file) {
    add_file("systemLog.path", config.system_log.path, "/var/log/spillway");
  }
  if (config.audit.destination == AuditDestination::file) {
    add_file("auditLog.path", config.audit.path, "/var/log/spillway");
  }
  add_file("processManagement.pidFilePath", config.pid_file_path, "/run/spillway");
  if (!config.spill.path.empty()) {
    places.push_back({"memory.spill.path", config.spill.path, config.spill.path, "/var/lib/spillway"});
  }
  Findings found;
  for (const Place& place : places) {
    const auto holds = [&](const std::filesystem::path& folder) { return is_below(place.path, folder); };
    if (std::any_of(writable.begin(), writable.end(), holds)) continue;
    found.push_back({Severity::warning, place.key,
                     fmt::format("{}: under systemd the unit makes this read-only", place.path.string()),
                     fmt::format("systemctl edit spillway: [Service] ReadWritePaths={}; or a path below {}",
                                 place.folder.string(), place.own)});
  }
  return found;
}

std::string remedy_for_port(const NetConfig& net, const std::string& why) {
  const auto is_low = [](std::optional<std::uint16_t> port) { return port && *port > 0 && *port < 1'024; };
  const bool low = is_low(net.port) || is_low(net.load_balancer_port) || is_low(net.admin.port);
  if (low && why.find(std::generic_category().message(EACCES)) != std::string::npos) {
    return fmt::format(
        "systemctl edit spillway: [Service], and a line each for PrivateUsers=no, "
        "CapabilityBoundingSet=CAP_NET_BIND_SERVICE, AmbientCapabilities=CAP_NET_BIND_SERVICE (this check, as another "
        "process, lacks the right even then){}",
        is_low(net.port) ? fmt::format("; or let spillway.socket listen there: ListenStream={}", net.port) : "");
  }
  return fmt::format("ss -ltnp '{}' shows its owner", filter_of_ports(net));
}

}  // namespace spillway::server
