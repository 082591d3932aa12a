// Conversions of values to text and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proxy/pipeline/values/value.h"

namespace spillway::pipeline {

// Converts an operand of a string operator: numbers and dates become text, null becomes "". Error 16007 for other
// types, 115 for decimals.
Result<std::string> coerce_to_string(const Value& value);

// The time of a date, a timestamp or an ObjectId.
std::optional<std::int64_t> date_ms(const Value& value);
std::string double_to_text(double value);
// "2026-11-21T03:04:05.678Z"
std::string date_to_text(std::int64_t ms_since_epoch);

}  // namespace spillway::pipeline
