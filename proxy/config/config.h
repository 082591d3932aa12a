// The configuration as the program uses it: plain values, filled by load_config() from a YAML file
// and --set, checked as a whole. Every key, with its meaning and range, is a row of table.h.
//
// Used while starting; load_config() may allocate freely and does not throw. A Config never changes afterwards:
// setParameter changes the Parameters in exec::Shared.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/auth/service_login.h"
#include "proxy/auth/users.h"
#include "proxy/config/limit_settings.h"
#include "proxy/config/parameters.h"

namespace spillway::catalog {
class RoutingSnapshot;
}

namespace spillway {

struct ConfigServers;  // cluster.h
struct SystemLimits;

enum class TlsMode : std::uint8_t { disabled, allow, prefer, require };

// net.tls: towards clients, and towards the servers of a cluster (sharding.configDB). Shards of a static table have
// theirs in their connection strings.
struct TlsConfig {
  TlsMode mode = TlsMode::disabled;
  std::string certificate_key_file;
  std::string certificate_key_password;
  std::string ca_file;
  std::string crl_file;
  bool allow_connections_without_certificates = false;
  bool allow_invalid_certificates = false;
  std::string disabled_protocols = "TLS1_0,TLS1_1";
  // With sharding.configDB alone; else empty.
  std::string cluster_file;      // our certificate for the servers; empty: certificate_key_file
  std::string cluster_password;  // of cluster_file's key
  std::string cluster_ca_file;   // of clients' certificates; ca_file is then that of the servers'
  bool allow_invalid_hostnames = false;  // the servers'

  bool operator==(const TlsConfig&) const = default;
};

// net.admin: read-only HTTP for monitoring.
struct AdminConfig {
  std::optional<std::uint16_t> port;  // 0: a free one; none: no such port
  std::string bind_ip = "127.0.0.1";

  bool operator==(const AdminConfig&) const = default;
};

struct NetConfig {
  std::uint16_t port = 27017;         // 0: a free one
  std::optional<std::uint16_t> load_balancer_port;  // the same; none: no such port
  std::string bind_ip = "127.0.0.1";  // comma-separated; listen_addresses() splits it
  std::int64_t max_incoming_connections = 65'536;
  // Names separated by commas, checked; "disabled": none.
  std::string compressors = "snappy,zstd,zlib";
  std::string shard_compression = "disabled";
  TlsConfig tls;
  AdminConfig admin;

  bool operator==(const NetConfig&) const = default;
};

enum class LogDestination : std::uint8_t { console, file, syslog };
enum class LogRotation : std::uint8_t { rename, reopen };
enum class LogFormat : std::uint8_t { text, json };

struct SystemLogConfig {
  LogDestination destination = LogDestination::console;
  std::string path;
  LogRotation rotation = LogRotation::rename;
  LogFormat format = LogFormat::text;

  bool operator==(const SystemLogConfig&) const = default;
};

// memory.limit as written; memory_limit_bytes() turns it into bytes.
struct MemoryLimit {
  enum class Kind : std::uint8_t {
    automatic,  // half of the cgroup's limit, a quarter of the machine's memory without one
    unlimited,
    bytes,
    percent,  // of the cgroup's limit, of the machine's memory without one
  };
  Kind kind = Kind::automatic;
  std::uint64_t value = 0;  // bytes or percent

  bool operator==(const MemoryLimit&) const = default;
};

// memory.spill: where idle cursors' documents go while memory is short.
struct SpillConfig {
  std::string path;   // a folder; empty: they are compressed in memory only
  MemoryLimit limit;  // automatic: half of what is free there at start

  bool operator==(const SpillConfig&) const = default;
};

enum class AuditDestination : std::uint8_t { file, syslog, console };
struct AuditConfig {
  std::optional<AuditDestination> destination;  // unset: there is no audit log
  std::string path;

  bool operator==(const AuditConfig&) const = default;
};

enum class Authorization : std::uint8_t { disabled, enabled };

// security.shards: how to log in where a connection string names no user.
struct ShardLoginConfig {
  std::string user;
  std::string db = "admin";
  auth::ServiceMechanism mechanism = auth::ServiceMechanism::negotiated;
  std::string password_file;

  bool operator==(const ShardLoginConfig&) const = default;
};

// How the members of a cluster know each other. The send… modes differ only in what a server accepts.
enum class ClusterAuthMode : std::uint8_t { key_file, send_key_file, send_x509, x509 };

// sharding.configDB and the keys that need it; empty with a static table.
struct ClusterConfig {
  std::string config_db;  // as written; LoadResult has it parsed
  std::string key_file;
  std::optional<ClusterAuthMode> auth_mode;  // unset: key_file if there is one
  bool transition_to_auth = false;           // a server that refuses our login is used without one
  std::int64_t clock_drift_secs_max = 31'536'000;

