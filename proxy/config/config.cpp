#include "proxy/config/config.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <system_error>
#include <utility>

#include "allocator/limits.h"
#include "allocator/memory_layer.h"
#include "proxy/base/credentials_directory.h"
#include "proxy/config/cluster.h"
#include "proxy/config/http_endpoint.h"
#include "proxy/config/shard_login.h"
#include "proxy/config/system_limits.h"
#include "proxy/config/table.h"
#include "proxy/config/tls.h"
#include "proxy/config/text.h"
#include "proxy/config/yaml.h"
#include "proxy/config/yaml_users.h"
#include "proxy/shard/connection_string.h"
#include "proxy/wire/compression.h"

namespace spillway {

namespace {

constexpr std::size_t bind_addresses_max = 64;

bool is_ipv4(const std::string& text) {
  in_addr address{};
  return inet_pton(AF_INET, text.c_str(), &address) == 1;
}

bool is_ipv6(const std::string& text) {
  in6_addr address{};
  return inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> words;
  for (const std::string_view word : split(text, ",")) {
    words.emplace_back(trim(word));
  }
  return words;
}

// Checks keys against each other, and rules that need more than one key's text. Appends to the reading's errors.
class Checker {
 public:
  explicit Checker(ConfigReading& reading) : reading_(reading), config_(reading.result.config) {}

  void check_all() {
    if (config_.cluster.config_db.empty()) {
      drop_cluster_keys();
    } else {
      check_cluster();
    }
    check_addresses();
    check_admin();
    check_exposure();
    check_compressors("net.compression.compressors", config_.net.compressors);
    check_compressors("net.shardCompression", config_.net.shard_compression);
    for (const TlsConfigError& wrong : check_tls(config_.net.tls)) error(wrong.key, wrong.message);
    check_file("systemLog", config_.system_log.destination == LogDestination::file, config_.system_log.path);
    check_file("auditLog", config_.audit.destination == AuditDestination::file, config_.audit.path);
    check_trace_endpoint();
    check_allocator();
    check_users();
    if (auto login = make_shard_login(config_.shard_login); login.has_error()) {
      error(config_.shard_login.password_file.empty() ? "security.shards.user" : "security.shards.passwordFile",
            "security.shards: " + login.error().message);
    }
  }

 private:
  std::string placed(std::string_view key, const std::string& message) const {
    const auto found = reading_.places.find(key);
    return found == reading_.places.end() ? message : fmt::format("{}: {}", found->second, message);
  }

  void error(std::string_view key, const std::string& message) {
    reading_.result.errors.push_back(placed(key, message));
  }

  // With a static table these keys set nothing.
  void drop_cluster_keys() {
    for (const ForeignKey& foreign : cluster_keys()) {
      if (!reading_.places.contains(foreign.key)) continue;
      const KeySpec& spec = *find_config_key(foreign.key);
      if (!foreign.harmless.empty() && config_value_text(spec, spec.read(config_)) == foreign.harmless) continue;
      const std::string needs = fmt::format("{}; it needs sharding.configDB", foreign.note);
      if (foreign.fate == ForeignKey::Fate::refused) {
        error(foreign.key, fmt::format("{} is refused: {}", foreign.key, needs));
      } else {
        reading_.result.warnings.push_back(
            placed(foreign.key, fmt::format("{} has no effect: {}", foreign.key, needs)));
      }
    }
    config_.cluster = {};
    TlsConfig& tls = config_.net.tls;
    tls.cluster_file = tls.cluster_password = tls.cluster_ca_file = "";
    tls.allow_invalid_hostnames = false;
  }

  void check_cluster() {
    if (auto servers = parse_config_servers(config_.cluster.config_db); servers.has_error()) {
      error("sharding.configDB", "sharding.configDB: " + servers.error().message);
    } else if (reading_.read_routing) {
      error("sharding.configDB",
            "sharding.configDB and routing exclude each other: shards and chunks are those of the config servers, or "
            "those of the file");
    } else {
      reading_.result.config_servers = std::make_shared<const ConfigServers>(*std::move(servers));
    }
    check_cluster_login();
    check_cluster_tls();
    if (!config_.users_from.empty()) {
      error("security.usersFrom", "security.usersFrom is for routing; users of a cluster are on its config servers");
    }
    // They would log in beside the cluster's, with rights that no other router and no server knows.
    for (const auto& [key, written] : {std::pair("security.users", !config_.users.empty()),
                                       std::pair("security.usersFile", !config_.users_file.empty())}) {
      if (!written) continue;
      error(key, fmt::format("{} is for routing; users of a cluster are on its config servers: createUser, through any "
                             "router of the cluster", key));
    }
  }

