// TCP over Asio: the Transport and Network of programs.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <string>

#include "proxy/base/file_descriptor.h"
#include "proxy/base/name_lookup.h"
#include "proxy/base/socket_growth.h"
#include "proxy/base/transport.h"

namespace spillway {

using TcpSocket = asio::basic_stream_socket<asio::ip::tcp, asio::io_context::executor_type>;

struct TcpOptions {
  int send_buffer_bytes = 0;     // 0: the kernel's choice
  // 0: the kernel's choice; else at least 32 KiB, which it doubles: the 64 KiB that a connection promises its peer at
  // first. Set at the socket's creation: a peer that first saw a smaller buffer would never send segments larger than
  // half of it. An accepted connection has its listener's.
  int receive_buffer_bytes = 0;
  // Pays for the growth of fixed-size buffers while much passes through them; null: no growth.
  SocketGrowth* growth = nullptr;
  // Detects a peer that was powered off: keepalive 30 s + 3 × 5 s, TCP_USER_TIMEOUT.
  bool keepalive = true;
  // With keepalive: how long a peer may take nothing of what was sent, even if its kernel answers.
  int user_timeout_ms = 45'000;
};

// Takes a connected socket out of Asio; sets TCP_NODELAY and the options.
std::unique_ptr<Transport> make_tcp_transport(Loop& loop, TcpSocket socket,
                                              const TcpOptions& options = {});

// The same of an accepted connection; null if the descriptor is none.
std::unique_ptr<Transport> adopt_tcp_transport(Loop& loop, FileDescriptor connected,
                                               const TcpOptions& options = {});

// Tries each of a host's addresses, for its share of the time.
class TcpNetwork final : public Network {
 public:
  // Makes the loop's poller: throws std::system_error when no file can be opened.
  TcpNetwork(Loop& loop, const TcpOptions& options, NameLookup& names = NameLookup::system());
  Task<Result<std::unique_ptr<Transport>>> connect(std::string host, std::uint16_t port,
                                                   TimePoint deadline) override;

 private:
  Loop& loop_;
  TcpOptions options_;
  NameLookup& names_;
};

}  // namespace spillway
