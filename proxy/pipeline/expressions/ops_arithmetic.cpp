// Numbers: $add … $log10, and $sum, $avg, $min, $max over a list.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>

#include "proxy/pipeline/expressions/ops.h"
#include "proxy/pipeline/values/number.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

Result<Value> decimal_unsupported(std::string_view op) {
  return Error(ErrorCode::command_not_supported,
               join(op, " of decimal128 is not supported over several shards"));
}

Result<Value> add(Operands operands, EvalContext&) {
  NumberSum sum;
  bool has_date = false;
  for (const Value& operand : operands) {
    if (operand.nullish()) return Value::null();
    if (operand.type() == BsonType::date) {
      if (has_date) return Error(16612, "only one date allowed in an $add expression");
      has_date = true;
      sum.add(Value::of(operand.as_int64()).view());
    } else if (operand.is_number()) {
      sum.add(operand.view());
    } else {
      return Error(16554,
                   join("$add only supports numeric or date types, not ", type_name(operand)));
    }
  }
  if (!has_date) return sum.total();
  const auto ms = sum.total_ms();
  if (!ms) return Error(ErrorCode::overflow, "date overflow in $add");
  return Value::date(*ms);
}

// Servers round a double's half away from zero, and a decimal's to the even neighbour. (4.2 cuts a double off.)
std::optional<std::int64_t> rounded_ms(const Value& number) {
  if (number.is_integer()) return whole_int64(number.view());
  const double value = number_as_double(number.view());
  const bool decimal = number.type() == BsonType::decimal128;
  return whole_int64(Value::of(decimal ? std::nearbyint(value) : std::round(value)).view());
}

Result<Value> subtract(Operands operands, EvalContext&) {
  const Value& a = operands[0];
  const Value& b = operands[1];
  if (a.is_number() && b.is_number()) return subtract_numbers(a.view(), b.view());
  if (a.type() == BsonType::date && (b.type() == BsonType::date || b.is_number())) {
    const auto right = b.is_number() ? rounded_ms(b) : std::optional(b.as_int64());
    std::int64_t ms = 0;
    if (!right || __builtin_sub_overflow(a.as_int64(), *right, &ms)) {
      return Error(ErrorCode::overflow, "date overflow in $subtract");
    }
    return b.is_number() ? Value::date(ms) : Value::of(ms);
  }
  return Error(16556, join("can't $subtract ", type_name(b), " from ", type_name(a)));
}

Result<Value> multiply(Operands operands, EvalContext&) {
  NumberProduct product;
  for (const Value& operand : operands) {
    if (operand.nullish()) return Value::null();
    if (!operand.is_number()) {
      return Error(16555, join("$multiply only supports numeric types, not ", type_name(operand)));
    }
    product.multiply(operand.view());
  }
  return product.total();
}

template <auto function>
Result<Value> quotient(std::string_view op, int zero_code, Operands operands) {
  if (!operands[0].is_number() || !operands[1].is_number()) {
    return Error(zero_code + 1, join(op, " only supports numeric types, not ", type_name(operands[0]), " and ",
                                     type_name(operands[1])));
  }
  if (number_is_zero(operands[1].view())) return Error(zero_code, join("can't ", op, " by zero"));
  return function(operands[0].view(), operands[1].view());
}
Result<Value> divide(Operands o, EvalContext&) { return quotient<divide_numbers>("$divide", 16608, o); }
Result<Value> mod(Operands o, EvalContext&) { return quotient<mod_numbers>("$mod", 16610, o); }

Result<Value> not_numeric(std::string_view op, const Value& operand) {
  return Error(28765, join(op, " only supports numeric types, not ", type_name(operand)));
}

Result<Value> absolute(Operands operands, EvalContext&) {
  const Value& operand = operands[0];
  if (!operand.is_number()) return not_numeric("$abs", operand);
  switch (operand.type()) {
    case BsonType::double_:
      return Value::of(std::fabs(operand.as_double()));
    case BsonType::decimal128: {
      DecimalBytes bytes = to_decimal(operand.view());
      bytes[15] &= 0x7f;
      return Value::of(bytes);
    }
    case BsonType::int32:
      return Value::integer(std::abs(std::int64_t{operand.as_int32()}));
    default:
      if (operand.as_int64() == std::numeric_limits<std::int64_t>::min()) {
        return Error(28680, "can't take $abs of long long min");
      }
      return Value::of(std::int64_t{std::abs(operand.as_int64())});
  }
}

using DoubleFunction = double (*)(double);