  // As a mongos demands it.
  void check_cluster_login() {
    const ClusterConfig& cluster = config_.cluster;
    const bool by_certificate =
        cluster.auth_mode && (*cluster.auth_mode == ClusterAuthMode::send_x509 ||
                              *cluster.auth_mode == ClusterAuthMode::x509);
    const TlsMode tls = config_.net.tls.mode;
    if (cluster.auth_mode && !by_certificate && cluster.key_file.empty()) {
      error("security.clusterAuthMode", "security.clusterAuthMode needs security.keyFile");
      return;
    }
    if (cluster.auth_mode && *cluster.auth_mode != ClusterAuthMode::key_file && tls == TlsMode::disabled) {
      error("security.clusterAuthMode", "security.clusterAuthMode needs net.tls.mode");
    } else if (by_certificate && tls == TlsMode::allow) {
      error("security.clusterAuthMode",
            "security.clusterAuthMode: with net.tls.mode allowTLS servers see no certificate; write preferTLS or "
            "requireTLS");
    }
    const bool as_member = cluster.auth_mode || !cluster.key_file.empty();
    if (cluster.transition_to_auth &&
        (!as_member || cluster.auth_mode == ClusterAuthMode::send_key_file ||
         cluster.auth_mode == ClusterAuthMode::send_x509)) {
      error("security.transitionToAuth",
            "security.transitionToAuth needs security.keyFile, or security.clusterAuthMode: x509");
    }
    if (!as_member) return;
    if (config_.shard_login != ShardLoginConfig{}) {
      error("security.shards.user", "security.shards and security.keyFile or clusterAuthMode exclude each other");
      return;
    }
    if (!cluster.transition_to_auth && config_.authorization == Authorization::disabled) {
      error("security.authorization",
            "security.authorization: disabled would give every client all rights of the cluster's members; leave it "
            "out (security.transitionToAuth is for the time in which the members get their keys)");
    } else if (!config_.authorization) {
      config_.authorization = cluster.transition_to_auth ? Authorization::disabled : Authorization::enabled;
    }
    if (auto login = make_cluster_login(config_); login.has_error()) {
      error("security.keyFile", "security.keyFile: " + login.error().message);
    }
  }

  void check_cluster_tls() {
    const TlsConfig& tls = config_.net.tls;
    if (tls.mode == TlsMode::disabled && !(tls.cluster_file.empty() && tls.cluster_ca_file.empty())) {
      const char* const key = tls.cluster_file.empty() ? "net.tls.clusterCAFile" : "net.tls.clusterFile";
      error(key, fmt::format("{} needs net.tls.mode", key));
    } else if (!tls.cluster_ca_file.empty() && tls.ca_file.empty()) {
      error("net.tls.clusterCAFile", "net.tls.clusterCAFile needs net.tls.CAFile");
    } else if (auto settings = cluster_tls(tls); settings.has_error()) {
      error("net.tls.clusterFile", "net.tls.clusterFile: " + settings.error().message);
    } else if (*settings && !(*settings)->files.certificate_key.empty()) {
      if (auto made = TlsContext::make_client(**settings); made.has_error()) {
        error("net.tls.clusterFile", "net.tls, towards the cluster: " + made.error().message);
      }
    }
  }

