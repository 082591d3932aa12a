#include "proxy/shard/connection_string.h"

#include <catch2/catch.hpp>
#include <cstdlib>

using namespace spillway;
using namespace spillway::shard;

TEST_CASE("a connection string of one host") {
  const auto parsed = parse_connection_string("mongodb://db.example:27018/?connectTimeoutMS=1500");
  REQUIRE(parsed.has_value());
  REQUIRE(parsed->hosts.size() == 1);
  CHECK(parsed->hosts[0] == HostAddress{"db.example", 27018});
  CHECK(parsed->set_name.empty());
  CHECK_FALSE(parsed->direct);
  CHECK(parsed->connect_timeout_ms == 1500);
  CHECK(parsed->read_preference.mode == ReadMode::primary);
}

TEST_CASE("a connection string of a replica set") {
  const auto parsed = parse_connection_string(
      "mongodb://a:1,b,[::1]:3,a:1/?replicaSet=rs0&readPreference=secondary"
      "&readPreferenceTags=dc:ny,rack:1&readPreferenceTags=&maxStalenessSeconds=120");
  REQUIRE(parsed.has_value());
  REQUIRE(parsed->hosts.size() == 3);
  CHECK(parsed->hosts[1] == HostAddress{"b", 27017});
  CHECK(parsed->hosts[2] == HostAddress{"::1", 3});
  CHECK(parsed->hosts[2].text() == "[::1]:3");
  CHECK(parsed->set_name == "rs0");
  CHECK(parsed->read_preference.mode == ReadMode::secondary);
  REQUIRE(parsed->read_preference.tag_sets.size() == 2);
  CHECK(parsed->read_preference.tag_sets[0].size() == 2);
  CHECK(parsed->read_preference.tag_sets[1].empty());
  CHECK(parsed->read_preference.max_staleness_seconds == 120);
  CHECK(parse_connection_string("mongodb://a/?directConnection=true")->direct);
  CHECK(parsed->ignored_options.empty());
  CHECK(parse_connection_string("mongodb://a/?maxPoolSize=5")->ignored_options ==
        std::vector<std::string>{"maxpoolsize"});
}

TEST_CASE("connection strings that are refused say why") {
  const auto message = [](const char* uri) {
    const auto parsed = parse_connection_string(uri);
    REQUIRE(parsed.has_error());
    return parsed.error().message;
  };
  CHECK(message("localhost:27017").find("Invalid connection string") == 0);
  CHECK(message("mongodb://").find("Invalid connection string") == 0);
  CHECK(message("mongodb://a,b/").find("replicaSet") != std::string::npos);
  CHECK(message("mongodb+srv://a.example/").find("mongodb+srv") == 0);
  CHECK(message("mongodb://u:p@a/?authMechanism=PLAIN").find("not supported yet") != std::string::npos);
  CHECK(message("mongodb://a:99999/").find("Invalid connection string") == 0);
  CHECK(message("mongodb://a/?replicaSt=rs0").find("replicast") != std::string::npos);
  CHECK(message("mongodb://a/?connectTimeoutMS=soon").find("connecttimeoutms") !=
        std::string::npos);
  CHECK(message("mongodb://%2Ftmp%2Fx.sock/").find("Unix socket") != std::string::npos);
}

TEST_CASE("a connection string says how to speak TLS") {
  CHECK_FALSE(parse_connection_string("mongodb://a/")->tls.has_value());
  CHECK(parse_connection_string("mongodb://a/?tls=true")->tls == TlsClientSettings());
  const auto parsed = parse_connection_string(
      "mongodb://a/?tls=true&tlsCAFile=/ca.pem&tlsCertificateKeyFile=/own.pem&"
      "tlsCertificateKeyFilePassword=sesame&tlsAllowInvalidHostnames=true");
  REQUIRE(parsed.has_value());
  CHECK(parsed->ignored_options.empty());
  TlsClientSettings expected;
  expected.files.ca = "/ca.pem";
  expected.files.certificate_key = "/own.pem";
  expected.files.key_password = "sesame";
  expected.invalid_hostnames = true;
  CHECK(parsed->tls == expected);
  const auto insecure = parse_connection_string("mongodb://a/?ssl=true&tlsInsecure=true");
  REQUIRE(insecure.has_value());
  REQUIRE(insecure->tls.has_value());
  CHECK(insecure->tls->invalid_certificates);
  CHECK(insecure->tls->invalid_hostnames);
}

TEST_CASE("paths may begin with the directory of credentials") {
  const char* const uri =
      "mongodb://a/?tls=true&tlsCAFile=$CREDENTIALS_DIRECTORY/ca.pem&tlsCertificateKeyFile=$CREDENTIALS_DIRECTORY/"
      "own.pem";
  ::setenv("CREDENTIALS_DIRECTORY", "/run/c", 1);
  const auto parsed = parse_connection_string(uri);
  ::unsetenv("CREDENTIALS_DIRECTORY");
  REQUIRE(parsed.has_value());
  CHECK(parsed->tls->files.ca == "/run/c/ca.pem");
  CHECK(parsed->tls->files.certificate_key == "/run/c/own.pem");
  const auto unset = parse_connection_string(uri);
  REQUIRE(unset.has_error());
  CHECK(unset.error().message.find("$CREDENTIALS_DIRECTORY is not set") != std::string::npos);
}

TEST_CASE("host addresses") {
  CHECK(parse_host_address("Db.Example:1") == HostAddress{"db.example", 1});
  CHECK(parse_host_address("[fe80::1]") == HostAddress{"fe80::1", 27017});
  for (const char* bad :
       {"", ":1", "a:", "a:0", "a:65536", "a:1x", "[::1", "[::1]x", "[::1]:", "/a"}) {
    INFO(bad);
    CHECK_FALSE(parse_host_address(bad).has_value());
  }
}
