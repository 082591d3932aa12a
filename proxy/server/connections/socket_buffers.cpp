#include "proxy/server/connections/socket_buffers.h"

#include <algorithm>

#include "allocator/limits.h"

namespace spillway::server {

namespace {

// The numbers of connections with full buffers that fit into the limit.
constexpr std::uint64_t streaming_connections = 3072;
constexpr std::uint64_t waiting_connections = 12288;
constexpr std::uint64_t growing_connections = 1536;
constexpr std::uint64_t stream_least = 32 * limits::kib;
constexpr std::uint64_t stream_most = 256 * limits::kib;
// From this limit on the kernel sizes the buffers of streams by itself: up to a few MiB each.
constexpr std::uint64_t kernel_choice_least = 4096 * limits::mib;
constexpr int segment_most = 32767;   // what TCP_MAXSEG takes
constexpr int segment_whole = 65483;  // loopback's
// The kernel sends several segments as one piece of up to 64 KiB, headers included. An incomplete piece costs more
// CPU: 383 instead of 317 us per MB of 8 scans with segments of 32,767 bytes.
constexpr int piece_most = 65'000;
// With 4 KiB a message of 16 MB costs twice as much CPU as with 8.
constexpr std::uint64_t waiting_least = 8 * limits::kib;
constexpr std::uint64_t waiting_most = 128 * limits::kib;
constexpr std::uint64_t grown_least = 64 * limits::kib;  // larger ones are hardly cheaper
constexpr std::uint64_t grown_most = 256 * limits::kib;
constexpr std::uint64_t growth_in_limit = 16;   // half of the limit's part for sockets
constexpr std::uint64_t borrowed_in_limit = 4;  // and no more than SocketGrowth allows

}  // namespace

SocketBuffers socket_buffers(std::uint64_t memory_limit_bytes) noexcept {
  SocketBuffers buffers;
  const std::uint64_t limit = memory_limit_bytes == 0 ? UINT64_MAX : memory_limit_bytes;
  const auto stream = static_cast<int>(std::clamp(limit / streaming_connections, stream_least, stream_most));
  if (limit < kernel_choice_least) {
    buffers.client_send_bytes = stream;
    // (The kernel doubles the buffer.)
    const int segment = std::min(stream / 2, segment_most);
    if (stream / 2 < segment_whole) buffers.client_segment_bytes_max = piece_most / (piece_most / segment + 1);
    buffers.shard_receive_bytes = stream;
  }
  if (memory_limit_bytes == 0) return buffers;  // clients' bytes may wait in the kernel
  buffers.client_receive_bytes =
      static_cast<int>(std::clamp(limit / waiting_connections, waiting_least, waiting_most));
  buffers.client_receive_large_bytes =
      static_cast<int>(std::clamp(limit / growing_connections, grown_least, grown_most));
  buffers.growth_bytes_max = limit / growth_in_limit;
  buffers.borrowed_bytes_max = limit / borrowed_in_limit;
  return buffers;
}

}  // namespace spillway::server