  void check_addresses() {
    const NetConfig& net = config_.net;
    if (net.load_balancer_port && *net.load_balancer_port != 0 && *net.load_balancer_port == net.port) {
      error("net.loadBalancerPort", "net.loadBalancerPort and net.port are the same port");
    }
    std::vector<std::string> words = split_list(net.bind_ip);
    if (words.size() > bind_addresses_max) {
      error("net.bindIp", fmt::format("net.bindIp has {} addresses; at most {} are possible",
                                      words.size(), bind_addresses_max));
    }
    const auto is_socket = [](const std::string& word) { return word.starts_with('/'); };
    if (!config_.cluster.config_db.empty() && std::any_of(words.begin(), words.end(), is_socket) &&
        !std::all_of(words.begin(), words.end(), is_socket)) {
      reading_.result.warnings.push_back(
          placed("net.bindIp", "net.bindIp: Unix sockets have no effect: only TCP is listened on"));
      std::erase_if(words, is_socket);
      config_.net.bind_ip = fmt::format("{}", fmt::join(words, ","));
    }
    for (const std::string& word : words) check_address(word);
  }

  void check_address(const std::string& word) {
    if (word.empty()) {
      error("net.bindIp", "net.bindIp has an empty address");
    } else if (word[0] == '/') {
      error("net.bindIp",
            fmt::format("net.bindIp: \"{}\" is a Unix socket; only TCP is listened on", word));
    } else if (word != "*" && !is_ipv4(word) && !is_ipv6(word) &&
               (word.find_first_of(":/*[] ") != std::string::npos ||
              word.find_first_not_of("0123456789.") == std::string::npos)) {  // no name has only these
      error("net.bindIp",
            fmt::format("net.bindIp: \"{}\" is no address (the port is net.port)", word));
    }
  }

  void check_admin() {
    const NetConfig& net = config_.net;
    if (net.admin.port && *net.admin.port != 0 &&
        (*net.admin.port == net.port || net.admin.port == net.load_balancer_port)) {
      error("net.admin.port", "net.admin.port is a port for clients already");
    }
    for (const std::string& address : admin_addresses(net)) {
      if (!is_ipv4(address) && !is_ipv6(address)) {
        error("net.admin.bindIp", fmt::format("net.admin.bindIp: \"{}\" is no address", address));
      }
    }
  }

  void check_exposure() {
    if (config_.authorization.has_value()) return;
    // As a mongos without a key file: the cluster's servers do not authenticate clients either.
    const bool is_open = !config_.cluster.config_db.empty() && config_.shard_login == ShardLoginConfig{};
    for (const std::string& address : listen_addresses(config_.net)) {
      if (address.empty() || is_loopback(address)) continue;
      if (is_open) {
        reading_.result.warnings.push_back(placed(
            "net.bindIp", fmt::format("clients are not authenticated, and {} is not a loopback address: any client "
                                      "that reaches it can read and change the cluster", address)));
        return;
      }
      error("net.bindIp",
            fmt::format("{} is not a loopback address, and clients are not authenticated: any client that "
                        "reaches it can read and change every shard. Write security.authorization: "
                        "enabled, and security.users; or disabled, if that is meant",
                        address));
      return;
    }
  }

  void check_compressors(std::string_view key, const std::string& list) {
    if (list == "disabled") return;
    const Result<std::vector<wire::Compressor>> checked = wire::check_list(list);
    if (!checked) error(key, fmt::format("{}: {}", key, checked.error().message));
  }

  void check_file(std::string_view section, bool to_file, const std::string& path) {
    const auto key = [&](const char* word) { return fmt::format("{}.{}", section, word); };
    if (to_file && path.empty())
      error(key("destination"), fmt::format("{0}.destination: file needs {0}.path", section));
    if (!to_file && !path.empty()) error(key("path"), fmt::format("{0}.path needs {0}.destination: file", section));
  }

  void check_trace_endpoint() {
    if (config_.trace_endpoint.empty()) return;
    if (auto parsed = trace_endpoint(config_.trace_endpoint); parsed.has_error()) {
      error("setParameter.opentelemetryHttpEndpoint",
            "setParameter.opentelemetryHttpEndpoint: " + parsed.error().message);
    }
  }

  void check_allocator() {
    if (const auto missing = missing_heap(config_.parameters.allocator)) {
      error("memory.allocator", "memory.allocator: " + *missing);
    }
  }

