// Environment variables: which are taken, what goes before what, and what messages name.
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "proxy/catalog/routing.h"
#include "proxy/config/config.h"
#include "proxy/config/table.h"
#include "proxy/config/environment.h"

using namespace spillway;

namespace {

Environment read(std::vector<const char*> variables) {
  variables.push_back(nullptr);
  return read_environment(variables.data());
}

LoadResult load(const std::string& text, std::vector<const char*> variables,
                std::vector<std::string> overrides = {}) {
  return load_config({.text = text,
                      .file_name = "f.yaml",
                      .overrides = std::move(overrides),
                      .needs_routing = false,
                      .environment = read(std::move(variables)).values});
}

std::string only_error(const LoadResult& result) {
  CAPTURE(result.errors);
  REQUIRE(result.errors.size() == 1);
  return result.errors[0];
}

}  // namespace

TEST_CASE("every_variable_names_a_key_that_there_is") {
  for (const EnvironmentSetting& setting : environment_settings()) {
    CAPTURE(setting.variable, setting.key);
    CHECK(setting.variable.starts_with("SPILLWAY_"));
    if (setting.key.empty()) continue;
    CHECK(find_config_key(setting.key) != nullptr);
  }
}

TEST_CASE("variables_alone_make_a_configuration") {
  const LoadResult result = load(
      "", {"PATH=/bin", "SPILLWAY_NET_PORT=1234", "SPILLWAY_NET_LOAD_BALANCER_PORT=0",
           "SPILLWAY_NET_BIND_IP=*", "SPILLWAY_WORKERS=3", "SPILLWAY_MEMORY_LIMIT=128MiB",
           "SPILLWAY_SHARDS=mongodb://a/?ssl=true eu=mongodb://b,c/?replicaSet=r\n mongodb://d/",
           "SPILLWAY_DEFAULT_SHARD_KEY={_id: hashed}", "SPILLWAY_LOG_FORMAT=json",
           "SPILLWAY_AUTHORIZATION=disabled"});
  CAPTURE(result.errors);
  REQUIRE(result.ok());
  CHECK(result.config.net.port == 1234);
  CHECK(result.config.net.load_balancer_port == 0);
  CHECK(result.config.net.bind_ip == "*");
  CHECK(result.config.workers == 3);
  CHECK(result.config.memory_limit == MemoryLimit{MemoryLimit::Kind::bytes, 128ULL << 20});
  CHECK(result.config.system_log.format == LogFormat::json);
  CHECK(result.config.authorization == Authorization::disabled);
  REQUIRE(result.routing);
  REQUIRE(result.routing->shards().size() == 3);
  CHECK(result.routing->shards()[0].name == "shard0");
  CHECK(result.routing->shards()[1].name == "eu");
  CHECK(result.routing->shards()[1].uri == "mongodb://b,c/?replicaSet=r");
  CHECK(result.routing->shards()[2].name == "shard2");
}

TEST_CASE("a_set_goes_before_a_variable_and_a_variable_before_the_file") {
  const std::string file =
      "net: {port: 1}\nworkers: 1\nrouting: {shards: [{name: f, uri: \"mongodb://f/\"}], "
      "defaultPrimary: f}\n";
  const LoadResult result =
      load(file, {"SPILLWAY_NET_PORT=2", "SPILLWAY_WORKERS=2"}, {"workers=3"});
  REQUIRE(result.ok());
  CHECK(result.config.net.port == 2);
  CHECK(result.config.workers == 3);
  const LoadResult shards = load(file, {"SPILLWAY_SHARDS=f=mongodb://v/"});
  CAPTURE(shards.errors);
  REQUIRE(shards.ok());
  CHECK(shards.routing->shards()[0].uri == "mongodb://v/");
  CHECK(load(file, {"SPILLWAY_SHARDS=f=mongodb://v/"},
             {"routing.shards=[{name: f, uri: \"mongodb://s/\"}]"})
            .routing->shards()[0]
            .uri == "mongodb://s/");
  // The whole of routing by --set, as --canned does.
  const LoadResult whole = load(file, {"SPILLWAY_SHARDS=x=mongodb://v/ y=mongodb://v/"},
                                {"routing={shards: [{name: s, uri: \"mongodb://s/\"}]}"});
  REQUIRE(whole.ok());
  REQUIRE(whole.routing->shards().size() == 1);
  CHECK(whole.routing->shards()[0].name == "s");
}

