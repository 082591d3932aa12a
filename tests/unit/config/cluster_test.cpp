// sharding.configDB and the keys that need it.
#include "proxy/config/cluster.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "proxy/config/tls.h"
#include "proxy/config/yaml_keys.h"

using namespace spillway;

namespace {

// A file that is there as long as this.
class FileOf {
 public:
  explicit FileOf(const std::string& text, mode_t mode = 0600) {
    const int file = ::mkstemp(path_.data());
    REQUIRE(file >= 0);
    REQUIRE(::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
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
                                                         ": may be read by its group"},
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
      {"net: {bindIp: 0.0.0.0}\n", "f.yaml:2: 0.0.0.0 is not a loopback address"},
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
  const auto read = [](const std::string& text, mode_t mode = 0400) {
    const FileOf file(text, mode);
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
  CHECK(read("abcdef", 0440) == Words{": may be read by its group (chmod g-rwx)"});
  CHECK(read("abcdef", 0404) == Words{": may be read by everybody (chmod o-rwx)"});
}
