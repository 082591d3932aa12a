// Strings. Positions count bytes or code points, as the operator's name says.

#include <optional>
#include <string>

#include "proxy/pipeline/expressions/ops.h"
#include "proxy/pipeline/values/coerce.h"
#include "proxy/pipeline/values/number.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

bool is_continuation(char byte) noexcept {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

std::size_t code_points(std::string_view text) noexcept {
  std::size_t count = 0;
  for (const char byte : text) count += is_continuation(byte) ? 0 : 1;
  return count;
}

Result<Value> concat(Operands operands, EvalContext& context) {
  std::string text;
  for (const Value& operand : operands) {
    if (operand.nullish()) return Value::null();
    if (!operand.is_string()) return Error(16702, join("$concat only supports strings, not ", type_name(operand)));
    if (text.size() + operand.as_string().size() > value_bytes_max) return too_large_error();
    text.append(operand.as_string());
  }
  return metered_string(text, context.meter);
}

Result<Value> change_case(const Value& operand, bool upper, EvalContext& context) {
  SPILLWAY_TRY(text, coerce_to_string(operand));
  for (char& byte : *text) {  // ASCII only, as the server does
    if (upper ? byte >= 'a' && byte <= 'z' : byte >= 'A' && byte <= 'Z') byte = static_cast<char>(byte ^ 0x20);
  }
  return metered_string(*text, context.meter);
}
Result<Value> to_lower(Operands o, EvalContext& c) { return change_case(o[0], false, c); }
Result<Value> to_upper(Operands o, EvalContext& c) { return change_case(o[0], true, c); }

// A number as a position: truncated.
std::optional<std::int64_t> position(const Value& value) {
  if (!value.is_number()) return std::nullopt;
  if (value.is_integer()) return integer_value(value.view());
  const double real = number_as_double(value.view());
  if (!(real >= -9e18 && real <= 9e18)) return std::nullopt;
  return static_cast<std::int64_t>(real);
}

Result<Value> substring_bytes(Operands operands, EvalContext& context) {
  SPILLWAY_TRY(text, coerce_to_string(operands[0]));
  const auto start = position(operands[1]);
  const auto length = position(operands[2]);
  if (!start) {
    return Error(16034, join("$substrBytes:  starting index must be a numeric type (is BSON "
                             "type ",
                             type_name(operands[1]), ")"));
  }
  if (!length) {
    return Error(16035, join("$substrBytes:  length must be a numeric type (is BSON type ",
                             type_name(operands[2]), ")"));
  }
  if (*start < 0) {
    return Error(50752,
                 join("$substrBytes:  starting index must be non-negative (got: ", *start, ")"));
  }
  const std::string_view all = *text;
  if (static_cast<std::uint64_t>(*start) >= all.size()) return metered_string("", context.meter);
  const auto from = static_cast<std::size_t>(*start);
  if (is_continuation(all[from])) {
    return Error(28656,
                 "$substrBytes:  Invalid range, starting index is a UTF-8 continuation "
                 "byte.");
  }
  std::size_t count = all.size() - from;  // a negative length: to the end
  if (*length >= 0 && static_cast<std::uint64_t>(*length) < count) {
    count = static_cast<std::size_t>(*length);
    if (is_continuation(all[from + count])) {
      return Error(28657,
                   "$substrBytes:  Invalid range, ending index is in the middle of a UTF-8 "
                   "character.");
    }
  }
  return metered_string(all.substr(from, count), context.meter);
}

Result<Value> substring_code_points(Operands operands, EvalContext& context) {
  SPILLWAY_TRY(text, coerce_to_string(operands[0]));
  std::size_t bounds[2];
  for (int i = 0; i < 2; ++i) {
    const Value& operand = operands[static_cast<std::size_t>(i + 1)];
    const char* what = i == 0 ? "starting index" : "length";
    if (!operand.is_number()) {
      return Error(i == 0 ? 34450 : 34452,
                   join("$substrCP: ", what, " must be a numeric type (is BSON type ",
                        type_name(operand), ")"));
    }
    const auto whole = whole_int64(operand.view());
    if (!whole || *whole > INT32_MAX || *whole < INT32_MIN) {
      return Error(i == 0 ? 34451 : 34453, join("$substrCP: ", what,
                                                " cannot be represented as a 32-bit integral "
                                                "value"));
    }
    if (*whole < 0) {
      return Error(i == 0 ? 34455 : 34454,
                   join("$substrCP: ", what, " must be a nonnegative integer."));
    }
    bounds[i] = static_cast<std::size_t>(*whole);
  }
  const std::string_view all = *text;
  std::size_t at = 0;
  const auto skip = [&](std::size_t count) {
    for (; count > 0 && at < all.size(); --count) {
      ++at;
      while (at < all.size() && is_continuation(all[at])) ++at;
    }
    return at;
  };
  const std::size_t from = skip(bounds[0]);
  const std::size_t to = skip(bounds[1]);
  return metered_string(all.substr(from, to - from), context.meter);
}

Result<Value> length_bytes(Operands operands, EvalContext&) {
  if (!operands[0].is_string()) {
    return Error(34473,
                 join("$strLenBytes requires a string argument, found: ", type_name(operands[0])));
  }
  return Value::of(static_cast<std::int32_t>(operands[0].as_string().size()));
}

Result<Value> length_code_points(Operands operands, EvalContext&) {
  if (!operands[0].is_string()) {
    return Error(34471,
                 join("$strLenCP requires a string argument, found: ", type_name(operands[0])));
  }
  return Value::of(static_cast<std::int32_t>(code_points(operands[0].as_string())));
}

Result<Value> split(Operands operands, EvalContext& context) {
  for (int i = 0; i < 2; ++i) {
    const Value& operand = operands[static_cast<std::size_t>(i)];
    if (!operand.is_string()) {
      return Error(40085 + i,
                   join("$split requires an expression that evaluates to a "
                        "string as a ",
                        i == 0 ? "first" : "second", " argument, found: ", type_name(operand)));
    }
  }
  const std::string_view text = operands[0].as_string();
  const std::string_view separator = operands[1].as_string();
  if (separator.empty()) return Error(40087, "$split requires a non-empty separator");
  // An element costs at least ten bytes, however small its text.
  if (auto charged = context.meter.charge(text.size()); !charged) return charged.error();
  ArrayBuilder parts;
  for (std::size_t at = 0;;) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    const Value part = Value::string(text.substr(at, end - at));
    parts.add(part);
    if (end == text.size() || parts.overflowed()) break;
    at = end + separator.size();
  }
  return std::move(parts).finish(context.meter);
}

