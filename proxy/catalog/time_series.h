// Time series of a cluster: clients write measurements to a collection, and shards keep them in buckets, whose
// collection, system.buckets.<name>, is the one that is sharded (5.1 to 8.x).
#pragma once

#include <cstdint>
#include <string>

#include "cursor/bson_writer.h"
#include "cursor/error.h"

namespace spillway::catalog {

// timeseriesFields of config.collections.
struct TimeSeries {
  std::string time_field;
  std::string meta_field;         // empty: none
  std::int64_t rounding_s = 60;   // > 0; a bucket's smallest time is a multiple of it
  std::int64_t span_s = 3'600;    // > 0; at most so much later is its last one

  // The fields of the measurement's bucket that a shard key can have: {meta?, control: {min: {<time field>}}}.
  // 5743702: it has no time.
  Result<BsonDoc> bucket_of(DocView measurement) const;
};

}  // namespace spillway::catalog
