// The admin port over real loopback sockets.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "proxy/exec/access/transactions.h"
#include "proxy/exec/core/shared.h"
#include "proxy/server/admin/admin.h"

namespace spillway::server {
namespace {

void connect_to(const FileDescriptor& socket, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
          0);
  const timeval patience{20, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

FileDescriptor connect_to(std::uint16_t port) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  connect_to(socket, port);
  return socket;
}

// While it lives the process has as many files open as it may.
class NoFilesLeft {
 public:
  NoFilesLeft() {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlimit few{200, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    for (;;) {
      FileDescriptor one(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!one) break;
      taken_.push_back(std::move(one));
    }
  }
  ~NoFilesLeft() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoFilesLeft(const NoFilesLeft&) = delete;
  NoFilesLeft& operator=(const NoFilesLeft&) = delete;

 private:
  rlimit before_{};
  std::vector<FileDescriptor> taken_;
};

void send_all(const FileDescriptor& socket, std::string_view bytes) {
  REQUIRE(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(bytes.size()));
}

// Until the stream ends, or `end` has arrived.
std::string receive(const FileDescriptor& socket, std::string_view end = {}) {
  std::string all;
  char piece[4096];
  for (;;) {
    const ssize_t count = ::recv(socket.get(), piece, sizeof piece, 0);
    if (count <= 0) return all;
    all.append(piece, static_cast<std::size_t>(count));
    if (!end.empty() && all.ends_with(end)) return all;
  }
}

std::string get(std::uint16_t port, const std::string& path, const std::string& method = "GET") {
  const FileDescriptor socket = connect_to(port);
  send_all(socket, method + " " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  return receive(socket);
}

struct Fixture {
  Fixture() {
    shared.memory.admin.set_limit(admin_memory_bytes(1));
    admin.start({});
    admin.answer_requests();
  }
  void run_main_loop() {
    main_thread = std::thread([this] { main_loop.run(); });
  }
  ~Fixture() {
    main_loop.stop();
    if (main_thread.joinable()) main_thread.join();
    admin.stop();
    CHECK(shared.memory.admin.usage().used_bytes == 0);
  }
  Loop main_loop;
  exec::Shared shared{0};
  AdminServer admin{shared, main_loop, {.addresses = {"127.0.0.1"}, .port = 0}};
  std::thread main_thread;
};

}  // namespace

TEST_CASE("a_loop_that_hangs_is_named", "[admin]") {
  Fixture fixture;
  const std::string hung = get(fixture.admin.port(), "/healthz");
  CHECK(hung.starts_with("HTTP/1.1 503 "));
  CHECK(hung.ends_with("no sign of life within 2 s: the main loop\n"));
  fixture.run_main_loop();
  CHECK(get(fixture.admin.port(), "/healthz").ends_with("\r\n\r\nalive\n"));
}

TEST_CASE("readiness_follows_the_life_of_the_process", "[admin]") {
  Fixture fixture;
  fixture.run_main_loop();
  CHECK(get(fixture.admin.port(), "/readyz").ends_with("\r\n\r\nstarting\n"));
  fixture.admin.set_waiting("waiting for the config servers: none answers");
  const std::string waiting = get(fixture.admin.port(), "/readyz");
  CHECK(waiting.starts_with("HTTP/1.1 503 "));
  CHECK(waiting.ends_with("\r\n\r\nstarting: waiting for the config servers: none answers\n"));
  CHECK(get(fixture.admin.port(), "/metrics").find("\nspillway_serving 0\n") != std::string::npos);
  fixture.admin.set_serving();
  CHECK(get(fixture.admin.port(), "/metrics").find("\nspillway_serving 1\n") != std::string::npos);
  const std::string ready = get(fixture.admin.port(), "/readyz");
  CHECK(ready.starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(ready.ends_with("\r\n\r\nready\n"));
  fixture.shared.life.quiescing = true;
  const std::string draining = get(fixture.admin.port(), "/readyz");
  CHECK(draining.starts_with("HTTP/1.1 503 "));
  CHECK(draining.ends_with("\r\n\r\nshutting down\n"));
  CHECK(get(fixture.admin.port(), "/metrics").find("\nspillway_draining 1\n") != std::string::npos);
  CHECK(get(fixture.admin.port(), "/metrics").find("\nspillway_serving 0\n") != std::string::npos);
}

TEST_CASE("a_head_has_the_length_of_what_a_get_brings", "[admin]") {
  Fixture fixture;
  const std::string page = get(fixture.admin.port(), "/nowhere");
  CHECK(page.starts_with("HTTP/1.1 404 Not Found\r\n"));
  const std::string head = get(fixture.admin.port(), "/nowhere", "HEAD");
  CHECK(head.ends_with("\r\n\r\n"));
  const auto fields = [](const std::string& text) {
    return text.substr(text.find("Content-Type"));
  };
  CHECK(fields(page).starts_with(fields(head)));
}

TEST_CASE("a_post_is_for_actions_alone_and_they_for_this_machine", "[admin]") {
  Fixture fixture;
  CHECK(get(fixture.admin.port(), "/metrics", "POST").starts_with("HTTP/1.1 405 "));
  const std::string page = get(fixture.admin.port(), "/login");
  CHECK(page.starts_with("HTTP/1.1 405 "));
  CHECK(page.find("\r\nAllow: POST\r\n") != std::string::npos);
  const std::string refused = get(fixture.admin.port(), "/login", "POST");  // "Host: a"
  CHECK(refused.starts_with("HTTP/1.1 403 "));
  CHECK(refused.find("Content-Type: application/json\r\n") != std::string::npos);
  fixture.shared.authorization = true;
  const FileDescriptor socket = connect_to(fixture.admin.port());
  const std::string post =
      "POST /drain HTTP/1.1\r\nHost: localhost:1\r\nOrigin: http://localhost:1\r\nContent-Type: application/json\r\n"
      "Content-Length: 2\r\n\r\n{}";
  send_all(socket, post + "GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string both = receive(socket, "starting\n");
  CHECK(both.starts_with("HTTP/1.1 503 "));  // there are no workers here
  CHECK(both.find("no worker answers") != std::string::npos);
}

TEST_CASE("pages_of_other_sites_get_no_events", "[admin]") {
  Fixture fixture;
  for (const std::string site : {"cross-site", "same-site"}) {
    const FileDescriptor socket = connect_to(fixture.admin.port());
    send_all(socket, "GET /events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nSec-Fetch-Site: " + site +
                         "\r\n\r\n");
    CHECK(receive(socket).starts_with("HTTP/1.1 403 "));
  }
  const FileDescriptor socket = connect_to(fixture.admin.port());
  send_all(socket, "GET /events HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\n\r\n");
  CHECK(receive(socket, "\n\n").starts_with("HTTP/1.1 200 "));
}

TEST_CASE("requests_on_one_connection_are_answered_in_order", "[admin]") {
  Fixture fixture;
  const FileDescriptor socket = connect_to(fixture.admin.port());
  send_all(socket, "GET /readyz HTTP/1.1\r\nHost: a\r\n\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string both = receive(socket, "/readyz\n");
  CHECK(both.find("starting\nHTTP/1.1 404") != std::string::npos);
  send_all(socket, "nonsense\r\n\r\n");
  CHECK(receive(socket).starts_with("HTTP/1.1 400 "));  // and the stream ends
}

TEST_CASE("idle_connections_give_way_to_new_ones", "[admin]") {
  Fixture fixture;
  std::vector<FileDescriptor> idle;
  for (std::size_t i = 0; i < 3 * admin_connections_max; ++i) {
    idle.push_back(connect_to(fixture.admin.port()));
    if (i % 2 == 0) send_all(idle.back(), "GET /met");
  }
  CHECK(get(fixture.admin.port(), "/readyz").ends_with("starting\n"));
}

TEST_CASE("peers_that_do_not_read_give_way_to_new_ones", "[admin]") {
  Fixture fixture;
  std::string many;  // more than the sockets' buffers hold
  for (int i = 0; i < 500; ++i) many += "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  std::vector<FileDescriptor> stuck;
  for (std::size_t i = 0; i < admin_connections_max; ++i) {
    stuck.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int little = 4096;
    ::setsockopt(stuck.back().get(), SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
    connect_to(stuck.back(), fixture.admin.port());
    send_all(stuck.back(), many);
  }
  const auto begun = std::chrono::steady_clock::now();
  CHECK(get(fixture.admin.port(), "/readyz").ends_with("starting\n"));
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(6));
}

TEST_CASE("requests_are_answered_when_no_file_can_be_opened", "[admin]") {
  Fixture fixture;
  std::vector<FileDescriptor> asking;
  for (int i = 0; i < 3; ++i) asking.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK(get(fixture.admin.port(), "/metrics").starts_with("HTTP/1.1 200 "));  // its loop runs
  const NoFilesLeft none;
  const auto ask = [&](const FileDescriptor& socket, const std::string& path) {
    connect_to(socket, fixture.admin.port());
    send_all(socket, "GET " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    return receive(socket);
  };
  for (int i = 0; i < 2; ++i) CHECK(ask(asking[i], "/readyz").ends_with("starting\n"));
  const std::string page = ask(asking[2], "/metrics");
  const auto value = [&](const std::string& name) {
    const std::size_t at = page.find("\n" + name + " ");
    REQUIRE(at != page.npos);
    return std::stod(page.substr(at + name.size() + 2));
  };
  CHECK(value("process_open_fds") > 190);
  CHECK(value("process_resident_memory_bytes") > 0);
}

TEST_CASE("a_live_document_has_details_for_this_machine_alone", "[admin]") {
  Fixture fixture;
  const std::string here = get(fixture.admin.port(), "/live");
  CHECK(here.starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(here.find("Content-Type: application/json\r\n") != std::string::npos);
  const auto document = [](const std::string& answer) {
    auto read = BsonDoc::from_json(std::string_view(answer).substr(answer.find("\r\n\r\n") + 4));
    REQUIRE(read.has_value());
    return *std::move(read);
  };
  CHECK_FALSE(document(here).view()["details"].as_bool());  // "Host: a"
  CHECK_FALSE(document(here).view()["warnings"].exists());
  const FileDescriptor socket = connect_to(fixture.admin.port());
  send_all(socket, "GET /live HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n\r\n");
  const BsonDoc local = document(receive(socket));
  CHECK(local.view()["details"].as_bool());
  CHECK(local.view()["warnings"].exists());
  CHECK(local.view().find_path("memory.budgets").as_document().count() == 14);
}

TEST_CASE("an_address_in_use_is_named", "[admin]") {
  Fixture fixture;
  exec::Shared shared(0);
  Loop loop;
  const AdminOptions taken{.addresses = {"127.0.0.1"}, .port = fixture.admin.port()};
  const std::string place = "cannot listen on 127.0.0.1:" + std::to_string(fixture.admin.port());
  CHECK_THROWS_WITH(AdminServer(shared, loop, taken), Catch::Matchers::StartsWith(place));
}

}  // namespace spillway::server
