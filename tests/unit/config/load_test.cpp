// load_config(): what files mean, what is refused, and where the messages point.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "proxy/catalog/routing.h"
#include "proxy/config/config.h"
#include "proxy/config/http_endpoint.h"

using namespace spillway;

namespace {

const std::string shard_line =
    "routing: {shards: [{name: shard0, uri: \"mongodb://127.0.0.1:1/\"}]}\n";

LoadResult load(const std::string& text, std::vector<std::string> overrides = {},
                bool needs_routing = false) {
  return load_config({.text = text,
                      .file_name = "f.yaml",
                      .overrides = std::move(overrides),
                      .needs_routing = needs_routing});
}

struct BadFile {
  const char* text;
  std::vector<std::string> errors;  // each is the beginning of one, in order; no others
};

void check_messages(const std::vector<std::string>& messages,
                    const std::vector<std::string>& expected) {
  CAPTURE(messages, expected);
  REQUIRE(messages.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(messages[i], expected[i]);
    CHECK(messages[i].starts_with(expected[i]));
  }
}

}  // namespace

TEST_CASE("an_empty_file_is_the_defaults") {
  for (const char* text :
       {"", "# nothing\n", "---\n", "net:\nsecurity:\n  # authorization: disabled\n"}) {
    CAPTURE(text);
    const LoadResult result = load(text);
    check_messages(result.errors, {});
    CHECK(result.config == Config{});
    CHECK(result.routing == nullptr);
  }
}

TEST_CASE("set_takes_no_password") {
  for (const char* text :
       {"routing.shards=[{name: a, uri: \"mongodb://u:sesame@a/\"}]", "net.tls.certificateKeyFilePassword=sesame",
        "net={tls: {certificateKeyFilePassword: sesame}}", "net.tls={\"certificateKeyFilePassword\" : sesame}",
        "routing.shards=[{name: a, uri: \"mongodb://a/?tls=true&tlsCertificateKeyFilePassword=sesame\"}]",
        "routing.shards=[{name: a, uri: \"mongodb://a/?tls=true&tlscertificatekeyfilepassword=sesame\"}]"}) {
    CAPTURE(text);
    const LoadResult result = load("", {text});
    REQUIRE(result.errors.size() == 1);
    CHECK(result.errors[0].find("a password must not stand on the command line") != std::string::npos);
    CHECK(result.errors[0].find("sesame") == std::string::npos);
  }
  for (const LoadResult& result : {load("", {"security.shards.passwordFile=/nonexistent"}), load("", {"net.port=1"})}) {
    for (const std::string& error : result.errors) CHECK(error.find("command line") == std::string::npos);
  }
}

TEST_CASE("what_cannot_be_read_does_not_say_where_it_is_served") {
  for (const char* text :
       {"net: {port: 1", "net: {port: x}", "net: {port: [1]}", "net: 7", "- net", "a: 1\n---\nb: 1\n"}) {
    CAPTURE(text);
    CHECK_FALSE(load(text).net_known);
  }
  CHECK_FALSE(load_config_file("/nonexistent/f.yaml", {}, false).net_known);
  CHECK_FALSE(load("", {"net.port=x"}).net_known);
  CHECK_FALSE(load("", {"net.prot=1"}).net_known);
  CHECK_FALSE(load("", {"net.port"}).net_known);
  // Errors that leave no doubt about that.
  for (const char* text : {"wrokers: 1\n", "workers: x\n", "net: {bindIp: 10.0.0.1}\n"}) {
    CAPTURE(text);
    CHECK_FALSE(load(text).ok());
    CHECK(load(text).net_known);
  }
  CHECK(load("", {"net.port=1"}).net_known);
}

