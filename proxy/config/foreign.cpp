// The keys that are accepted and set nothing, with a message for each: most are a mongos's.
#include <array>
#include <vector>

#include "proxy/config/table.h"
#include "proxy/config/text.h"

namespace spillway {

namespace {

using Fate = ForeignKey::Fate;

// Keys of one section with the same rule. "": ignored with a warning; "*": refused; another value: harmless, because
// it holds here anyway; other values are refused, or ignored after "~". With sharding.configDB a warning takes the
// place of a refusal, but not after "!": these keys promise a protection.
struct Group {
  std::string_view section;
  std::string_view keys;  // separated by blanks
  std::string_view fate;
  std::string_view note = {};
};

constexpr std::string_view shard_tls =
    "shards' connection strings say how to speak to them: tls, tlsCAFile, tlsCertificateKeyFile, …";
constexpr std::string_view not_enforced = "nothing would enforce it; see security.users";
constexpr std::string_view own_users =
    "users stand in the configuration (security.users), those of a cluster on its config servers";
constexpr std::string_view plain_audit = "the audit log is neither encrypted nor compressed";
constexpr std::string_view no_javascript = "the router runs no JavaScript";
constexpr std::string_view own_threads = "one event loop per worker; see workers";
constexpr std::string_view own_monitor =
    "connections are checked by the shard monitor; see setParameter.connectTimeoutMS";
constexpr std::string_view not_redacted =
    "slow operations are logged with their filters and documents; see operationProfiling.slowOpThresholdMs";

constexpr std::array groups = {
    Group{"systemLog", "traceAllExceptions component", "", "see systemLog.verbosity"},
    Group{"systemLog", "syslogFacility", "", "lines go to the facility daemon"},
    Group{"systemLog", "timeStampFormat", "", "times are ISO 8601 in local time"},
    Group{"systemLog", "logAppend", "~true", "what the log file has already is never deleted; see systemLog.logRotate"},
    Group{"systemLog", "quiet", "~false", "informational lines are always written"},
    Group{"processManagement", "fork", "false",
          "leave the background to a service manager (systemd/spillway.service), or to the shell's &"},
    Group{"processManagement", "timeZoneInfo", "", "the router computes with no time zones"},
    Group{"processManagement", "windowsService", "", "it is for Windows"},
    Group{"net", "wireObjectCheck", "", "the structure of every request is always checked"},
    Group{"net", "unixDomainSocket", "", "only TCP is listened on"},
    Group{"net", "reservedAdminThreads", "", own_threads},
    Group{"sharding", "autoSplit chunkSize", "", "chunks are split by the shards; config.settings has their size"},
    Group{"", "snmp", "", "see net.admin.port"},
    Group{"net", "serviceExecutor transportLayer", "", own_threads},
    Group{"net", "http", "", "there is no HTTP interface"},
    Group{"net", "proxyPort", "", "the PROXY protocol is understood on net.loadBalancerPort only"},
    Group{"net", "ipv6", "~false",
          "IPv6 addresses are listened on where net.bindIp names them: * is every IPv4 address, :: every IPv6 one, "
          "localhost is 127.0.0.1"},
    Group{"net", "listenBacklog", "", "it is 4096, capped by net.core.somaxconn"},
    Group{"net", "maxIncomingConnectionsOverride", "", "net.maxIncomingConnections holds for every address"},
    Group{"net.tls", "certificateSelector clusterCertificateSelector", "*", "it is for Windows and macOS"},
    Group{"net.tls", "clusterAuthX509", "", "routers do not speak to each other"},
    Group{"net.tls", "FIPSMode", "!false", "OpenSSL is used as the system configures it"},
    Group{"net.tls", "logVersions", "", "clients have TLS 1.2 or 1.3, and no line of the log says which"},
    Group{"net.ssl", "certificateSelector clusterCertificateSelector", "*", "it is for Windows and macOS"},
    Group{"net.ssl", "FIPSMode", "!false", "OpenSSL is used as the system configures it"},
    Group{"security", "clusterIpSourceAllowlist clusterIpSourceWhitelist ldap", "!*", not_enforced},
    Group{"security", "sasl", "*", not_enforced},
    Group{"security", "javascriptEnabled", "", no_javascript},
    Group{"security", "redactClientLogData", "!false", not_redacted},
    Group{"auditLog", "format", "JSON", "the audit log is written as JSON"},
    Group{"auditLog", "schema", "mongo", "the audit log is written in the schema mongo"},
    Group{"auditLog", "filter", "*", "every event is written; choose among the lines where they are read"},
    Group{"auditLog", "auditEncryptionKeyIdentifier localAuditKeyFile", "!*", plain_audit},
    Group{"auditLog", "compressionMode", "none", plain_audit},
    Group{"auditLog", "runtimeConfiguration", "false", "there is no filter to change"},
    Group{"operationProfiling", "mode", "off", "a router does not profile; see operationProfiling.slowOpThresholdMs"},
    Group{"operationProfiling", "slowOpSampleRate filter", "", "every slow operation is logged"},
    Group{"setParameter", "authenticationMechanisms", "!SCRAM-SHA-1,SCRAM-SHA-256,MONGODB-X509",
          "SCRAM-SHA-256, SCRAM-SHA-1 and MONGODB-X509 are offered, no more and no less: remove the line, or name "
          "these three"},
    Group{"setParameter", "saslauthdPath saslHostName saslServiceName scramIterationCount scramSHA256IterationCount",
          "", own_users},
    Group{"setParameter", "opensslCipherConfig", "!*", "ciphers are those with forward secrecy and authentication"},
    Group{"setParameter", "opensslDiffieHellmanParameters", "",
          "ciphers are those with forward secrecy and authentication"},
    Group{"setParameter", "sslMode tlsMode", "disabled", "see net.tls.mode"},
    Group{"setParameter", "tlsWithholdClientCertificate sslWithholdClientCertificate", "", shard_tls},
    Group{"setParameter", "auditAuthorizationSuccess", "false",
          "of what is allowed, administrative commands alone are audited"},
    Group{"setParameter", "logLevel logComponentVerbosity traceExceptions", "", "see systemLog.verbosity"},
    Group{"setParameter", "quiet", "~false", "informational lines are always written"},
    Group{"setParameter",
          "maxLogSizeKB tcpFastOpenServer tcpFastOpenClient tcpFastOpenQueueSize automationServiceDescriptor", ""},
    Group{"setParameter", "redactClientLogData", "!false", not_redacted},
    Group{"setParameter", "javascriptProtection disableJavaScriptJIT", "", no_javascript},
    Group{"setParameter", "localLogicalSessionTimeoutMinutes logicalSessionRefreshMillis maxSessions", "",
          "sessions are kept by the shards"},
    Group{"setParameter", "transactionLifetimeLimitSeconds", "", "transactions are kept by the shards"},
    Group{"setParameter",
          "taskExecutorPoolSize initialServiceExecutorThreadingModel synchronousServiceExecutorRecursionLimit", "",
          own_threads},
    Group{"setParameter",
          "ShardingTaskExecutorPoolRefreshRequirementMS ShardingTaskExecutorPoolRefreshTimeoutMS "
          "replMonitorMaxFailedChecks "
          "replicaSetMonitorProtocol warmMinConnectionsInShardingTaskExecutorPoolOnStartup "
          "warmMinConnectionsInShardingTaskExecutorPoolOnStartupWaitMS",
          "", own_monitor},
    Group{"setParameter", "ShardingTaskExecutorPoolReplicaSetMatching", "", "each host's pool follows its own load"},
    Group{"setParameter", "ShardingTaskExecutorPoolMinSize", "", "each worker keeps one connection to a host open"},
    Group{"setParameter", "ShardingTaskExecutorPoolMaxConnecting", "", "each worker opens two at once to a host"},
    Group{"setParameter",
          "ShardingTaskExecutorPoolHostTimeoutMS globalConnPoolIdleTimeoutMinutes shardedConnPoolIdleTimeoutMinutes",
          "", "connections idle for 5 minutes are closed"},
    Group{"setParameter",
          "ShardingTaskExecutorPoolMinSizeForConfigServers ShardingTaskExecutorPoolMaxSizeForConfigServers "
          "findChunksOnConfigTimeoutMS",
          "", "config servers are treated as shards are"},
    Group{"setParameter", "loadRoutingTableOnStartup", "",
          "a table is read when a command names it for the first time"},
    Group{"setParameter", "readHedgingMode", "~off", "a read is sent to one host"},
    Group{"setParameter", "maxTimeMSForHedgedReads", "", "a read is sent to one host"},
    Group{"setParameter",
          "connPoolMaxShardedConnsPerHost connPoolMaxShardedInUseConnsPerHost connPoolMaxConnsPerHost "
          "connPoolMaxInUseConnsPerHost",
          "", "see setParameter.ShardingTaskExecutorPoolMaxSize"},
    Group{"setParameter",
          "internalQueryProhibitMergingOnMongoS internalQueryAlwaysMergeOnPrimaryShard internalQueryDisableExchange "
          "internalQueryMaxBlockingSortMemoryUsageBytes notablescan",
          "", "queries are planned by the shards"},
    Group{"setParameter",
          "tcmallocAggressiveMemoryDecommit tcmallocMaxTotalThreadCacheBytes tcmallocReleaseRate heapProfilingEnabled",
          "", "see memory.limit"},
    Group{
        "setParameter",
        "diagnosticDataCollectionEnabled diagnosticDataCollectionDirectoryPath diagnosticDataCollectionDirectorySizeMB "
        "diagnosticDataCollectionFileSizeMB diagnosticDataCollectionPeriodMillis",
        "", "see serverStatus"},
    Group{"setParameter", "loadBalancerPort", "", "see net.loadBalancerPort"},
    Group{"setParameter",
          "opentelemetryTraceDirectory openTelemetryTracingCompression openTelemetryTracingBatchExportIntervalMillis "
          "openTelemetryTracingMaxBatchSize openTelemetryTracingMaxQueueSize openTelemetryTracingHttpExportHeaders "
          "openTelemetryTracingResourceAttributes openTelemetryTracingSampling featureFlagTracing "
          "featureFlagOtelTraceSampling",
          "", "see setParameter.opentelemetryHttpEndpoint"},
    Group{"setParameter", "ingressConnectionEstablishmentRateLimiterEnabled ingressRequestRateLimiterEnabled", "~false",
          "rates are limited by limits.perUser and limits.perAddress"},
    Group{"setParameter",
          "ingressConnectionEstablishmentRatePerSec ingressConnectionEstablishmentBurstCapacitySecs "
          "ingressConnectionEstablishmentMaxQueueDepth ingressConnectionEstablishmentRateLimiterBypass "
          "ingressRequestAdmissionRatePerSec ingressRequestAdmissionBurstCapacitySecs "
          "ingressRequestRateLimiterExemptions",
          "", "see limits"},
    // Spillway's keys of earlier versions.
    Group{"limits", "perApplication", "*", "nothing would enforce it; see limits.perUser"},
    Group{"limits.perUser", "burst", "", "the operations of a second may come at once"},
    Group{"limits.perAddress", "burst", "", "the operations of a second may come at once"},
    Group{"memory", "release", "", "free memory is given back 800 ms after the load, from 8 MiB on"},
    Group{"memory.spill", "idleMillis", "", "it is 10 s"},
    Group{"net", "handshakeTimeoutMillis", "", "it is 30 s"},
    Group{"net.admin", "readyShards", "any", "/readyz answers 200 while any shard can be reached"},
    Group{"security.failedLogins", "waitMaxMillis", "", "it is a minute"},
    Group{"setParameter", "cursorReadAhead", "~true", "batches are fetched ahead while memory is plenty"},
};

constexpr std::array cluster_groups = {
    Group{"security", "keyFile", "*", "shards' connection strings say how to log in there"},
    Group{"security", "clusterAuthMode", "*", not_enforced},
    Group{"security", "transitionToAuth", "false", not_enforced},
    Group{"setParameter", "enableLocalhostAuthBypass", "~true", "users stand in the configuration"},
    Group{"setParameter", "maxAcceptableLogicalClockDriftSecs", "~31536000", "there is no common time"},
    Group{"net.tls", "clusterFile clusterPassword clusterCAFile", "", shard_tls},
    Group{"net.tls", "allowInvalidHostnames", "~false", shard_tls},
};

std::vector<ForeignKey> all_keys_of(std::span<const Group> from) {
  std::vector<ForeignKey> keys;
  for (const Group& group : from) {
    const bool ignored = group.fate.empty() || group.fate.starts_with('~');
    const bool protects = group.fate.starts_with('!');
    const std::string_view harmless = group.fate.substr(protects || group.fate.starts_with('~') ? 1 : 0);
    for (const std::string_view word : split(group.keys, " ")) {
      const std::string section = group.section.empty() ? std::string() : std::string(group.section) + ".";
      keys.push_back({section + std::string(word), ignored ? Fate::ignored : Fate::refused,
                      harmless == "*" ? std::string_view() : harmless, group.note,
                      !protects && !group.section.starts_with("limits")});
    }
  }
  return keys;
}

}  // namespace

std::span<const ForeignKey> foreign_keys() {
  static const std::vector<ForeignKey> keys = all_keys_of(groups);
  return keys;
}

std::span<const ForeignKey> cluster_keys() {
  static const std::vector<ForeignKey> keys = all_keys_of(cluster_groups);
  return keys;
}

const ForeignKey* find_foreign_key(std::string_view key) {
  for (const ForeignKey& foreign : foreign_keys()) {
    if (foreign.key == key) return &foreign;
  }
  return nullptr;
}

}  // namespace spillway
