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
  // On loopback and jumbo frames a segment may be as large as the whole send buffer. It would be the only one on its
  // way, and the receiver acknowledges a single one 40 ms late: a scan got 1.6 MB/s. So a buffer holds four.
  int client_segment_bytes_max = 0;

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

// For this memory.limit; 0: none. The kernel's choice where there is plenty: 30 scans of 16 MB batches took 13 % less CPU
// per MB with it than with 256 KiB (4 of 4 pairs, a busy machine). Else no more than a few hundred connections may have.
SocketBuffers socket_buffers(std::uint64_t memory_limit_bytes) noexcept;

}  // namespace spillway::server