Result<Value> compare_ignoring_case(Operands operands, EvalContext&) {
  auto a = coerce_to_string(operands[0]);
  auto b = coerce_to_string(operands[1]);
  if (!a || !b) return a ? b.error() : a.error();
  const auto fold = [](std::string& text) {
    for (char& byte : text) byte = byte >= 'a' && byte <= 'z' ? static_cast<char>(byte ^ 0x20) : byte;
  };
  fold(*a);
  fold(*b);
  const int result = a->compare(*b);
  return Value::of(std::int32_t{result < 0 ? -1 : result > 0 ? 1 : 0});
}

constexpr OperatorSpec string_table[] = {{"$concat", 0, -1, concat, stops_at_null},
                                  {"$toLower", 1, 1, to_lower, partly},
                                  {"$toUpper", 1, 1, to_upper, partly},
                                  {"$substr", 3, 3, substring_bytes, partly},
                                  {"$substrBytes", 3, 3, substring_bytes, partly},
                                  {"$substrCP", 3, 3, substring_code_points, partly},
                                  {"$strLenBytes", 1, 1, length_bytes},
                                  {"$strLenCP", 1, 1, length_code_points},
                                  {"$strcasecmp", 2, 2, compare_ignoring_case, partly},
                                  {"$split", 2, 2, split, null_of_null}};

}  // namespace

std::span<const OperatorSpec> string_operators() noexcept { return string_table; }

}  // namespace spillway::pipeline
