// From a query filter to ranges of shard keys, as a query planner bounds a single-key index equal
// to the shard key. Every result is a superset: a document that matches the filter has its key
// within the bounds. An unbounded filter ([MinKey, MaxKey]) goes to all shards.
//
// No function throws for any filter; recursion and work are limited, and parts beyond a limit count as unbounded. The
// shard refuses malformed filters.
#pragma once

#include <absl/functional/function_ref.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cursor/bson_view.h"
#include "cursor/error.h"
#include "proxy/catalog/shard_key.h"

namespace spillway::catalog {

// The most ranges of a flattened filter (the server's own limit); more is Location17439.
inline constexpr std::size_t key_ranges_max = 4'000'000;
// Points of one $in that are kept apart; a longer list is bounded by its smallest and largest.
inline constexpr std::size_t interval_points_max = 1'000;
// The most values and branches of one filter that are looked at, so that it takes a millisecond or two: a longer list
// is unbounded.
inline constexpr std::size_t filter_values_max = 20'000;
// The depth to which a filter is read.
inline constexpr int filter_depth_max = 100;

// Values between two encoded ones (append_order_key of a single value).
struct Interval {
  std::string low;
  std::string high;
  bool low_open = false;
  bool high_open = false;

  bool is_point() const noexcept { return low == high && !low_open && !high_open; }
  bool operator==(const Interval&) const = default;
};

// Sorted, disjoint. Empty: no value can match.
using IntervalList = std::vector<Interval>;

// One list per field of the shard key.
struct FilterBounds {
  std::vector<IntervalList> fields;

  bool unsatisfiable() const noexcept;  // no value can match in some field
  bool unbounded() const noexcept;      // the first field is [MinKey, MaxKey]
};

// Never fails. `simple_collation`: the effective collation of the query compares strings by bytes;
// otherwise predicates on collatable values bound nothing.
FilterBounds bounds_of_filter(const ShardKeyPattern& pattern, DocView filter,
                              bool simple_collation);

// Calls visit(min, max) with encoded keys, both ends inclusive, in ascending order, until it
// returns false. Leading fields that are single points are fixed; the next field gives one range
// per interval; of every later field only the outermost ends count. Location17439 when there would
// be more than ranges_max ranges. No call when the bounds are unsatisfiable.
Result<void> flatten(const FilterBounds& bounds,
                     absl::FunctionRef<bool(std::string_view, std::string_view)> visit,
                     std::size_t ranges_max = key_ranges_max);

// Does the server answer the nearest first if there is no sort: is there a $near, $nearSphere or $geoNear, at the top
// or inside of $and? (It refuses them elsewhere.)
bool orders_by_distance(DocView filter);

// [MinKey, MaxKey]
IntervalList full_interval();

}  // namespace spillway::catalog
