// The configuration as the program uses it: plain values, filled by load_config() from a YAML file
// and --set, checked as a whole. Every key, with its meaning and range, is a row of config_table.h.
//
// Used while starting; load_config() may allocate freely and does not throw. A Config is never
// changed afterwards: what setParameter changes lives with its owner.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/policy.h"
#include "proxy/auth/service_login.h"
#include "proxy/auth/users.h"
#include "proxy/exec/limits.h"
#include "proxy/exec/splice_choice.h"

namespace spillway::catalog {
class RoutingSnapshot;
}

namespace spillway {

struct SystemLimits;

enum class TlsMode : std::uint8_t { disabled, allow, prefer, require };

// net.tls: towards clients. Shards have theirs in their connection strings.
struct TlsConfig {
  TlsMode mode = TlsMode::disabled;
  std::string certificate_key_file;
  std::string certificate_key_password;
  std::string ca_file;
  std::string crl_file;
  bool allow_connections_without_certificates = false;
  bool allow_invalid_certificates = false;
  std::string disabled_protocols = "TLS1_0,TLS1_1";

  bool operator==(const TlsConfig&) const = default;
};

// How many shards must be reachable for /readyz to say so.
enum class ReadyShards : std::uint8_t { any, all, none };

// net.admin: HTTP for those who watch the process.
struct AdminConfig {
  std::optional<std::uint16_t> port;  // 0: a free one; none: no such port
  std::string bind_ip = "127.0.0.1";
  ReadyShards ready_shards = ReadyShards::any;

  bool operator==(const AdminConfig&) const = default;
};

struct NetConfig {
  std::uint16_t port = 27017;         // 0: a free one
  std::optional<std::uint16_t> load_balancer_port;  // the same; none: no such port
  std::string bind_ip = "127.0.0.1";  // comma-separated; listen_addresses() splits it
  bool bind_ip_all = false;
  bool ipv6 = false;
  std::int64_t max_incoming_connections = 65'536;
  std::string beyond_max_connections;  // ranges, separated by commas
  std::int64_t idle_client_ms = 0;     // 0: none
  std::int64_t handshake_ms = 30'000;  // 0: none
  std::int64_t slow_sender_ms = 30'000;
  std::int32_t listen_backlog = 4'096;
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
  bool append = true;
  LogRotation rotation = LogRotation::rename;
  LogFormat format = LogFormat::text;
  std::int32_t verbosity = 0;
  bool quiet = false;

  bool operator==(const SystemLogConfig&) const = default;
};

struct ProcessConfig {
  std::string pid_file_path;  // empty: none
  bool fork = false;          // true is refused by load_config()

  bool operator==(const ProcessConfig&) const = default;
};

// One of MongoDB's limiters of what comes in.
struct RateConfig {
  bool enabled = false;
  std::int64_t per_second = std::numeric_limits<std::int32_t>::max();
  double burst_seconds = std::numeric_limits<double>::max();
  std::int64_t queue_max = 0;
  std::string exempt;  // ranges, separated by commas

  bool operator==(const RateConfig&) const = default;
};

// What `setParameter:` holds, under mongos's own names.
struct ParameterConfig {
  std::int64_t cursor_timeout_ms = 600'000;
  std::int64_t cursor_monitor_seconds = 4;
  bool time_out_session_cursors = true;
  bool test_commands = false;
  std::int64_t connect_timeout_ms = 10'000;
  std::int64_t pool_min = 1;
  std::int64_t pool_max = 1'000;
  std::int64_t pool_connecting_max = 2;
  std::int64_t pool_idle_ms = 300'000;
  std::int64_t orphan_grace_ms = 30'000;  // -1: off
  bool read_ahead = true;
  exec::SpliceReplies splice_replies = exec::SpliceReplies::automatic;
  std::int64_t shutdown_timeout_ms = 15'000;
  std::int64_t user_refresh_seconds = 30;
  RateConfig connection_rate;
  RateConfig request_rate;

  bool operator==(const ParameterConfig&) const = default;
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
  std::int64_t idle_ms = 10'000;

  bool operator==(const SpillConfig&) const = default;
};

// What `memory:` holds beside the limit.
struct MemoryConfig {
  AllocatorChoice allocator = AllocatorChoice::automatic;
  std::int64_t release_threshold_bytes = 8LL << 20;
  std::int64_t release_quiet_ms = 800;
  std::int64_t evict_idle_ms = 30'000;

