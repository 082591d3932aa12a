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
  CHECK(parsed->ignored_options == std::vector<std::string>{"readpreference", "maxstalenessseconds"});
  CHECK(parse_connection_string("mongodb://a/?directConnection=true")->direct);
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
      "mongodb://a/?tls=true&tlsCAFile=/ca.pem&tlsCRLFile=/my%20crl.pem&tlsCertificateKeyFile=/own.pem&"
      "tlsCertificateKeyFilePassword=sesame&tlsAllowInvalidHostnames=true");
  REQUIRE(parsed.has_value());
  CHECK(parsed->ignored_options.empty());
  TlsClientSettings expected;
  expected.files.ca = "/ca.pem";
  expected.files.crl = "/my crl.pem";
  expected.files.certificate_key = "/own.pem";
  expected.files.key_password = "sesame";
  expected.invalid_hostnames = true;
  CHECK(parsed->tls == expected);
  for (const char* const uri : {"mongodb://a/?tlscrlfile=/c.pem", "mongodb://a/?tlsCRLFile=/c.pem&tls=true",
                                "mongodb://a/?tls=true&tlsCRLFile=/c.pem"}) {
    INFO(uri);
    const auto revoked = parse_connection_string(uri);
    REQUIRE(revoked.has_value());
    CHECK(revoked->ignored_options.empty());
    CHECK((revoked->tls ? revoked->tls->files.crl : "/c.pem") == "/c.pem");
  }
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

TEST_CASE("a shard of config.shards as a connection string") {
  const auto made = [](std::string_view host, const TlsClientSettings* tls = nullptr) {
    const auto uri = connection_string_for(host, tls);
    return uri.has_error() ? std::to_string(uri.error().code) : *uri;
  };
  CHECK(made("rs0/a:1,b:2") == "mongodb://a:1,b:2/?replicaSet=rs0");
  CHECK(made("rs0/a") == "mongodb://a:27017/?replicaSet=rs0");
  CHECK(made("db.example:27018") == "mongodb://db.example:27018/");
  CHECK(made("rs0/A:1,[fe80::1]:2,a:1") == "mongodb://a:1,[fe80::1]:2/?replicaSet=rs0");
  CHECK(made("my set&x=1/a:1") == "mongodb://a:1/?replicaSet=my%20set%26x%3D1");
  CHECK(parse_connection_string(made("my set&x=1/a:1"))->set_name == "my set&x=1");

  TlsClientSettings tls;
  CHECK(made("rs0/a:1", &tls) == "mongodb://a:1/?replicaSet=rs0&tls=true");
  tls.files.ca = "/etc/my ca.pem";
  tls.files.crl = "/etc/crl&.pem";
  tls.files.certificate_key = "/etc/key.pem";
  tls.files.key_password = "a&b=c%@é";
  tls.invalid_certificates = tls.invalid_hostnames = true;
  for (const char* const host : {"rs0/a:1,b:2", "a:1"}) {
    const auto parsed = parse_connection_string(made(host, &tls));
    REQUIRE(parsed.has_value());
    CHECK(parsed->tls == tls);
    CHECK(parsed->ignored_options.empty());
  }
}

TEST_CASE("a shard of config.shards that is none") {
  std::string many = "rs0/a:1";
  for (int i = 0; i < 50; ++i) many += ",h" + std::to_string(i) + ":1";
  for (const std::string& bad :
       {std::string(), std::string("/"), std::string("/a:1"), std::string("rs0/"), std::string("rs0/a:1,"),
        std::string("rs0/,a:1"), std::string("a:1,b:2"), std::string("a:0"), std::string("a:65536"), std::string("a:x"),
        std::string("rs0/rs1/a:1"), std::string("user:secret@a:1"), std::string("rs0/a b:1"),
        std::string("rs0/a:1?tls=true"), std::string("a\0b:1", 5), std::string("mongodb://a:1"),
        std::string("/tmp/mongodb-27017.sock"), many}) {
    CAPTURE(bad);
    const auto uri = connection_string_for(bad);
    REQUIRE(uri.has_error());
    CHECK(uri.error().code == 9);
    CHECK(uri.error().message.size() < 400);
  }
}
