// The listener over real loopback sockets.
#include <catch2/catch.hpp>

#include <boost/asio/ip/tcp.hpp>

#include "proxy/server/listener.h"
#include "tests/support/tcp_promise.h"

namespace spillway::server {
namespace {

std::uint32_t promised_by_a_listener(const SocketBuffers& buffers) {
  Loop loop;
  exec::Shared shared(0);
  ListenerOptions options;
  options.addresses = {"127.0.0.1"};
  options.backlog = 16;
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

TEST_CASE("receive buffers of 1,000 clients fit beside a small memory limit, grown ones included", "[listener]") {
  for (const std::uint64_t mib : {96, 256, 512, 4096, 65536}) {
    const std::uint64_t limit = mib << 20;
    const SocketBuffers buffers = socket_buffers(limit);
    CAPTURE(mib, buffers.client_receive_bytes);
    CHECK(1000 * 2 * static_cast<std::uint64_t>(buffers.client_receive_bytes) <= limit / 6);
    CHECK(buffers.client_growth_bytes_max <= limit / 16);
    CHECK(buffers.client_growth_bytes_max >= 2 * static_cast<std::uint64_t>(buffers.client_receive_large_bytes));
    CHECK(buffers.client_receive_large_bytes > buffers.client_receive_bytes);
  }
  const SocketBuffers unlimited = socket_buffers(0);
  CHECK(unlimited.client_receive_bytes == 0);
}

}  // namespace
}  // namespace spillway::server
