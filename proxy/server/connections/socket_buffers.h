// How much the kernel may hold for a connection: its buffers count against memory.limit as well, and
// a cgroup charges them. Values as SO_SNDBUF and SO_RCVBUF take them; the kernel doubles them for its
// own bookkeeping. 0: its choice.
//
// A receive buffer holds what the connection has promised its peer before it is set: a socket that has promised more
// drops bytes, and gets them again after a timeout (7 instead of 600 MB/s on loopback, 50 senders of 4 MB). For the
// same reason it grows, and shrinks only when it is full: then nothing is promised.
#pragma once

#include <cstdint>

#include "proxy/base/tcp_transport.h"

namespace spillway::server {

struct SocketBuffers {
  int client_send_bytes = 0;
  int client_receive_bytes = 0;        // of every client's socket, from its first packet on
  int client_receive_large_bytes = 0;  // of a client that sends large messages, while there are few of them
  // Bound the sum of all grown buffers, those of large replies included, in the kernel's own count: what is set aside,
  // and what may be borrowed from the payload's memory.
  std::uint64_t growth_bytes_max = 0;
  std::uint64_t borrowed_bytes_max = 0;
  int shard_receive_bytes = 0;
  // On loopback and jumbo frames a segment may be as large as the whole send buffer. It would be the
  // only one on its way, and the receiver acknowledges a single one 40 ms late: a scan got 1.6 MB/s.
  // So a buffer holds four. 0: of any size.
  int client_segment_bytes_max = 0;

  // `growth` may be null.
  TcpOptions client_socket(SocketGrowth* growth) const noexcept {
    TcpOptions options;
    options.growth = growth;
    options.send_buffer_bytes = client_send_bytes;
    return options;
  }
  TcpOptions shard_socket(SocketGrowth* growth) const noexcept {
    TcpOptions options;
    options.growth = growth;
    options.receive_buffer_bytes = shard_receive_bytes;
    return options;
  }
};

// For this memory.limit; 0: none. The kernel's choice where there is plenty: 30 scans of 16 MB batches took 13 % less
// CPU per MB with it than with 256 KiB (4 of 4 pairs, a busy machine). With little memory only a few hundred
// connections could afford it.
SocketBuffers socket_buffers(std::uint64_t memory_limit_bytes) noexcept;

}  // namespace spillway::server
