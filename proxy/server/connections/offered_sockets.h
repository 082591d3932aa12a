// Listening sockets that pass from a process to the one that replaces it. They never stop listening: a client that
// connects meanwhile waits in the kernel's queue, which is the socket's, not the process's.
#pragma once

#include <boost/asio/ip/tcp.hpp>

#include <cstdint>
#include <optional>
#include <vector>

#include "proxy/base/file_descriptor.h"
#include "proxy/server/connections/handover_channel.h"

namespace spillway::server {

enum class SocketUse : std::uint8_t { clients, load_balancers, admin, service_manager };

struct OfferedSocket {
  SocketUse use = SocketUse::clients;
  std::uint16_t asked_port = 0;  // as configured; 0: a free one
  FileDescriptor socket;
};

// A descriptor of its own for the same socket. Throws std::runtime_error.
FileDescriptor duplicate(int socket);

// Where a stream socket listens; nullopt: it is none that does.
std::optional<boost::asio::ip::tcp::endpoint> listening_endpoint(int socket);

class OfferedSockets {
 public:
  OfferedSockets() = default;
  explicit OfferedSockets(std::vector<OfferedSocket> sockets) : sockets_(std::move(sockets)) {}

  static HandoverChannel::Message offer(std::vector<OfferedSocket> sockets);
  // Throws std::runtime_error for what is no offer.
  static OfferedSockets take(HandoverChannel::Message message);

  // The one that listens there; a free port (0) is the one that was asked for as such, for the same use. Else empty.
  FileDescriptor take(SocketUse use, const boost::asio::ip::tcp::endpoint& where);
  // Those of a socket unit, in their order.
  std::vector<FileDescriptor> take_service_managers();
  // Of those that were not taken and that listen on this port.
  std::vector<int> on_port(std::uint16_t port) const;

 private:
  std::vector<OfferedSocket> sockets_;
};

// While it lives, `socket` may be bound, and listen, on a port that offered sockets listen on with other addresses:
// 0.0.0.0 beside 127.0.0.1. Both outlive it.
class SharedPort {
 public:
  SharedPort(const OfferedSockets& offered, std::uint16_t port, int socket);
  ~SharedPort();
  SharedPort(const SharedPort&) = delete;
  SharedPort& operator=(const SharedPort&) = delete;

 private:
  void set(int on) const noexcept;
  std::vector<int> sockets_;
};

}  // namespace spillway::server