  bool operator==(const ClusterConfig&) const = default;
};

struct Config {
  NetConfig net;
  std::int32_t workers = 0;  // 0: by the CPU quota; worker_count() decides
  std::int32_t drain_seconds = 10;
  SystemLogConfig system_log;
  std::string pid_file_path;  // empty: none
  MemoryLimit memory_limit;
  SpillConfig spill;
  std::optional<Authorization> authorization;  // unset: not written out
  std::string users_file;             // empty: none
  std::vector<auth::UserSpec> users;  // security.users, and those of the file
  std::string users_from;  // a shard's name; empty: none
  ShardLoginConfig shard_login;
  ClusterConfig cluster;
  std::int64_t failed_logins_allowed = 10;  // 0: failed logins have no consequence
  AuditConfig audit;
  std::string trace_endpoint;  // a URL that was checked; empty: no command is traced
  LimitSettings limits;
  std::int64_t local_threshold_ms = 15;
  std::int64_t connect_timeout_ms = 10'000;
  std::int64_t pool_max = 1'000;
  Parameters parameters;

  bool operator==(const Config&) const = default;
};

// A setting that an environment variable holds (environment.h).
struct EnvironmentValue {
  std::string variable;
  std::string key;
  std::string text;
};

struct LoadRequest {
  std::string text;                         // the YAML file's; may be empty
  std::string file_name;                    // for messages; empty: there is no file
  std::vector<std::string> overrides = {};  // "key=value" of --set, later ones win
  bool needs_routing = true;                // false: `routing` and `sharding.configDB` may be absent (--canned)
  std::vector<EnvironmentValue> environment = {};  // goes before the file, after --set
};

struct LoadResult {
  Config config;
  // Of the `routing` key; null if it is absent or wrong.
  std::shared_ptr<const catalog::RoutingSnapshot> routing;
  // Of `sharding.configDB`; null if it is absent or wrong. Never together with `routing`.
  std::shared_ptr<const ConfigServers> config_servers;
  std::vector<std::string> errors;  // "file:line: what is wrong"; all of them, in the file's order
  std::vector<std::string> warnings;  // keys without effect
  // False: the file, a variable, --set or a value of `net` could not be read, so that `config` does not tell the
  // addresses.
  bool net_known = true;

  bool ok() const noexcept { return errors.empty(); }
};

// Never throws: each error is a line of `errors`.
LoadResult load_config(const LoadRequest& request);
// The same for a file of at most config_file_bytes_max; an empty path: no file.
LoadResult load_config_file(const std::string& path, std::vector<std::string> overrides,
                            bool needs_routing = true,
                            std::vector<EnvironmentValue> environment = {});

inline constexpr std::size_t config_file_bytes_max = 64UL * 1024 * 1024;
// The least memory.limit: a message of the largest size must fit beside the program itself.
inline constexpr std::uint64_t memory_limit_bytes_min = 96ULL * 1024 * 1024;

// The addresses to listen on, in order and without repetitions: bindIp split at its commas, localhost as 127.0.0.1,
// `*` as 0.0.0.0. Host names stay names.
std::vector<std::string> listen_addresses(const NetConfig& net);
// The same of net.admin.bindIp.
std::vector<std::string> admin_addresses(const NetConfig& net);
// 127.0.0.0/8, ::1, localhost. A host name is not: it may resolve to another address tomorrow.
bool is_loopback(std::string_view address);

// workers, or the CPU quota rounded up; at least 1, at most limits::workers_max.
int worker_count(const Config& config, const SystemLimits& limits);
// UINT64_MAX: unlimited.
std::uint64_t memory_limit_bytes(const MemoryLimit& limit, const SystemLimits& limits);
// The bytes that memory.spill.limit means on a file system with this much free space.
std::uint64_t spill_limit_bytes(const MemoryLimit& limit, std::uint64_t free_bytes);
// For the log: "127 MiB (50 % of the cgroup's 254 MiB)".
std::string describe_memory_limit(const MemoryLimit& limit, const SystemLimits& limits);
// For the operator: the limit is more than the cgroup's. nullopt: it is not, or there is none of both.
std::optional<std::string> memory_beyond_cgroup(const MemoryLimit& limit, const SystemLimits& limits);

}  // namespace spillway
