// How much the kernel may hold for a connection: its buffers count against memory.limit as well, and a cgroup charges
// them. Values as SO_SNDBUF and SO_RCVBUF take them; the kernel doubles them for its own bookkeeping. 0: its choice.
#pragma once

#include <cstdint>

#include "proxy/base/tcp_transport.h"

namespace spillway::server {

struct SocketBuffers {
  int client_send_bytes = 0;
  int client_receive_bytes = 0;        // of a client that waits, or sends little
  int client_receive_large_bytes = 0;  // while it sends a large message that there is room for
  int shard_receive_bytes = 0;

  TcpOptions client_socket() const noexcept {
    TcpOptions options;
    options.send_buffer_bytes = client_send_bytes;
    options.receive_buffer_bytes = client_receive_bytes;
    return options;
  }
  TcpOptions shard_socket() const noexcept {
    TcpOptions options;
    options.receive_buffer_bytes = shard_receive_bytes;
    return options;
  }
};

// For this memory.limit; 0: none. 256 KiB towards clients and from shards (DESIGN.md, section 5: 13 to 22 % less CPU per
// MB than the kernel's choice), less where a few hundred connections would exceed the limit by themselves.
SocketBuffers socket_buffers(std::uint64_t memory_limit_bytes) noexcept;

}  // namespace spillway::server
