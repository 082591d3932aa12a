// Time inside the proxy: from the last byte of a request to the first byte of its reply, less the time of the shards.
//
// - The last byte of the request was read: when the connection had the whole message. Bytes that wait in the socket
// because the worker is busy are not seen before. (For pipelined requests: when their turn came.)
// - The first byte of the reply was written: when the first attempt to send some of it returned.
// - The time of the shards: shard/shard_time.h. A getMore that waits for a batch which is being read ahead waits for
//   its shards, too.
//
// Waiting for a connection to a shard and for memory are time inside, as are routing, merging, compressing, and waiting
// before another attempt. Requests without a reply, hellos, and messages that are no commands are not counted.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "allocator/limits.h"
#include "proxy/base/fine_latency.h"
#include "proxy/shard/shard_time.h"

namespace spillway::exec {

enum class OperationClass : std::uint8_t {
  point,  // one call to one shard, neither a scan nor a getMore; request and reply are small
  bulk,   // scans, getMores, streamed and large replies
  other,  // several calls, or none
};
inline constexpr std::array<std::string_view, 3> operation_class_names{"point", "bulk", "other"};
inline constexpr std::size_t point_bytes_max = 64 * limits::kib;  // of a request, and of a reply

inline OperationClass operation_class(const shard::ShardTime& shards, std::size_t request_bytes,
                                      std::size_t reply_bytes) noexcept {
  if (shards.bulk() || request_bytes > point_bytes_max || reply_bytes > point_bytes_max) return OperationClass::bulk;
  return shards.calls() == 1 ? OperationClass::point : OperationClass::other;
}

// Of one worker. Its thread adds, any thread reads.
struct InsideTimes {
  std::array<FineHistogram, operation_class_names.size()> by_class;

  void add(OperationClass of, Duration time) noexcept { by_class[static_cast<std::size_t>(of)].add(time); }
};

}  // namespace spillway::exec
