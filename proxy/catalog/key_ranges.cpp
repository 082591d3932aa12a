// The second step of filter_bounds.h: from bounds per field to ranges of keys.
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

// As on the server: single points first, then one field interval by interval, and behind it only the outermost ends,
// so that several lists do not multiply.
Result<void> flatten(const FilterBounds& bounds,
                     absl::FunctionRef<bool(std::string_view, std::string_view)> visit,
                     std::size_t ranges_max) {
  if (bounds.fields.empty() || bounds.unsatisfiable()) return {};
  const auto& fields = bounds.fields;
  std::string head;
  std::size_t spread = 0;  // the field that is enumerated
  while (spread + 1 < fields.size() && fields[spread].size() == 1 && fields[spread][0].is_point()) {
    head += fields[spread++][0].low;
  }
  if (fields[spread].size() > ranges_max) {
    return Error(17439, "combinatorial limit of $in partitioning of results exceeded: more than " +
                            std::to_string(ranges_max) + " ranges of shard keys");
  }
  std::string tail_min;
  std::string tail_max;
  for (std::size_t i = spread + 1; i < fields.size(); ++i) {
    tail_min += fields[i].front().low;
    tail_max += fields[i].back().high;
  }
  for (const Interval& interval : fields[spread]) {
    if (!visit(head + interval.low + tail_min, head + interval.high + tail_max)) return {};
  }
  return {};
}

}  // namespace spillway::catalog
