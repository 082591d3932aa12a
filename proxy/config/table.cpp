#include "proxy/config/table.h"

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>
#include <utility>

namespace spillway {

namespace {

template <class T>
struct ValueOf {
  using Type = T;
};
template <class T>
struct ValueOf<std::optional<T>> {
  using Type = T;
};
template <class T>
struct ValueOf<Setting<T>> {
  using Type = T;
};

// The table's type of a member of type `Member`.
template <class Member, class T = typename ValueOf<Member>::Type>
constexpr ValueType type_of() {
  if (std::is_same_v<T, bool>) return ValueType::boolean;
  if (std::is_enum_v<T>) return ValueType::choice;
  if (std::is_integral_v<T>) return ValueType::integer;
  if (std::is_same_v<T, std::string>) return ValueType::text;
  return std::is_same_v<T, MemoryLimit> ? ValueType::size : ValueType::yaml;
}

template <class Member>
void assign_to(Member& member, const ConfigValue& value) {
  using T = typename ValueOf<Member>::Type;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    member = static_cast<T>(std::get<std::int64_t>(value));
  } else if constexpr (std::is_enum_v<T>) {
    member = static_cast<T>(std::get<std::int64_t>(value));
  } else {
    member = std::get<T>(value);
  }
}

template <class Member>
ConfigValue read_from(const Member& member) {
  using T = typename ValueOf<Member>::Type;
  if constexpr (std::is_same_v<Member, std::optional<T>>) {
    return member ? read_from(*member) : ConfigValue(std::string());
  } else if constexpr (std::is_enum_v<T> || (std::is_integral_v<T> && !std::is_same_v<T, bool>)) {
    return static_cast<std::int64_t>(static_cast<T>(member));
  } else {
    return static_cast<T>(member);
  }
}

constexpr Change restart = Change::restart;
constexpr Change reload = Change::reload;
constexpr Change runtime = Change::runtime;

// A row. `Place` gives the member of a Config.
template <class Place>
constexpr KeySpec row(std::string_view key, Place, Change change, KeyFacts facts, std::string_view meaning) {
  using Member = std::remove_cvref_t<decltype(Place{}(std::declval<Config&>()))>;
  KeySpec spec{.key = key, .type = type_of<Member>(), .change = change, .facts = facts, .meaning = meaning};
  spec.same = [](const Config& a, const Config& b) { return Place{}(a) == Place{}(b); };
  if constexpr (type_of<Member>() != ValueType::yaml) {
    spec.assign = [](Config& config, const ConfigValue& value) { assign_to(Place{}(config), value); };
    spec.read = [](const Config& config) { return read_from(Place{}(config)); };
  }
  return spec;
}

// A row whose member is in Parameters.
template <class Place>
constexpr KeySpec setting(std::string_view key, Place, Change change, KeyFacts facts, std::string_view meaning) {
  constexpr auto in_config = [](auto& config) -> auto& { return Place{}(config.parameters); };
  KeySpec spec = row(key, in_config, change, facts, meaning);
  spec.use = [](Parameters& into, const ConfigValue& value) { assign_to(Place{}(into), value); };
  spec.used = [](const Parameters& from) { return read_from(Place{}(from)); };
  return spec;
}

constexpr KeySpec routing(std::string_view key, Change change, KeyFacts facts, std::string_view meaning) {
  return {.key = key, .type = ValueType::yaml, .change = change, .facts = facts, .meaning = meaning};
}

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): a place is a path of members, which only a macro can take
#define AT(place) [](auto& in) -> auto& { return in.place; }

// One limit of users or of addresses.
template <LimitKey Of, class Value>
constexpr KeySpec limit(std::string_view key, Value, KeyFacts facts, std::string_view meaning) {
  constexpr auto place = [](auto& config) -> auto& {
    return Value{}(config.limits.per[static_cast<std::size_t>(Of)]);
  };
  KeySpec spec = row(key, place, reload, facts, meaning);
  if (facts.unit == "bytes") spec.type = ValueType::bytes;
  return spec;
}