TEST_CASE("a_mongos_conf_with_our_keys_is_read") {
  const LoadResult result = load(R"(
net:
  port: 0
  loadBalancerPort: 27016
  bindIp: "localhost,::1 , 10.0.0.1"
  maxIncomingConnections: 100
  compression: {compressors: "zlib, snappy"}
  shardCompression: zstd
  tls: {mode: disabled, certificateKeyFilePassword: secret, allowInvalidCertificates: true,
        allowConnectionsWithoutCertificates: true, disabledProtocols: TLS1_0}
  admin: {port: 9216, bindIp: "::1"}
workers: 3
memory: {limit: 512MiB}
drainTimeoutSecs: 4
systemLog: {destination: file, path: /tmp/x.log, logRotate: reopen, format: json, verbosity: 2}
operationProfiling: {slowOpThresholdMs: 20}
processManagement: {pidFilePath: /tmp/x.pid, fork: false}
security: {authorization: disabled}
replication: {localPingThresholdMs: 7}
setParameter:
  cursorTimeoutMillis: 5000
  clientCursorMonitorFrequencySecs: 1
  enableTimeoutOfInactiveSessionCursors: 0
  enableTestCommands: 1
  connectTimeoutMS: 250
  ShardingTaskExecutorPoolMaxSize: 9
)" + shard_line,
                                 {}, true);
  check_messages(result.errors, {});
  check_messages(result.warnings, {});
  Config expected;
  expected.net = {.port = 0,
                  .load_balancer_port = 27016,
                  .bind_ip = "localhost,::1 , 10.0.0.1",
                  .max_incoming_connections = 100,
                  .compressors = "zlib, snappy",
                  .shard_compression = "zstd",
                  .tls = {.mode = TlsMode::disabled,
                          .certificate_key_file = "",
                          .certificate_key_password = "secret",
                          .ca_file = "",
                          .crl_file = "",
                          .allow_connections_without_certificates = true,
                          .allow_invalid_certificates = true,
                          .disabled_protocols = "TLS1_0"},
                  .admin = {.port = 9216, .bind_ip = "::1"}};
  expected.workers = 3;
  expected.memory_limit = {MemoryLimit::Kind::bytes, 512ULL << 20};
  expected.drain_seconds = 4;
  expected.parameters.slow_ms = 20;
  expected.parameters.log_level = 2;
  expected.system_log = {.destination = LogDestination::file,
                         .path = "/tmp/x.log",
                         .rotation = LogRotation::reopen,
                         .format = LogFormat::json};
  expected.pid_file_path = "/tmp/x.pid";
  expected.authorization = Authorization::disabled;
  expected.local_threshold_ms = 7;
  expected.parameters.cursor_timeout_ms = 5'000;
  expected.parameters.cursor_monitor_frequency_secs = 1;
  expected.parameters.timeout_of_session_cursors = false;
  expected.parameters.test_commands = true;
  expected.connect_timeout_ms = 250;
  expected.pool_max = 9;
  CHECK(result.config == expected);
  REQUIRE(result.routing);
  REQUIRE(result.routing->shards().size() == 1);
  CHECK(result.routing->shards()[0].name == "shard0");
  CHECK(listen_addresses(result.config.net) ==
        std::vector<std::string>{"127.0.0.1", "::1", "10.0.0.1"});
}

