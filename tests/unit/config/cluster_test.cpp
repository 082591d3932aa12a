// sharding.configDB and the keys that need it.
#include "proxy/config/cluster.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "proxy/config/reload_plan.h"
#include "proxy/config/tls.h"
#include "proxy/config/yaml_keys.h"
#include "tests/support/certificates.h"

using namespace spillway;

namespace {

// A file that is there as long as this; `owner` has it where root runs the test.
class FileOf {
 public:
  explicit FileOf(const std::string& text, mode_t mode = 0600, uid_t owner = 1) {
    const int file = ::mkstemp(path_.data());
    REQUIRE(file >= 0);
    REQUIRE(::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    if (::geteuid() == 0) REQUIRE(::fchown(file, owner, static_cast<gid_t>(-1)) == 0);  // others own what they make
    REQUIRE(::fchmod(file, mode) == 0);
    ::close(file);
  }
  FileOf(const FileOf&) = delete;
  FileOf& operator=(const FileOf&) = delete;
  ~FileOf() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/spillway-cluster-XXXXXX";
};

LoadResult load_cluster(const std::string& text) {
  return load_config({.text = "sharding: {configDB: 'cfg/a:1,b'}\n" + text, .file_name = "f.yaml"});
}

std::string refusal_of(const std::string& text) {
  const LoadResult result = load_cluster(text);
  CAPTURE(text, result.errors);
  CHECK(result.errors.size() == 1);
  return result.errors.empty() ? "" : result.errors[0];
}

std::vector<std::string> texts(const Result<std::vector<auth::Secret::Ptr>>& keys) {
  std::vector<std::string> all;
  if (!keys) return {keys.error().message};
  for (const auth::Secret::Ptr& key : *keys) all.emplace_back(key->text());
  return all;
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("config_servers_are_a_set_and_its_seeds") {
  const auto servers = parse_config_servers("cfg/One.example:27020, two ,[::1]:5,[fe80::1],one.example:27020");
  REQUIRE(servers.has_value());
  CHECK(servers->set_name == "cfg");
  REQUIRE(servers->hosts.size() == 4);
  CHECK(servers->hosts[0].text() == "one.example:27020");
  CHECK(servers->hosts[1].text() == "two:27019");
  CHECK(servers->hosts[2].host == "::1");
  CHECK(servers->hosts[2].port == 5);
  CHECK(servers->hosts[3].host == "fe80::1");
  CHECK(servers->hosts[3].port == 27019);
  for (const char* wrong : {"", "a:1", "/a:1", " /a", "cfg/", "cfg/a,", "cfg/a:x", "cfg/a:0", "cfg/a:70000", "cfg/::1",
                            "cfg/[::1", "cfg/a/b", "mongodb://a:1/", "mongodb://a:1/?replicaSet=cfg"}) {
    CAPTURE(wrong);
    const auto refused = parse_config_servers(wrong);
    CHECK(refused.has_error());
  }
}

TEST_CASE("a_table_and_config_servers_exclude_each_other_and_one_is_needed") {
  const LoadResult alone = load_cluster("");
  CHECK(alone.ok());
  REQUIRE(alone.config_servers);
  CHECK(alone.config_servers->hosts.size() == 2);
  CHECK_FALSE(alone.routing);
  CHECK(refusal_of("routing: {shards: [{name: s, uri: 'mongodb://a/'}]}\n")
            .starts_with("f.yaml:1: sharding.configDB and routing exclude each other"));
  CHECK(load_config({.text = "workers: 1\n"}).errors[0].ends_with("as sharding.configDB"));
}

TEST_CASE("a_mongos_conf_is_taken_as_it_is") {
  const FileOf key("openSesame+openSesame/==\n");
  const LoadResult result = load_cluster(R"(
systemLog: {destination: file, path: /tmp/mongos.log, logAppend: true}
processManagement: {fork: false, pidFilePath: /tmp/mongos.pid}
net: {port: 27017, bindIp: 0.0.0.0}
security: {keyFile: )" + key.path() + "}\n");
  CAPTURE(result.errors, result.warnings);
  CHECK(result.ok());
  CHECK(result.warnings.empty());
  CHECK(result.config.authorization == Authorization::enabled);
  const auto login = make_cluster_login(result.config);
  REQUIRE(login.has_value());
  CHECK((*login)->user() == "__system");
  CHECK((*login)->db() == "local");
  CHECK((*login)->internal());
  CHECK((*login)->passwords() == 1);
  CHECK_FALSE((*login)->optional());
}

TEST_CASE("files_as_people_have_them_for_a_mongos_are_accepted_with_a_word_where_a_key_has_no_effect") {
  const FileOf key("openSesame+openSesame/==\n");
  const Certificates made;
  struct File {
    std::string text;
    Words warned;  // keys
  };
  const std::vector<File> files = {
      // A package's example, with the server in the background and without logins.
      {R"(
systemLog: {destination: file, logAppend: true, path: /var/log/mongodb/mongos.log}
processManagement: {fork: true, pidFilePath: /var/run/mongodb/mongos.pid, timeZoneInfo: /usr/share/zoneinfo}
net: {port: 27017, bindIp: 192.168.0.5}
)",
       {"processManagement.fork", "processManagement.timeZoneInfo", "clients are not authenticated"}},
      // Made by a tool that writes all values in quotes.
      {R"(
net: {bindIp: '::,0.0.0.0', compression: {compressors: snappy}, ipv6: 'true', port: '27017'}
processManagement: {fork: 'false'}
replication: {localPingThresholdMs: 5}
systemLog: {destination: file, logAppend: 'true', path: /var/log/mongodb/mongos.log}
security: {keyFile: )" + key.path() + "}\n",
       {"net.ipv6"}},
      {R"(
systemLog: {destination: file, quiet: false, logAppend: true, logRotate: reopen, path: /srv/mongos.log, verbosity: 0}
net: {port: 27017, unixDomainSocket: {enabled: true}, ipv6: false, bindIpAll: false, bindIp: 127.0.0.1}
setParameter: {enableLocalhostAuthBypass: true}
)",
       {"net.unixDomainSocket"}},
      // A socket beside an address.
      {"net: {bindIp: '127.0.0.1,/tmp/mongos.sock'}\n", {"net.bindIp: Unix sockets"}},
      // Names before 4.2, and a member's certificate.
      {"net: {port: '8635', maxIncomingConnections: 200, ssl: {CAFile: " + made.ca() + ", PEMKeyFile: " +
           made.server() + ", allowConnectionsWithoutCertificates: true, allowInvalidCertificates: false, "
           "clusterFile: " + made.client() + ", disabledProtocols: 'TLS1_0,TLS1_1', mode: requireSSL}}\n" + R"(
security: {clusterAuthMode: x509}
setParameter: {connPoolMaxConnsPerHost: 600, connPoolMaxShardedConnsPerHost: 600, cursorTimeoutMillis: 600000}
)",
       {"setParameter.connPoolMaxConnsPerHost", "setParameter.connPoolMaxShardedConnsPerHost"}},
      {"net: {ssl: {mode: preferSSL, CAFile: " + made.ca() + ", PEMKeyFile: " + made.encrypted() +
           ", PEMKeyPassword: 'open sesame', clusterFile: " + made.encrypted() +
           ", clusterPassword: 'open sesame', weakCertificateValidation: true, allowInvalidHostnames: true}}\n"
           "security: {keyFile: " + key.path() + ", clusterAuthMode: sendKeyFile}\n",
       {}},
      {"net: {ssl: {sslOnNormalPorts: true, PEMKeyFile: " + made.server() + ", FIPSMode: false}}\n", {}},
      // Every size that was ever tuned; some have no meaning in any version here.
      {R"(
setParameter:
  ShardingTaskExecutorPoolMaxSize: 100
  ShardingTaskExecutorPoolMinSize: 25
  ShardingTaskExecutorPoolMaxConnecting: 12
  ShardingTaskExecutorPoolHostTimeoutMS: 1800000
  taskExecutorPoolSize: 12
  diagnosticDataCollectionEnabled: false
  maxAcceptableLogicalClockDriftSecs: 86400
  opportunisticSecondaryTargeting: true
  featureFlagOfSomeVersion: {enabled: false}
)",
       {"setParameter.ShardingTaskExecutorPoolMinSize", "setParameter.ShardingTaskExecutorPoolMaxConnecting",
        "setParameter.ShardingTaskExecutorPoolHostTimeoutMS", "setParameter.taskExecutorPoolSize",
        "setParameter.diagnosticDataCollectionEnabled", "setParameter.opportunisticSecondaryTargeting",
        "setParameter.featureFlagOfSomeVersion"}},
      // What is sold beside the server.
      {R"(
security: {redactClientLogData: false, sasl: {hostName: h}}
setParameter: {auditAuthorizationSuccess: true}
auditLog: {destination: syslog, filter: '{}'}
snmp: {subagent: true}
)",
       {"security.sasl", "setParameter.auditAuthorizationSuccess", "auditLog.filter", "snmp"}},
      // Of the versions that hedged reads, and lists of what is offered here, too.
      {R"(
setParameter:
  readHedgingMode: 'on'
  maxTimeMSForHedgedReads: 150
  loadRoutingTableOnStartup: true
  authenticationMechanisms: [MONGODB-X509, SCRAM-SHA-256, SCRAM-SHA-1]
)",
       {"readHedgingMode has no effect: a read is sent", "maxTimeMSForHedgedReads has no effect: a read is sent",
        "loadRoutingTableOnStartup has no effect: a table is read when"}},
      {"setParameter: {readHedgingMode: 'off', authenticationMechanisms: 'SCRAM-SHA-1, SCRAM-SHA-256,MONGODB-X509'}\n",
       {}},
      // Of long ago.
      {"sharding.autoSplit: true\nsharding.chunkSize: 64\nnet: {http: {enabled: false}}\n",
       {"sharding.autoSplit", "sharding.chunkSize", "net.http"}},
  };
  for (const File& file : files) {
    const LoadResult result = load_cluster(file.text);
    CAPTURE(file.text, result.errors, result.warnings);
    CHECK(result.errors.empty());
    for (const std::string& wanted : file.warned) {
      CAPTURE(wanted);
      CHECK(std::count_if(result.warnings.begin(), result.warnings.end(), [&](const std::string& warning) {
              return warning.find(wanted) != std::string::npos;
            }) == 1);
    }
    CHECK(result.warnings.size() == file.warned.size());
  }
  // With a static table what would not be enforced is refused.
  CHECK_FALSE(load_config({.text = files[8].text, .file_name = "f.yaml", .needs_routing = false}).ok());
}

