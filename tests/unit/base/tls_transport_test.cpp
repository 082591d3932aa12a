// TLS over real loopback sockets, one loop for both ends.
#include <catch2/catch.hpp>

#include <openssl/ssl.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "proxy/base/tls_transport.h"
#include "tests/support/certificates.h"
#include "tests/unit/base/tcp_pair.h"

namespace spillway {
namespace {

const Certificates& certificates() {
  static const Certificates made;
  return made;
}

struct Setting {
  TlsServerSettings server{.files = {.certificate_key = certificates().server()}};
  TlsClientSettings client{.files = {.ca = certificates().ca()}};
  std::string host = "localhost";
  PlainText plain_text = PlainText::refused;
};

Task<void> establish(Transport* transport, Result<void>* outcome) {
  auto establishing = transport->establish(Clock::now() + tcp_patience);
  *outcome = co_await establishing;
  if (outcome->has_error()) transport->close();
}

struct Outcome {
  Result<void> server, client;
};

Outcome shake_hands(TcpPair& pair, const Setting& setting, TlsContext::Ptr client_context = nullptr) {
  if (!client_context) client_context = TlsContext::make_client(setting.client).value();
  pair.near = make_tls_client(std::move(pair.near), client_context, setting.host);
  pair.far = make_tls_server(std::move(pair.far), TlsContext::make_server(setting.server).value(),
                             setting.plain_text);
  Outcome outcome;
  REQUIRE(pair.run(both(establish(pair.near.get(), &outcome.client),
                        establish(pair.far.get(), &outcome.server))));
  return outcome;
}

std::string what(const Result<void>& result) {
  return result.has_error() ? result.error().message : std::string();
}

// In TLS 1.3 a client is done before the server has looked at its certificate: the first read tells.
Task<void> read_something(Transport* transport, bool* failed) {
  std::vector<std::uint8_t> some(10);
  *failed = false;
  for (;;) {
    const IoResult got = transport->try_read(some);
    if (!got.would_block()) {
      *failed = !got.ok();
      co_return;
    }
    ReadyWait readable(*transport, Transport::Direction::read, Clock::now() + tcp_patience);
    const bool ready = co_await readable;
    if (!ready) co_return;
  }
}

TEST_CASE("what goes in at one end of TLS comes out at the other", "[tls]") {
  const auto version = GENERATE(TlsVersion::tls_1_2, TlsVersion::tls_1_3);
  const auto step = GENERATE(std::size_t{7}, std::size_t{1000}, std::size_t{100'000});
  Setting setting;
  setting.server.version_min = setting.server.version_max = version;
  TcpPair pair;
  const Outcome outcome = shake_hands(pair, setting);
  CHECK(what(outcome.client).empty());
  CHECK(what(outcome.server).empty());
  // Larger than the sockets' buffers: writes are blocked in the middle of a record.
  const std::string text = pattern(step < 1000 ? 50'000 : 20'000'000);
  // The server sends: a client that closes with a session ticket unread resets the connection.
  std::string there;
  REQUIRE(pair.run(both(send_then_close(pair.far.get(), &text),
                        read_to_end(pair.near.get(), step, false, &there))));
  CHECK(there.size() == text.size());
  CHECK((there == text));
}

// Whenever nothing is there, waits for all that is missing.
Task<void> read_waiting_for_all(Transport* transport, std::size_t step, std::string* into, std::size_t size) {
  std::vector<std::uint8_t> room(step);
  while (into->size() < size) {
    const IoResult got = transport->try_read(MutableBytes(room).first(std::min(step, size - into->size())));
    if (got.ok()) {
      into->append(reinterpret_cast<const char*>(room.data()), got.bytes);
      continue;
    }
    if (!got.would_block()) co_return;
    transport->set_read_low_water(size - into->size());
    ReadyWait readable(*transport, Transport::Direction::read, Clock::now() + tcp_patience);
    const bool ready = co_await readable;
    if (!ready) co_return;
  }
}

TEST_CASE("a wait for many bytes over TLS ends, though a part of a record was read before", "[tls]") {
  const auto step = GENERATE(std::size_t{1000}, std::size_t{10'000}, std::size_t{100'000});
  SocketGrowth growth(nullptr);
  growth.set_limits(16 << 20, 0);
  TcpOptions options;
  options.receive_buffer_bytes = 64 * 1024;
  options.growth = &growth;
  TcpPair pair(options);
  REQUIRE(what(shake_hands(pair, Setting()).client).empty());
  const std::string text = pattern(12'000'000);  // more than the kernel takes at once
  std::string there;
  REQUIRE(pair.run(both(send_all(pair.far.get(), &text),
                        read_waiting_for_all(pair.near.get(), step, &there, text.size()))));
  CHECK((there == text));
  CHECK(growth.own().usage().used_bytes > 0);
}

TEST_CASE("both directions of TLS are used at once", "[tls]") {
  TcpPair pair;
  const Outcome outcome = shake_hands(pair, Setting());
  REQUIRE(what(outcome.client).empty());
  const std::string text = pattern(8'000'000);
  REQUIRE(pair.run(both(both(send_all(pair.near.get(), &text), read_count(pair.near.get(), text.size())),
                        both(send_all(pair.far.get(), &text), read_count(pair.far.get(), text.size())))));
}

Task<void> send_pieces(Transport* transport, std::vector<iovec>* pieces) {
  auto writing = write_all(*transport, *pieces);
  const bool written = co_await writing;
  CHECK(written);
  transport->close();
}

TEST_CASE("many pieces of a message fill few records", "[tls]") {
  TcpPair pair;
  REQUIRE(what(shake_hands(pair, Setting()).client).empty());
  const std::string text = pattern(70'000);
  std::vector<iovec> pieces;
  for (std::size_t at = 0, size = 0; at < text.size(); at += size) {
    size = std::min<std::size_t>(text.size() - at, at % 3 == 0 ? 1 : 30'000);
    pieces.push_back({const_cast<char*>(text.data()) + at, size});
  }
  std::string there;
  REQUIRE(pair.run(both(send_pieces(pair.far.get(), &pieces),
                        read_to_end(pair.near.get(), 4096, true, &there))));
  CHECK(there.size() == text.size());
  CHECK((there == text));
}

TEST_CASE("a certificate that has expired is not shown to anybody", "[tls]") {
  const TlsFiles expired{.certificate_key = certificates().expired()};
  for (const auto& made : {TlsContext::make_server({.files = expired}), TlsContext::make_client({.files = expired})}) {
    REQUIRE(made.has_error());
    CHECK(made.error().code == static_cast<std::int32_t>(ErrorCode::invalid_ssl_configuration));
    CHECK(made.error().message.find("expired.pem has expired on 20") != std::string::npos);
  }
  const auto sound = TlsContext::make_server({.files = {.certificate_key = certificates().server()}}).value();
  REQUIRE(sound->certificate().has_value());
  CHECK(sound->certificate()->subject == "CN=localhost");
}

TEST_CASE("a client checks the server's name and certificate", "[tls]") {
  TcpPair pair;
  Setting setting;
  SECTION("by another authority") {
    setting.client.files.ca = certificates().other_ca();
    CHECK(what(shake_hands(pair, setting).client).find("certificate validation failed") != std::string::npos);
  }
  SECTION("of another host") {
    setting.server.files.certificate_key = certificates().elsewhere();
    CHECK(what(shake_hands(pair, setting).client).find("hostname mismatch") != std::string::npos);
  }
  SECTION("of another address") {
    setting.server.files.certificate_key = certificates().elsewhere();
    setting.host = "127.0.0.1";
    CHECK(what(shake_hands(pair, setting).client).find("IP address mismatch") != std::string::npos);
  }
  SECTION("unless told not to: any host") {
    setting.server.files.certificate_key = certificates().elsewhere();
    setting.client.invalid_hostnames = true;
    CHECK(what(shake_hands(pair, setting).client).empty());
  }
  SECTION("unless told not to: anybody") {
    setting.client.files.ca = certificates().other_ca();
    setting.client.invalid_certificates = true;
    CHECK(what(shake_hands(pair, setting).client).empty());
  }
  SECTION("by its address") {
    setting.host = "127.0.0.1";
    CHECK(what(shake_hands(pair, setting).client).empty());
  }
}

TEST_CASE("a server with a CA file checks the client's certificate", "[tls]") {
  TcpPair pair;
  Setting setting;
  setting.server.files.ca = certificates().ca();
  bool failed = false;
  SECTION("none is refused") {
    const Outcome outcome = shake_hands(pair, setting);
    CHECK(what(outcome.server).find("peer did not return a certificate") != std::string::npos);
    REQUIRE(pair.run(read_something(pair.near.get(), &failed)));
    CHECK(failed);
  }
  SECTION("none is allowed") {
    setting.server.clients_without_certificate = true;
    CHECK(what(shake_hands(pair, setting).server).empty());
  }
  SECTION("a good one, with roles or without") {
    const bool with_roles = GENERATE(false, true);
    setting.client.files.certificate_key = with_roles ? certificates().with_roles() : certificates().client();
    CHECK(what(shake_hands(pair, setting).server).empty());
    CHECK(pair.far->peer_certificate().subject == "CN=client");
    CHECK(pair.far->peer_certificate().names_roles == with_roles);
  }
  SECTION("another authority's, even where none is needed") {
    setting.server.clients_without_certificate = true;
    setting.client.files.certificate_key = certificates().stranger();
    CHECK(what(shake_hands(pair, setting).server).find("certificate validation failed") != std::string::npos);
  }
  SECTION("another authority's, where nothing is checked") {
    setting.server.invalid_client_certificates = true;
    setting.client.files.certificate_key = certificates().stranger();
    CHECK(what(shake_hands(pair, setting).server).empty());
  }
}

TEST_CASE("plain text is served where it is allowed, and else refused", "[tls]") {
  TcpPair pair;
  const auto context = TlsContext::make_server(Setting().server).value();
  const std::string hello("\x16\x03\x00\x00rest of a message of 790 bytes", 34);
  Result<void> outcome;
  std::string there;
  SECTION("allowed") {
    pair.far = make_tls_server(std::move(pair.far), context, PlainText::allowed);
    REQUIRE(pair.run(both(send_then_close(pair.near.get(), &hello), establish(pair.far.get(), &outcome))));
    CHECK(what(outcome).empty());
    REQUIRE(pair.run(read_to_end(pair.far.get(), 5, true, &there)));
    CHECK(there == hello);
  }
  SECTION("refused") {
    const std::string plain("\x3c\x00\x00\x00rest of a message", 20);
    pair.far = make_tls_server(std::move(pair.far), context, PlainText::refused);
    REQUIRE(pair.run(both(send_all(pair.near.get(), &plain), establish(pair.far.get(), &outcome))));
    CHECK(what(outcome) == "it does not speak TLS, which is required");
  }
  SECTION("allowed, and the client speaks TLS") {
    Setting setting;
    setting.plain_text = PlainText::allowed;
    CHECK(what(shake_hands(pair, setting).client).empty());
  }
  SECTION("the client leaves") {
    pair.near->close();
    pair.far = make_tls_server(std::move(pair.far), context, PlainText::refused);
    REQUIRE(pair.run(establish(pair.far.get(), &outcome)));
    CHECK(what(outcome) == "the peer closed the connection");
  }
}

TEST_CASE("a client resumes its last session with a peer", "[tls]") {
  const Setting setting;
  const auto client = TlsContext::make_client(setting.client).value();
  const auto server = TlsContext::make_server(setting.server).value();
  TcpPair first;
  const std::string peer = first.near->peer();
  Outcome outcome;
  first.near = make_tls_client(std::move(first.near), client, "localhost");
  first.far = make_tls_server(std::move(first.far), server, PlainText::refused);
  REQUIRE(first.run(both(establish(first.near.get(), &outcome.client), establish(first.far.get(), &outcome.server))));
  const std::string text = pattern(10);
  REQUIRE(first.run(both(send_all(first.far.get(), &text), read_count(first.near.get(), text.size()))));
  CHECK(client->take_session("other.example\n" + peer) == nullptr);
  ssl_session_st* const session = client->take_session("localhost\n" + peer);
  REQUIRE(session != nullptr);
  CHECK(SSL_SESSION_is_resumable(session) == 1);
  SSL_SESSION_free(session);
}

TEST_CASE("what is wrong with certificates is said when they are loaded", "[tls]") {
  TlsServerSettings server;
  SECTION("no such file") {
    server.files.certificate_key = "/nonexistent.pem";
    const auto made = TlsContext::make_server(server);
    REQUIRE(made.has_error());
    CHECK(made.error().message == "cannot use the certificate in /nonexistent.pem: No such file or directory");
  }
  SECTION("no key") {
    server.files.certificate_key = certificates().ca();
    const auto made = TlsContext::make_server(server);
    REQUIRE(made.has_error());
    CHECK(made.error().message.find("cannot use the private key in") == 0);
    CHECK(made.error().message.ends_with("; the file holds no private key: it must hold both, cat server.crt "
                                         "server.key >server.pem"));
  }
  SECTION("no certificate") {
    const std::string file = "/tmp/spillway-key-" + std::to_string(::getpid()) + ".pem";
    std::ofstream(file) << "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END PRIVATE KEY-----\n";
    server.files.certificate_key = file;
    const auto made = TlsContext::make_server(server);
    std::remove(file.c_str());
    REQUIRE(made.has_error());
    CHECK(made.error().message.find("cannot use the certificate in") == 0);
    CHECK(made.error().message.find("the file holds no certificate: it must hold both") != std::string::npos);
  }
  SECTION("a key behind a password") {
    server.files.certificate_key = certificates().encrypted();
    const auto without = TlsContext::make_server(server);
    REQUIRE(without.has_error());
    CHECK(without.error().message.find("encrypted, and its password is missing: see "
                                       "net.tls.certificateKeyFilePassword") != std::string::npos);
    server.files.key_password = "wrong";
    const auto wrong = TlsContext::make_server(server);
    REQUIRE(wrong.has_error());
    CHECK(wrong.error().message.find("its password is another: see") != std::string::npos);
    server.files.key_password = Certificates::password;
    CHECK(TlsContext::make_server(server).has_value());
  }
  SECTION("no CA in its file") {
    server.files = {.certificate_key = certificates().server(), .ca = "/dev/null"};
    CHECK(TlsContext::make_server(server).has_error());
  }
}

}  // namespace
}  // namespace spillway