// Functions that keep integers as they are.
Result<Value> rounding(std::string_view op, DoubleFunction function, const Value& operand) {
  if (!operand.is_number()) return not_numeric(op, operand);
  if (operand.type() == BsonType::decimal128) return decimal_unsupported(op);
  return operand.is_integer() ? operand : Value::of(function(operand.as_double()));
}
Result<Value> ceiling(Operands o, EvalContext&) { return rounding("$ceil", ::ceil, o[0]); }
Result<Value> floor(Operands o, EvalContext&) { return rounding("$floor", ::floor, o[0]); }

// A double with `place` decimals, from its exact decimal expansion.
double double_to_place(double value, int place, bool truncate) {
  if (!std::isfinite(value)) return value;
  if (place <= 0) {
    const double scale = std::pow(10.0, -place);
    const double scaled = value / scale;
    return (truncate ? std::trunc(scaled) : std::nearbyint(scaled)) * scale;
  }
  char text[512];
  const int digits = truncate ? 110 : place;
  const int length = std::snprintf(text, sizeof text, "%.*f", digits, value);
  if (truncate) text[length - (digits - place)] = '\0';
  return std::strtod(text, nullptr);
}

// An integer with its last -`place` digits rounded half to even, or cut.
std::int64_t integer_to_place(std::int64_t value, int place, bool truncate) {
  if (place >= 0) return value;
  if (place <= -19) return 0;
  std::int64_t scale = 1;
  for (int i = 0; i > place; --i) scale *= 10;
  const std::int64_t rest = value % scale;
  std::int64_t quotient = value / scale;
  const std::int64_t twice = std::abs(rest) - (scale - std::abs(rest));
  if (!truncate && (twice > 0 || (twice == 0 && quotient % 2 != 0))) quotient += value < 0 ? -1 : 1;
  std::int64_t result = 0;
  return __builtin_mul_overflow(quotient, scale, &result) ? value - rest : result;
}

Result<Value> to_place(std::string_view op, bool truncate, Operands operands) {
  const Value& operand = operands[0];
  if (!operand.is_number()) return Error(51081, join(op, " only supports numeric types, not ", type_name(operand)));
  std::int64_t place = 0;
  if (operands.size() > 1) {
    const auto whole = operands[1].is_number() ? whole_int64(operands[1].view()) : std::nullopt;
    if (!whole) return Error(51082, join("precision argument to ", op, " must be a integral value"));
    if (*whole < -20 || *whole > 100) {
      return Error(51083, join("cannot apply ", op, " with precision value ", *whole,
                               " value must be in [-20, 100]"));
    }
    place = *whole;
  }
  switch (operand.type()) {
    case BsonType::decimal128:
      return decimal_unsupported(op);
    case BsonType::double_:
      return Value::of(double_to_place(operand.as_double(), static_cast<int>(place), truncate));
    case BsonType::int32:
      return Value::integer(
          integer_to_place(operand.as_int32(), static_cast<int>(place), truncate));
    default:
      return Value::of(integer_to_place(operand.as_int64(), static_cast<int>(place), truncate));
  }
}
Result<Value> round(Operands operands, EvalContext&) { return to_place("$round", false, operands); }
Result<Value> truncate(Operands operands, EvalContext&) {
  return to_place("$trunc", true, operands);
}

// Functions that give a double.
// `domain_code` not 0: of positive numbers, and of 0 if `of_zero`.
Result<Value> real_function(std::string_view op, DoubleFunction function, const Value& operand,
                            int domain_code, bool of_zero, std::string_view domain_text) {
  if (!operand.is_number()) return not_numeric(op, operand);
  if (operand.type() == BsonType::decimal128) return decimal_unsupported(op);
  const double x = number_as_double(operand.view());
  if (domain_code != 0 && (x < 0 || (x == 0 && !of_zero))) {
    return Error(domain_code, join(op, "'s argument must be ", domain_text, ", but is ", x));
  }
  return Value::of(function(x));
}
Result<Value> square_root(Operands o, EvalContext&) {
  return real_function("$sqrt", ::sqrt, o[0], 28714, true, "greater than or equal to 0");
}
Result<Value> exponential(Operands o, EvalContext&) { return real_function("$exp", ::exp, o[0], 0, true, ""); }
Result<Value> logarithm(Operands o, EvalContext&) {
  return real_function("$ln", ::log, o[0], 28766, false, "a positive number");
}
Result<Value> logarithm10(Operands o, EvalContext&) {
  return real_function("$log10", ::log10, o[0], 28761, false, "a positive number");
}