TEST_CASE("a_protection_that_is_not_there_is_refused_in_a_cluster_too") {
  for (const std::string text :
       {"security: {redactClientLogData: true}\n", "security: {clusterIpSourceAllowlist: [10.0.0.0/8]}\n",
        "security: {ldap: {servers: l}}\n", "setParameter: {authenticationMechanisms: SCRAM-SHA-256}\n",
        "setParameter: {opensslCipherConfig: HIGH}\n", "net: {tls: {FIPSMode: true}}\n",
        "auditLog: {auditEncryptionKeyIdentifier: k}\n"}) {
    CAPTURE(text);
    CHECK(refusal_of(text).find(" is refused: ") != std::string::npos);
  }
  CHECK(refusal_of("setParameter: {authenticationMechanisms: 'PLAIN,SCRAM-SHA-256'}\n").ends_with(
      "are offered, no more and no less: remove the line, or name these three"));
}

TEST_CASE("users_of_the_configuration_are_refused_in_a_cluster") {
  const FileOf users("[]\n");
  const std::string external = "security: {authorization: enabled, users: [{user: CN=a, db: $external, roles: []}]}\n";
  CHECK(refusal_of(external).starts_with("f.yaml:2: security.users is for routing; users of a cluster are on its"));
  CHECK(refusal_of("security: {authorization: enabled, usersFile: " + users.path() + "}\n")
            .starts_with("f.yaml:2: security.usersFile is for routing; users of a cluster are on its"));
  CHECK(load_cluster("security: {users: []}\n").ok());
}

