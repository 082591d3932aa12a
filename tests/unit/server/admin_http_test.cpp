// HTTP on the admin port: what is read, however it arrives, and how answers begin.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "proxy/server/admin/admin_http.h"

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

TEST_CASE("the_body_of_a_post_is_read_split_at_every_byte", "[admin]") {
  const std::string body = "{\"user\": \"ops\"}\r\n\r\n\x01";
  const std::string bytes = "POST /login HTTP/1.1\r\nHost: localhost:1\r\nOrigin: http://localhost:1\r\n"
                            "Content-Type: application/json\r\nCookie: a=1; spillway-1=key\r\n"
                            "X-Spillway-Token: token\r\nContent-Length: " +
                            std::to_string(body.size()) + "\r\n\r\n" + body;
  for (std::size_t at = 1; at < bytes.size(); ++at) {
    HttpReader reader;
    REQUIRE(reader.feed(std::string_view(bytes).substr(0, at)) == State::more);
    CHECK(reader.begun());
    REQUIRE(reader.feed(bytes.substr(at) + "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n") == State::request);
    const HttpRequest& request = reader.request();
    CHECK(request.post);
    CHECK(request.path == "/login");
    CHECK(request.body == body);
    CHECK(request.content_type == "application/json");
    CHECK(request.token == "token");
    CHECK(cookie_of(request, "spillway-1") == "key");
    CHECK(is_of_own_page(request));
    REQUIRE(reader.next() == State::request);
    CHECK(request.path == "/metrics");
    CHECK_FALSE(request.post);
    CHECK(request.body.empty());
    CHECK(request.token.empty());
  }
  HttpReader reader;  // no body
  REQUIRE(reader.feed("POST /logout HTTP/1.1\r\nHost: a\r\n\r\n") == State::request);
  CHECK(reader.request().body.empty());
}

TEST_CASE("a_body_has_a_largest_size", "[admin]") {
  const auto post = [](std::size_t bytes) {
    return "POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(bytes) + "\r\n\r\n" +
           std::string(bytes, 'x');
  };
  HttpReader reader;
  REQUIRE(read(reader, post(http_body_bytes_max), 100) == State::request);
  CHECK(reader.request().body.size() == http_body_bytes_max);
  CHECK(refused_with(post(http_body_bytes_max + 1)) == 413);
  CHECK(refused_with("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999\r\n\r\n") == 413);
  CHECK(refused_with("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n") == 400);
  CHECK(refused_with("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n") == 400);
  CHECK(refused_with("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n") == 413);
  CHECK(refused_with("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n") == 417);
}

TEST_CASE("a_browser_says_whose_page_asks", "[admin]") {
  HttpRequest request;
  request.host = "localhost:9216";
  CHECK_FALSE(is_of_own_page(request));  // no header says so
  const auto own = [&request](std::string origin, std::string site) {
    request.origin = std::move(origin);
    request.site = std::move(site);
    return is_of_own_page(request);
  };
  CHECK(own("http://localhost:9216", "same-origin"));
  CHECK(own("http://localhost:9216", ""));  // not all browsers have Sec-Fetch-Site
  CHECK_FALSE(own("http://localhost:9216", "cross-site"));
  CHECK_FALSE(own("http://localhost:9217", "same-site"));
  for (const char* origin : {"http://localhost:921", "http://localhost:92160", "https://localhost:9216", "null",
                             "http://localhost", "http://example.org", "localhost:9216"}) {
    INFO(origin);
    CHECK_FALSE(own(origin, ""));
  }
}

TEST_CASE("a_cookie_is_found_by_its_whole_name", "[admin]") {
  HttpRequest request;
  request.cookie = "xspillway-1=a;spillway-12=b; spillway-1=c=d; spillway-1=e;spillway-2";
  CHECK(cookie_of(request, "spillway-1") == "c=d");
  CHECK(cookie_of(request, "spillway-12") == "b");
  CHECK(cookie_of(request, "spillway-2").empty());
  CHECK(cookie_of({}, "spillway-1").empty());
  const auto port = [&request](const char* host) {
    request.host = host;
    return named_port(request);
  };
  CHECK(port("localhost:9216") == "9216");
  CHECK(port("[::1]:9216") == "9216");
  CHECK(port("[::1]") == "80");
  CHECK(port("localhost") == "80");
  CHECK(port("localhost:1; Domain=x") == "0");
  CHECK(port("localhost:") == "0");
}

TEST_CASE("what_is_not_answered_is_refused_the_same_however_it_arrives", "[admin]") {
  CHECK(refused_with("PUT /metrics HTTP/1.1\r\nHost: a\r\n\r\n") == 405);
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
  // A page of another site asks: its name leads here, or the browser says so.
  CHECK_FALSE(local("Host: localhost.example:9216\r\n", "127.0.0.1:5000"));
  CHECK(local("Host: localhost\r\nSec-Fetch-Site: same-origin\r\n", "127.0.0.1:5000"));
  CHECK(local("Host: localhost\r\nSec-Fetch-Site: none\r\n", "127.0.0.1:5000"));
  for (const std::string field : {"X-Forwarded-For: 10.0.0.9", "Forwarded: for=10.0.0.9", "Via: 1.1 proxy",
                                  "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"}) {
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
        "\r\nContent-Type: text/plain; charset=utf-8\r\n", "\r\nX-Content-Type-Options: nosniff\r\n",
        "\r\nContent-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n", "\r\nX-Frame-Options: DENY\r\n",
        "\r\nReferrer-Policy: no-referrer\r\n", "\r\nCache-Control: no-store\r\n"}) {
    INFO(field);
    CHECK(head.find(field) != std::string::npos);
  }
  CHECK(http_head({}).find("Connection:") == std::string::npos);
}

}  // namespace spillway::server