TEST_CASE("bad_files_say_what_is_wrong_and_where") {
  const std::vector<BadFile> files = {
      {"net:\n  prot: 1\n", {"f.yaml:2: unknown key \"net.prot\"; did you mean \"net.port\"?"}},
      {"nett: {port: 1}\n", {"f.yaml:1: unknown key \"nett\"; did you mean \"net\"?"}},
      {"port: 1\n", {"f.yaml:1: unknown key \"port\"; did you mean \"net.port\"?"}},
      {"Net: {port: 1}\n", {"f.yaml:1: unknown key \"Net\"; did you mean \"net\"?"}},
      {"storage: {dbPath: /data}\n", {"f.yaml:1: unknown key \"storage\" (--print-config lists"}},
      {"setParameter: {cursorTimeoutMilis: 1}\n",
       {"f.yaml:1: unknown key \"setParameter.cursorTimeoutMilis\"; did you mean "
        "\"setParameter.cursorTimeoutMillis\"?"}},
      {"net: {port: 65536}\n", {"f.yaml:1: net.port must be an integer from 0 to 65535, not \"65536\""}},
      {"net: {port: 9, admin: {port: 9}}\n", {"f.yaml:1: net.admin.port is a port for clients already"}},
      {"net: {loadBalancerPort: 9, admin: {port: 9}}\n", {"f.yaml:1: net.admin.port is a port for clients already"}},
      {"net: {admin: {bindIp: a-host}}\n", {"f.yaml:1: net.admin.bindIp: \"a-host\" is no address"}},
      {"net: {admin: {readyShards: all}}\n",
       {"f.yaml:1: net.admin.readyShards is refused: /readyz answers 200 while any shard"}},
      {"limits: {perApplication: {connections: 5}}\n",
       {"f.yaml:1: limits.perApplication is refused: nothing would enforce it"}},
      {"auditLog: {filter: '{}'}\n", {"f.yaml:1: auditLog.filter is refused: every event is written"}},
      {"setParameter: {opentelemetryHttpEndpoint: 'collector:4318'}\n",
       {"f.yaml:1: setParameter.opentelemetryHttpEndpoint: \"collector:4318\" is no http:// or https:// URL"}},
      {"auditLog: {format: BSON}\n", {"f.yaml:1: auditLog.format is refused: the audit log is written as JSON"}},
      {"net: {port: -1}\n", {"f.yaml:1: net.port must be an integer from 0 to 65535, not \"-1\""}},
      {"net: {port: 1x}\n", {"f.yaml:1: net.port must be an integer from 0 to 65535, not \"1x\""}},
      {"net: {port: \"\"}\n", {"f.yaml:1: net.port must be an integer from 0 to 65535, not \"\""}},
      {"net: {port: 99999999999999999999}\n", {"f.yaml:1: net.port must be an integer"}},
      {"net: {port: [1]}\n", {"f.yaml:1: net.port must be one value, not a list"}},
      {"net: {port: {a: 1}}\n", {"f.yaml:1: net.port must be one value, not a section"}},
      {"net: {port: }\n", {"f.yaml:1: net.port must be one value, not nothing"}},
      {"net: {tls: {allowInvalidCertificates: yes}}\n",
       {"f.yaml:1: net.tls.allowInvalidCertificates must be true or false, not \"yes\""}},
      {"net: {tls: {allowInvalidCertificates: 1}}\n",
       {"f.yaml:1: net.tls.allowInvalidCertificates must be true or false, not \"1\""}},
      {"net: {bindIpAll: 1}\n", {"f.yaml:1: net.bindIpAll must be true or false, not \"1\""}},
      {"net: 3\n", {"f.yaml:1: net must be a section of keys, not \"3\""}},
      {"net: [port]\n", {"f.yaml:1: net must be a section of keys, not a list"}},
      {"- net\n", {"f.yaml:1: the configuration must be a mapping of keys"}},
      {"just words\n", {"f.yaml:1: the configuration must be a mapping of keys"}},
      {"configdb = rs/h:1\nport = 2\n",
       {"f.yaml:1: the configuration is a mapping of keys, in YAML; \"key = value\", MongoDB's format to 2.4, is "
        "not read: write configdb = X as sharding: {configDB: X}"}},
      {"? [a, b]\n: 1\n", {"f.yaml:1: a key must be a word"}},
      {"net: {port: 1\n", {"f.yaml:"}},
      {"net: *nowhere\n", {"f.yaml:"}},
      {"workers: 1\n---\nworkers: 2\n", {"f.yaml: holds more than one YAML document"}},
      {"workers: 1\nworkers: 2\n", {"f.yaml:2: workers is written twice (first at f.yaml:1)"}},
      {"net: {port: 1}\nnet: {bindIp: ''}\n", {"f.yaml:2: net is written twice (first at f.yaml:1)"}},
      {"net.port: 1\nnet: {port: 2}\n", {"f.yaml:2: net.port is written twice (first at f.yaml:1)"}},
      {",workers: 1\n", {"f.yaml: holds more than one YAML document"}},
      {"workers: 257\n", {"f.yaml:1: workers must be an integer from 0 to 256"}},
      {"systemLog: {destination: journal}\n",
       {"f.yaml:1: systemLog.destination must be console, file or syslog, not \"journal\""}},
      {"systemLog:\n  destination: file\n", {"f.yaml:2: systemLog.destination: file needs systemLog.path"}},
      {"systemLog:\n  path: /tmp/x\n", {"f.yaml:2: systemLog.path needs systemLog.destination: file"}},
      {"systemLog: {destination: file, path: ''}\n",
       {"f.yaml:1: systemLog.path must be a file, not \"\"",
        "f.yaml:1: systemLog.destination: file needs systemLog.path"}},
      {"processManagement:\n  fork: true\n",
       {"f.yaml:2: processManagement.fork is refused: leave the background to a service manager"}},
      {"security: {keyFile: /k}\n", {"f.yaml:1: security.keyFile is refused: shards' connection"}},
      {"security: {redactClientLogData: true}\n",
       {"f.yaml:1: security.redactClientLogData is refused: slow operations are logged with their"}},
      {"security: {ldap: x}\n", {"f.yaml:1: security.ldap is refused: nothing would enforce it"}},
      {"security:\n  users: ann\n", {"f.yaml:2: security.users: users must be a list"}},
      {"security:\n  users:\n    - {user: ann, roles: []}\n", {"f.yaml:3: security.users, ann: db is missing"}},
      {"security:\n  users:\n    - {user: ann, db: admin, roles: []}\n",
       {"f.yaml:3: security.users, ann: there are no credentials; spillway --hash-password"}},
      {"security:\n  users:\n    - {user: ann, db: admin, password: x, roles: []}\n",
       {"f.yaml:3: security.users: unknown key \"password\""}},
      {"security:\n  users:\n    - {user: CN=a, db: $external,\n       roles: [{role: readwrite, db: app}]}\n",
       {"f.yaml:4: security.users, CN=a: there is no role \"readwrite\" (did you mean 'readWrite'?)"}},
      {"security: {users: [{user: CN=a, db: $external, roles: [{role: root, db: app}]}]}\n",
       {"f.yaml:1: security.users, CN=a: the role root is one of the database admin"}},
      {"security: {users: [{user: CN=a, db: $external, roles: [{role: backup, db: admin}]}]}\n",
       {"f.yaml:1: security.users, CN=a: there is no role \"backup\""}},
      {"security: {users: [{user: a, db: $external, roles: []}, {user: a, db: $external, roles: []}]}\n",
       {"f.yaml:1: security.users: a of the database $external is there twice"}},
      {"security: {users: [{user: a, db: $external, roles: [], credentials: {}}]}\n",
       {"f.yaml:1: security.users, a: a user of $external logs in by a certificate"}},
      {"security: {users: [{user: a, db: b, roles: [], credentials: {SCRAM-SHA-1: {iterationCount: 1,\n"
       "  salt: AAAA, storedKey: AAAA, serverKey: AAAA}}}]}\n",
       {"f.yaml:2: security.users, a: storedKey of SCRAM-SHA-1 must be 20 bytes in base64",
        "f.yaml:2: security.users, a: serverKey of SCRAM-SHA-1 must be 20 bytes in base64"}},
      {"security:\n  users:\n    - {user: CN=a, db: $external,\n       roles: [{role: root, db: admin}], roles: []}\n",
       {"f.yaml:4: security.users: roles is written twice"}},
      {"security: {users: [{user: CN=a, db: $external, roles: [{role: read, db: a, db: b}]}]}\n",
       {"f.yaml:1: security.users, CN=a: db is written twice", "f.yaml:1: security.users, CN=a: a role is {role, db}"}},
      {"security: {usersFile: /nonexistent/users.yaml}\n",
       {"f.yaml:1: /nonexistent/users.yaml: cannot be read: No such file"}},
      {"security: {clusterAuthMode: x509, transitionToAuth: true}\n",
       {"f.yaml:1: security.clusterAuthMode is refused: nothing would enforce it; see security.users; it needs "
        "sharding.configDB",
        "f.yaml:1: security.transitionToAuth is refused: nothing would enforce it"}},
      {"sharding: {configDB: a:1}\n", {"f.yaml:1: sharding.configDB: \"a:1\" names no replica set: write SET/"}},
      {"sharding: {clusterRole: 1}\n", {"f.yaml:1: unknown key \"sharding.clusterRole\""}},
      {"net: {tls: {mode: requireTLS}}\n", {"f.yaml:1: net.tls.mode needs net.tls.certificateKeyFile"}},
      {"net:\n  tls: {mode: allowTLS, certificateKeyFile: /nonexistent}\n",
       {"f.yaml:2: net.tls: cannot use the certificate in /nonexistent: No such file"}},
      {"net: {tls: {certificateKeyFile: /x}}\n", {"f.yaml:1: net.tls has files, but net.tls.mode is disabled"}},
      {"net: {tls: {mode: requireTLS, certificateKeyFile: /x, disabledProtocols: TLS9}}\n",
       {"f.yaml:1: net.tls.disabledProtocols: \"TLS9\" is none of"}},
      {"net: {tls: {mode: requireTLS, certificateKeyFile: /x, CRLFile: /y}}\n",
       {"f.yaml:1: net.tls.CRLFile needs net.tls.CAFile"}},
      {"net: {ssl: {mode: requireSSL}}\n",
       {"f.yaml:1, as net.ssl.mode: net.tls.mode needs net.tls.certificateKeyFile"}},
      {"net: {bindIp: 0.0.0.0}\n", {"f.yaml:1: 0.0.0.0 is not a loopback address, and clients are not authenticated"}},
      {"net: {bindIp: 'localhost,myhost'}\n", {"f.yaml:1: myhost is not a loopback address"}},
      {"net: {bindIp: '*'}\n", {"f.yaml:1: 0.0.0.0 is not a loopback address"}},
      {"net: {bindIpAll: true}\n", {"f.yaml:1, as net.bindIpAll: 0.0.0.0 is not a loopback address"}},
      {"net: {bindIpAll: true, bindIp: 127.0.0.1}\nsecurity: {authorization: disabled}\n",
       {"f.yaml:1: net.bindIp is written twice (first at f.yaml:1, as net.bindIpAll)"}},
      {"net: {port: 27016, loadBalancerPort: 27016}\n",
       {"f.yaml:1: net.loadBalancerPort and net.port are the same port"}},
      {"net: {loadBalancerPort: 65536}\n",
       {"f.yaml:1: net.loadBalancerPort must be an integer from 0 to 65535, not \"65536\""}},
      {"net: {bindIp: '127.0.0.1,'}\n", {"f.yaml:1: net.bindIp has an empty address"}},
      {"net: {bindIp: '127.0.0.1:27017'}\nsecurity: {authorization: disabled}\n",
       {"f.yaml:1: net.bindIp: \"127.0.0.1:27017\" is no address (the port is net.port)"}},
      {"net: {bindIp: 300.1.1.1}\nsecurity: {authorization: disabled}\n",
       {"f.yaml:1: net.bindIp: \"300.1.1.1\" is no address"}},
      {"net: {bindIp: /tmp/m.sock}\nsecurity: {authorization: disabled}\n",
       {"f.yaml:1: net.bindIp: \"/tmp/m.sock\" is a Unix socket"}},
      {"net: {compression: {compressors: \"snappy,lz4\"}}\n", {"f.yaml:1: net.compression.compressors: "}},
      {"net: {shardCompression: gzip}\n", {"f.yaml:1: net.shardCompression: "}},
      {"memory: {limit: 63MiB}\n", {"f.yaml:1: memory.limit must be auto, unlimited"}},
      {"memory: {limit: 512MB}\n", {"f.yaml:1: memory.limit must be auto, unlimited"}},
      {"memory: {limit: 101%}\n", {"f.yaml:1: memory.limit must be auto, unlimited"}},
      {"memory: {limit: 99999999TiB}\n", {"f.yaml:1: memory.limit must be auto, unlimited"}},
      {"memory: {evictIdleMillis: 1}\n", {"f.yaml:1: memory.evictIdleMillis "}},
      {"setParameter: {cursorOrphanGraceMillis: -2}\n", {"f.yaml:1: setParameter.cursorOrphanGraceMillis "}},
      {"memory: {evictMillis: 1}\n", {"f.yaml:1: unknown key \"memory.evictMillis\""}},
      {"routing: [a]\n", {"f.yaml:1: routing must be a section of keys, not a list"}},
      {"routing.shards: [a]\n", {"f.yaml:1: routing.shards must stand in a section"}},
      {"workers: x\nnet:\n  port: y\n  foo: 1\nzzzzzzzz: 1\n",
       {"f.yaml:1: workers must", "f.yaml:3: net.port must", "f.yaml:4: unknown key \"net.foo\"",
        "f.yaml:5: unknown key \"zzzzzzzz\""}},
  };
  for (const BadFile& file : files) {
    CAPTURE(file.text);
    check_messages(load(file.text).errors, file.errors);
  }
}

