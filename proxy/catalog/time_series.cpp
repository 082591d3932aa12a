#include "proxy/catalog/time_series.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace spillway::catalog {

namespace {

// Buckets keep it with the fields of its documents sorted by name, at every depth. Depth is bounded by the command's.
void append_normalized(BsonWriter& out, std::string_view name, ValueView value);

void append_normalized_elements(BsonWriter& out, ValueView value) {
  std::vector<Element> elements;
  for (const Element& each : value.as_document()) elements.push_back(each);
  if (!value.is_array()) {
    const auto by_name = [](const Element& a, const Element& b) { return a.name < b.name; };
    std::stable_sort(elements.begin(), elements.end(), by_name);
  }
  for (const Element& each : elements) append_normalized(out, each.name, each);
}

void append_normalized(BsonWriter& out, std::string_view name, ValueView value) {
  if (!value.is_document() && !value.is_array()) {
    out.append(name, value);
    return;
  }
  BsonWriter inner;
  append_normalized_elements(inner, value);
  const BsonDoc normalized = std::move(inner).finish();
  ValueView sorted = value;
  sorted.bytes = normalized.view().bytes();
  out.append(name, sorted);
}

}  // namespace

Result<BsonDoc> TimeSeries::bucket_of(DocView measurement) const {
  const ValueView time = measurement[time_field];
  if (time.type != BsonType::date) {
    constexpr std::int32_t no_valid_time = 5743702;
    return Error(no_valid_time, fmt::format("a measurement needs a date in its time field {}", time_field));
  }
  const auto ms = load_le<std::int64_t>(time.bytes.data());
  const std::int64_t rounding_ms = rounding_s * 1000;
  std::int64_t rest = ms % rounding_ms;
  if (rest < 0) rest += rounding_ms;
  BsonWriter out;
  if (const ValueView meta = meta_field.empty() ? ValueView() : measurement[meta_field]; meta.exists()) {
    append_normalized(out, "meta", meta);
  }
  out.begin_document("control").begin_document("min").append_date(time_field, ms - rest).end().end();
  return std::move(out).finish();
}

}  // namespace spillway::catalog