  // Checks both lists together; each alone is checked where it is read.
  void check_users() {
    if (!config_.users_file.empty()) {
      const auto path = expand_credentials(config_.users_file);
      if (path.has_error()) {
        error("security.usersFile", "security.usersFile: " + path.error().message);
        return;
      }
      UsersReading more = read_users_file(*path);
      for (const std::string& wrong : more.errors) error("security.usersFile", wrong);
      std::move(more.users.begin(), more.users.end(), std::back_inserter(config_.users));
    }
    std::set<std::string> ids;
    for (const auth::UserSpec& user : config_.users) {
      if (ids.insert(auth::user_id(user.db, user.name)).second) continue;
      error("security.users", fmt::format("security.users: {} of the database {} is there twice", user.name, user.db));
    }
    if (config_.users.size() > auth::users_max) {
      error("security.users",
            fmt::format("security.users has {} users; at most {} are possible", config_.users.size(), auth::users_max));
    }
  }

  ConfigReading& reading_;
  Config& config_;
};

Result<std::vector<std::string>> check_shard_uri(const std::string& uri) {
  const auto parsed = shard::parse_connection_string(uri);
  if (!parsed) return parsed.error();
  if (parsed->tls) {
    if (const auto made = TlsContext::make_client(*parsed->tls); made.has_error()) return made.error();
  }
  std::vector<std::string> warnings;
  for (const std::string& option : parsed->ignored_options) {
    warnings.push_back(fmt::format("the option {} has no effect here", option));
  }
  return warnings;
}

void load_routing(ConfigReading& reading, const LoadRequest& request) {
  LoadResult& result = reading.result;
  if (!result.config.cluster.config_db.empty()) return;
  if (!reading.read_routing) {
    if (!request.needs_routing || !reading.file_parsed) return;
    const std::string message =
        "routing.shards is missing: name at least one shard, for instance routing: {shards: "
        "[{name: "
        "shard0, uri: \"mongodb://127.0.0.1:27018/\"}]}; or the config servers of a cluster as sharding.configDB";
    result.errors.push_back(
        request.file_name.empty() ? message : fmt::format("{}: {}", request.file_name, message));
    return;
  }
  auto routing = reading.read_routing(check_shard_uri);
  result.routing = std::move(routing.snapshot);
  for (Error& error : routing.errors) result.errors.push_back(std::move(error.message));
  for (std::string& warning : routing.warnings) result.warnings.push_back(std::move(warning));
}

}  // namespace

namespace {

// Checks against the routing table, which is known by now.
void check_users_from(ConfigReading& reading) {
  const std::string& from = reading.result.config.users_from;
  if (from.empty() || !reading.result.routing || reading.result.routing->shard_by_name(from)) return;
  const auto place = reading.places.find("security.usersFrom");
  reading.result.errors.push_back(fmt::format("{}{}security.usersFrom: there is no shard {}",
                                              place == reading.places.end() ? "" : place->second,
                                              place == reading.places.end() ? "" : ": ", from));
}

}  // namespace

LoadResult load_config(const LoadRequest& request) {
  ConfigReading reading = read_config_yaml(request);
  Checker(reading).check_all();
  load_routing(reading, request);
  check_users_from(reading);
  return std::move(reading.result);
}

LoadResult load_config_file(const std::string& path, std::vector<std::string> overrides,
                            bool needs_routing, std::vector<EnvironmentValue> environment) {
  LoadRequest request{.text = {},
                      .file_name = path,
                      .overrides = std::move(overrides),
                      .needs_routing = needs_routing,
                      .environment = std::move(environment)};
  if (path.empty()) return load_config(request);
  LoadResult failed;
  failed.net_known = false;
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  // Reading a folder fails only here, not when opening it.
  if (file) file.peek();
  if (!file && !file.eof()) {
    const std::string reason = std::generic_category().message(errno == 0 ? EIO : errno);
    failed.errors.push_back(fmt::format("{}: cannot be read: {}", path, reason));
    return failed;
  }
  file.clear();
  constexpr std::size_t piece_bytes = 64UL * 1024;
  std::string piece(piece_bytes, '\0');
  while (file.read(piece.data(), piece_bytes), file.gcount() > 0) {
    request.text.append(piece, 0, static_cast<std::size_t>(file.gcount()));
    if (request.text.size() <= config_file_bytes_max) continue;
    failed.errors.push_back(
        fmt::format("{}: is larger than {} bytes", path, config_file_bytes_max));
    return failed;
  }
  return load_config(request);
}

std::vector<std::string> admin_addresses(const NetConfig& net) {
  NetConfig other;
  other.bind_ip = net.admin.bind_ip;
  return listen_addresses(other);
}

std::vector<std::string> listen_addresses(const NetConfig& net) {
  std::vector<std::string> addresses;
  const auto add = [&](const std::string& address) {
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) {
      addresses.push_back(address);
    }
  };
  for (const std::string& word : split_list(net.bind_ip)) {
    add(word == "*" ? "0.0.0.0" : word == "localhost" ? "127.0.0.1" : word);
  }
  return addresses;
}

