// Parts of dates, in UTC.

#include <cstdio>
#include <optional>

#include "proxy/pipeline/expressions/ops.h"
#include "proxy/pipeline/values/coerce.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

struct Parts {
  std::int64_t year;
  unsigned month, day;
  unsigned day_of_week;  // 1: Sunday
  unsigned day_of_year;
  std::int64_t hour, minute, second, millisecond;
};

// Days since 1970 to a date of the proleptic Gregorian calendar, for any year.
Parts parts_of(std::int64_t ms) {
  constexpr std::int64_t day_ms = 86'400'000;
  std::int64_t days = ms / day_ms;
  std::int64_t rest = ms % day_ms;
  if (rest < 0) {
    rest += day_ms;
    --days;
  }
  const std::int64_t shifted = days + 719'468;  // from 0000-03-01
  const std::int64_t era = (shifted >= 0 ? shifted : shifted - 146'096) / 146'097;
  const std::int64_t of_era = shifted - era * 146'097;
  const std::int64_t year_of_era =
      (of_era - of_era / 1460 + of_era / 36'524 - of_era / 146'096) / 365;
  const std::int64_t day_of_year =
      of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const std::int64_t shifted_month = (5 * day_of_year + 2) / 153;
  Parts parts{};
  parts.day = static_cast<unsigned>(day_of_year - (153 * shifted_month + 2) / 5 + 1);
  parts.month = static_cast<unsigned>(shifted_month < 10 ? shifted_month + 3 : shifted_month - 9);
  parts.year = year_of_era + era * 400 + (parts.month <= 2 ? 1 : 0);
  const bool leap = (parts.year % 4 == 0 && parts.year % 100 != 0) || parts.year % 400 == 0;
  constexpr unsigned before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  parts.day_of_year = before[parts.month - 1] + parts.day + (leap && parts.month > 2 ? 1 : 0);
  parts.day_of_week = static_cast<unsigned>(((days + 4) % 7 + 7) % 7) + 1;
  parts.hour = rest / 3'600'000;
  parts.minute = rest / 60'000 % 60;
  parts.second = rest / 1000 % 60;
  parts.millisecond = rest % 1000;
  return parts;
}

template <auto member>
Result<Value> part(Operands operands, EvalContext&) {
  const Value& value = operands[0];
  if (value.is_document()) return unsupported_error("the argument", "timezone of a date operator");
  const auto ms = date_ms(value);
  if (!ms) return Error(16006, join("can't convert from BSON type ", type_name(value), " to Date"));
  return Value::of(static_cast<std::int32_t>(parts_of(*ms).*member));
}

constexpr OperatorSpec date_table[] = {{"$year", 1, 1, part<&Parts::year>, null_of_null | partly},
                                       {"$month", 1, 1, part<&Parts::month>, null_of_null | partly},
                                       {"$dayOfMonth", 1, 1, part<&Parts::day>, null_of_null | partly},
                                       {"$dayOfWeek", 1, 1, part<&Parts::day_of_week>, null_of_null | partly},
                                       {"$dayOfYear", 1, 1, part<&Parts::day_of_year>, null_of_null | partly},
                                       {"$hour", 1, 1, part<&Parts::hour>, null_of_null | partly},
                                       {"$minute", 1, 1, part<&Parts::minute>, null_of_null | partly},
                                       {"$second", 1, 1, part<&Parts::second>, null_of_null | partly},
                                       {"$millisecond", 1, 1, part<&Parts::millisecond>, null_of_null | partly}};

}  // namespace

std::optional<std::int64_t> date_ms(const Value& value) {
  switch (value.type()) {
    case BsonType::date:
      return value.as_int64();
    case BsonType::timestamp:
      return static_cast<std::int64_t>(static_cast<std::uint64_t>(value.as_int64()) >> 32) * 1000;
    case BsonType::object_id: {
      const std::uint8_t* b = value.view().bytes.data();
      return std::int64_t{b[0]} * 16'777'216'000 + std::int64_t{b[1]} * 65'536'000 +
             std::int64_t{b[2]} * 256'000 + std::int64_t{b[3]} * 1000;
    }
    default:
      return std::nullopt;
  }
}

std::string date_to_text(std::int64_t ms) {
  const Parts p = parts_of(ms);
  char text[64];
  std::snprintf(text, sizeof text, "%04lld-%02u-%02uT%02d:%02d:%02d.%03dZ",
                static_cast<long long>(p.year), p.month, p.day, static_cast<int>(p.hour),
                static_cast<int>(p.minute), static_cast<int>(p.second),
                static_cast<int>(p.millisecond));
  return text;
}

std::span<const OperatorSpec> date_operators() noexcept { return date_table; }

}  // namespace spillway::pipeline
