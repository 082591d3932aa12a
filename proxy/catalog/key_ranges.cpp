// The part of filter_bounds.h after the filter was read: from bounds per field to ranges of keys.
#include "proxy/catalog/filter_bounds.h"
#include "proxy/catalog/intervals.h"

namespace spillway::catalog {

IntervalList full_interval() { return {Interval{bound_keys().min_key, bound_keys().max_key}}; }

bool FilterBounds::unsatisfiable() const noexcept {
  for (const IntervalList& list : fields) {
    if (list.empty()) return true;
  }
  return false;
}

bool FilterBounds::unbounded() const noexcept {
  if (fields.empty()) return true;
  const IntervalList& first = fields.front();
  return first.size() == 1 && first[0].low == bound_keys().min_key &&
         first[0].high == bound_keys().max_key;
}

Result<void> flatten(const FilterBounds& bounds,
                     absl::FunctionRef<bool(std::string_view, std::string_view)> visit) {
  if (bounds.fields.empty() || bounds.unsatisfiable()) return {};
  const auto& fields = bounds.fields;
  // Fields [0, expanded) are enumerated interval by interval; all but the last of them are points.
  std::size_t expanded = 0;
  std::size_t ranges = 1;
  bool points = true;
  while (expanded < fields.size() && points) {
    const IntervalList& list = fields[expanded++];
    if (list.size() > key_ranges_max / ranges) {
      return Error(17439, "combinatorial limit of $in partitioning of results exceeded: more than " +
                              std::to_string(key_ranges_max) + " ranges of shard keys");
    }
    ranges *= list.size();
    for (const Interval& interval : list) points = points && interval.is_point();
  }
  std::string tail_min;
  std::string tail_max;
  for (std::size_t i = expanded; i < fields.size(); ++i) {
    tail_min += fields[i].front().low;
    tail_max += fields[i].back().high;
  }
  std::vector<std::size_t> at(expanded, 0);
  std::string min;
  std::string max;
  while (true) {
    min.clear();
    max.clear();
    for (std::size_t i = 0; i < expanded; ++i) {
      min += fields[i][at[i]].low;
      max += fields[i][at[i]].high;
    }
    min += tail_min;
    max += tail_max;
    if (!visit(min, max)) return {};
    std::size_t digit = expanded;
    while (digit > 0 && ++at[digit - 1] == fields[digit - 1].size()) at[--digit] = 0;
    if (digit == 0) return {};
  }
}

}  // namespace spillway::catalog
