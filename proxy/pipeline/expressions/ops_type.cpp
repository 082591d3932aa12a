// Types and conversions.

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "cursor/hex.h"
#include "proxy/pipeline/expressions/ops.h"
#include "proxy/pipeline/values/coerce.h"
#include "proxy/pipeline/values/number.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

constexpr int conversion_failure = 241;

Error conversion_error(std::string_view text) { return {conversion_failure, std::string(text)}; }

Error unsupported_conversion(const Value& value, std::string_view to) {
  return conversion_error(join("Unsupported conversion from ", type_name(value), " to ", to,
                               " in $convert with no onError value"));
}

Error decimal_conversion() {
  return {ErrorCode::command_not_supported,
          "conversions of decimal128 are not supported over several shards"};
}

Result<Value> type_of(Operands operands, EvalContext&) {
  return Value::string(type_name(operands[0]));
}

Result<Value> is_number(Operands operands, EvalContext&) {
  return Value::of(operands[0].is_number());
}

Result<Value> to_string(Operands operands, EvalContext& context) {
  const Value& value = operands[0];
  switch (value.type()) {
    case BsonType::boolean:
      return Value::string(value.truthy() ? "true" : "false");
    case BsonType::object_id:
      return Value::string(hex(value.view().bytes));
    case BsonType::string:
    case BsonType::int32:
    case BsonType::int64:
    case BsonType::double_:
    case BsonType::decimal128:
    case BsonType::date: {
      auto text = coerce_to_string(value);
      return text ? metered_string(*text, context.meter) : Result<Value>(text.error());
    }
    default:
      return unsupported_conversion(value, "string");
  }
}

// Digits of a string as a whole number; the server accepts no spaces, no fraction, no exponent.
std::optional<std::int64_t> parse_integer(std::string_view text) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(value) : std::nullopt;
}

// The value as a 64-bit integer, or why not. `to` is "int" or "long".
Result<std::int64_t> to_integer(const Value& value, std::string_view to) {
  switch (value.type()) {
    case BsonType::boolean:
      return value.truthy() ? 1 : 0;
    case BsonType::int32:
    case BsonType::int64:
      return integer_value(value.view());
    case BsonType::double_: {
      const double real = value.as_double();
      if (std::isnan(real)) {
        return conversion_error(
            "Attempt to convert NaN value to integer type in $convert with no "
            "onError value");
      }
      const auto whole = whole_int64(Value::of(std::trunc(real)).view());
      if (!whole) {
        return conversion_error(
            join("Conversion would overflow target type in $convert with "
                 "no onError value: ",
                 real));
      }
      return *whole;
    }
    case BsonType::decimal128: {
      const auto whole = decimal_to_int64(value.view());
      if (!whole) {
        return conversion_error(
            "Conversion would overflow target type in $convert with no onError "
            "value");
      }
      return *whole;
    }
    case BsonType::date:
      if (to == "long") return value.as_int64();
      return unsupported_conversion(value, to);
    case BsonType::string: {
      const auto whole = parse_integer(value.as_string());
      if (!whole) {
        return conversion_error(join("Failed to parse number '", value.as_string(),
                                     "' in $convert with no onError value"));
      }
      return *whole;
    }
    default:
      return unsupported_conversion(value, to);
  }
}

Result<Value> to_int(Operands operands, EvalContext&) {
  SPILLWAY_TRY(whole, to_integer(operands[0], "int"));
  if (*whole < INT32_MIN || *whole > INT32_MAX) {
    return conversion_error(
        join("Conversion would overflow target type in $convert with no "
             "onError value: ",
             *whole));
  }
  return Value::of(static_cast<std::int32_t>(*whole));
}

Result<Value> to_long(Operands operands, EvalContext&) {
  auto whole = to_integer(operands[0], "long");
  return whole ? Result<Value>(Value::of(*whole)) : whole.error();
}

Result<Value> to_double(Operands operands, EvalContext&) {
  const Value& value = operands[0];
  if (value.is_number()) return Value::of(number_as_double(value.view()));
  switch (value.type()) {
    case BsonType::boolean:
      return Value::of(value.truthy() ? 1.0 : 0.0);
    case BsonType::date:
      return Value::of(static_cast<double>(value.as_int64()));
    case BsonType::string: {
      double real = 0;
      const std::string_view text = value.as_string();
      const std::string_view digits = text.substr(text.starts_with('+') ? 1 : 0);
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), real);
      const bool two_signs = digits.size() < text.size() && digits.starts_with('-');
      if (two_signs || error != std::errc() || end != digits.data() + digits.size()) {
        return conversion_error(
            join("Failed to parse number '", text, "' in $convert with no onError value"));
      }
      return Value::of(real);
    }
    default:
      return unsupported_conversion(value, "double");
  }
}

Result<Value> to_bool(Operands operands, EvalContext&) {
  return Value::of(operands[0].truthy());
}

Result<Value> to_decimal_value(Operands operands, EvalContext&) {
  const Value& value = operands[0];
  if (value.is_number()) return Value::of(to_decimal(value.view()));
  if (value.type() == BsonType::boolean) return Value::of(to_decimal(Value::of(std::int32_t{value.truthy()}).view()));
  if (value.type() == BsonType::date) return Value::of(to_decimal(Value::of(value.as_int64()).view()));
  return value.is_string() ? decimal_conversion() : unsupported_conversion(value, "decimal");
}

Result<Value> to_date(Operands operands, EvalContext&) {
  const Value& value = operands[0];
  if (const auto ms = date_ms(value)) return Value::date(*ms);
  switch (value.type()) {
    case BsonType::int64:
      return Value::date(value.as_int64());
    case BsonType::double_:
    case BsonType::decimal128: {
      auto ms = to_integer(value, "date");
      return ms ? Result<Value>(Value::date(*ms)) : ms.error();
    }
    case BsonType::string:
      return unsupported_error("the conversion", "of a string to a date");
    default:
      return unsupported_conversion(value, "date");
  }
}

constexpr OperatorSpec type_table[] = {{"$type", 1, 1, type_of, own_steps},
                                       {"$isNumber", 1, 1, is_number, own_steps},
                                       {"$toString", 1, 1, to_string, null_of_null | partly},
                                       {"$toInt", 1, 1, to_int, null_of_null},
                                       {"$toLong", 1, 1, to_long, null_of_null},
                                       {"$toDouble", 1, 1, to_double, null_of_null},
                                       {"$toBool", 1, 1, to_bool, null_of_null | own_steps},
                                       {"$toDecimal", 1, 1, to_decimal_value, null_of_null | partly},
                                       {"$toDate", 1, 1, to_date, null_of_null | partly}};

}  // namespace

std::string double_to_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  char text[40];
  for (int digits = 15; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value) break;
  }
  return text;
}

Result<std::string> coerce_to_string(const Value& value) {
  switch (value.type()) {
    case BsonType::eoo:
    case BsonType::null:
    case BsonType::undefined:
      return std::string();
    case BsonType::double_:
      return double_to_text(value.as_double());
    case BsonType::int32:
      return join(value.as_int32());
    case BsonType::int64:
      return join(value.as_int64());
    case BsonType::string:
    case BsonType::symbol:
    case BsonType::code:
      return std::string(value.as_string());
    case BsonType::date:
      return date_to_text(value.as_int64());
    case BsonType::decimal128:
      return decimal_conversion();
    default:
      return Error(16007, join("can't convert from BSON type ", type_name(value), " to String"));
  }
}

std::span<const OperatorSpec> type_operators() noexcept { return type_table; }

}  // namespace spillway::pipeline
