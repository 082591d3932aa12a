// HTTP on the admin port: what is read, however it arrives, and how answers begin.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "proxy/server/admin_http.h"

namespace spillway::server {
namespace {

using State = HttpReader::State;

// Fed in pieces as small as told; the state that it ends in.
State read(HttpReader& reader, std::string_view bytes, std::size_t piece) {
  State state = State::more;
  while (!bytes.empty() && state == State::more) {
    const std::size_t count = std::min(piece, bytes.size());
    state = reader.feed(bytes.substr(0, count));
    bytes.remove_prefix(count);
  }
  return state;
}

unsigned refused_with(std::string_view bytes) {
  unsigned status = 0;
  for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, HttpReader::read_bytes}) {
    HttpReader reader;
    REQUIRE(read(reader, bytes, piece) == State::bad);
    if (status != 0) CHECK(reader.refusal().status == status);
    status = reader.refusal().status;
    CHECK(reader.refusal().why.ends_with('\n'));
    CHECK(reader.next() == State::bad);
  }
  return status;
}

}  // namespace

TEST_CASE("a_request_is_read_split_at_every_byte", "[admin]") {
  const std::string bytes =
      "GET /metrics?name=x HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
  for (std::size_t at = 1; at < bytes.size(); ++at) {
    HttpReader reader;
    CHECK_FALSE(reader.begun());
    REQUIRE(reader.feed(std::string_view(bytes).substr(0, at)) == State::more);
    CHECK(reader.begun());
    REQUIRE(reader.feed(std::string_view(bytes).substr(at)) == State::request);
    CHECK(reader.request().path == "/metrics");
    CHECK_FALSE(reader.request().head_only);
    CHECK(reader.request().keep_alive);
    CHECK(reader.next() == State::more);
    CHECK_FALSE(reader.begun());
  }
}

TEST_CASE("requests_may_follow_one_another_in_one_piece", "[admin]") {
  HttpReader reader;
  REQUIRE(reader.feed("HEAD /healthz HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET http://host:1/readyz "
                      "HTTP/1.1\r\nHost: a\r\n"
                      "Connection: close\r\n\r\nGET / HTTP/1.0\r\n\r\n") == State::request);
  CHECK(reader.request().head_only);
  CHECK(reader.request().path == "/healthz");
  REQUIRE(reader.next() == State::request);
  CHECK(reader.request().path == "/readyz");
  CHECK_FALSE(reader.request().keep_alive);
  REQUIRE(reader.next() == State::request);
  CHECK(reader.request().path == "/");
  CHECK_FALSE(reader.request().keep_alive);  // HTTP/1.0
  CHECK(reader.next() == State::more);
}

TEST_CASE("what_is_not_answered_is_refused_the_same_however_it_arrives", "[admin]") {
  CHECK(refused_with("POST /metrics HTTP/1.1\r\nHost: a\r\n\r\n") == 405);
  CHECK(refused_with("DELETE / HTTP/1.1\r\nHost: a\r\n\r\n") == 405);
  CHECK(refused_with("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello") == 413);
  CHECK(refused_with("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n") == 413);
  CHECK(refused_with("GET / HTTP/1.1\r\n\r\n") == 400);
  CHECK(refused_with("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n") == 400);
  CHECK(refused_with("GET / HTTP/3.0\r\nHost: a\r\n\r\n") == 505);
  CHECK(refused_with("hello\r\n\r\n") == 400);
  CHECK(refused_with("GET / HTTP/1.1\r\nno colon\r\n\r\n") == 400);
  CHECK(refused_with(std::string("GET /\0 HTTP/1.1\r\n\r\n", 19)) == 400);
  CHECK(refused_with("\x16\x03\x01\x02") == 400);            // TLS
  CHECK(refused_with(std::string("\x3a\0\0\0", 4)) == 400);  // MongoDB
}

TEST_CASE("only_who_asks_here_by_a_name_of_this_machine_is_local", "[admin]") {
  const auto local = [](const std::string& fields, std::string_view peer) {
    HttpReader reader;
    REQUIRE(read(reader, "GET / HTTP/1.1\r\n" + fields + "\r\n", HttpReader::read_bytes) == State::request);
    return is_local(reader.request(), peer);
  };
  CHECK(local("Host: localhost\r\n", "127.0.0.1:5000"));
  CHECK(local("Host: 127.0.0.1:9216\r\n", "[::1]:5000"));
  CHECK(local("Host: [::1]:9216\r\n", "127.0.0.1:5000"));
  CHECK(local("Host: [::1]\r\n", "[::ffff:127.0.0.1]:5000"));
  CHECK_FALSE(local("Host: localhost\r\n", "10.0.0.9:5000"));
  CHECK_FALSE(local("Host: router\r\n", "127.0.0.1:5000"));
  // A page of another site whose name leads here.
  CHECK_FALSE(local("Host: localhost.example:9216\r\n", "127.0.0.1:5000"));
  for (const std::string field : {"X-Forwarded-For: 10.0.0.9", "Forwarded: for=10.0.0.9", "Via: 1.1 proxy"}) {
    CHECK_FALSE(local("Host: localhost\r\n" + field + "\r\n", "127.0.0.1:5000"));
  }
}

TEST_CASE("a_header_has_a_largest_size", "[admin]") {
  const auto request = [](std::size_t bytes) {
    std::string text = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
    text += std::string(bytes - text.size() - 4, 'x') + "\r\n\r\n";
    return text;
  };
  HttpReader reader;
  CHECK(read(reader, request(http_header_bytes_max), HttpReader::read_bytes) == State::request);
  CHECK(refused_with(request(http_header_bytes_max + 1)) == 431);
  CHECK(refused_with("GET /" + std::string(2 * http_header_bytes_max, 'x')) == 431);
}

TEST_CASE("an_answer_begins_with_what_a_client_needs", "[admin]") {
  const std::string head = http_head(
      {.status = 405, .content_bytes = 7, .keep_alive = false, .wall_ms = 784'111'777'000});
  CHECK(head.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"));
  CHECK(head.ends_with("\r\n\r\n"));
  for (const char* field :
       {"\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "\r\nContent-Length: 7\r\n",
        "\r\nAllow: GET, HEAD\r\n", "\r\nConnection: close\r\n",
        "\r\nContent-Type: text/plain; charset=utf-8\r\n"}) {
    INFO(field);
    CHECK(head.find(field) != std::string::npos);
  }
  CHECK(http_head({}).find("Connection:") == std::string::npos);
}

}  // namespace spillway::server