TEST_CASE("tls_keys_mean_the_same_under_their_names_before_4_2") {
  const Certificates made;
  const auto tls = [&](const std::string& mode, const std::string& more) {
    const LoadResult result = load_cluster("net: {ssl: {mode: " + mode + ", PEMKeyFile: " + made.server() +
                                           ", CAFile: " + made.ca() + more + "}}\n");
    CAPTURE(result.errors);
    CHECK(result.ok());
    return result.config.net.tls;
  };
  CHECK(tls("requireSSL", "").mode == TlsMode::require);
  CHECK(tls("preferSSL", "").mode == TlsMode::prefer);
  CHECK(tls("allowSSL", "").mode == TlsMode::allow);
  CHECK(tls("requireTLS", "").mode == TlsMode::require);
  const TlsConfig all = tls("requireSSL", ", clusterFile: " + made.client() + ", allowInvalidHostnames: true, "
                                          "allowConnectionsWithoutCertificates: true");
  CHECK(all.certificate_key_file == made.server());
  CHECK(all.ca_file == made.ca());
  CHECK(all.cluster_file == made.client());
  CHECK(all.allow_invalid_hostnames);
  CHECK(all.allow_connections_without_certificates);
  CHECK(refusal_of("net: {ssl: {mode: disabled}, tls: {mode: disabled}}\n").find("net.tls.mode is written twice") !=
        std::string::npos);
  CHECK(refusal_of("net: {ssl: {mode: maybe}}\n").starts_with("f.yaml:2, as net.ssl.mode: net.tls.mode must be"));
}