  bool operator==(const MemoryConfig&) const = default;
};

// security.failedLogins.
struct FailedLoginsConfig {
  std::int64_t allowed = 10;  // 0: nothing is refused for them
  std::int64_t wait_max_ms = 60'000;

  bool operator==(const FailedLoginsConfig&) const = default;
};

enum class AuditDestination : std::uint8_t { file, syslog, console };
enum class AuditFormat : std::uint8_t { json };
enum class AuditSchema : std::uint8_t { mongo };

struct AuditConfig {
  std::optional<AuditDestination> destination;  // unset: there is no audit log
  AuditFormat format = AuditFormat::json;
  AuditSchema schema = AuditSchema::mongo;
  std::string path;
  std::string filter;  // Extended JSON; empty: everything

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

struct Config {
  NetConfig net;
  std::int32_t workers = 0;  // 0: by the CPU quota; worker_count() decides
  std::int32_t drain_seconds = 10;
  std::int64_t slow_ms = 100;
  SystemLogConfig system_log;
  ProcessConfig process;
  MemoryLimit memory_limit;
  SpillConfig spill;
  MemoryConfig memory;
  std::optional<Authorization> authorization;  // unset: not written out
  std::string users_file;             // empty: none
  std::vector<auth::UserSpec> users;  // security.users, and those of the file
  std::string users_from;  // a shard's name; empty: none
  ShardLoginConfig shard_login;
  FailedLoginsConfig failed_logins;
  AuditConfig audit;
  exec::LimitSettings limits;
  std::int64_t local_threshold_ms = 15;
  ParameterConfig parameters;

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
  bool needs_routing = true;                // false: `routing` may be absent (--canned)
  std::vector<EnvironmentValue> environment = {};  // goes before the file, after --set
};

struct LoadResult {
  Config config;
  // Of the `routing` key; null if it is absent or wrong.
  std::shared_ptr<const catalog::RoutingSnapshot> routing;
  std::vector<std::string> errors;  // "file:line: what is wrong"; all of them, in the file's order
  std::vector<std::string> warnings;  // keys that a mongos knows and that have no effect here
  // False: the file, a variable, --set or a value of `net` could not be read, so that nobody can tell from
  // `config` where it is served.
  bool net_known = true;

  bool ok() const noexcept { return errors.empty(); }
};

// Never throws: whatever is wrong is a line of `errors`.
LoadResult load_config(const LoadRequest& request);
// The same for a file of at most config_file_bytes_max; an empty path: no file.
LoadResult load_config_file(const std::string& path, std::vector<std::string> overrides,
                            bool needs_routing = true,
                            std::vector<EnvironmentValue> environment = {});

inline constexpr std::size_t config_file_bytes_max = 64UL * 1024 * 1024;
// The least memory.limit: a message of the largest size must fit beside the program itself.
inline constexpr std::uint64_t memory_limit_bytes_min = 88ULL * 1024 * 1024;

// What to listen on, in order and without repetitions: bindIp split at its commas, localhost as
// numbers, `*` and bindIpAll as 0.0.0.0 (and :: with net.ipv6). Host names stay names.
std::vector<std::string> listen_addresses(const NetConfig& net);
// The same of net.admin.bindIp.
std::vector<std::string> admin_addresses(const NetConfig& net);
// 127.0.0.0/8, ::1, localhost. A host name is not: nobody knows what it resolves to tomorrow.
bool is_loopback(std::string_view address);

// workers, or the CPU quota rounded up; at least 1, at most limits::workers_max.
int worker_count(const Config& config, const SystemLimits& limits);
// UINT64_MAX: unlimited.
std::uint64_t memory_limit_bytes(const MemoryLimit& limit, const SystemLimits& limits);
// What memory.spill.limit means on a file system with so much free.
std::uint64_t spill_limit_bytes(const MemoryLimit& limit, std::uint64_t free_bytes);
// For the log: "127 MiB (50 % of the cgroup's 254 MiB)".
std::string describe_memory_limit(const MemoryLimit& limit, const SystemLimits& limits);

}  // namespace spillway
