#include "proxy/catalog/intervals.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cursor/bson_order.h"

namespace spillway::catalog {
namespace {

template <class T>
std::string scalar_key(BsonType type, T value) {
  std::uint8_t bytes[sizeof value];
  store_le(bytes, value);
  return order_key({type, Bytes(bytes)});
}

BoundKeys make_bound_keys() {
  static constexpr std::uint8_t empty_string[] = {1, 0, 0, 0, 0};
  static constexpr std::uint8_t empty_binary[] = {0, 0, 0, 0, 0};
  static constexpr std::uint8_t zeros[12] = {};
  std::uint8_t ones[12];
  std::fill(std::begin(ones), std::end(ones), std::uint8_t{0xff});
  using Int64 = std::numeric_limits<std::int64_t>;
  const double infinity = std::numeric_limits<double>::infinity();

  BoundKeys keys;
  keys.min_key = order_key({BsonType::min_key, {}});
  keys.undefined = order_key({BsonType::undefined, {}});
  keys.null = order_key({BsonType::null, {}});
  keys.negative_infinity = scalar_key(BsonType::double_, -infinity);
  keys.positive_infinity = scalar_key(BsonType::double_, infinity);
  keys.empty_string = order_key({BsonType::string, Bytes(empty_string)});
  keys.empty_document = order_key({BsonType::document, DocView().bytes()});
  keys.empty_array = order_key({BsonType::array, DocView().bytes()});
  keys.empty_binary = order_key({BsonType::binary, Bytes(empty_binary)});
  keys.object_id_min = order_key({BsonType::object_id, Bytes(zeros)});
  keys.object_id_max = order_key({BsonType::object_id, Bytes(ones)});
  keys.false_ = scalar_key(BsonType::boolean, std::uint8_t{0});
  keys.true_ = scalar_key(BsonType::boolean, std::uint8_t{1});
  keys.date_min = scalar_key(BsonType::date, Int64::min());
  keys.date_max = scalar_key(BsonType::date, Int64::max());
  keys.timestamp_min = scalar_key(BsonType::timestamp, std::uint64_t{0});
  keys.timestamp_max = scalar_key(BsonType::timestamp, std::numeric_limits<std::uint64_t>::max());
  keys.max_key = order_key({BsonType::max_key, {}});
  return keys;
}

bool starts_before(const Interval& a, const Interval& b) noexcept {
  const int order = a.low.compare(b.low);
  return order < 0 || (order == 0 && !a.low_open && b.low_open);
}

bool ends_before(const Interval& a, const Interval& b) noexcept {
  const int order = a.high.compare(b.high);
  return order < 0 || (order == 0 && a.high_open && !b.high_open);
}

bool holds_nothing(const Interval& interval) noexcept {
  const int order = interval.low.compare(interval.high);
  return order > 0 || (order == 0 && (interval.low_open || interval.high_open));
}

// `next` starts at or after `current`: do they overlap or touch?
bool joins(const Interval& current, const Interval& next) noexcept {
  const int order = next.low.compare(current.high);
  return order < 0 || (order == 0 && !(next.low_open && current.high_open));
}

}  // namespace

std::string order_key(ValueView value) {
  std::string key;
  append_order_key(key, value);
  return key;
}

Interval point(std::string key) {
  Interval interval;
  interval.low = key;
  interval.high = std::move(key);
  return interval;
}

const BoundKeys& bound_keys() {
  static const BoundKeys keys = make_bound_keys();
  return keys;
}

std::optional<Interval> type_bracket(BsonType type) {
  const BoundKeys& k = bound_keys();
  switch (type) {
    case BsonType::double_:
    case BsonType::int32:
    case BsonType::int64:
    case BsonType::decimal128:
      return Interval{k.negative_infinity, k.positive_infinity};
    case BsonType::string:
    case BsonType::symbol:
      return Interval{k.empty_string, k.empty_document, false, true};
    case BsonType::document:
      return Interval{k.empty_document, k.empty_array, false, true};
    case BsonType::binary:
      return Interval{k.empty_binary, k.object_id_min, false, true};
    case BsonType::object_id:
      return Interval{k.object_id_min, k.object_id_max};
    case BsonType::boolean:
      return Interval{k.false_, k.true_};
    case BsonType::date:
      return Interval{k.date_min, k.date_max};
    case BsonType::timestamp:
      return Interval{k.timestamp_min, k.timestamp_max};
    default:
      return std::nullopt;
  }
}

void IntervalUnion::add(Interval interval) {
  if (holds_nothing(interval)) return;
  if (widened_) {
    Interval& span = list_.front();
    if (starts_before(interval, span)) {
      span.low = std::move(interval.low);
      span.low_open = interval.low_open;
    }
    if (ends_before(span, interval)) {
      span.high = std::move(interval.high);
      span.high_open = interval.high_open;
    }
    return;
  }
  list_.push_back(std::move(interval));
  if (list_.size() >= 2 * interval_points_max) normalise();
}

void IntervalUnion::add(const IntervalList& list) {
  for (const Interval& interval : list) add(interval);
}

void IntervalUnion::normalise() {
  if (list_.size() < 2) return;
  std::sort(list_.begin(), list_.end(), starts_before);
  std::size_t kept = 0;
  for (std::size_t i = 1; i < list_.size(); ++i) {
    if (!joins(list_[kept], list_[i])) {
      ++kept;
      if (kept != i) list_[kept] = std::move(list_[i]);
    } else if (ends_before(list_[kept], list_[i])) {
      list_[kept].high = std::move(list_[i].high);
      list_[kept].high_open = list_[i].high_open;
    }
  }
  list_.resize(kept + 1);
  widened_ = widened_ || list_.size() > interval_points_max;
  if (!widened_) return;
  Interval span = std::move(list_.front());
  span.high = std::move(list_.back().high);
  span.high_open = list_.back().high_open;
  list_.clear();
  list_.push_back(std::move(span));
}

IntervalList IntervalUnion::finish() && {
  normalise();
  return std::move(list_);
}

IntervalList intersect(const IntervalList& a, const IntervalList& b) {
  IntervalList out;
  auto i = a.begin();
  auto j = b.begin();
  while (i != a.end() && j != b.end()) {
    const Interval& low = starts_before(*i, *j) ? *j : *i;
    const Interval& high = ends_before(*i, *j) ? *i : *j;
    Interval both{low.low, high.high, low.low_open, high.high_open};
    if (!holds_nothing(both)) out.push_back(std::move(both));
    if (ends_before(*i, *j)) {
      ++i;
    } else {
      ++j;
    }
  }
  return out;
}

IntervalList complement(const IntervalList& list) {
  IntervalList out;
  const auto add = [&out](Interval interval) {
    if (!holds_nothing(interval)) out.push_back(std::move(interval));
  };
  Interval gap{bound_keys().min_key, {}};
  for (const Interval& interval : list) {
    gap.high = interval.low;
    gap.high_open = !interval.low_open;
    add(std::move(gap));
    gap = Interval{interval.high, {}, !interval.high_open, false};
  }
  gap.high = bound_keys().max_key;
  gap.high_open = false;
  add(std::move(gap));
  return out;
}

}  // namespace spillway::catalog
