// --healthcheck over real loopback sockets: what it makes of one that answers nothing.
#include "proxy/server/tools/health_check.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <thread>

#include "proxy/exec/core/shared.h"
#include "proxy/server/admin/admin.h"
#include "proxy/server/connections/listener.h"

namespace spillway::server {
namespace {

// A router that is full: its listener closes every new connection.
struct Full {
  explicit Full(bool with_admin) {
    shared.memory.admin.set_limit(admin_memory_bytes(1));
    net.port = listener.port();
    listener.start({&worker});
    if (with_admin) {
      net.admin.port = admin.port();
      admin.start({&worker});
      admin.answer_requests();
    }
    main_thread = std::thread([this] { main_loop.run(); });
  }
  ~Full() {
    main_loop.post([this] {
      listener.stop();
      main_loop.stop();
    });
    main_thread.join();
    admin.stop();
    if (worker_thread.joinable()) {
      worker.loop().stop();
      worker_thread.join();
    }
  }
  void run_worker() {
    worker_thread = std::thread([this] { worker.loop().run(); });
  }
  static ListenerOptions options() {
    ListenerOptions options;
    options.addresses = {"127.0.0.1"};
    options.connections_max = 0;
    return options;
  }

  Loop main_loop;
  exec::Shared shared{0};
  Worker worker{0, shared, {}};  // its loop runs where the test says so
  Listener listener{main_loop, shared, options()};
  AdminServer admin{shared, main_loop, {.addresses = {"127.0.0.1"}, .port = 0}};
  NetConfig net;
  std::thread main_thread, worker_thread;
};

TEST_CASE("a router that is full is alive", "[health]") {
  const Full full(false);
  const auto health = ask_health(full.net);
  REQUIRE(health.has_value());
  CHECK(*health == "alive, but takes no more clients for now");
  CHECK(full.shared.metrics.connections_rejected.value() == 2);
}

TEST_CASE("where there is an admin port, it says whether a full router is alive", "[health]") {
  Full full(true);
  const auto hung = ask_health(full.net);
  REQUIRE(hung.has_error());
  CHECK(hung.error().message.find("/healthz") != std::string::npos);
  full.run_worker();
  CHECK(ask_health(full.net).has_value());
}

// It closes what it does not understand: another server, or a router that wants TLS.
TEST_CASE("one that hangs up on a hello is not serving", "[health]") {
  const FileDescriptor door(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  REQUIRE(::bind(door.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0);
  REQUIRE(::listen(door.get(), 4) == 0);
  REQUIRE(::getsockname(door.get(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
  std::thread other([&] {
    for (int i = 0; i < 2; ++i) {
      const FileDescriptor client(::accept(door.get(), nullptr, nullptr));
      char byte = 0;
      static_cast<void>(::recv(client.get(), &byte, 1, 0));
    }
  });
  NetConfig net;
  net.port = ntohs(address.sin_port);
  CHECK(ask_health(net).has_error());
  other.join();
}

TEST_CASE("a certificate is shown where one is needed, and no other time", "[health]") {
  NetConfig net;
  net.port = 1;  // nothing listens there: the message names the step that failed
  net.tls.mode = TlsMode::require;
  net.tls.certificate_key_file = "$CREDENTIALS_DIRECTORY/none.pem";
  net.tls.ca_file = "ca.pem";
  ::setenv("CREDENTIALS_DIRECTORY", "/nonexistent/credentials", 1);
  const auto needed = ask_health(net);
  ::unsetenv("CREDENTIALS_DIRECTORY");
  REQUIRE(needed.has_error());
  CAPTURE(needed.error().message);
  CHECK(needed.error().message.find("/nonexistent/credentials/none.pem") != std::string::npos);
  net.tls.allow_connections_without_certificates = true;
  const auto not_needed = ask_health(net);
  REQUIRE(not_needed.has_error());
  CAPTURE(not_needed.error().message);
  CHECK(not_needed.error().message.find("connecting") != std::string::npos);
}

TEST_CASE("the health check asks on loopback where it can", "[health]") {
  NetConfig net;
  net.port = 5;
  const auto address = [&](const char* list) {
    net.bind_ip = list;
    return health_address(net).text();
  };
  CHECK(address("127.0.0.1") == "127.0.0.1:5");
  CHECK(address("10.0.0.7") == "10.0.0.7:5");
  CHECK(address("10.0.0.7,localhost") == "127.0.0.1:5");
  CHECK(address("*") == "127.0.0.1:5");
  CHECK(address("::").find("::1") != std::string::npos);
  net.port = 0;
  CHECK(ask_health(net).has_error());
}

}  // namespace
}  // namespace spillway::server