TEST_CASE("how_far_a_time_may_be_ahead_is_configured") {
  CHECK(load_cluster("").config.cluster.clock_drift_secs_max == 31'536'000);
  CHECK(load_cluster("setParameter: {maxAcceptableLogicalClockDriftSecs: 60}\n").config.cluster.clock_drift_secs_max ==
        60);
  CHECK(refusal_of("setParameter: {maxAcceptableLogicalClockDriftSecs: 0}\n").find("must be an integer from 1") !=
        std::string::npos);
}

TEST_CASE("while_members_get_their_keys_clients_and_servers_need_none") {
  const FileOf key("openSesame");
  const LoadResult result =
      load_cluster("net: {bindIp: 0.0.0.0}\nsecurity: {transitionToAuth: true, keyFile: " + key.path() + "}\n");
  CAPTURE(result.errors);
  CHECK(result.ok());
  CHECK(result.config.authorization == Authorization::disabled);
  CHECK((*make_cluster_login(result.config))->optional());
}

TEST_CASE("a_router_that_is_no_member_logs_in_as_a_user_or_not_at_all") {
  CHECK_FALSE(make_cluster_login(load_cluster("").config).value());
  const FileOf password("sesame\n");
  const LoadResult user =
      load_cluster("security: {shards: {user: router, passwordFile: " + password.path() + "}}\n");
  CHECK(user.ok());
  const auto login = make_cluster_login(user.config);
  REQUIRE(login.has_value());
  CHECK((*login)->user() == "router");
  CHECK_FALSE((*login)->internal());
}

