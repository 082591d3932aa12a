// SlowShapes: which commands, by their shape, have taken the most time since the process started. Counted are those
// that are logged as slow (operationProfiling.slowOpThresholdMs): others cost nothing here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "allocator/mutex.h"

namespace spillway::exec {

// All operations of one shape on one collection.
struct SlowShape {
  std::string ns, shape;
  std::int64_t count = 0, failed = 0;
  std::int64_t total_us = 0, max_us = 0;
  std::int64_t shards_us = 0;    // of the total: waits for shards
  std::int64_t shard_calls = 0;  // commands sent to shards
  std::int64_t reply_bytes = 0;
};

// Thread-safe.
class SlowShapes {
 public:
  // Some 200 KiB with the longest names. When there are more, the one with the least time in total is forgotten.
  static constexpr std::size_t shapes_max = 200;
  static constexpr std::size_t name_bytes_max = 256;

  // One operation, as a SlowShape with a count of 1. Longer names are cut: clients choose them.
  void add(SlowShape operation);
  // The first `most` by their time in total.
  std::vector<SlowShape> slowest(std::size_t most) const;
  // How many were forgotten: figures of a shape that came back begin again.
  std::int64_t forgotten() const;

 private:
  using Name = std::pair<std::string, std::string>;  // ns, shape
  mutable Mutex mutex_;
  absl::flat_hash_map<Name, SlowShape> shapes_ ABSL_GUARDED_BY(mutex_);
  std::int64_t forgotten_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace spillway::exec
