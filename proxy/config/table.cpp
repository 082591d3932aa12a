#include "proxy/config/table.h"

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>
#include <utility>

namespace spillway {

namespace {

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

// The member of a Config at the end of a path of member pointers, as a row's assign and read.
template <auto... Path>
struct Field {
  using Member = std::remove_cvref_t<decltype((std::declval<Config&>().*....*Path))>;

  static void assign(Config& config, const ConfigValue& value) {
    Member& member = (config.*....*Path);
    if constexpr (std::is_same_v<Member, bool>) {
      member = std::get<bool>(value);
    } else if constexpr (std::is_same_v<Member, std::string>) {
      member = std::get<std::string>(value);
    } else if constexpr (std::is_same_v<Member, MemoryLimit> || std::is_same_v<Member, double>) {
      member = std::get<Member>(value);
    } else if constexpr (IsOptional<Member>::value) {
      member = static_cast<typename Member::value_type>(std::get<std::int64_t>(value));
    } else {
      member = static_cast<Member>(std::get<std::int64_t>(value));
    }
  }

  static ConfigValue read(const Config& config) {
    const Member& member = (config.*....*Path);
    if constexpr (std::is_same_v<Member, bool> || std::is_same_v<Member, std::string> ||
                  std::is_same_v<Member, MemoryLimit> || std::is_same_v<Member, double>) {
      return member;
    } else if constexpr (IsOptional<Member>::value) {
      return member ? ConfigValue(static_cast<std::int64_t>(*member)) : ConfigValue(std::string());
    } else {
      return static_cast<std::int64_t>(member);
    }
  }
};

// One row; `F` is the Field that it fills.
template <class F>
constexpr KeySpec row(KeySpec spec) {
  spec.assign = &F::assign;
  spec.read = &F::read;
  return spec;
}

template <auto Member>
using Net = Field<&Config::net, Member>;
template <auto Member>
using Admin = Field<&Config::net, &NetConfig::admin, Member>;
template <auto Member>
using Tls = Field<&Config::net, &NetConfig::tls, Member>;
template <auto Member>
using Log = Field<&Config::system_log, Member>;
template <auto Member>
using Process = Field<&Config::process, Member>;
template <auto Member>
using Spill = Field<&Config::spill, Member>;
template <auto Member>
using Memory = Field<&Config::memory, Member>;
template <auto Member>
using Parameter = Field<&Config::parameters, Member>;

template <auto Member>
using Audit = Field<&Config::audit, Member>;
template <auto Limiter, auto Member>
using Rate = Field<&Config::parameters, Limiter, Member>;

// A value of one section of `limits`.
template <exec::LimitKey Key, auto Value>
struct LimitField {
  static void assign(Config& config, const ConfigValue& value) {
    config.limits.per[static_cast<std::size_t>(Key)].*Value = std::get<std::int64_t>(value);
  }
  static ConfigValue read(const Config& config) {
    const auto& value = config.limits.per[static_cast<std::size_t>(Key)].*Value;
    return value ? ConfigValue(*value) : ConfigValue(std::string());
  }
};

constexpr std::int64_t int32_max = 2'147'483'647;
constexpr std::int64_t year_ms = 366LL * 24 * 3'600 * 1'000;

constexpr ValueType boolean = ValueType::boolean;
constexpr ValueType integer = ValueType::integer;
constexpr ValueType plain_text = ValueType::text;
constexpr ValueType choice = ValueType::choice;

constexpr std::string_view ranges = "addresses and ranges of them (10.0.0.0/8), a list or separated by commas";

// The rows of one section of `limits`.
template <exec::LimitKey Key>
struct LimitRows {
  using Values = exec::LimitValues;

