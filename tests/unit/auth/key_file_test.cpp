// The key of a cluster's members, and the login that is made of it.
#include "proxy/auth/key_file.h"

#include <catch2/catch.hpp>

#include "proxy/auth/service_login.h"

using namespace spillway;
using namespace spillway::auth;

TEST_CASE("a cluster's key is base64 without white space", "[auth]") {
  CHECK((*read_cluster_key(" open\tSesame\r\n+/=\v\f"))->text() == "openSesame+/=");
  CHECK((*read_cluster_key(std::string(1024, 'k')))->text().size() == 1024);
  for (const std::string& wrong : {std::string("abcde"), std::string(1025, 'k'), std::string("abcdef-"),
                                   std::string("abcdef\0", 7), std::string("schl\xc3\xbcssel"), std::string(" \n")}) {
    CAPTURE(wrong);
    const auto refused = read_cluster_key(wrong);
    REQUIRE(refused.has_error());
    CHECK(refused.error().is(ErrorCode::bad_value));
    CHECK(refused.error().message.find("abc") == std::string::npos);
  }
}

TEST_CASE("a member of a cluster logs in as __system with each of its keys", "[auth]") {
  const auto login = *ServiceLogin::make_internal({Secret::make("firstKey"), Secret::make("secondKey")});
  CHECK(login->user() == "__system");
  CHECK(login->db() == "local");
  CHECK(login->mechanism() == ServiceMechanism::negotiated);
  CHECK(login->internal());
  REQUIRE(login->passwords() == 2);
  // Both ends of the conversation, with what the server makes of its key (mongod's security_key.cpp).
  const std::string key = "secondKey";
  for (const Hash hash : {Hash::sha1, Hash::sha256}) {
    const auto password = Secret::make(hash == Hash::sha1 ? md5_hex("__system:mongo:" + key) : key);
    for (const std::size_t tried : {0U, 1U}) {
      ScramClient client = login->begin(hash, tried);
      const auto first = parse_client_first(client.first_message());
      REQUIRE(first.has_value());
      CHECK(first->user == "__system");
      ScramServer server(hash, *first, make_credentials(hash, *password, bytes_of("some salt"), 4096), true);
      const auto answer = client.answer(server.first_message());
      REQUIRE(answer.has_value());
      CHECK(server.finish(*answer).has_value() == (tried == 1));
    }
  }
}

TEST_CASE("a member of a cluster without a key logs in by its certificate", "[auth]") {
  const auto login = *ServiceLogin::make_internal({}, true);
  CHECK(login->mechanism() == ServiceMechanism::x509);
  CHECK(login->user().empty());
  CHECK(login->db() == "$external");
  CHECK(login->internal());
  CHECK(login->optional());
  CHECK(login->passwords() == 0);
  CHECK(ServiceLogin::make_internal(std::vector(3, Secret::make("openSesame"))).has_error());
  CHECK_FALSE((*ServiceLogin::make(ServiceMechanism::x509, "", "$external", nullptr))->internal());
}