TEST_CASE("aliases_that_contain_themselves_and_deep_nesting_end") {
  CHECK_FALSE(load("&a {net: *a}\n").ok());
  CHECK_FALSE(load("net: &n {port: 1, x: *n}\n").ok());
  CHECK_FALSE(load("routing: &a {shards: *a}\n").ok());
  const std::string cycle = "routing: &a {shards: [], databases: *a}\n";
  CHECK_FALSE(load(cycle, {"routing.shards=[]"}).ok());
  CHECK_FALSE(load(cycle, {"routing.shards=[{name: a, uri: 'mongodb://h/'}]"}).ok());
  for (const char c : {'[', '{'}) {
    CHECK_FALSE(load("net: " + std::string(100'000, c)).ok());
  }
}

TEST_CASE("keys_of_a_mongos_without_effect_warn_once_each") {
  const LoadResult result = load(R"(
systemLog:
  logRotate: reopen
  component: {network: {verbosity: 1}, query: {verbosity: 2}}
processManagement: {timeZoneInfo: /usr/share/zoneinfo}
net:
  wireObjectCheck: true
  tls: {mode: disabled, clusterFile: /x}
setParameter: {ShardingTaskExecutorPoolRefreshTimeoutMS: 1, maxLogSizeKB: 10}
)");
  check_messages(result.errors, {});
  check_messages(
      result.warnings,
      {"f.yaml:4: systemLog.component has no effect: see systemLog.verbosity",
       "f.yaml:5: processManagement.timeZoneInfo has no effect: ",
       "f.yaml:7: net.wireObjectCheck has no effect: ",
       "f.yaml:9: setParameter.ShardingTaskExecutorPoolRefreshTimeoutMS has no effect: ",
       "f.yaml:9: setParameter.maxLogSizeKB has no effect", "f.yaml:8: net.tls.clusterFile has no effect: "});
}

TEST_CASE("what_a_mongos_conf_may_hold_beside_our_keys_is_accepted_with_a_word_where_it_matters") {
  const LoadResult silent = load(R"(
net: {ipv6: false, bindIpAll: false}
processManagement: {fork: false}
systemLog: {quiet: false}
auditLog: {destination: syslog, format: JSON, schema: mongo}
setParameter: {ingressRequestRateLimiterEnabled: false}
)");
  check_messages(silent.errors, {});
  check_messages(silent.warnings, {});
  const LoadResult told = load(R"(
net: {ipv6: true, listenBacklog: 100, maxIncomingConnectionsOverride: [10.0.0.1, 192.168.0.0/16]}
systemLog: {quiet: true}
setParameter:
  ingressConnectionEstablishmentRateLimiterEnabled: true
  ingressConnectionEstablishmentRateLimiterBypass: {ranges: [10.0.0.0/8]}
  ingressRequestAdmissionRatePerSec: 1000
  ShardingTaskExecutorPoolMinSize: 2
  ShardingTaskExecutorPoolMaxConnecting: 3
  ShardingTaskExecutorPoolHostTimeoutMS: 60000
memory: {release: {threshold: 1MiB}, spill: {idleMillis: 5}}
)");
  check_messages(told.errors, {});
  check_messages(
      told.warnings,
      {"f.yaml:2: net.ipv6 has no effect: IPv6 addresses are listened on where net.bindIp names them",
       "f.yaml:2: net.listenBacklog has no effect: it is 4096",
       "f.yaml:2: net.maxIncomingConnectionsOverride has no effect: net.maxIncomingConnections holds",
       "f.yaml:3: systemLog.quiet has no effect: ",
       "f.yaml:5: setParameter.ingressConnectionEstablishmentRateLimiterEnabled has no effect: rates are limited",
       "f.yaml:6: setParameter.ingressConnectionEstablishmentRateLimiterBypass has no effect: see limits",
       "f.yaml:7: setParameter.ingressRequestAdmissionRatePerSec has no effect: see limits",
       "f.yaml:8: setParameter.ShardingTaskExecutorPoolMinSize has no effect: each worker keeps one",
       "f.yaml:9: setParameter.ShardingTaskExecutorPoolMaxConnecting has no effect: each worker opens two",
       "f.yaml:10: setParameter.ShardingTaskExecutorPoolHostTimeoutMS has no effect: connections idle for 5",
       "f.yaml:11: memory.release has no effect: ", "f.yaml:11: memory.spill.idleMillis has no effect: it is"});
  CHECK(told.config == Config{});
}

TEST_CASE("a_users_file_is_one_document") {
  std::string path = "/tmp/spillway-users-XXXXXX";
  const int file = ::mkstemp(path.data());
  REQUIRE(file >= 0);
  const std::string one = "- {user: CN=a, db: $external, roles: []}\n";
  REQUIRE(::write(file, one.data(), one.size()) == static_cast<ssize_t>(one.size()));
  check_messages(load("security: {usersFile: " + path + "}\n").errors, {});
  const std::string next = "---\n- {user: CN=b, db: $external, roles: []}\n";
  REQUIRE(::write(file, next.data(), next.size()) == static_cast<ssize_t>(next.size()));
  ::close(file);
  check_messages(load("security: {usersFile: " + path + "}\n").errors,
                 {"f.yaml:1: " + path + ": holds more than one YAML document"});
  ::unlink(path.c_str());
}

TEST_CASE("loopback_needs_no_permission_and_other_addresses_do") {
  CHECK(load("net: {bindIp: '127.0.0.1,127.8.8.8,localhost'}\n").ok());
  CHECK(load("net: {bindIp: '::1'}\n").ok());
  CHECK(load("net: {bindIp: 0.0.0.0}\nsecurity: {authorization: disabled}\n").ok());
  CHECK(load("net: {bindIpAll: true}\nsecurity: {authorization: disabled}\n").ok());
  const LoadResult all = load("net: {bindIpAll: true}\nsecurity: {authorization: enabled}\n");
  CHECK(all.ok());
  CHECK(all.warnings.empty());
  CHECK(all.config.net.bind_ip == "*");
  CHECK(load("net: {bindIpAll: false, bindIp: '::1'}\n").config.net.bind_ip == "::1");
  for (const char* address : {"127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1", "localhost"}) {
    CHECK(is_loopback(address));
  }
  for (const char* address : {"0.0.0.0", "128.0.0.1", "::", "::ffff:1.2.3.4", "host", ""}) {
    CHECK_FALSE(is_loopback(address));
  }
}

TEST_CASE("listen_addresses_are_numbers_where_they_can_be_and_come_once") {
  NetConfig net;
  net.bind_ip = "localhost, 127.0.0.1,db.example";
  CHECK(listen_addresses(net) == std::vector<std::string>{"127.0.0.1", "db.example"});
  net.bind_ip = "*";
  CHECK(listen_addresses(net) == std::vector<std::string>{"0.0.0.0"});
  net.bind_ip = "*,::";
  CHECK(listen_addresses(net) == std::vector<std::string>{"0.0.0.0", "::"});
}

TEST_CASE("set_goes_before_the_file_and_the_last_one_wins") {
  const LoadResult result =
      load("net: {port: 1, bindIp: '::1'}\nworkers: 2\n",
           {"net.port=5", "net={port: 7, maxIncomingConnections: 9}", "workers=\"4\""});
  check_messages(result.errors, {});
  CHECK(result.config.net.port == 7);
  CHECK(result.config.net.max_incoming_connections == 9);
  CHECK(result.config.net.bind_ip == "::1");
  CHECK(result.config.workers == 4);
}

TEST_CASE("wrong_sets_name_themselves") {
  const struct {
    const char* set;
    const char* error;
  } cases[] = {
      {"net.port", "--set net.port: expected key=value"},
      {"=1", "--set =1: expected key=value"},
      {"net.prot=1", "--set net.prot: unknown key \"net.prot\"; did you mean \"net.port\"?"},
      {"net.port=x", "--set net.port: net.port must be an integer from 0 to 65535, not \"x\""},
      {"net.port=", "--set net.port: net.port must be one value, not nothing"},
      {"net.port={", "--set net.port: not valid YAML: "},
      {"net.bindIp=0.0.0.0", "--set net.bindIp: 0.0.0.0 is not a loopback address"},
      {"net={port: 1, port: 2}", "--set net: net.port is written twice"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.set);
    check_messages(load("", {c.set}).errors, {c.error});
  }
}

TEST_CASE("routing_is_required_unless_shards_are_canned") {
  check_messages(load("workers: 1\n", {}, true).errors, {"f.yaml: routing.shards is missing"});
  check_messages(load("workers: x\n", {}, true).errors,
                 {"f.yaml:1: workers must", "f.yaml: routing.shards is missing"});
  check_messages(load("{", {}, true).errors, {"f.yaml:"});
  CHECK(load("workers: 1\n", {}, false).ok());
  check_messages(load_config({}).errors, {"routing.shards is missing"});
}

TEST_CASE("errors_of_the_routing_table_name_file_and_line") {
  const LoadResult result = load("workers: 1\n" + shard_line.substr(0, shard_line.size() - 2) +
                                 ", defaultPrimary: nobody}\n");
  REQUIRE(result.errors.size() == 1);
  CHECK(result.errors[0].starts_with("f.yaml:2"));
  CHECK(result.errors[0].find("nobody") != std::string::npos);
  CHECK(result.routing == nullptr);
}

TEST_CASE("set_changes_parts_of_the_routing_table_and_keeps_the_types_of_bounds") {
  const std::string file = R"(
routing:
  shards:
    - {name: shard0, uri: "mongodb://127.0.0.1:1/"}
    - {name: shard1, uri: "mongodb://127.0.0.1:2/"}
  collections:
    - ns: app.orders
      key: {n: 1}
      chunks:
        - {min: {n: {$minKey: 1}}, max: {n: "5"}, shard: shard0}
        - {min: {n: "5"}, max: {n: {$maxKey: 1}}, shard: shard1}
)";
  const LoadResult plain = load(file);
  const LoadResult changed = load(file, {"routing.defaultPrimary=shard1"});
  check_messages(plain.errors, {});
  check_messages(changed.errors, {});
  REQUIRE(plain.routing);
  REQUIRE(changed.routing);
  CHECK(plain.routing->default_primary() == 0);
  CHECK(changed.routing->default_primary() == 1);
  const auto* before = plain.routing->collection("app.orders");
  const auto* after = changed.routing->collection("app.orders");
  REQUIRE(before);
  REQUIRE(after);
  CHECK(before->fingerprint == after->fingerprint);

  const LoadResult replaced = load(file, {"routing={shards: [{name: a, uri: 'mongodb://h:1/'}]}"});
  check_messages(replaced.errors, {});
  REQUIRE(replaced.routing);
  CHECK(replaced.routing->shards()[0].name == "a");
  CHECK(replaced.routing->collection("app.orders") == nullptr);

  const LoadResult wrong = load(file, {"routing.defaultPrimary=nobody"});
  REQUIRE(wrong.errors.size() == 1);
  CHECK(wrong.errors[0].starts_with("f.yaml with --set routing:"));
}

TEST_CASE("an_endpoint_is_a_url_without_a_user_or_a_query") {
  struct Case {
    const char* url;
    const char* authority;  // "": wrong
    const char* path = "/v1/traces";
  };
  const Case cases[] = {
      {"http://127.0.0.1:4318/v1/traces", "127.0.0.1:4318"},
      {"http://collector", "collector"},
      {"http://Collector:80", "collector"},
      {"https://collector.example.net", "collector.example.net"},
      {"https://collector:443/", "collector", "/"},
      {"https://collector:80/otlp/v1/traces", "collector:80", "/otlp/v1/traces"},
      {"http://[::1]:4318", "[::1]:4318"},
      {"http://[::1]/a%20b", "[::1]", "/a%20b"},
      {"", ""},
      {"http://", ""},
      {"http:///v1/traces", ""},
      {"HTTP://collector", ""},
      {"grpc://collector:4317", ""},
      {"collector:4318", ""},
      {"http://collector:0", ""},
      {"http://collector:", ""},
      {"http://collector:65536", ""},
      {"http://user:secret@collector", ""},
      {"http://collector/?key=secret", ""},
      {"http://collector/#a", ""},
      {"http://collector/a b", ""},
      {"http://collector/\r\nX: y", ""},
      {"http://[::1", ""},
  };
  for (const Case& each : cases) {
    CAPTURE(each.url);
    const auto endpoint = trace_endpoint(each.url);
    REQUIRE(endpoint.has_value() == (each.authority[0] != '\0'));
    if (endpoint.has_error()) {
      CHECK(endpoint.error().message.find("secret") == std::string::npos);
      continue;
    }
    CHECK(endpoint->authority() == each.authority);
    CHECK(endpoint->path == each.path);
    CHECK(endpoint->tls == std::string_view(each.url).starts_with("https"));
  }
  CHECK(trace_endpoint("http://" + std::string(2'000, 'a')).has_error());
}

TEST_CASE("a_file_that_cannot_be_read_is_an_error_with_the_reason") {
  check_messages(load_config_file("/nonexistent/spillway.yaml", {}).errors,
                 {"/nonexistent/spillway.yaml: cannot be read: No such file or directory"});
  check_messages(load_config_file("/tmp", {}).errors, {"/tmp: cannot be read: "});
}

TEST_CASE("a_file_is_read_from_disk") {
  char path[] = "/tmp/spillway-config-XXXXXX";
  const int fd = mkstemp(path);
  REQUIRE(fd >= 0);
  close(fd);
  {
    std::ofstream file(path);
    file << "net: {port: 0}\nworkers: nine\n" << shard_line;
  }
  const LoadResult result = load_config_file(path, {"workers=2"});
  check_messages(result.errors, {std::string(path) + ":2: workers must"});
  CHECK(load_config_file(path, {"workers=2"}).config.workers == 2);
  { std::ofstream file(path, std::ios::trunc); }
  CHECK(load_config_file(path, {}, false).ok());
  unlink(path);
}
