// Arithmetic on interval lists: union, intersection, complement, and the brackets that comparisons
// keep to. Values are encoded with append_order_key, so everything here compares bytes.
#pragma once

#include <optional>
#include <string>

#include "cursor/bson_view.h"
#include "proxy/catalog/filter_bounds.h"

namespace spillway::catalog {

// A list, or nullopt for [MinKey, MaxKey]: most fields of most filters are not bounded.
using MaybeIntervals = std::optional<IntervalList>;

std::string order_key(ValueView value);
Interval point(std::string key);

// Encodings that bounds are made of; made once.
struct BoundKeys {
  std::string min_key, undefined, null, negative_infinity, positive_infinity, empty_string,
      empty_document, empty_array, empty_binary, object_id_min, object_id_max, false_, true_,
      date_min, date_max, timestamp_min, timestamp_max, max_key;
};
const BoundKeys& bound_keys();

// All values that `$lt`, `$gt` and similar operators may compare with a value of this type; nullopt when that is
// unknown (then a comparison is unbounded).
std::optional<Interval> type_bracket(BsonType type);

// Collects intervals in any order; finish() sorts and joins them. Keeps at most about twice
// interval_points_max: beyond, all become the one interval that spans them.
class IntervalUnion {
 public:
  void add(Interval interval);
  void add(const IntervalList& list);
  IntervalList finish() &&;

 private:
  void normalise();

  IntervalList list_;
  bool widened_ = false;  // one span from now on
};

IntervalList intersect(const IntervalList& a, const IntervalList& b);
IntervalList complement(const IntervalList& list);

}  // namespace spillway::catalog