TEST_CASE("what_cannot_be_meant_of_a_cluster_is_refused") {
  const FileOf key("openSesame");
  const FileOf open("openSesame", 0640);
  const FileOf short_key("short");
  const std::string file = "keyFile: " + key.path();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"security: {keyFile: /nonexistent/key}\n", "f.yaml:2: security.keyFile: /nonexistent/key: cannot be read: No"},
      {"security: {keyFile: " + open.path() + "}\n", "f.yaml:2: security.keyFile: " + open.path() +
                                                         ": is open to its group"},
      {"security: {keyFile: " + short_key.path() + "}\n",
       "f.yaml:2: security.keyFile: " + short_key.path() + ": a key has 5 characters; it must have 6 to 1024"},
      {"security: {clusterAuthMode: keyFile}\n", "f.yaml:2: security.clusterAuthMode needs security.keyFile"},
      {"security: {clusterAuthMode: x509}\n", "f.yaml:2: security.clusterAuthMode needs net.tls.mode"},
      {"security: {clusterAuthMode: sendKeyFile, " + file + "}\n",
       "f.yaml:2: security.clusterAuthMode needs net.tls.mode"},
      {"security: {clusterAuthMode: password}\n",
       "f.yaml:2: security.clusterAuthMode must be keyFile, sendKeyFile, sendX509 or x509, not \"password\""},
      {"security: {transitionToAuth: true}\n", "f.yaml:2: security.transitionToAuth needs security.keyFile"},
      {"security: {authorization: disabled, " + file + "}\n",
       "f.yaml:2: security.authorization: disabled would give every client all rights"},
      {"security: {shards: {user: u, passwordFile: " + key.path() + "}, " + file + "}\n",
       "f.yaml:2: security.shards and security.keyFile"},
      {"security: {usersFrom: s}\n", "f.yaml:2: security.usersFrom is for routing"},
      {"net: {tls: {clusterFile: /x}}\n", "f.yaml:2: net.tls.clusterFile needs net.tls.mode"},
      {"net: {bindIp: 0.0.0.0}\nsecurity: {shards: {user: u, passwordFile: " + key.path() + "}}\n",
       "f.yaml:2: 0.0.0.0 is not a loopback address"},
      {"net: {bindIp: /tmp/mongos.sock}\n", "f.yaml:2: net.bindIp: \"/tmp/mongos.sock\" is a Unix socket"},
      {"setParametre: {logLevel: 1}\n", "f.yaml:2: unknown key"},
  };
  for (const auto& [text, error] : cases) {
    CAPTURE(text, error);
    const std::string refused = refusal_of(text);
    CAPTURE(refused);
    CHECK(refused.starts_with(error));
    CHECK(refused.find("openSesame") == std::string::npos);
  }
}

TEST_CASE("keys_of_a_cluster_mean_nothing_with_a_static_table") {
  const LoadResult result = load_config({.text = R"(
net: {tls: {clusterFile: /x, clusterPassword: p, clusterCAFile: /y, allowInvalidHostnames: true}}
security: {transitionToAuth: false}
)",
                                         .file_name = "f.yaml",
                                         .needs_routing = false});
  CHECK(result.ok());
  CHECK(result.warnings.size() == 4);
  for (const std::string& warning : result.warnings) CHECK(warning.starts_with("f.yaml:2: net.tls."));
  CHECK(result.config == Config{});
}

TEST_CASE("servers_are_spoken_to_as_net_tls_says") {
  TlsConfig tls;
  CHECK_FALSE(cluster_tls(tls)->has_value());
  tls.mode = TlsMode::allow;
  CHECK_FALSE(cluster_tls(tls)->has_value());
  tls.mode = TlsMode::prefer;
  tls.certificate_key_file = "/own";
  tls.certificate_key_password = "p1";
  tls.ca_file = "/ca";
  tls.crl_file = "/crl";
  const TlsClientSettings own{.files = {"/own", "p1", "/ca", "/crl"}};
  CHECK((*cluster_tls(tls) == own));
  tls.cluster_file = "/member";
  tls.cluster_password = "p2";
  tls.cluster_ca_file = "/clients";  // for clients alone
  tls.allow_invalid_hostnames = true;
  const TlsClientSettings member{.files = {"/member", "p2", "/ca", "/crl"}, .invalid_hostnames = true};
  CHECK((*cluster_tls(tls) == member));
}