bool is_loopback(std::string_view address) {
  if (address == "localhost") return true;
  const auto parsed = IpAddress::parse(address);
  return parsed && parsed->is_loopback();
}

int worker_count(const Config& config, const SystemLimits& limits) {
  if (config.workers > 0) return config.workers;
  const double cpus = std::clamp(limits.cpus, 1.0, static_cast<double>(limits::workers_max));
  return static_cast<int>(std::ceil(cpus));
}

namespace {

// The memory that percentages refer to.
struct AvailableMemory {
  std::uint64_t bytes = 0;  // 0: not known
  bool of_cgroup = false;   // of the machine if the cgroup allows more than the machine has
};

AvailableMemory available_memory(const SystemLimits& limits) {
  const bool of_cgroup =
      limits.cgroup_memory_bytes.has_value() &&
      (limits.memory_bytes == 0 || *limits.cgroup_memory_bytes < limits.memory_bytes);
  return {of_cgroup ? *limits.cgroup_memory_bytes : limits.memory_bytes, of_cgroup};
}

// 0: the limit is not a share of memory.
std::uint64_t limit_percent(const MemoryLimit& limit, const AvailableMemory& available) {
  if (limit.kind == MemoryLimit::Kind::automatic) return available.of_cgroup ? 50 : 25;
  return limit.kind == MemoryLimit::Kind::percent ? limit.value : 0;
}

}  // namespace

std::uint64_t memory_limit_bytes(const MemoryLimit& limit, const SystemLimits& limits) {
  if (limit.kind == MemoryLimit::Kind::bytes) return limit.value;
  const AvailableMemory available = available_memory(limits);
  if (limit.kind == MemoryLimit::Kind::unlimited || available.bytes == 0) {
    return std::numeric_limits<std::uint64_t>::max();
  }
  return std::max(available.bytes / 100 * limit_percent(limit, available), memory_limit_bytes_min);
}

std::uint64_t spill_limit_bytes(const MemoryLimit& limit, std::uint64_t free_bytes) {
  switch (limit.kind) {
    case MemoryLimit::Kind::automatic:
      return free_bytes / 2;
    case MemoryLimit::Kind::percent:
      return free_bytes / 100 * limit.value;
    case MemoryLimit::Kind::bytes:
      return limit.value;
    case MemoryLimit::Kind::unlimited:
      break;
  }
  // Offsets in a file are signed.
  return static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
}

std::string describe_memory_limit(const MemoryLimit& limit, const SystemLimits& limits) {
  const std::uint64_t bytes = memory_limit_bytes(limit, limits);
  if (bytes == std::numeric_limits<std::uint64_t>::max()) return "none";
  const AvailableMemory available = available_memory(limits);
  const std::uint64_t percent = limit_percent(limit, available);
  if (percent == 0) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{} MiB ({} % of the {}'s {} MiB, at least {} MiB)", bytes >> 20, percent,
                     available.of_cgroup ? "cgroup" : "machine", available.bytes >> 20,
                     memory_limit_bytes_min >> 20);
}

std::optional<std::string> memory_beyond_cgroup(const MemoryLimit& limit, const SystemLimits& limits) {
  const std::uint64_t bytes = memory_limit_bytes(limit, limits);
  const bool has_limit = bytes != std::numeric_limits<std::uint64_t>::max();
  if (!has_limit || !limits.cgroup_memory_bytes || bytes <= *limits.cgroup_memory_bytes) return std::nullopt;
  return fmt::format("{} is more than the cgroup allows ({} MiB): the kernel would slow the process down or kill it "
                     "first",
                     describe_memory_limit(limit, limits), *limits.cgroup_memory_bytes >> 20);
}

}  // namespace spillway