constexpr std::int64_t int32_max = 2'147'483'647;
constexpr std::int64_t year_ms = 366LL * 24 * 3'600 * 1'000;
constexpr LimitKey user = LimitKey::user;
constexpr LimitKey address = LimitKey::address;
constexpr KeyFacts connection_count{.example = "100", .min = 1, .max = 1'000'000};
constexpr KeyFacts cursor_count{.example = "1000", .min = 1, .max = 10'000'000};
constexpr KeyFacts byte_count{.unit = "bytes", .example = "64MiB", .range = "64KiB to 1TiB (units KiB, MiB, GiB, TiB)",
                              .min = 65'536, .max = 1LL << 40};
constexpr KeyFacts rate{.unit = "1/s", .example = "1000", .min = 1, .max = 100'000'000};
constexpr std::string_view compressors = "some of snappy, zstd, zlib, separated by commas, or disabled";

constexpr std::array all_keys = {
    row("net.port", AT(net.port), restart, {.max = 65'535, .variable = "SPILLWAY_NET_PORT"},
        "The TCP port to listen on. 0 takes a free one, which the line \"spillway ready\" on standard output names."),
    row("net.loadBalancerPort", AT(net.load_balancer_port), restart,
        {.example = "27016", .max = 65'535, .variable = "SPILLWAY_NET_LOAD_BALANCER_PORT"},
        "A second TCP port on the same addresses, for drivers with loadBalanced=true: a connection's cursors and "
        "transactions end with it, at once. A load balancer may send the client's address with the PROXY protocol, "
        "version 1 or 2. Spillway trusts every peer that reaches the port. 0 takes a free one, which a line "
        "\"spillway ready for load balancers\" names. Default: no such port."),
    row("net.bindIp", AT(net.bind_ip), restart,
        {.range = "addresses separated by commas; * is every IPv4 address, :: every IPv6 one",
         .variable = "SPILLWAY_NET_BIND_IP"},
        "The addresses to listen on. Anything but loopback needs security.authorization written out: enabled, or "
        "disabled. net.bindIpAll: true is another name for *."),
    row("net.tls.mode", AT(net.tls.mode), reload, {.range = "disabled | allowTLS | preferTLS | requireTLS"},
        "TLS for clients. requireTLS refuses clients without it; allowTLS and preferTLS serve both kinds. With "
        "sharding.configDB preferTLS and requireTLS mean TLS to the cluster's servers, too. For shards of a table see "
        "their connection strings (tls=true, tlsCAFile, tlsCertificateKeyFile, …)."),
    row("net.tls.certificateKeyFile", AT(net.tls.certificate_key_file), reload,
        {.example = "/etc/spillway/server.pem", .range = "a PEM file"},
        "The certificate for clients, its chain, and its private key. Required unless net.tls.mode is disabled."),
    row("net.tls.certificateKeyFilePassword", AT(net.tls.certificate_key_password), reload,
        {.example = "secret", .range = "a password"},
        "The password of the private key in net.tls.certificateKeyFile, if that is encrypted."),
    row("net.tls.CAFile", AT(net.tls.ca_file), reload, {.example = "/etc/spillway/ca.pem", .range = "a PEM file"},
        "The CA certificates that sign clients' certificates. With this key clients need a certificate; without it "
        "none is requested."),
    row("net.tls.CRLFile", AT(net.tls.crl_file), reload, {.example = "/etc/spillway/crl.pem", .range = "a PEM file"},
        "Certificates that were revoked: of clients, and of a cluster's servers."),
    row("net.tls.allowConnectionsWithoutCertificates", AT(net.tls.allow_connections_without_certificates), reload, {},
        "With net.tls.CAFile: clients may connect without a certificate; a certificate that they send must still be "
        "valid."),
    row("net.tls.allowInvalidCertificates", AT(net.tls.allow_invalid_certificates), reload, {},
        "Clients' certificates are not checked."),
    row("net.tls.disabledProtocols", AT(net.tls.disabled_protocols), reload,
        {.range = "of TLS1_0, TLS1_1, TLS1_2, TLS1_3, separated by commas"},
        "TLS versions to disable. The first two are always disabled."),
    row("net.tls.clusterFile", AT(net.tls.cluster_file), reload,
        {.example = "/etc/spillway/member.pem", .range = "a PEM file"},
        "With sharding.configDB: the certificate for the cluster's servers, and its private key. Default: "
        "net.tls.certificateKeyFile. Servers are spoken to with TLS where net.tls.mode is preferTLS or requireTLS; "
        "net.tls.CAFile, else the system's CAs, must have signed their certificates."),
    row("net.tls.clusterPassword", AT(net.tls.cluster_password), reload, {.example = "secret", .range = "a password"},
        "The password of the private key in net.tls.clusterFile, if that is encrypted."),
    row("net.tls.clusterCAFile", AT(net.tls.cluster_ca_file), reload,
        {.example = "/etc/spillway/clients-ca.pem", .range = "a PEM file"},
        "With sharding.configDB: the CA certificates for clients' certificates, instead of net.tls.CAFile."),
    row("net.tls.allowInvalidHostnames", AT(net.tls.allow_invalid_hostnames), reload, {},
        "With sharding.configDB: the servers' certificates may name other hosts."),
    row("net.admin.port", AT(net.admin.port), restart,
        {.example = "9216", .max = 65'535, .variable = "SPILLWAY_NET_ADMIN_PORT"},
        "An HTTP port for monitoring: a page at /, /metrics for Prometheus, /healthz, /readyz. It shows figures and "
        "names of shards to every peer that reaches it; to those on this machine also who does what, and the actions "
        "of a clusterAdmin who logs in. 0 takes a free one, which a line \"spillway ready for administration\" names. "
        "Default: no such port."),
    row("net.admin.bindIp", AT(net.admin.bind_ip), restart,
        {.range = "addresses separated by commas; * is every IPv4 address, :: every IPv6 one",
         .variable = "SPILLWAY_NET_ADMIN_BIND_IP"},
        "The addresses of that port."),
    row("net.maxIncomingConnections", AT(net.max_incoming_connections), reload, {.min = 1, .max = 1'000'000},
        "Client connections open at once; further ones are closed as they come. Never more than four fifths of the "
        "files "
        "that the process may open: shards need some."),
    setting("net.idleClientTimeoutMillis", AT(idle_client_ms), reload, {.unit = "ms", .max = year_ms},
            "A client's connection that has been idle for this time is closed. Drivers open another when they need "
            "one; cursors stay, except those of net.loadBalancerPort. 0: never."),
    setting("net.slowSenderTimeoutMillis", AT(slow_sender_ms), reload, {.unit = "ms", .min = 1'000, .max = 3'600'000},
            "A client that sends nothing for this time in the middle of a message loses its connection. The limit "
            "for a whole message is this time and a second per 16 KiB."),
    row("net.compression.compressors", AT(net.compressors), restart, {.range = compressors},
        "Compressors that clients may negotiate; the client's order decides."),
    row("net.shardCompression", AT(net.shard_compression), restart, {.range = compressors},
        "Compressors offered to shards. Compressed replies cannot be passed through in pieces: leave it disabled "
        "unless "
        "the network is the bottleneck."),
    row("workers", AT(workers), restart, {.max = 256, .variable = "SPILLWAY_WORKERS"},
        "Worker threads. 0: the CPU quota of the cgroup, or the CPUs of the machine, rounded up."),
    row("drainTimeoutSecs", AT(drain_seconds), reload, {.unit = "s", .max = 3'600},
        "When a shutdown has been announced (setParameter.mongosShutdownTimeoutMillisForSignaledShutdown), requests "
        "under way have this time to finish; idle connections are closed at once."),
    row("memory.limit", AT(memory_limit), restart,
        {.unit = "bytes",
         .range = "auto, unlimited, 1% to 100%, or at least 96MiB (units KiB, MiB, GiB, TiB)",
         .min = memory_limit_bytes_min,
         .variable = "SPILLWAY_MEMORY_LIMIT"},
        "The memory of the process and its sockets. The process's memory at the start, a tenth for the heaps and an "
        "eighth for sockets are set aside. The rest is for requests and replies; two of the largest messages of it "
        "are reserved for the requests that have waited longest. auto is half of the cgroup's limit, or a quarter "
        "of the machine's memory without one; a percentage is of the same."),
    setting(
        "memory.allocator", AT(allocator), runtime,
        {.range = "auto | jemalloc | tcmalloc | system", .parameter = "memoryAllocator"},
        "The heap that buffers of 16 KiB and more come from; setParameter calls it memoryAllocator. jemalloc gives "
        "free memory back while the proxy is busy too, tcmalloc keeps it for the next scan until the load is over, "
        "system is for builds with a sanitizer, which have no other. auto tries both in turn under a lasting load, "
        "every ten minutes, and takes tcmalloc if that took at least 5 % less CPU per byte; otherwise, and where "
        "memory is tight, jemalloc."),
    setting("memory.evictIdleMillis", AT(evict_idle_ms), reload, {.unit = "ms", .min = 100, .max = year_ms},
            "While memory is short, cursors that hold documents and have been idle for this time are ended, the "
            "heaviest first; their next getMore gets CursorNotFound."),
    row("memory.spill.path", AT(spill.path), restart, {.example = "/var/lib/spillway", .range = "a folder"},
        "The folder for buffered documents of cursors that were idle for 10 s. They are compressed, in a file "
        "without a name, which disappears with the process. On a tmpfs only compression gains. Default: nowhere; "
        "they are compressed in memory when it is short."),
    row("memory.spill.limit", AT(spill.limit), restart,
        {.unit = "bytes",
         .range = "auto, unlimited, 1% to 100%, or at least 64MiB (units KiB, MiB, GiB, TiB)",
         .min = 64LL * 1024 * 1024},
        "The bytes that this file may take. auto is half of what its file system has free at start; a percentage is of "
        "the "
        "same. Without room documents stay in memory."),
    routing("routing.shards", restart,
            {.example = "[{name: shard0, uri: \"mongodb://127.0.0.1:27018/\"}]",
             .range = "1 to 1024 of {name, uri}",
             .variable = "SPILLWAY_SHARDS"},
            "The shards, each with a name and a connection string. Required, unless there is sharding.configDB."),
    routing(
        "routing.defaultPrimary", reload, {.example = "shard0", .range = "a shard's name"},
        "The shard of the unsharded collections of databases that routing.databases does not name. Default: the "
        "first shard."),
    routing("routing.databases", reload,
            {.example = "[{name: app, primary: shard0}]", .range = "a list of {name, primary}"},
            "Databases with another shard for their unsharded collections."),
    routing("routing.collections", reload,
            {.example = "[{ns: app.users, key: {_id: hashed}}]",
             .range = "a list of {ns, key, unique, chunks: [{min, max, shard}]}"},
            "Sharded collections. Bounds are Extended JSON; chunks cover the whole key space without gap or overlap. "
            "Without "
            "chunks a hashed key is split evenly over all shards."),
    routing("routing.defaultShardKey", reload,
            {.example = "{_id: hashed}",
             .range = "a shard key whose first field is hashed",
             .variable = "SPILLWAY_DEFAULT_SHARD_KEY"},
            "Shards every collection that routing.collections does not name, except system.* and those of admin, "
            "config and "
            "local."),
    row("sharding.configDB", AT(cluster.config_db), restart,
        {.example = "configReplSet/cfg1.example.net:27019,cfg2.example.net:27019",
         .range = "SET/HOST[:PORT],…; the port is 27019 unless given, IPv6 addresses stand in brackets"},
        "The config servers of a sharded cluster: shards and chunks are theirs, and there is no routing section."),
    limit<user>(
        "limits.perUser.connections", AT(connections), connection_count,
        "One user's client connections: further logins are refused. Nothing is limited by default; each refusal is "
        "IngressRequestRateLimitExceeded (462), labelled so that drivers try again later, and counted in "
        "serverStatus.limits."),
    limit<user>("limits.perUser.cursors", AT(cursors), cursor_count,
                "A user's open cursors. Beyond the limit a new cursor is refused; getMore and killCursors go on."),
    limit<user>("limits.perUser.bufferedBytes", AT(buffered_bytes), byte_count,
                "Bytes held for a user's idle cursors, and for replies over 16 KiB that wait for their client. At "
                "the limit the user cannot open cursors, and no batch is fetched ahead, until its clients have read "
                "some of the bytes."),
    limit<user>("limits.perUser.operationsPerSecond", AT(operations_per_second), rate,
                "A user's operations, over all its connections; after a pause those of a second may come at once. "
                "hello, logging in, getMore, and commands that end something (killCursors, endSessions, "
                "commitTransaction, abortTransaction, …) do not count and are never refused."),
    limit<address>("limits.perAddress.connections", AT(connections), connection_count,
                   "The same for one address; of IPv6 the first 64 bits count. The first message of a further "
                   "connection is refused, "
                   "and the connection ends; with TLS it is closed at once."),
    limit<address>("limits.perAddress.cursors", AT(cursors), cursor_count, "As limits.perUser.cursors."),
    limit<address>("limits.perAddress.bufferedBytes", AT(buffered_bytes), byte_count,
                   "As limits.perUser.bufferedBytes."),
    limit<address>("limits.perAddress.operationsPerSecond", AT(operations_per_second), rate,
                   "As limits.perUser.operationsPerSecond."),
    row("limits.overrides", AT(limits.overrides), reload,
        {.example = "[{user: admin.batch, cursors: unlimited}, {address: 10.0.0.0/8, connections: 5}]",
         .range = "a list of {user | address, and any of the limits}"},
        "Other limits for one user (database.name), or each address of a range, of which the longest counts. Limits "
        "that are not named are as above; unlimited: no limit."),
    row("systemLog.destination", AT(system_log.destination), reload, {.range = "console | file | syslog"},
        "Where log lines go. console is standard error."),
    row("systemLog.path", AT(system_log.path), reload, {.example = "/var/log/spillway/spillway.log", .range = "a file"},
        "The log file; with systemLog.destination: file, which requires it."),
    row("systemLog.logRotate", AT(system_log.rotation), reload, {.range = "rename | reopen"},
        "How SIGUSR1 and the command logRotate reopen the log file. rename: they first rename it, with the time "
        "after its name. reopen: another program has renamed it already (logrotate)."),
    row("systemLog.format", AT(system_log.format), reload, {.range = "text | json", .variable = "SPILLWAY_LOG_FORMAT"},
        "json: each line is a document in the format of MongoDB's log since 4.4."),
    setting("systemLog.verbosity", AT(log_level), runtime, {.max = 5, .parameter = "logLevel"},
            "0 logs events, 1 and more debug lines too; setParameter calls it logLevel."),
    row("auditLog.destination", AT(audit.destination), restart,
        {.example = "syslog", .range = "file | syslog | console"},
        "Where the audit log goes: a line of JSON for each login, refused command and administrative command. "
        "console is standard output. Default: nowhere."),
    row("auditLog.path", AT(audit.path), restart, {.example = "/var/log/spillway/audit.json", .range = "a file"},
        "The audit log's file, with auditLog.destination: file, which requires it. Only its owner can read it. It "
        "is reopened together with the log (SIGUSR1, logRotate)."),
    setting("operationProfiling.slowOpThresholdMs", AT(slow_ms), reload, {.unit = "ms", .min = -1, .max = year_ms},
            "Operations that take longer are logged, as \"Slow query\". The profile command's slowms changes it, too. "
            "-1: all "
            "are."),
    row("processManagement.pidFilePath", AT(pid_file_path), restart,
        {.example = "/run/spillway/spillway.pid", .range = "a file"},
        "Where to write the process id. Default: nowhere."),
    row("security.authorization", AT(authorization), restart,
        {.example = "disabled", .range = "disabled | enabled", .variable = "SPILLWAY_AUTHORIZATION"},
        "enabled: clients log in, and their roles decide what they may do. disabled: every client may do "
        "everything, on every address; logins are still checked. Without this key it is disabled, and only loopback "
        "addresses are possible."),
    row("security.keyFile", AT(cluster.key_file), reload,
        {.example = "/etc/spillway/keyfile", .range = "a file that its owner alone may read, or root and its group"},
        "With sharding.configDB: the key of the cluster's members, 6 to 1024 characters of base64; or a YAML list of "
        "two, while one replaces the other. Clients must then log in, as with security.authorization: enabled. It may "
        "begin with $CREDENTIALS_DIRECTORY."),
    row("security.clusterAuthMode", AT(cluster.auth_mode), restart,
        {.example = "keyFile", .range = "keyFile | sendKeyFile | sendX509 | x509"},
        "With sharding.configDB: how to log in to the cluster's servers, by security.keyFile or by the certificate "
        "of net.tls.clusterFile. Default: keyFile if security.keyFile is there; else as security.shards says."),
    row("security.transitionToAuth", AT(cluster.transition_to_auth), restart, {},
        "With sharding.configDB: clients need not log in, and servers that do not know the key are used without a "
        "login. For the time in which a cluster's members get their keys."),
    row("security.failedLogins.allowed", AT(failed_logins_allowed), reload, {.max = 1'000'000},
        "Failed logins in a row of one user from one address (of IPv6 the first 64 bits). After this number further "
        "logins are refused unchecked for 1 s, after each further failure for twice as long, up to a minute. Other "
        "addresses are not affected. A success, or 15 minutes, resets the count. 0: no login is refused."),
    row("security.users", AT(users), reload,
        {.example = "[{user: \"CN=app\", db: $external, roles: [{role: read, db: app}]}]",
         .range = "list of {user, db, roles: [{role, db}], credentials}"},
        "The users. spillway --hash-password NAME makes an entry, which does not contain the password itself. "
        "Roles: read, readWrite, dbAdmin, clusterMonitor, clusterAdmin, readAnyDatabase, readWriteAnyDatabase, "
        "dbAdminAnyDatabase, root. A user of the database $external logs in with a certificate of net.tls.CAFile: "
        "its name is the certificate's subject (RFC 2253), and it has no credentials. Not with sharding.configDB: a "
        "cluster has its own users."),
    row("security.usersFile", AT(users_file), reload,
        {.example = "/etc/spillway/users.yaml",
         .range = "a file that is not world-readable",
         .variable = "SPILLWAY_USERS_FILE"},
        "A file with more users: the list alone, as in security.users. It may begin with $CREDENTIALS_DIRECTORY, as "
        "security.shards.passwordFile may."),
    row("security.usersFrom", AT(users_from), restart, {.example = "shard0", .range = "a shard's name"},
        "Users of that shard (its admin.system.users) log in here, too, with the roles that Spillway knows. The "
        "user of security.shards needs the right to read them. See setParameter.userCacheInvalidationIntervalSecs."),
    row("security.shards.user", AT(shard_login.user), reload,
        {.example = "spillway", .range = "a user's name", .variable = "SPILLWAY_SHARD_USER"},
        "The user for shards whose connection strings name no user. It needs all rights that clients have. Default: "
        "no login."),
    row("security.shards.db", AT(shard_login.db), reload, {.range = "a database"},
        "The database of this user (authSource)."),
    row("security.shards.mechanism", AT(shard_login.mechanism), reload,
        {.range = "negotiated | SCRAM-SHA-1 | SCRAM-SHA-256 | MONGODB-X509"},
        "negotiated: SCRAM-SHA-256 if the user has it, else SCRAM-SHA-1. MONGODB-X509: by the tlsCertificateKeyFile of "
        "the "
        "connection string; then no user is needed."),
    row("security.shards.passwordFile", AT(shard_login.password_file), reload,
        {.example = "$CREDENTIALS_DIRECTORY/shard-password",
         .range = "a file that is not world-readable",
         .variable = "SPILLWAY_SHARD_PASSWORD_FILE"},
        "The password is its first line. $CREDENTIALS_DIRECTORY is where systemd puts what LoadCredential= names. A "
        "connection string may hold user and password, too; --set may not, because every local user sees the "
        "command line."),
    row("replication.localPingThresholdMs", AT(local_threshold_ms), restart, {.unit = "ms", .max = int32_max},
        "Reads go to those eligible members of a replica set whose ping time exceeds the nearest one's by at most "
        "this."),
    setting("setParameter.cursorTimeoutMillis", AT(cursor_timeout_ms), runtime, {.unit = "ms", .max = year_ms},
            "A cursor idle for longer is killed, on its shards too."),
    setting("setParameter.clientCursorMonitorFrequencySecs", AT(cursor_monitor_frequency_secs), runtime,
            {.unit = "s", .min = 1, .max = 86'400}, "How often idle cursors are looked for."),
    setting(
        "setParameter.enableTimeoutOfInactiveSessionCursors", AT(timeout_of_session_cursors), runtime, {},
        "Cursors opened in a session (every driver's) are timed out as others are. A mongos since 4.4.8 spares them by "
        "default."),
    setting("setParameter.cursorOrphanGraceMillis", AT(orphan_grace_ms), runtime,
            {.unit = "ms", .min = -1, .max = year_ms},
            "A cursor whose client has closed its last connection ends after this time. A client counts as "
            "connected while a connection is open with the same client metadata, of the same user or not logged in, "
            "or one that has used the cursor's session. -1: such cursors live as long as others."),
    setting("setParameter.spliceReplies", AT(splice_replies), runtime, {.range = "auto | always | never"},
            "Pass the inside of large batches from a shard's socket to the client's within the kernel, where "
            "neither end uses TLS and memory is plenty: a third of the CPU for each byte, or less; a client on the "
            "same machine pays a part of it when it reads. auto: while a worker passes 100 MB a second or uses a "
            "third of a core. Spillway does not see these bytes: a cursor's nDocsReturned is then an estimate."),
    setting("setParameter.mongosShutdownTimeoutMillisForSignaledShutdown", AT(shutdown_timeout_ms), runtime,
            {.unit = "ms", .max = 3'600'000},
            "After SIGTERM this router announces its end to clients for this time, and still serves them. It ends "
            "earlier if all of them have left."),
    row("setParameter.opentelemetryHttpEndpoint", AT(trace_endpoint), restart,
        {.example = "http://127.0.0.1:4318/v1/traces",
         .range = "an http:// or https:// URL; the path is /v1/traces unless given"},
        "The collector of traces (OpenTelemetry's OTLP over HTTP). A command whose comment or $traceCtx has a sampled "
        "W3C traceparent gives a span, and each of its calls to shards another. Spans have names, times, sizes and "
        "codes, and no values. The certificate of https must be signed by the system's CAs. Default: no command is "
        "traced."),
    row("setParameter.enableLocalhostAuthBypass", AT(parameters.localhost_exception), restart, {},
        "In a cluster that has no users, a client from this host may make the first one: createUser on admin. false "
        "where a proxy on this host passes on clients from elsewhere."),
    row("setParameter.enableTestCommands", AT(parameters.test_commands), restart, {},
        "For tests only: configureFailPoint makes commands fail, for any user who has logged in; getParameter tells "
        "drivers' test suites."),
    row("setParameter.connectTimeoutMS", AT(connect_timeout_ms), restart, {.unit = "ms", .min = 1, .max = 3'600'000},
        "Connecting to a shard, and its answers to the monitor's hello, may take this long; then the requests that "
        "wait for it fail. For a primary of a replica set requests wait 20 s, or this long if it is longer. The wait "
        "for a turn to connect, or for a place in a full pool, does not count: it may last until the command's "
        "maxTimeMS."),
    setting("setParameter.userCacheInvalidationIntervalSecs", AT(user_refresh_secs), runtime,
            {.unit = "s", .min = 1, .max = 86'400},
            "How often the users of security.usersFrom are read again. After ten failures in a row these users lose "
            "access until it succeeds."),
    row("setParameter.maxAcceptableLogicalClockDriftSecs", AT(cluster.clock_drift_secs_max), restart,
        {.unit = "s", .min = 1, .max = int32_max},
        "With sharding.configDB: how far ahead of this machine's clock the time of a server or a client may be."),
    row("setParameter.ShardingTaskExecutorPoolMaxSize", AT(pool_max), restart, {.min = 1, .max = 32'767},
        "Connections per worker and shard host; requests beyond them wait in a queue."),
};
#undef AT

}  // namespace

std::span<const KeySpec> config_keys() { return all_keys; }

const KeySpec* find_config_key(std::string_view key) {
  for (const KeySpec& spec : all_keys) {
    if (spec.key == key) return &spec;
  }
  return nullptr;
}

bool is_config_section(std::string_view name) {
  const auto below = [&](const auto& row) {
    const std::string_view key = row.key;
    return key.size() > name.size() && key.starts_with(name) && key[name.size()] == '.';
  };
  const auto foreign = foreign_keys();
  return std::any_of(all_keys.begin(), all_keys.end(), below) || std::any_of(foreign.begin(), foreign.end(), below);
}

void use_changes(Parameters& into, const Config& before, const Config& after) {
  for (const KeySpec& spec : all_keys) {
    if (spec.use != nullptr && !spec.same(before, after)) spec.use(into, spec.read(after));
  }
}

}  // namespace spillway