Value integer_power(const Value& base_value, const Value& exponent_value) {
  const std::int64_t base = integer_value(base_value.view());
  const std::int64_t exponent = integer_value(exponent_value.view());
  const double real = std::pow(static_cast<double>(base), static_cast<double>(exponent));
  const bool is_long =
      base_value.type() == BsonType::int64 || exponent_value.type() == BsonType::int64;
  std::int64_t result = 1;
  if (base == 0 || base == 1 || base == -1) {
    result = exponent == 0 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : base;
  } else if (exponent < 0 || exponent > 63) {
    return Value::of(real);
  } else {
    for (std::int64_t i = 0; i < exponent; ++i) {
      if (__builtin_mul_overflow(result, base, &result)) return Value::of(real);
    }
  }
  return is_long ? Value::of(result) : Value::integer(result);
}

Result<Value> power(Operands operands, EvalContext&) {
  const Value& base = operands[0];
  const Value& exponent = operands[1];
  if (!base.is_number()) return Error(28762, join("$pow's base must be numeric, not ", type_name(base)));
  if (!exponent.is_number()) return Error(28763, join("$pow's exponent must be numeric, not ", type_name(exponent)));
  if (base.type() == BsonType::decimal128 || exponent.type() == BsonType::decimal128) {
    return decimal_unsupported("$pow");
  }
  const double y = number_as_double(exponent.view());
  if (number_is_zero(base.view()) && y < 0) return Error(28764, "$pow cannot take a base of 0 and a negative exponent");
  if (base.is_integer() && exponent.is_integer()) return integer_power(base, exponent);
  return Value::of(std::pow(number_as_double(base.view()), y));
}

// $sum, $avg, $min, $max of operands; a single array operand stands for its elements.
template <class Function>
void for_each_operand(Operands operands, Function&& function) {
  if (operands.size() == 1 && operands[0].is_array()) {
    for (const Element& element : operands[0].as_document()) function(operands[0].part(element));
    return;
  }
  for (const Value& operand : operands) function(operand);
}

Result<Value> sum_or_average(Operands operands, bool average) {
  NumberSum sum;
  std::int64_t count = 0;
  for_each_operand(operands, [&](const Value& value) {
    if (value.is_number()) {
      sum.add(value.view());
      ++count;
    }
  });
  if (average) return count == 0 ? Value::null() : sum.average(count);
  return sum.total();
}
Result<Value> sum_of(Operands operands, EvalContext&) { return sum_or_average(operands, false); }
Result<Value> average_of(Operands operands, EvalContext&) { return sum_or_average(operands, true); }

Result<Value> extreme(Operands operands, bool largest) {
  Value best;
  for_each_operand(operands, [&](const Value& value) {
    if (value.nullish()) return;
    if (best.missing() || (largest ? compare(value, best) > 0 : compare(value, best) < 0)) best = value;
  });
  return best.missing() ? Value::null() : best;
}
Result<Value> min_of(Operands operands, EvalContext&) { return extreme(operands, false); }
Result<Value> max_of(Operands operands, EvalContext&) { return extreme(operands, true); }

constexpr OperatorSpec arithmetic_table[] = {{"$add", 0, -1, add, stops_at_null},
                                             {"$subtract", 2, 2, subtract, null_of_null},
                                             {"$multiply", 0, -1, multiply, stops_at_null},
                                             {"$divide", 2, 2, divide, null_of_null},
                                             {"$mod", 2, 2, mod, null_of_null | partly},
                                             {"$abs", 1, 1, absolute, null_of_null},
                                             {"$ceil", 1, 1, ceiling, null_of_null | partly},
                                             {"$floor", 1, 1, floor, null_of_null | partly},
                                             {"$round", 1, 2, round, null_of_null | partly},
                                             {"$trunc", 1, 2, truncate, null_of_null | partly},
                                             {"$sqrt", 1, 1, square_root, null_of_null | partly},
                                             {"$exp", 1, 1, exponential, null_of_null | partly},
                                             {"$ln", 1, 1, logarithm, null_of_null | partly},
                                             {"$log10", 1, 1, logarithm10, null_of_null | partly},
                                             {"$pow", 2, 2, power, null_of_null | partly},
                                             {"$sum", 0, -1, sum_of},
                                             {"$avg", 0, -1, average_of},
                                             {"$min", 0, -1, min_of},
                                             {"$max", 0, -1, max_of}};

}  // namespace

std::span<const OperatorSpec> arithmetic_operators() noexcept { return arithmetic_table; }

}  // namespace spillway::pipeline