  static constexpr KeySpec connections(std::string_view key, std::string_view meaning) {
    return row<LimitField<Key, &Values::connections>>(
        {.key = key, .type = integer, .example = "100", .min = 1, .max = 1'000'000, .at_reload = true, .meaning = meaning});
  }
  static constexpr KeySpec cursors(std::string_view key, std::string_view meaning) {
    return row<LimitField<Key, &Values::cursors>>(
        {.key = key, .type = integer, .example = "1000", .min = 1, .max = 10'000'000, .at_reload = true, .meaning = meaning});
  }
  static constexpr KeySpec buffered_bytes(std::string_view key, std::string_view meaning) {
    return row<LimitField<Key, &Values::buffered_bytes>>({.key = key,
                                                          .type = ValueType::bytes,
                                                          .unit = "bytes",
                                                          .example = "64MiB",
                                                          .range = "64KiB to 1TiB (units KiB, MiB, GiB, TiB)",
                                                          .min = 65'536,
                                                          .max = 1LL << 40,
                                                          .at_reload = true,
                                                          .meaning = meaning});
  }
  static constexpr KeySpec operations(std::string_view key, std::string_view meaning) {
    return row<LimitField<Key, &Values::operations_per_second>>({.key = key,
                                                                 .type = integer,
                                                                 .unit = "1/s",
                                                                 .example = "1000",
                                                                 .min = 1,
                                                                 .max = 100'000'000,
                                                                 .at_reload = true,
                                                                 .meaning = meaning});
  }
  static constexpr KeySpec burst(std::string_view key, std::string_view meaning) {
    return row<LimitField<Key, &Values::burst>>(
        {.key = key, .type = integer, .example = "2000", .min = 1, .max = 100'000'000, .at_reload = true, .meaning = meaning});
  }
};
using PerUser = LimitRows<exec::LimitKey::user>;
using PerApplication = LimitRows<exec::LimitKey::application>;
using PerAddress = LimitRows<exec::LimitKey::address>;

constexpr std::array all_keys = {
    row<Net<&NetConfig::port>>(
        {.key = "net.port",
         .type = integer,
         .preset = "27017",
         .min = 0,
         .max = 65'535,
         .meaning =
             "The TCP port to listen on. 0 takes a free one, which the line \"spillway ready\" "
             "on standard output names."}),
    row<Net<&NetConfig::load_balancer_port>>(
        {.key = "net.loadBalancerPort",
         .type = integer,
         .example = "27016",
         .min = 0,
         .max = 65'535,
         .meaning =
             "A second TCP port on the same addresses, for drivers with loadBalanced=true: a "
             "connection's cursors and transactions end with it, at once. A load balancer may say "
             "who the client is by the PROXY protocol, version 1 or 2, and whoever reaches the "
             "port is believed. 0 takes a free one, which a line \"spillway ready for load "
             "balancers\" names. Default: no such port."}),
    row<Net<&NetConfig::bind_ip>>(
        {.key = "net.bindIp",
         .type = plain_text,
         .preset = "127.0.0.1",
         .range = "addresses separated by commas; * is every IPv4 address",
         .meaning =
             "The addresses to listen on. Anything but loopback needs security.authorization "
             "written out: enabled, or disabled."}),
    row<Net<&NetConfig::bind_ip_all>>(
        {.key = "net.bindIpAll",
         .type = boolean,
         .preset = "false",
         .meaning = "Listen on every address, instead of net.bindIp."}),
    row<Net<&NetConfig::ipv6>>(
        {.key = "net.ipv6",
         .type = boolean,
         .preset = "false",
         .meaning =
             "Allow IPv6 addresses in net.bindIp; `*` and net.bindIpAll then mean both kinds."}),
    row<Tls<&TlsConfig::mode>>(
        {.key = "net.tls.mode",
         .type = choice,
         .preset = "disabled",
         .range = "disabled | allowTLS | preferTLS | requireTLS",
         .at_reload = true,
         .meaning = "TLS towards clients. requireTLS serves no client without it; allowTLS and "
                    "preferTLS serve both kinds. Shards are spoken to as their connection strings "
                    "say (tls=true, tlsCAFile, tlsCertificateKeyFile, …)."}),
    row<Tls<&TlsConfig::certificate_key_file>>(
        {.key = "net.tls.certificateKeyFile",
         .type = plain_text,
         .example = "/etc/spillway/server.pem",
         .range = "a PEM file",
         .at_reload = true,
         .meaning = "The certificate shown to clients, those that vouch for it, and its private "
                    "key. Needed unless net.tls.mode is disabled."}),
    row<Tls<&TlsConfig::certificate_key_password>>(
        {.key = "net.tls.certificateKeyFilePassword",
         .type = plain_text,
         .example = "secret",
         .range = "a password",
         .at_reload = true,
         .meaning = "Of the private key in net.tls.certificateKeyFile, if it is encrypted."}),
    row<Tls<&TlsConfig::ca_file>>(
        {.key = "net.tls.CAFile",
         .type = plain_text,
         .example = "/etc/spillway/ca.pem",
         .range = "a PEM file",
         .at_reload = true,
         .meaning = "Who vouches for clients' certificates. With it clients need one, without it "
                    "none is asked for."}),
    row<Tls<&TlsConfig::crl_file>>(
        {.key = "net.tls.CRLFile",
         .type = plain_text,
         .example = "/etc/spillway/crl.pem",
         .range = "a PEM file",
         .at_reload = true,
         .meaning = "Certificates of clients that were revoked."}),
    row<Tls<&TlsConfig::allow_connections_without_certificates>>(
        {.key = "net.tls.allowConnectionsWithoutCertificates",
         .type = boolean,
         .preset = "false",
         .at_reload = true,
         .meaning = "With net.tls.CAFile: clients may come without a certificate; one that they "
                    "show must be valid all the same."}),
    row<Tls<&TlsConfig::allow_invalid_certificates>>(
        {.key = "net.tls.allowInvalidCertificates",
         .type = boolean,
         .preset = "false",
         .at_reload = true,
         .meaning = "Clients' certificates are not checked."}),
    row<Tls<&TlsConfig::disabled_protocols>>(
        {.key = "net.tls.disabledProtocols",
         .type = plain_text,
         .preset = "TLS1_0,TLS1_1",
         .range = "of TLS1_0, TLS1_1, TLS1_2, TLS1_3, separated by commas",
         .at_reload = true,
         .meaning = "TLS versions not to speak. The first two are never spoken."}),
    row<Admin<&AdminConfig::port>>(
        {.key = "net.admin.port",
         .type = integer,
         .example = "9216",
         .min = 0,
         .max = 65'535,
         .meaning = "A port for those who watch the process, by HTTP: /metrics for Prometheus, /healthz, "
                    "/readyz. It shows numbers and names of shards, to whoever reaches it. 0 takes a free "
                    "one, which a line \"spillway ready for administration\" names. Default: no such port."}),
    row<Admin<&AdminConfig::bind_ip>>(
        {.key = "net.admin.bindIp",
         .type = plain_text,
         .preset = "127.0.0.1",
         .range = "addresses separated by commas; * is every IPv4 address",
         .meaning = "The addresses of that port."}),
    row<Admin<&AdminConfig::ready_shards>>(
        {.key = "net.admin.readyShards",
         .type = choice,
         .preset = "any",
         .range = "any | all | none",
         .meaning = "How many shards must be reachable for /readyz to answer 200. With all, one dead shard "
                    "takes every router out of service."}),
    row<Net<&NetConfig::max_incoming_connections>>(
        {.key = "net.maxIncomingConnections",
         .type = integer,
         .preset = "65536",
         .min = 1,
         .max = 1'000'000,
         .at_reload = true,
         .meaning = "Client connections open at once; further ones are closed as they come. Never more "
                    "than four fifths of the files that the process may open: shards need some."}),
    row<Net<&NetConfig::beyond_max_connections>>(
        {.key = "net.maxIncomingConnectionsOverride",
         .type = ValueType::list,
         .example = "[10.0.0.5, \"192.168.1.0/24\"]",
         .range = ranges,
         .at_reload = true,
         .meaning = "From these addresses connections are let in beyond net.maxIncomingConnections: "
                    "an administrator's."}),
    row<Net<&NetConfig::idle_client_ms>>(
        {.key = "net.idleClientTimeoutMillis",
         .type = integer,
         .unit = "ms",
         .preset = "0",
         .min = 0,
         .max = year_ms,
         .at_reload = true,
         .meaning = "A client's connection that has been idle for so long is closed. Drivers open another "
                    "when they need one; cursors stay, except those of net.loadBalancerPort. 0: never."}),
    row<Net<&NetConfig::handshake_ms>>(
        {.key = "net.handshakeTimeoutMillis",
         .type = integer,
         .unit = "ms",
         .preset = "30000",
         .min = 0,
         .max = year_ms,
         .at_reload = true,
         .meaning = "From its start to the end of its first message a connection may take so long, TLS "
                    "included. 0: any time (TLS alone 30 s)."}),
    row<Net<&NetConfig::slow_sender_ms>>(
        {.key = "net.slowSenderTimeoutMillis",
         .type = integer,
         .unit = "ms",
         .preset = "30000",
         .min = 1'000,
         .max = 3'600'000,
         .at_reload = true,
         .meaning = "A client that sends nothing for so long in the middle of a message loses its "
                    "connection; one that takes longer than that and a second per 16 KiB for a message, too."}),
    row<Net<&NetConfig::listen_backlog>>(
        {.key = "net.listenBacklog",
         .type = integer,
         .preset = "4096",
         .min = 1,
         .max = 65'535,
         .meaning = "Connections that the kernel holds until they are accepted (it caps this by "
                    "net.core.somaxconn)."}),
    row<Net<&NetConfig::compressors>>(
        {.key = "net.compression.compressors",
         .type = plain_text,
         .preset = "\"snappy,zstd,zlib\"",
         .range = "some of snappy, zstd, zlib, separated by commas, or disabled",
         .meaning = "Compressors that clients may negotiate; the client's order decides."}),
    row<Net<&NetConfig::shard_compression>>(
        {.key = "net.shardCompression",
         .type = plain_text,
         .preset = "disabled",
         .range = "some of snappy, zstd, zlib, separated by commas, or disabled",
         .meaning = "Compressors offered to shards. Compressed replies cannot be passed through in "
                    "pieces: leave it disabled unless the network is the bottleneck."}),
    row<Field<&Config::workers>>(
        {.key = "workers",
         .type = integer,
         .preset = "0",
         .min = 0,
         .max = 256,
         .meaning = "Worker threads. 0: the CPU quota of the cgroup, or the CPUs of the machine, "
                    "rounded up."}),
    row<Field<&Config::drain_seconds>>(
        {.key = "drainTimeoutSecs",
         .type = integer,
         .unit = "s",
         .preset = "10",
         .min = 0,
         .max = 3'600,
         .at_reload = true,
         .meaning = "When a shutdown has been announced (setParameter."
                    "mongosShutdownTimeoutMillisForSignaledShutdown), requests under way may take "
                    "so long to finish; idle connections are closed at once."}),
    row<Field<&Config::memory_limit>>(
        {.key = "memory.limit",
         .type = ValueType::size,
         .unit = "bytes",
         .preset = "auto",
         .range = "auto, unlimited, 1% to 100%, or at least 88MiB (units KiB, MiB, GiB, TiB)",
         .min = memory_limit_bytes_min,
         .meaning =
             "What the process and its sockets may take. Of it, its memory at the start, a tenth "
             "for the heaps and an eighth for sockets are set aside; the rest is for what clients send and ask for, two of the largest "
             "messages of it for those who have waited longest. auto is half of the cgroup's "
             "limit, or a quarter of the machine's memory without one; a percentage is of the "
             "same."}),
    row<Memory<&MemoryConfig::allocator>>(
        {.key = "memory.allocator",
         .type = choice,
         .preset = "auto",
         .range = "auto | jemalloc | tcmalloc | system",
         .at_runtime = true,
         .at_reload = true,
         .meaning = "The heap that buffers of 16 KiB and more come from; setParameter calls it "
                    "memoryAllocator. jemalloc gives free memory back while the proxy is busy too, "
                    "tcmalloc keeps it for the next scan until the load is over, system (glibc) "
                    "keeps none. auto takes tcmalloc for heavy scans or where there is plenty of "
                    "memory, if page faults cost at least 2 % of the CPU, and jemalloc otherwise."}),
    row<Memory<&MemoryConfig::release_threshold_bytes>>(
        {.key = "memory.release.threshold",
         .type = ValueType::bytes,
         .unit = "bytes",
         .preset = "8MiB",
         .range = "64KiB to 1TiB (units KiB, MiB, GiB, TiB)",
         .min = 65'536,
         .max = 1LL << 40,
         .meaning = "Free memory is given back to the operating system once this much was freed "
                    "since the last time: when cursors are killed or time out, and when the load is "
                    "over."}),
    row<Memory<&MemoryConfig::release_quiet_ms>>(
        {.key = "memory.release.quietMillis",
         .type = integer,
         .unit = "ms",
         .preset = "800",
         .min = 0,
         .max = 3'600'000,
         .meaning = "The load is over when buffers took less than memory.release.threshold for this "
                    "long."}),
    row<Memory<&MemoryConfig::evict_idle_ms>>(
        {.key = "memory.evictIdleMillis",
         .type = integer,
         .unit = "ms",
         .preset = "30000",
         .min = 100,
         .max = year_ms,
         .at_reload = true,
         .meaning = "While memory is short, cursors that nobody has asked for so long and that hold "
                    "documents are ended, the heaviest first; their next getMore answers "
                    "CursorNotFound."}),
    row<Spill<&SpillConfig::path>>(
        {.key = "memory.spill.path",
         .type = plain_text,
         .example = "/var/lib/spillway",
         .range = "a folder",
         .meaning =
             "Where the buffered documents of idle cursors are written to, compressed, in a file "
             "without a name: it is gone with the process. On a tmpfs only compression gains. "
             "Default: nowhere; they are compressed in memory when it is short."}),
    row<Spill<&SpillConfig::limit>>(
        {.key = "memory.spill.limit",
         .type = ValueType::size,
         .unit = "bytes",
         .preset = "auto",
         .range = "auto, unlimited, 1% to 100%, or at least 64MiB (units KiB, MiB, GiB, TiB)",
         .min = 64LL * 1024 * 1024,
         .meaning = "The bytes that this file may take. auto is half of what its file system has "
                    "free at start; a percentage is of the same. Without room documents stay in "
                    "memory."}),
    row<Spill<&SpillConfig::idle_ms>>(
        {.key = "memory.spill.idleMillis",
         .type = integer,
         .unit = "ms",
         .preset = "10000",
         .min = 0,
         .max = year_ms,
         .at_reload = true,
         .meaning = "A cursor's documents are written when nobody has asked for them so long; "
                    "when memory is tight, after a second at most."}),
    KeySpec{.key = "routing.shards",
            .type = ValueType::routing,
            .example = "[{name: shard0, uri: \"mongodb://127.0.0.1:27018/\"}]",
            .range = "1 to 1024 of {name, uri}",
            .meaning = "The shards, each with a name and a connection string. Required."},
    KeySpec{.key = "routing.defaultPrimary",
            .type = ValueType::routing,
            .example = "shard0",
            .range = "a shard's name",
            .meaning = "Where the unsharded collections of databases live that "
                       "routing.databases does not name. Default: the first shard."},
    KeySpec{
        .key = "routing.databases",
        .type = ValueType::routing,
        .example = "[{name: app, primary: shard0}]",
        .range = "a list of {name, primary}",
        .at_reload = true,
         .meaning = "Databases whose unsharded collections live on a shard of their own choice."},
    KeySpec{.key = "routing.collections",
            .type = ValueType::routing,
            .example = "[{ns: app.users, key: {_id: hashed}}]",
            .range = "a list of {ns, key, unique, chunks: [{min, max, shard}]}",
            .at_reload = true,
         .meaning = "Sharded collections. Bounds are Extended JSON; chunks cover the whole key "
                       "space without gap or overlap. Without chunks a hashed key is split evenly "
                       "over all shards."},
    KeySpec{.key = "routing.defaultShardKey",
            .type = ValueType::routing,
            .example = "{_id: hashed}",
            .range = "a shard key whose first field is hashed",
            .meaning = "Shards every collection that routing.collections does not name, except "
                       "system.* and those of admin, config and local."},
    KeySpec{.key = "routing.zones",
            .type = ValueType::routing,
            .example = "[{name: eu, ns: app.orders, min: {region: a}, max: {region: m}, "
                       "shards: [shard0]}]",
            .range = "a list of {name, ns, min, max, shards}",
            .at_reload = true,
         .meaning =
                "Zones, as config.tags lists them. Listed only: the chunks above decide where "
                "documents go."},
    PerUser::connections("limits.perUser.connections",
                         "One user's client connections: further logins are refused. Nothing is limited by default; each refusal is IngressRequestRateLimitExceeded (462), labelled so that drivers try again later, and counted in serverStatus.limits."),
    PerUser::cursors("limits.perUser.cursors", "Its open cursors. Who has so many is refused the next one; getMore and killCursors go on."),
    PerUser::buffered_bytes("limits.perUser.bufferedBytes",
                            "What is kept for its idle cursors, and for replies over 16 KiB that wait for their reader. Who holds so much may open no cursor, and nothing is fetched ahead for its cursors, until it has read some of it."),
    PerUser::operations("limits.perUser.operationsPerSecond",
                        "Its operations, over all its connections; hello, logging in, getMore, and what ends something (killCursors, endSessions, commitTransaction, abortTransaction, …) do not count and are never refused."),
    PerUser::burst("limits.perUser.burst", "So many operations may come at once after a pause. Default: those of a second."),
    PerApplication::connections("limits.perApplication.connections",
                         "The same for one application: what client metadata name (appName in connection strings); those that name none are one. Their hello is refused."),
    PerApplication::cursors("limits.perApplication.cursors", "As limits.perUser.cursors."),
    PerApplication::buffered_bytes("limits.perApplication.bufferedBytes",
                            "As limits.perUser.bufferedBytes."),
    PerApplication::operations("limits.perApplication.operationsPerSecond",
                        "As limits.perUser.operationsPerSecond."),
    PerApplication::burst("limits.perApplication.burst", "As limits.perUser.burst."),
    PerAddress::connections("limits.perAddress.connections",
                         "The same for one address; of IPv6 the first 64 bits count. The first message of a further connection is refused, and the connection ends; with TLS it is closed at once."),
    PerAddress::cursors("limits.perAddress.cursors", "As limits.perUser.cursors."),
    PerAddress::buffered_bytes("limits.perAddress.bufferedBytes",
                            "As limits.perUser.bufferedBytes."),
    PerAddress::operations("limits.perAddress.operationsPerSecond",
                        "As limits.perUser.operationsPerSecond."),
    PerAddress::burst("limits.perAddress.burst", "As limits.perUser.burst."),
    KeySpec{.key = "limits.overrides",
            .type = ValueType::overrides,
            .example = "[{user: admin.batch, cursors: unlimited}, {address: 10.0.0.0/8, connections: 5}]",
            .range = "a list of {user | application | address, and any of the limits}",
            .at_reload = true,
            .meaning = "Other limits for one user (database.name), application, or each address of a "
                       "range, of which the longest counts; what is not named is as above, unlimited is "
                       "no limit."},
    row<Log<&SystemLogConfig::destination>>(
        {.key = "systemLog.destination",
         .type = choice,
         .preset = "console",
         .range = "console | file | syslog",
         .at_reload = true,
         .meaning = "Where log lines go. console is standard error."}),
    row<Log<&SystemLogConfig::path>>(
        {.key = "systemLog.path",
         .type = plain_text,
         .example = "/var/log/spillway/spillway.log",
         .range = "a file",
         .at_reload = true,
         .meaning = "The log file; with systemLog.destination: file, which requires it."}),
    row<Log<&SystemLogConfig::append>>(
        {.key = "systemLog.logAppend",
         .type = boolean,
         .preset = "true",
         .at_reload = true,
         .meaning = "Append to the log file at start; false empties it."}),
    row<Log<&SystemLogConfig::rotation>>(
        {.key = "systemLog.logRotate",
         .type = choice,
         .preset = "rename",
         .range = "rename | reopen",
         .at_reload = true,
         .meaning = "What SIGUSR1 and the command logRotate do before they open the log file anew: "
                    "rename it, its name followed by the time, or nothing, for who has renamed it "
                    "already (logrotate)."}),
    row<Log<&SystemLogConfig::format>>(
        {.key = "systemLog.format",
         .type = choice,
         .preset = "text",
         .range = "text | json",
         .at_reload = true,
         .meaning = "json: each line is a document in the format of MongoDB's log since 4.4."}),
    row<Log<&SystemLogConfig::verbosity>>(
        {.key = "systemLog.verbosity",
         .type = integer,
         .preset = "0",
         .min = 0,
         .max = 5,
         .at_reload = true,
         .meaning = "0 logs events, 1 and more debug lines too."}),
    row<Log<&SystemLogConfig::quiet>>({.key = "systemLog.quiet",
                                       .type = boolean,
                                       .preset = "false",
                                       .at_reload = true,
         .meaning = "Leave out informational lines."}),
    row<Audit<&AuditConfig::destination>>(
        {.key = "auditLog.destination",
         .type = choice,
         .example = "syslog",
         .range = "file | syslog | console",
         .meaning = "Where the audit log goes: a line of JSON for each login, refusal of what is not allowed, and "
                    "administrative command. console is standard output. Default: nowhere."}),
    row<Audit<&AuditConfig::format>>(
        {.key = "auditLog.format",
         .type = choice,
         .preset = "JSON",
         .range = "JSON",
         .meaning = "Known from mongos, whose BSON is refused."}),
    row<Audit<&AuditConfig::schema>>(
        {.key = "auditLog.schema",
         .type = choice,
         .preset = "mongo",
         .range = "mongo",
         .meaning = "Known from mongos, whose OCSF is refused."}),
    row<Audit<&AuditConfig::path>>(
        {.key = "auditLog.path",
         .type = plain_text,
         .example = "/var/log/spillway/audit.json",
         .range = "a file",
         .meaning = "The audit log's file, with auditLog.destination: file, which requires it. It is made readable for its "
                    "owner alone, and opened anew when the log is (SIGUSR1, logRotate)."}),
    row<Audit<&AuditConfig::filter>>(
        {.key = "auditLog.filter",
         .type = plain_text,
         .example = "'{\"atype\": {\"$in\": [\"authenticate\", \"authCheck\"]}}'",
         .range = "a query, in Extended JSON",
         .meaning = "Only events that match are written: a filter as find takes it, on atype, ts, local, remote, users, "
                    "roles, param, result."}),
    row<Field<&Config::slow_ms>>(
        {.key = "operationProfiling.slowOpThresholdMs",
         .type = integer,
         .unit = "ms",
         .preset = "100",
         .min = -1,
         .max = 31'622'400'000,
         .at_reload = true,
         .meaning = "Operations that take longer are logged, as \"Slow query\". The profile command's "
                    "slowms changes it, too. -1: all are."}),
    row<Process<&ProcessConfig::pid_file_path>>(
        {.key = "processManagement.pidFilePath",
         .type = plain_text,
         .example = "/run/spillway/spillway.pid",
         .range = "a file",
         .meaning = "Where to write the process id. Default: nowhere."}),
    row<Process<&ProcessConfig::fork>>(
        {.key = "processManagement.fork",
         .type = boolean,
         .preset = "false",
         .range = "false",
         .meaning = "Known from mongos; true is refused: run it as a service (systemd/)."}),
    row<Field<&Config::authorization>>(
        {.key = "security.authorization",
         .type = choice,
         .example = "disabled",
         .range = "disabled | enabled",
         .meaning = "enabled: clients log in, and may do what their roles allow. Not written out, only "
                    "loopback is listened on, and everybody there may do everything; written out "
                    "as disabled, that holds for every address. Who logs in all the same is "
                    "checked then, too."}),
    row<Field<&Config::failed_logins, &FailedLoginsConfig::allowed>>(
        {.key = "security.failedLogins.allowed",
         .type = integer,
         .preset = "10",
         .min = 0,
         .max = 1'000'000,
         .at_reload = true,
         .meaning = "After so many failed logins of one user from one address (of IPv6 the first 64 "
                    "bits) in a row, the next are refused unchecked for 1 s, after each further failure "
                    "for twice as long. Other addresses are not concerned. A success, or 15 minutes, make up for it. 0: "
                    "nobody is refused."}),
    row<Field<&Config::failed_logins, &FailedLoginsConfig::wait_max_ms>>(
        {.key = "security.failedLogins.waitMaxMillis",
         .type = integer,
         .unit = "ms",
         .preset = "60000",
         .min = 0,
         .max = 3'600'000,
         .at_reload = true,
         .meaning = "They are refused for so long at most."}),
    KeySpec{.key = "security.users",
            .type = ValueType::users,
            .example = "[{user: \"CN=app\", db: $external, roles: [{role: read, db: app}]}]",
            .range = "list of {user, db, roles: [{role, db}], credentials}",
            .at_reload = true,
            .meaning = "Who may log in. An entry is made by spillway --hash-password NAME: the "
                       "password itself stands nowhere. Roles: read, readWrite, dbAdmin, "
                       "clusterMonitor, clusterAdmin, readAnyDatabase, readWriteAnyDatabase, "
                       "dbAdminAnyDatabase, root. A user of the database $external logs in by a "
                       "certificate of net.tls.CAFile: his name is its subject (RFC 2253), and he "
                       "has no credentials."},
    row<Field<&Config::users_file>>(
        {.key = "security.usersFile",
         .type = plain_text,
         .example = "/etc/spillway/users.yaml",
         .range = "a file that not everybody may read",
         .at_reload = true,
         .meaning = "A file with more users: the list alone, as in security.users. It may begin with "
                    "$CREDENTIALS_DIRECTORY, as security.shards.passwordFile may."}),
    row<Field<&Config::users_from>>(
        {.key = "security.usersFrom",
         .type = plain_text,
         .example = "shard0",
         .range = "a shard's name",
         .meaning = "Users of that shard (its admin.system.users) log in here, too, with the roles "
                    "that are known here. The user of security.shards must be allowed to read them. "
                    "See setParameter.userCacheInvalidationIntervalSecs."}),
    row<Field<&Config::shard_login, &ShardLoginConfig::user>>(
        {.key = "security.shards.user",
         .type = plain_text,
         .example = "spillway",
         .range = "a user's name",
         .at_reload = true,
         .meaning = "As whom to log in to shards whose connection strings name no user. It must be "
                    "allowed all that clients are. Default: without logging in."}),
    row<Field<&Config::shard_login, &ShardLoginConfig::db>>(
        {.key = "security.shards.db",
         .type = plain_text,
         .preset = "admin",
         .range = "a database",
         .at_reload = true,
         .meaning = "Where this user is known (authSource)."}),
    row<Field<&Config::shard_login, &ShardLoginConfig::mechanism>>(
        {.key = "security.shards.mechanism",
         .type = choice,
         .preset = "negotiated",
         .range = "negotiated | SCRAM-SHA-1 | SCRAM-SHA-256 | MONGODB-X509",
         .at_reload = true,
         .meaning = "negotiated: SCRAM-SHA-256 if the user has it, else SCRAM-SHA-1. MONGODB-X509: by "
                    "the tlsCertificateKeyFile of the connection string; then no user is needed."}),
    row<Field<&Config::shard_login, &ShardLoginConfig::password_file>>(
        {.key = "security.shards.passwordFile",
         .type = plain_text,
         .example = "$CREDENTIALS_DIRECTORY/shard-password",
         .range = "a file that not everybody may read",
         .at_reload = true,
         .meaning = "The password is its first line. $CREDENTIALS_DIRECTORY is where systemd puts "
                    "what LoadCredential= names. A connection string may hold user and password, "
                    "too; --set may not, for everybody sees the command line."}),
    row<Field<&Config::local_threshold_ms>>(
        {.key = "replication.localPingThresholdMs",
         .type = integer,
         .unit = "ms",
         .preset = "15",
         .min = 0,
         .max = int32_max,
         .meaning = "Of a replica set's eligible members, those no further than this from the "
                    "nearest share the reads."}),
    row<Parameter<&ParameterConfig::cursor_timeout_ms>>(
        {.key = "setParameter.cursorTimeoutMillis",
         .type = integer,
         .unit = "ms",
         .preset = "600000",
         .min = 0,
         .max = year_ms,
         .at_runtime = true,
         .at_reload = true,
         .meaning = "A cursor idle for longer is killed, on its shards too."}),
    row<Parameter<&ParameterConfig::cursor_monitor_seconds>>(
        {.key = "setParameter.clientCursorMonitorFrequencySecs",
         .type = integer,
         .unit = "s",
         .preset = "4",
         .min = 1,
         .max = 86'400,
         .at_runtime = true,
         .at_reload = true,
         .meaning = "How often idle cursors are looked for."}),
    row<Parameter<&ParameterConfig::time_out_session_cursors>>(
        {.key = "setParameter.enableTimeoutOfInactiveSessionCursors",
         .type = boolean,
         .preset = "true",
         .at_runtime = true,
         .at_reload = true,
         .meaning = "Cursors opened in a session (every driver's) are timed out as others are. A "
                    "mongos since 4.4.8 spares them by default."}),
    row<Parameter<&ParameterConfig::orphan_grace_ms>>(
        {.key = "setParameter.cursorOrphanGraceMillis",
         .type = integer,
         .unit = "ms",
         .preset = "30000",
         .min = -1,
         .max = year_ms,
         .at_runtime = true,
         .at_reload = true,
         .meaning = "A cursor whose client has closed its last connection ends after this time. A "
                    "client is there while a connection with the same client metadata, of the same "
                    "user or of nobody, is open, or one that has used the cursor's session. -1: such "
                    "cursors live as long as others."}),
    row<Parameter<&ParameterConfig::read_ahead>>(
        {.key = "setParameter.cursorReadAhead",
         .type = boolean,
         .preset = "true",
         .at_runtime = true,
         .at_reload = true,
         .meaning = "Fetch a cursor's next batch from its shards while the client works on the last "
                    "one, as long as memory is plenty."}),
    row<Parameter<&ParameterConfig::splice_replies>>(
        {.key = "setParameter.spliceReplies",
         .type = choice,
         .preset = "auto",
         .range = "auto | always | never",
         .at_runtime = true,
         .at_reload = true,
         .meaning = "Pass the inside of large batches from a shard's socket to the client's within "
                    "the kernel, where neither end uses TLS and memory is plenty: a third of the CPU "
                    "for each byte, or less; a client on the same machine pays a part of it when it "
                    "reads. auto: while a worker passes 100 MB a second or uses a third of a "
                    "core. What passes so is not seen: a cursor's nDocsReturned is then an "
                    "estimate."}),
    row<Parameter<&ParameterConfig::shutdown_timeout_ms>>(
        {.key = "setParameter.mongosShutdownTimeoutMillisForSignaledShutdown",
         .type = integer,
         .unit = "ms",
         .preset = "15000",
         .min = 0,
         .max = 3'600'000,
         .at_runtime = true,
         .at_reload = true,
         .meaning = "After SIGTERM clients are told for so long that this router goes, while it "
                    "serves them; less if all of them have left before."}),
    row<Parameter<&ParameterConfig::test_commands>>(
        {.key = "setParameter.enableTestCommands",
         .type = boolean,
         .preset = "false",
         .meaning = "What getParameter tells drivers' test suites."}),
    row<Parameter<&ParameterConfig::connect_timeout_ms>>(
        {.key = "setParameter.connectTimeoutMS",
         .type = integer,
         .unit = "ms",
         .preset = "10000",
         .min = 1,
         .max = 3'600'000,
         .meaning = "Connecting to a shard, and its answers to the monitor's hello, may take this "
                    "long; afterwards what waits for it fails. Not counted is the wait for a turn to "
                    "connect, or for a place in a full pool: that may last until the command's "
                    "maxTimeMS."}),
    row<Parameter<&ParameterConfig::user_refresh_seconds>>(
        {.key = "setParameter.userCacheInvalidationIntervalSecs",
         .type = integer,
         .unit = "s",
         .preset = "30",
         .min = 1,
         .max = 86'400,
         .at_runtime = true,
         .at_reload = true,
         .meaning = "How often the users of security.usersFrom are read again. Where that fails ten "
                    "times in a row, they are nobody until it succeeds."}),
    row<Parameter<&ParameterConfig::pool_min>>(
        {.key = "setParameter.ShardingTaskExecutorPoolMinSize",
         .type = integer,
         .preset = "1",
         .min = 0,
         .max = 32'767,
         .meaning = "Connections kept open per worker and shard host."}),
    row<Parameter<&ParameterConfig::pool_max>>(
        {.key = "setParameter.ShardingTaskExecutorPoolMaxSize",
         .type = integer,
         .preset = "1000",
         .min = 1,
         .max = 32'767,
         .meaning =
             "Connections per worker and shard host; requests beyond them wait in a queue."}),
    row<Parameter<&ParameterConfig::pool_connecting_max>>(
        {.key = "setParameter.ShardingTaskExecutorPoolMaxConnecting",
         .type = integer,
         .preset = "2",
         .min = 1,
         .max = 1'000,
         .meaning = "Connections being opened at once, per worker and shard host."}),
    row<Parameter<&ParameterConfig::pool_idle_ms>>(
        {.key = "setParameter.ShardingTaskExecutorPoolHostTimeoutMS",
         .type = integer,
         .unit = "ms",
         .preset = "300000",
         .min = 100,
         .max = year_ms,
         .meaning = "A connection idle for longer is closed, down to the minimum."}),
    row<Rate<&ParameterConfig::connection_rate, &RateConfig::enabled>>(
        {.key = "setParameter.ingressConnectionEstablishmentRateLimiterEnabled",
         .type = boolean,
         .preset = "false",
         .at_runtime = true,
         .at_reload = true,
         .meaning = "Clients may connect only as fast as the next four say, as in MongoDB 8.2. Who comes "
                    "faster waits, unread, in a queue, and is closed where that is full."}),
    row<Rate<&ParameterConfig::connection_rate, &RateConfig::per_second>>(
        {.key = "setParameter.ingressConnectionEstablishmentRatePerSec",
         .type = integer,
         .unit = "1/s",
         .preset = "2147483647",
         .min = 1,
         .max = int32_max,
         .at_runtime = true,
         .at_reload = true,
         .meaning = "New connections per second."}),
    row<Rate<&ParameterConfig::connection_rate, &RateConfig::burst_seconds>>(
        {.key = "setParameter.ingressConnectionEstablishmentBurstCapacitySecs",
         .type = ValueType::number,
         .unit = "s",
         .preset = "1.7976931348623157e+308",
         .range = "above 0",
         .at_runtime = true,
         .at_reload = true,
         .meaning = "So many seconds' worth of connections that did not come may come at once. With the "
                    "default, which is MongoDB's, there is no limit: set it, too."}),
    row<Rate<&ParameterConfig::connection_rate, &RateConfig::queue_max>>(
        {.key = "setParameter.ingressConnectionEstablishmentMaxQueueDepth",
         .type = integer,
         .preset = "0",
         .min = 0,
         .max = 1'000'000,
         .at_runtime = true,
         .at_reload = true,
         .meaning = "So many connections may wait for their turn."}),
    row<Rate<&ParameterConfig::connection_rate, &RateConfig::exempt>>(
        {.key = "setParameter.ingressConnectionEstablishmentRateLimiterBypass.ranges",
         .type = ValueType::list,
         .example = "[10.0.0.5]",
         .range = ranges,
         .at_runtime = true,
         .at_reload = true,
         .meaning = "Addresses that are not limited so; setParameter takes {ranges: [...]}."}),
    row<Rate<&ParameterConfig::request_rate, &RateConfig::enabled>>(
        {.key = "setParameter.ingressRequestRateLimiterEnabled",
         .type = boolean,
         .preset = "false",
         .at_runtime = true,
         .at_reload = true,
         .meaning = "All clients together may send only so many requests as the next two say; others are "
                    "refused with IngressRequestRateLimitExceeded (462). Not counted: who has not logged in where "
                    "one has to, getMore, and what ends something."}),
    row<Rate<&ParameterConfig::request_rate, &RateConfig::per_second>>(
        {.key = "setParameter.ingressRequestAdmissionRatePerSec",
         .type = integer,
         .unit = "1/s",
         .preset = "2147483647",
         .min = 1,
         .max = int32_max,
         .at_runtime = true,
         .at_reload = true,
         .meaning = "Requests per second."}),
    row<Rate<&ParameterConfig::request_rate, &RateConfig::burst_seconds>>(
        {.key = "setParameter.ingressRequestAdmissionBurstCapacitySecs",
         .type = ValueType::number,
         .unit = "s",
         .preset = "1.7976931348623157e+308",
         .range = "above 0",
         .at_runtime = true,
         .at_reload = true,
         .meaning = "So many seconds' worth of requests that did not come may come at once."}),
    row<Rate<&ParameterConfig::request_rate, &RateConfig::exempt>>(
        {.key = "setParameter.ingressRequestRateLimiterExemptions.ranges",
         .type = ValueType::list,
         .example = "[10.0.0.5]",
         .range = ranges,
         .at_runtime = true,
         .at_reload = true,
         .meaning = "Addresses that are not limited so; setParameter takes {ranges: [...]}."}),
};

}  // namespace

std::span<const KeySpec> config_keys() { return all_keys; }

const KeySpec* find_config_key(std::string_view key) {
  for (const KeySpec& spec : all_keys) {
    if (spec.key == key) return &spec;
  }
  return nullptr;
}

bool is_config_section(std::string_view name) {
  const auto below = [&](std::string_view key) {
    return key.size() > name.size() && key.starts_with(name) && key[name.size()] == '.';
  };
  return std::any_of(all_keys.begin(), all_keys.end(), [&](const KeySpec& s) { return below(s.key); }) ||
         std::any_of(foreign_keys().begin(), foreign_keys().end(),
                     [&](const ForeignKey& f) { return below(f.key); });
}

}  // namespace spillway
