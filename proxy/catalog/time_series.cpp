#include "proxy/catalog/time_series.h"

#include <fmt/format.h>

namespace spillway::catalog {

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
    out.append("meta", meta);
  }
  out.begin_document("control").begin_document("min").append_date(time_field, ms - rest).end().end();
  return std::move(out).finish();
}

}  // namespace spillway::catalog
