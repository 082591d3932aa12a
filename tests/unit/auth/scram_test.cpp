#include "proxy/auth/scram.h"

#include <catch2/catch.hpp>
#include <string>

namespace spillway::auth {
namespace {

struct Conversation {
  Hash hash;
  std::string password, client_nonce, server_nonce, salt, client_first, server_first, client_last,
      server_last;
  std::uint32_t iterations;
};

// RFC 5802 section 5, RFC 7677 section 3, and the examples of the MongoDB drivers' Authentication
// specification, whose password for SHA-1 is a digest.
const Conversation conversations[] = {
    {Hash::sha1, "pencil", "fyko+d2lbbFgONRv9qkxdawL", "3rfcNHYJY1ZVvWVs7j", "QSXCR+Q6sek8bf92",
     "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
     "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
     "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
     "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=", 4096},
    {Hash::sha256, "pencil", "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
     "W22ZaJ0SNY7soEsUEjb6gQ==", "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
     "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
     "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
     "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
     "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", 4096},
    {Hash::sha1, md5_hex("user:mongo:pencil"), "fyko+d2lbbFgONRv9qkxdawL",
     "Ho+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE",
     "rQ9ZY3MntBeuP3E1TDVC4w==", "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
     "r=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7qvUOKUwuWLIWg4l/"
     "9SraGMHEE,s=rQ9ZY3MntBeuP3E1TDVC4w==,i=10000",
     "c=biws,r=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7qvUOKUwuWLIWg4l/"
     "9SraGMHEE,p=MC2T8BvbmWRckDw8oWl5IVghwCY=",
     "v=UMWeI25JD1yNYZRMpZ4VHvhZ9e0=", 10'000},
};

ScramCredentials credentials_of(const Conversation& c) {
  return make_credentials(c.hash, *Secret::make(c.password), *from_base64(c.salt), c.iterations);
}

TEST_CASE("SCRAM, by the standards' examples", "[auth]") {
  for (const Conversation& c : conversations) {
    ScramClient client(c.hash, "user", Secret::make(c.password), c.client_nonce);
    CHECK(client.first_message() == c.client_first);
    const auto first = parse_client_first(c.client_first);
    REQUIRE(first.has_value());
    CHECK(first->user == "user");
    ScramServer server(c.hash, *first, credentials_of(c), true, c.server_nonce);
    CHECK(server.first_message() == c.server_first);
    const auto last = client.answer(c.server_first);
    REQUIRE(last.has_value());
    CHECK(*last == c.client_last);
    const auto done = server.finish(c.client_last);
    REQUIRE(done.has_value());
    CHECK(*done == c.server_last);
    CHECK(client.verify(c.server_last).has_value());
  }
}

TEST_CASE("passwords as MongoDB takes them", "[auth]") {
  CHECK((*scram_password(Hash::sha1, "user", "pencil"))->text() == md5_hex("user:mongo:pencil"));
  CHECK((*scram_password(Hash::sha256, "user", "I\u00adX"))->text() == "IX");
  CHECK((*scram_password(Hash::sha1, "user", "I\u00adX"))->text() ==
        md5_hex("user:mongo:I\u00adX"));
  CHECK(scram_password(Hash::sha256, "user", "\u0007\u00e9").has_error());
  CHECK(scram_password(Hash::sha256, "user", "").has_error());
  CHECK(scram_password(Hash::sha1, "user", std::string(password_bytes_max + 1, 'a')).has_error());
}

TEST_CASE("a wrong password, or none's, fails alike", "[auth]") {
  const Conversation& c = conversations[1];
  const auto fake = fake_credentials(c.hash, bytes_of("key"), "admin.nobody", 15'000);
  CHECK(fake == fake_credentials(c.hash, bytes_of("key"), "admin.nobody", 15'000));
  CHECK(fake.salt != fake_credentials(c.hash, bytes_of("key"), "admin.other", 15'000).salt);
  CHECK(fake.salt !=
        fake_credentials(c.hash, bytes_of("another key"), "admin.nobody", 15'000).salt);
  CHECK(fake.salt.size() == 28);
  for (const bool known : {true, false}) {
    ScramClient client(c.hash, "user", Secret::make("a wrong one"));
    const std::string client_first = client.first_message();
    const auto first = parse_client_first(client_first);
    ScramServer server(c.hash, *first, known ? credentials_of(c) : fake, known);
    const auto done = server.finish(*client.answer(server.first_message()));
    REQUIRE(done.has_error());
    CHECK(done.error().is(ErrorCode::authentication_failed));
    CHECK(done.error().message == "Authentication failed.");
  }
  // Even a valid proof for a fake user does not log in.
  ScramClient client(c.hash, "user", Secret::make(c.password));
  const std::string client_first = client.first_message();
  ScramServer server(c.hash, *parse_client_first(client_first), credentials_of(c), false);
  CHECK(server.finish(*client.answer(server.first_message())).has_error());
}

TEST_CASE("a server that does not know the password is found out", "[auth]") {
  const Conversation& c = conversations[1];
  ScramClient client(c.hash, "user", Secret::make(c.password), c.client_nonce);
  CHECK(client.verify(c.server_last).has_error());  // before anything was asked
  REQUIRE(client.answer(c.server_first).has_value());
  for (const char* wrong :
       {"", "v=", "v=AAAA", "e=other-error", "v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="}) {
    CHECK(client.verify(wrong).has_error());
  }
  CHECK(client.verify(c.server_last).has_value());
}

TEST_CASE("a client's first messages that are refused", "[auth]") {
  const auto refused = [](const std::string& message) {
    return parse_client_first(message).has_error();
  };
  CHECK(!refused("n,,n=a,r=b"));
  CHECK(!refused("y,,n=a,r=b"));
  CHECK(!refused("n,a=a,n=a,r=b"));
  CHECK(!refused("n,,n=a=2Cb=3D,r=b,x=extension"));
  CHECK(refused("n,,n=caf\xe9,r=b"));
  CHECK(!refused("n,,n=caf\xc3\xa9,r=b"));
  CHECK(parse_client_first("n,,n=a=2Cb=3D,r=b")->user == "a,b=");
  for (const char* wrong :
       {"", "n", "n,", "n,,", "n,,n=", "n,,n=,r=b", "n,,n=a", "n,,n=a,r=", "n,,n=a=2c,r=b",
        "n,,n=a=,r=b", "n,,r=b,n=a", "n,,m=x,n=a,r=b", "p=tls-unique,,n=a,r=b", "x,,n=a,r=b",
        "n,a=b,n=a,r=b", "n,b,n=a,r=b", "n,,n=a,r=b c", "n,,n=a,r=b\n"}) {
    INFO(wrong);
    CHECK(refused(wrong));
  }
  CHECK(refused(std::string("n,,n=a\0b,r=c", 12)));
  CHECK(!refused("n,,n=a,r=" + std::string(scram_nonce_bytes_max, 'r')));
  CHECK(refused("n,,n=a,r=" + std::string(scram_nonce_bytes_max + 1, 'r')));
  CHECK(refused("n,,n=" + std::string(user_name_bytes_max + 1, 'u') + ",r=b"));
  CHECK(refused("n,,n=a,r=b," + std::string(scram_message_bytes_max, 'x')));
}

TEST_CASE("a client's last messages that are refused", "[auth]") {
  const Conversation& c = conversations[1];
  const auto refused = [&](const std::string& message) {
    const auto first = parse_client_first(c.client_first);
    ScramServer server(c.hash, *first, credentials_of(c), true, c.server_nonce);
    return server.finish(message).has_error();
  };
  CHECK(!refused(c.client_last));
  const std::string proof = c.client_last.substr(c.client_last.find(",p="));
  const std::string nonce = c.client_nonce + c.server_nonce;
  CHECK(refused(""));
  CHECK(refused("c=biws,r=" + nonce));
  CHECK(refused("c=eSws,r=" + nonce + proof));  // y,,
  CHECK(refused("c=biws,r=" + c.client_nonce + proof));
  CHECK(refused("r=" + nonce + ",c=biws" + proof));
  CHECK(refused("c=biws,r=" + nonce + ",x=1" + proof));  // signed without the extension
  CHECK(refused("c=biws,r=" + nonce + ",p="));
  CHECK(refused("c=biws,r=" + nonce + ",p=AAAA"));
  CHECK(refused(c.client_last + "="));
  CHECK(refused(c.client_last + ",x=1"));
  CHECK(refused(c.client_last + std::string(scram_message_bytes_max, 'x')));
}

TEST_CASE("a server's first messages that a client refuses", "[auth]") {
  const Conversation& c = conversations[1];
  const auto refused = [&](const std::string& message) {
    ScramClient client(c.hash, "user", Secret::make(c.password), c.client_nonce);
    return client.answer(message).has_error();
  };
  const std::string r = "r=" + c.client_nonce;
  CHECK(!refused(c.server_first));
  CHECK(refused(""));
  CHECK(refused(r + ",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"));  // nothing added to the nonce
  CHECK(refused("r=another" + c.server_nonce + ",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"));
  CHECK(refused(r + "x,s=,i=4096"));
  CHECK(refused(r + "x,s=%%%%,i=4096"));
  CHECK(refused(r + "x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4095"));
  CHECK(refused(r + "x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1000001"));
  CHECK(refused(r + "x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=99999999999999999999"));
  CHECK(refused(r + "x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=-5000"));
  CHECK(refused(r + "x,s=W22ZaJ0SNY7soEsUEjb6gQ=="));
}

}  // namespace
}  // namespace spillway::auth
