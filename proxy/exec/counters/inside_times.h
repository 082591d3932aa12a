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

#include <algorithm>
#include <array>
#include <bit>
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

// How often a time inside met a time of the shards: a cell for each pair of doublings, from one microsecond to half a
// second and more. One thread adds, any thread reads.
class TimeMap {
 public:
  static constexpr std::size_t side = 20;
  static constexpr std::size_t cells = side * side;

  void add(Duration inside, Duration shards) noexcept { counts_[place_of(inside) * side + place_of(shards)].add(); }
  void add_to(std::array<std::uint64_t, cells>& sums) const noexcept {
    for (std::size_t i = 0; i < cells; ++i) sums[i] += counts_[i].value();
  }
  // Place i: below 2^i microseconds; the last one: all longer times.
  static std::size_t place_of(Duration time) noexcept {
    const std::int64_t us = std::max<std::int64_t>(time.count() / 1'000, 0);
    return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(us))), side - 1);
  }

 private:
  std::array<OwnCounter, cells> counts_;
};

// Of one worker. Its thread adds, any thread reads.
struct InsideTimes {
  std::array<FineHistogram, operation_class_names.size()> by_class;
  TimeMap map;

  void add(OperationClass of, Duration inside, Duration shards = {}) noexcept {
    by_class[static_cast<std::size_t>(of)].add(inside);
    map.add(inside, shards);
  }
};

}  // namespace spillway::exec
