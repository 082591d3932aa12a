// The distinct values of several shards, as one array in MongoDB's order.
#pragma once

#include <cstddef>
#include <vector>

#include "allocator/budget.h"
#include "cursor/bson_writer.h"
#include "cursor/error.h"
#include "proxy/pipeline/values/meter.h"

namespace spillway::exec {

// Sorts the shards' values in runs and merges these, in steps: millions of values take seconds, during which the
// caller's loop has other work. The budget pays for pointers to the values; it outlives this.
class DistinctMerge {
 public:
  static constexpr std::size_t values_per_step = 512;
  // Long values take longer: each of these bytes count as one more value.
  static constexpr std::size_t bytes_of_value = 128;

  // The arrays do not move until the end. They have been validated.
  DistinctMerge(std::vector<DocView> arrays, MemoryBudget& budget);

  // Reads or returns at most values_per_step values; false: that was all. IngressRequestRateLimitExceeded (462) or
  // ExceededMemoryLimit (146) when the budget refuses, BSONObjectTooLarge (10334) beyond a document's size.
  Result<bool> step();
  // {values: […], atClusterTime?, ok: 1}. Of equal values the first shard's. Call once, after the last step.
  BsonDoc reply(std::uint64_t at_cluster_time = 0) &&;

 private:
  struct Run {
    std::vector<ValueView> values;  // sorted
    std::size_t at = 0;
    ValueView first() const noexcept { return values[at]; }
  };

  Result<std::size_t> read_run(std::size_t values_max);
  Result<void> give_out();
  bool comes_later(std::size_t a, std::size_t b) const noexcept;

  std::vector<DocView> arrays_;
  std::size_t array_ = 0;  // the array under way
  DocIterator at_;         // in it
  pipeline::Meter meter_;
  std::vector<Run> runs_;
  std::vector<std::size_t> heap_;  // of runs: the one with the least value in front
  ValueView last_;                 // the last returned one
  BsonWriter out_;
};

}  // namespace spillway::exec