TEST_CASE("a_key_file_holds_one_key_or_two") {
  const auto read = [](const std::string& text, mode_t mode = 0400, uid_t owner = 1) {
    const FileOf file(text, mode, owner);
    std::vector<std::string> found = texts(read_key_file(file.path()));
    for (std::string& word : found) {
      if (const auto at = word.find(file.path()); at != std::string::npos) word.erase(at, file.path().size());
    }
    return found;
  };
  CHECK(read("abcdef") == Words{"abcdef"});
  CHECK(read("abc\n  def\n\n+/=\t\r\n") == Words{"abcdef+/="});
  CHECK(read("123456\n") == Words{"123456"});
  CHECK(read("- oldKey1\n- newKey2\n") == Words{"oldKey1", "newKey2"});
  CHECK(read("# keys\n- \"old Key\"\n- 'newKey'\n") == Words{"oldKey", "newKey"});
  CHECK(read("[onlyone]") == Words{"onlyone"});
  CHECK(read(std::string(1024, 'a')).front().size() == 1024);
  CHECK(read(std::string(1025, 'a')) == Words{": a key has 1025 characters; it must have 6 to 1024"});
  CHECK(read("abcde") == Words{": a key has 5 characters; it must have 6 to 1024"});
  CHECK(read("- abcdef\n- abc\n") == Words{": a key has 3 characters; it must have 6 to 1024"});
  CHECK(read("- a12345\n- b12345\n- c12345\n") == Words{": holds 3 keys; at most 2 are possible"});
  const Words characters = {": a key has a character that is not one of base64 (A-Z a-z 0-9 + / =)"};
  CHECK(read("open sesame!") == characters);
  CHECK(read("open_sesame") == characters);
  CHECK(read("") == Words{": holds no key"});
  CHECK(read("[]") == Words{": holds no key"});
  CHECK(read("key: abcdef") == Words{": holds something else than a key, or a list of keys"});
  CHECK(read("- [abcdef]\n") == Words{": holds something else than a key, or a list of keys"});
  CHECK(read("[abcdef") == Words{": is neither a key nor a YAML list of keys"});
  CHECK(read(std::string(100'000, 'a')) == Words{": is too large for a key file"});
  CHECK(read("abcdef", 0440) == Words{": is open to its group (chmod g-rwx)"});
  CHECK(read("abcdef", 0404) == Words{": is world-readable (chmod o-rwx)"});
  if (::geteuid() != 0) return;  // root owns what Kubernetes mounts: its group may read that
  CHECK(read("abcdef", 0440, 0) == Words{"abcdef"});
  CHECK(read("abcdef", 0460, 0) == Words{": is open to its group (chmod g-rwx)"});
  CHECK(read("abcdef", 0444, 0) == Words{": is world-readable (chmod o-rwx)"});
}

TEST_CASE("a reload that changes TLS towards the cluster's servers needs a process that starts with it") {
  const LoadResult now = load_cluster("");
  LoadResult next = load_cluster("");
  next.config.net.tls.mode = TlsMode::allow;  // clients' alone
  CHECK(plan_reload(now.config, nullptr, next).refusals.empty());
  const Config clients_only = next.config;
  next.config.net.tls.mode = TlsMode::require;
  const ReloadPlan plan = plan_reload(clients_only, nullptr, next);
  REQUIRE(plan.refusals.size() == 1);
  CHECK(plan.refusals[0].starts_with("net.tls, of what it says for the cluster's servers, cannot be changed"));
  CHECK(plan.needs_start);
  const Config required = next.config;
  CHECK(plan_reload(required, nullptr, next).refusals.empty());
  next.config.net.tls.crl_file = "/crl.pem";
  CHECK(plan_reload(required, nullptr, next).refusals.size() == 1);
}