TEST_CASE("an_empty_variable_is_not_set") {
  const LoadResult result = load("net: {port: 7}\n", {"SPILLWAY_NET_PORT=", "SPILLWAY_SHARDS="});
  REQUIRE(result.ok());
  CHECK(result.config.net.port == 7);
  CHECK(read({"SPILLWAY_CONFIG="}).config_path.empty());
  CHECK(read({"SPILLWAY_CONFIG=/etc/s.yaml"}).config_path == "/etc/s.yaml");
}

TEST_CASE("messages_name_the_variable") {
  CHECK(only_error(load("", {"SPILLWAY_NET_PORT=x"})).starts_with("SPILLWAY_NET_PORT: net.port"));
  CHECK(only_error(load("", {"SPILLWAY_MEMORY_LIMIT=12MiB"}))
            .starts_with("SPILLWAY_MEMORY_LIMIT: memory.limit"));
  CHECK(only_error(load("", {"SPILLWAY_NET_BIND_IP=0.0.0.0"}))
            .starts_with("SPILLWAY_NET_BIND_IP: 0.0.0.0 is not a loopback"));
  CHECK(only_error(load("", {"SPILLWAY_SHARDS=http://a/"}))
            .starts_with("f.yaml with SPILLWAY_SHARDS"));
  CHECK(only_error(load("", {"SPILLWAY_SHARDS= \t "})).starts_with("f.yaml with SPILLWAY_SHARDS"));
  CHECK(only_error(load("", {"SPILLWAY_DEFAULT_SHARD_KEY={_id: "}))
            .starts_with("SPILLWAY_DEFAULT_SHARD_KEY: not valid YAML"));
  CHECK(
      only_error(load("routing: {shards: [{name: a, uri: \"mongodb://a/\"}], defaultPrimary: a}\n",
                      {"SPILLWAY_SHARDS=b=mongodb://b/"}))
          .find("f.yaml with SPILLWAY_SHARDS") == 0);
  CHECK(only_error(load("", {"SPILLWAY_USERS_FILE=/nonexistent"}))
            .starts_with("SPILLWAY_USERS_FILE: "));
}

TEST_CASE("passwords_stand_in_no_message") {
  const std::string error =
      only_error(load("", {"SPILLWAY_SHARDS=mongodb://u:opensesame@/bad:port:x/"}));
  CAPTURE(error);
  CHECK(error.find("opensesame") == std::string::npos);
}

TEST_CASE("unknown_variables_are_named_and_those_of_kubernetes_are_not") {
  const Environment environment =
      read({"SPILLWAY_MEMROY_LIMIT=1GiB", "SPILLWAY_PORT=tcp://10.0.0.1:27017",
            "SPILLWAY_SERVICE_HOST=10.0.0.1", "SPILLWAY_SERVICE_PORT=27017",
            "SPILLWAY_SERVICE_PORT_MONGODB=27017", "SPILLWAY_PORT_27017_TCP_ADDR=10.0.0.1",
            "SPILLWAY_EU_PORT_27017_TCP=tcp://10.0.0.1:27017", "SPILLWAY_PORT_27017_TCP_PORT=27017",
            "SPILLWAY_PORT_53_UDP_PORT=53", "SPILLWAY_DNS_PORT=udp://10.0.0.1:53", "OTHER=1",
            "SPILLWAY_ADMIN_PORT=9216"});
  CHECK(environment.values.empty());
  REQUIRE(environment.warnings.size() == 2);
  CHECK(environment.warnings[0].find("SPILLWAY_ADMIN_PORT") != std::string::npos);
  CHECK(environment.warnings[1].find("SPILLWAY_MEMROY_LIMIT") != std::string::npos);
}
