// The listener over real loopback sockets.
#include <sys/resource.h>

#include <catch2/catch.hpp>

#include <boost/asio/ip/tcp.hpp>
#include <list>

#include "proxy/config/system_limits.h"
#include "proxy/exec/core/shared.h"
#include "proxy/server/connections/listener.h"
#include "tests/support/tcp_promise.h"

namespace spillway::server {
namespace {

std::uint32_t promised_by_a_listener(const SocketBuffers& buffers) {
  Loop loop;
  exec::Shared shared(0);
  ListenerOptions options;
  options.addresses = {"127.0.0.1"};
  options.connections_max = 16;
  options.sockets = buffers;
  Listener listener(loop, shared, options);
  TcpSocket client(loop.io().get_executor());
  client.connect({asio::ip::address_v4::loopback(), listener.port()});
  const auto promised = promised_bytes(client.native_handle());
  REQUIRE(promised.has_value());
  return *promised;
}

TEST_CASE("a client is promised no more than its receive buffer holds, from the first packet on", "[listener]") {
  SocketBuffers buffers;
  buffers.client_receive_bytes = 8192;
  CHECK(promised_by_a_listener(buffers) <= 2 * 8192);
  CHECK(promised_by_a_listener({}) > 2 * 8192);  // what the kernel promises by itself
}

// A listener whose worker takes connections and does nothing with them.
struct Door {
  explicit Door(const ListenerOptions& options) : listener(loop, shared, options) { listener.start({&worker}); }
  ~Door() { listener.stop(); }
  // Until each of `clients` has been let in or refused.
  void come(std::int64_t clients) {
    for (std::int64_t i = 0; i < clients; ++i) {
      sockets.emplace_back(loop.io().get_executor()).connect({asio::ip::address_v4::loopback(), listener.port()});
    }
    const std::int64_t end = seen() + clients;
    while (seen() < end) loop.io().run_one();
  }
  std::int64_t refused() const { return static_cast<std::int64_t>(shared.metrics.connections_rejected.value()); }
  std::int64_t seen() const { return worker.connections() + refused(); }

  Loop loop;
  exec::Shared shared{0};
  Worker worker{0, shared, {}, Loop::Drive::manual};
  Listener listener;
  std::list<TcpSocket> sockets;
};

ListenerOptions short_of_files() {
  ListenerOptions options;
  options.addresses = {"127.0.0.1"};
  options.connections_max = 1'000;
  options.files_max = 84;  // 64 are reserved
  return options;
}

TEST_CASE("clients are refused and counted before the process is out of files", "[listener]") {
  Door door(short_of_files());
  CHECK(door.shared.connections.max == 20);
  door.come(24);
  CHECK(door.worker.connections() == 20);
  CHECK(door.refused() == 4);
  door.listener.set_connections_max(21);
  CHECK(door.shared.connections.max == 20);
  door.listener.set_connections_max(15);
  CHECK(door.shared.connections.max == 15);
}

TEST_CASE("as many files may be open as the hard limit allows", "[listener]") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit low{.rlim_cur = 64, .rlim_max = before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  CHECK(raise_open_files() == static_cast<std::int64_t>(before.rlim_max));
  rlimit after{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &after) == 0);
  CHECK(after.rlim_cur == before.rlim_max);
  CHECK(::setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE("receive buffers of 1,000 clients fit beside a small memory limit, grown ones included", "[listener]") {
  for (const std::uint64_t mib : {96, 256, 512, 4096, 65536}) {
    const std::uint64_t limit = mib << 20;
    const SocketBuffers buffers = socket_buffers(limit);
    CAPTURE(mib, buffers.client_receive_bytes);
    CHECK(1000 * 2 * static_cast<std::uint64_t>(buffers.client_receive_bytes) <= limit / 6);
    CHECK(buffers.growth_bytes_max <= limit / 16);
    CHECK(buffers.growth_bytes_max >= 2 * static_cast<std::uint64_t>(buffers.client_receive_large_bytes));
    CHECK(buffers.client_receive_large_bytes > buffers.client_receive_bytes);
  }
  const SocketBuffers unlimited = socket_buffers(0);
  CHECK(unlimited.client_receive_bytes == 0);
}

}  // namespace
}  // namespace spillway::server
