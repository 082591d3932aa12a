// The keys of a mongos that have no effect here, and what to tell who brings them.
#include <array>

#include "proxy/config/table.h"

namespace spillway {

namespace {

constexpr std::string_view always = "";
constexpr std::string_view refused_key = "*";
constexpr std::string_view shard_tls =
    "shards' connection strings say how to speak to them: tls, tlsCAFile, tlsCertificateKeyFile, …";
constexpr std::string_view old_tls = "its name is net.tls.… today";
constexpr std::string_view mode_key = "see net.tls.mode";
constexpr std::string_view own_ciphers = "ciphers are those with forward secrecy and authentication";
constexpr std::string_view not_enforced = "nothing would enforce it; see security.users";
constexpr std::string_view own_users = "users stand in the configuration; see security.users";
constexpr std::string_view plain_audit = "the audit log is neither encrypted nor compressed";
constexpr std::string_view no_javascript = "the router runs no JavaScript";
constexpr std::string_view no_windows = "it is for Windows";
constexpr std::string_view own_threads = "one event loop per worker; see workers";
constexpr std::string_view own_monitor =
    "connections are checked by the shard monitor; see setParameter.connectTimeoutMS";
constexpr std::string_view no_config_servers = "there are no config servers; see routing";
constexpr std::string_view own_planner = "queries are planned by the shards";
constexpr std::string_view own_memory = "see memory.limit";
constexpr std::string_view not_redacted =
    "slow operations are logged with their filters and documents; see operationProfiling.slowOpThresholdMs";
constexpr std::string_view nothing = "";

constexpr std::array keys_of_mongos = {
    ForeignKey{"systemLog.traceAllExceptions", always, "see systemLog.verbosity"},
    ForeignKey{"systemLog.syslogFacility", always, "lines go to the facility daemon"},
    ForeignKey{"systemLog.timeStampFormat", always, "times are ISO 8601 in local time"},
    ForeignKey{"systemLog.component", always, "see systemLog.verbosity"},
    ForeignKey{"processManagement.timeZoneInfo", always, "the router computes with no time zones"},
    ForeignKey{"processManagement.windowsService", always, no_windows},
    ForeignKey{"net.wireObjectCheck", always, "the structure of every request is always checked"},
    ForeignKey{"net.unixDomainSocket", always, "only TCP is listened on"},
    ForeignKey{"net.serviceExecutor", always, own_threads},
    ForeignKey{"net.transportLayer", always, own_threads},
    ForeignKey{"net.http", always, "there is no HTTP interface"},
    ForeignKey{"net.proxyPort", always, "the PROXY protocol is understood on net.loadBalancerPort only"},
    ForeignKey{"net.tls.certificateSelector", refused_key, "it is for Windows and macOS"},
    ForeignKey{"net.tls.clusterCertificateSelector", refused_key, "it is for Windows and macOS"},
    ForeignKey{"net.tls.clusterFile", always, shard_tls},
    ForeignKey{"net.tls.clusterPassword", always, shard_tls},
    ForeignKey{"net.tls.clusterAuthX509", always, "routers do not speak to each other"},
    ForeignKey{"net.tls.clusterCAFile", always, shard_tls},
    ForeignKey{"net.tls.allowInvalidHostnames", always, shard_tls},
    ForeignKey{"net.tls.FIPSMode", "false", "OpenSSL is used as the system configures it"},
    ForeignKey{"net.tls.logVersions", always, nothing},
    ForeignKey{"net.ssl.mode", "disabled", old_tls},
    ForeignKey{"net.ssl.sslOnNormalPorts", "false", old_tls},
    ForeignKey{"net.ssl.certificateSelector", refused_key, old_tls},
    ForeignKey{"net.ssl.clusterCertificateSelector", refused_key, old_tls},
    ForeignKey{"net.ssl.PEMKeyFile", refused_key, old_tls},
    ForeignKey{"net.ssl.PEMKeyPassword", refused_key, old_tls},
    ForeignKey{"net.ssl.clusterFile", refused_key, old_tls},
    ForeignKey{"net.ssl.clusterPassword", refused_key, old_tls},
    ForeignKey{"net.ssl.CAFile", refused_key, old_tls},
    ForeignKey{"net.ssl.clusterCAFile", refused_key, old_tls},
    ForeignKey{"net.ssl.CRLFile", refused_key, old_tls},
    ForeignKey{"net.ssl.allowConnectionsWithoutCertificates", refused_key, old_tls},
    ForeignKey{"net.ssl.allowInvalidCertificates", refused_key, old_tls},
    ForeignKey{"net.ssl.allowInvalidHostnames", refused_key, old_tls},
    ForeignKey{"net.ssl.disabledProtocols", refused_key, old_tls},
    ForeignKey{"net.ssl.FIPSMode", refused_key, old_tls},
    ForeignKey{"security.keyFile", refused_key, "shards' connection strings say how to log in there"},
    ForeignKey{"security.clusterAuthMode", refused_key, not_enforced},
    ForeignKey{"security.transitionToAuth", refused_key, not_enforced},
    ForeignKey{"security.clusterIpSourceAllowlist", refused_key, not_enforced},
    ForeignKey{"security.clusterIpSourceWhitelist", refused_key, not_enforced},
    ForeignKey{"security.ldap", refused_key, not_enforced},
    ForeignKey{"security.sasl", refused_key, not_enforced},
    ForeignKey{"security.javascriptEnabled", always, no_javascript},
    ForeignKey{"security.redactClientLogData", "false", not_redacted},
    ForeignKey{"sharding.configDB", refused_key,
               "config servers are not supported: write the table down, see routing"},
    ForeignKey{"auditLog.auditEncryptionKeyIdentifier", refused_key, plain_audit},
    ForeignKey{"auditLog.compressionMode", "none", plain_audit},
    ForeignKey{"auditLog.localAuditKeyFile", refused_key, plain_audit},
    ForeignKey{"auditLog.runtimeConfiguration", "false", "the filter is auditLog.filter"},
    ForeignKey{"operationProfiling.mode", "off", "a router does not profile; see operationProfiling.slowOpThresholdMs"},
    ForeignKey{"operationProfiling.slowOpSampleRate", always, "every slow operation is logged"},
    ForeignKey{"operationProfiling.filter", always, "every slow operation is logged"},
    ForeignKey{"setParameter.authenticationMechanisms", refused_key, not_enforced},
    ForeignKey{"setParameter.enableLocalhostAuthBypass", always, "there is nothing to bypass: users stand in the configuration"},
    ForeignKey{"setParameter.saslauthdPath", always, own_users},
    ForeignKey{"setParameter.saslHostName", always, own_users},
    ForeignKey{"setParameter.saslServiceName", always, own_users},
    ForeignKey{"setParameter.scramIterationCount", always, own_users},
    ForeignKey{"setParameter.scramSHA256IterationCount", always, own_users},
    ForeignKey{"setParameter.opensslCipherConfig", refused_key, own_ciphers},
    ForeignKey{"setParameter.opensslDiffieHellmanParameters", always, own_ciphers},
    ForeignKey{"setParameter.sslMode", "disabled", mode_key},
    ForeignKey{"setParameter.tlsMode", "disabled", mode_key},
    ForeignKey{"setParameter.tlsWithholdClientCertificate", always, shard_tls},
    ForeignKey{"setParameter.sslWithholdClientCertificate", always, shard_tls},
    ForeignKey{"setParameter.auditAuthorizationSuccess", "false", "of what is allowed, administrative commands alone are audited"},
    ForeignKey{"setParameter.logLevel", always, "see systemLog.verbosity"},
    ForeignKey{"setParameter.logComponentVerbosity", always, "see systemLog.verbosity"},
    ForeignKey{"setParameter.quiet", always, "see systemLog.quiet"},
    ForeignKey{"setParameter.traceExceptions", always, "see systemLog.verbosity"},
    ForeignKey{"setParameter.maxLogSizeKB", always, nothing},
    ForeignKey{"setParameter.redactClientLogData", "false", not_redacted},
    ForeignKey{"setParameter.javascriptProtection", always, no_javascript},
    ForeignKey{"setParameter.localLogicalSessionTimeoutMinutes", always,
               "sessions are kept by the shards"},
    ForeignKey{"setParameter.logicalSessionRefreshMillis", always,
               "sessions are kept by the shards"},
    ForeignKey{"setParameter.maxSessions", always, "sessions are kept by the shards"},
    ForeignKey{"setParameter.transactionLifetimeLimitSeconds", always,
               "transactions are kept by the shards"},
    ForeignKey{"setParameter.taskExecutorPoolSize", always, own_threads},
    ForeignKey{"setParameter.initialServiceExecutorThreadingModel", always, own_threads},
    ForeignKey{"setParameter.synchronousServiceExecutorRecursionLimit", always, own_threads},
    ForeignKey{"setParameter.ShardingTaskExecutorPoolRefreshRequirementMS", always, own_monitor},
    ForeignKey{"setParameter.ShardingTaskExecutorPoolRefreshTimeoutMS", always, own_monitor},
    ForeignKey{"setParameter.ShardingTaskExecutorPoolReplicaSetMatching", always,
               "each host's pool follows its own load"},
    ForeignKey{"setParameter.ShardingTaskExecutorPoolMinSizeForConfigServers", always,
               no_config_servers},
    ForeignKey{"setParameter.ShardingTaskExecutorPoolMaxSizeForConfigServers", always,
               no_config_servers},
    ForeignKey{"setParameter.loadRoutingTableOnStartup", always, no_config_servers},
    ForeignKey{"setParameter.warmMinConnectionsInShardingTaskExecutorPoolOnStartup", always,
               own_monitor},
    ForeignKey{"setParameter.warmMinConnectionsInShardingTaskExecutorPoolOnStartupWaitMS", always,
               own_monitor},
    ForeignKey{"setParameter.findChunksOnConfigTimeoutMS", always, no_config_servers},
    ForeignKey{"setParameter.replMonitorMaxFailedChecks", always, own_monitor},
    ForeignKey{"setParameter.replicaSetMonitorProtocol", always, own_monitor},
    ForeignKey{"setParameter.connPoolMaxShardedConnsPerHost", always,
               "see setParameter.ShardingTaskExecutorPoolMaxSize"},
    ForeignKey{"setParameter.connPoolMaxShardedInUseConnsPerHost", always,
               "see setParameter.ShardingTaskExecutorPoolMaxSize"},
    ForeignKey{"setParameter.connPoolMaxConnsPerHost", always,
               "see setParameter.ShardingTaskExecutorPoolMaxSize"},
    ForeignKey{"setParameter.connPoolMaxInUseConnsPerHost", always,
               "see setParameter.ShardingTaskExecutorPoolMaxSize"},
    ForeignKey{"setParameter.globalConnPoolIdleTimeoutMinutes", always,
               "see setParameter.ShardingTaskExecutorPoolHostTimeoutMS"},
    ForeignKey{"setParameter.shardedConnPoolIdleTimeoutMinutes", always,
               "see setParameter.ShardingTaskExecutorPoolHostTimeoutMS"},
    ForeignKey{"setParameter.internalQueryProhibitMergingOnMongoS", always, own_planner},
    ForeignKey{"setParameter.internalQueryAlwaysMergeOnPrimaryShard", always, own_planner},
    ForeignKey{"setParameter.internalQueryDisableExchange", always, own_planner},
    ForeignKey{"setParameter.internalQueryMaxBlockingSortMemoryUsageBytes", always, own_planner},
    ForeignKey{"setParameter.notablescan", always, own_planner},
    ForeignKey{"setParameter.tcmallocAggressiveMemoryDecommit", always, own_memory},
    ForeignKey{"setParameter.tcmallocMaxTotalThreadCacheBytes", always, own_memory},
    ForeignKey{"setParameter.tcmallocReleaseRate", always, own_memory},
    ForeignKey{"setParameter.heapProfilingEnabled", always, own_memory},
    ForeignKey{"setParameter.diagnosticDataCollectionEnabled", always, "see serverStatus"},
    ForeignKey{"setParameter.diagnosticDataCollectionDirectoryPath", always, "see serverStatus"},
    ForeignKey{"setParameter.diagnosticDataCollectionDirectorySizeMB", always, "see serverStatus"},
    ForeignKey{"setParameter.diagnosticDataCollectionFileSizeMB", always, "see serverStatus"},
    ForeignKey{"setParameter.diagnosticDataCollectionPeriodMillis", always, "see serverStatus"},
    ForeignKey{"setParameter.loadBalancerPort", always, "see net.loadBalancerPort"},
    ForeignKey{"setParameter.tcpFastOpenServer", always, nothing},
    ForeignKey{"setParameter.tcpFastOpenClient", always, nothing},
    ForeignKey{"setParameter.tcpFastOpenQueueSize", always, nothing},
    ForeignKey{"setParameter.disableJavaScriptJIT", always, no_javascript},
    ForeignKey{"setParameter.automationServiceDescriptor", always, nothing},
};

}  // namespace

std::span<const ForeignKey> foreign_keys() { return keys_of_mongos; }

const ForeignKey* find_foreign_key(std::string_view key) {
  for (const ForeignKey& foreign : keys_of_mongos) {
    if (foreign.key == key) return &foreign;
  }
  return nullptr;
}

}  // namespace spillway
