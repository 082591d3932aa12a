#include "proxy/pipeline/values/number.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#include <decimal/decimal>
#define SPILLWAY_DECIMAL_ARITHMETIC 1
#endif

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cursor/bson_decimal.h"

namespace spillway::pipeline {
namespace {

bool any(ValueView a, ValueView b, BsonType type) noexcept {
  return a.type == type || b.type == type;
}

// Binary integer decimal: sign, 14 bits of exponent, 113 bits of coefficient.
DecimalBytes encode_decimal(bool negative, std::uint64_t coefficient, int exponent) {
  const std::uint64_t high =
      (negative ? 1ULL << 63 : 0) | (static_cast<std::uint64_t>(exponent + 6176) << 49);
  DecimalBytes bytes;
  store_le(bytes.data(), coefficient);
  store_le(bytes.data() + 8, high);
  return bytes;
}

DecimalBytes decimal_special(std::uint64_t high) {
  DecimalBytes bytes{};
  store_le(bytes.data() + 8, high);
  return bytes;
}

DecimalBytes double_to_decimal(double value) {
  if (std::isnan(value)) return decimal_special(0x7c00000000000000ULL);
  if (std::isinf(value)) return decimal_special(value < 0 ? 0xf800000000000000ULL : 0x7800000000000000ULL);
  char text[40];
  std::snprintf(text, sizeof text, "%.14e", std::fabs(value));  // d.dddddddddddddde±xx
  std::uint64_t coefficient = 0;
  const char* at = text;
  for (; *at != 'e'; ++at) {
    if (*at != '.') coefficient = coefficient * 10 + static_cast<std::uint64_t>(*at - '0');
  }
  const int exponent = std::atoi(at + 1) - 14;
  return encode_decimal(std::signbit(value), coefficient, coefficient == 0 ? 0 : exponent);
}

#ifdef SPILLWAY_DECIMAL_ARITHMETIC
using BinaryDecimal = std::decimal::decimal128;

BinaryDecimal load_decimal(const DecimalBytes& bytes) noexcept {
  BinaryDecimal value;
  std::memcpy(&value, bytes.data(), bytes.size());
  return value;
}
DecimalBytes store_decimal(BinaryDecimal value) noexcept {
  DecimalBytes bytes;
  std::memcpy(bytes.data(), &value, bytes.size());
  return bytes;
}
DecimalBytes decimal_arithmetic(char op, const DecimalBytes& a, const DecimalBytes& b) {
  const BinaryDecimal x = load_decimal(a);
  const BinaryDecimal y = load_decimal(b);
  switch (op) {
    case '+':
      return store_decimal(x + y);
    case '-':
      return store_decimal(x - y);
    case '*':
      return store_decimal(x * y);
    default:
      return store_decimal(x / y);
  }
}
// With all digits that fit. A sum keeps its doubles apart for this: the server does not round them to 15 digits.
DecimalBytes double_to_decimal_whole(double value) { return store_decimal(BinaryDecimal(value)); }
#else
// Without decimal floating point in the compiler: through double, 15 digits.
DecimalBytes decimal_arithmetic(char op, const DecimalBytes& a, const DecimalBytes& b) {
  const double x = ValueView{BsonType::decimal128, Bytes(a)}.to_double().value_or(0);
  const double y = ValueView{BsonType::decimal128, Bytes(b)}.to_double().value_or(0);
  return double_to_decimal(op == '+' ? x + y : op == '-' ? x - y : op == '*' ? x * y : x / y);
}
DecimalBytes double_to_decimal_whole(double value) { return double_to_decimal(value); }
#endif

}  // namespace

double number_as_double(ValueView number) noexcept { return number.to_double().value_or(0); }

bool is_integer(ValueView number) noexcept {
  return number.type == BsonType::int32 || number.type == BsonType::int64;
}

std::int64_t integer_value(ValueView integer) noexcept {
  return integer.type == BsonType::int32 ? integer.as_int32() : integer.as_int64();
}

std::optional<std::int64_t> whole_int64(ValueView number) noexcept {
  if (is_integer(number)) return integer_value(number);
  const double value = number_as_double(number);
  if (!(value >= -9223372036854775808.0 && value < 9223372036854775808.0) ||
      std::trunc(value) != value) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(value);
}

bool number_is_zero(ValueView number) noexcept {
  return is_integer(number) ? integer_value(number) == 0 : number_as_double(number) == 0;
}

DecimalBytes to_decimal(ValueView number) {
  switch (number.type) {
    case BsonType::decimal128: {
      DecimalBytes bytes;
      std::memcpy(bytes.data(), number.bytes.data(), bytes.size());
      return bytes;
    }
    case BsonType::double_:
      return double_to_decimal(number.as_double());
    default: {
      const std::int64_t value = integer_value(number);
      const auto magnitude =
          value < 0 ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value);
      return encode_decimal(value < 0, magnitude, 0);
    }
  }
}

std::optional<std::int64_t> decimal_to_int64(ValueView decimal) {
  const Decimal whole = Decimal::decode(decimal);
  if (whole.is_zero()) return 0;
  if (whole.kind != Decimal::Kind::finite || whole.scale() > 19) return std::nullopt;
  if (whole.scale() <= 0) {
    return 0;  // below one
  }
  // No more than 19 digits, so that nothing overflows here.
  const Uint128 magnitude = whole.exponent < 0 ? whole.coefficient / power_of_ten(-whole.exponent)
                                               : whole.coefficient * power_of_ten(whole.exponent);
  const Uint128 magnitude_max = (Uint128{1} << 63) - (whole.negative ? 0 : 1);
  if (magnitude > magnitude_max) return std::nullopt;
  const auto bits = static_cast<std::uint64_t>(magnitude);
  return static_cast<std::int64_t>(whole.negative ? ~bits + 1 : bits);
}

Value subtract_numbers(ValueView a, ValueView b) {
  if (any(a, b, BsonType::decimal128)) return Value::of(decimal_arithmetic('-', to_decimal(a), to_decimal(b)));
  if (any(a, b, BsonType::double_)) return Value::of(number_as_double(a) - number_as_double(b));
  std::int64_t result = 0;
  if (__builtin_sub_overflow(integer_value(a), integer_value(b), &result)) {
    return Value::of(number_as_double(a) - number_as_double(b));
  }
  return any(a, b, BsonType::int64) ? Value::of(result) : Value::integer(result);
}

Value divide_numbers(ValueView a, ValueView b) {
  if (any(a, b, BsonType::decimal128)) return Value::of(decimal_arithmetic('/', to_decimal(a), to_decimal(b)));
  return Value::of(number_as_double(a) / number_as_double(b));
}

Result<Value> mod_numbers(ValueView a, ValueView b) {
  if (any(a, b, BsonType::decimal128)) {
    return Error(ErrorCode::command_not_supported,
                 "$mod of decimal128 is not supported over several shards");
  }
  // Of a double on the right that is an int32 in value, servers take that integer.
  const auto whole = whole_int64(b);
  const bool wide = b.type == BsonType::double_ && !(whole && *whole >= INT32_MIN && *whole <= INT32_MAX);
  if (a.type == BsonType::double_ || wide) return Value::of(std::fmod(number_as_double(a), number_as_double(b)));
  const std::int64_t divisor = *whole;
  const std::int64_t result = divisor == -1 ? 0 : integer_value(a) % divisor;
  return any(a, b, BsonType::int64) ? Value::of(result) : Value::integer(result);
}

void NumberProduct::multiply(ValueView number) noexcept {
  if (number.type == BsonType::decimal128 && type_ != BsonType::decimal128) {
    decimals_ = to_decimal(type_ == BsonType::double_ ? Value::of(doubles_).view() : Value::of(integers_).view());
    type_ = BsonType::decimal128;
  }
  if (type_ == BsonType::decimal128) {
    decimals_ = decimal_arithmetic('*', decimals_, to_decimal(number));
    return;
  }
  doubles_ *= number_as_double(number);
  if (number.type == BsonType::double_) type_ = BsonType::double_;
  if (type_ == BsonType::double_) return;
  if (number.type == BsonType::int64) type_ = BsonType::int64;
  if (__builtin_mul_overflow(integers_, integer_value(number), &integers_)) type_ = BsonType::double_;
}

Value NumberProduct::total() const {
  switch (type_) {
    case BsonType::decimal128:
      return Value::of(decimals_);
    case BsonType::double_:
      return Value::of(doubles_);
    case BsonType::int64:
      return Value::of(integers_);
    default:
      return Value::integer(integers_);
  }
}

namespace {

// What `sum`, a + b rounded, has lost of them, exactly. REQUIRES a finite sum.
double lost_of_sum(double a, double b, double sum) noexcept {
  const double part = sum - a;
  return (a - (sum - part)) + (b - part);
}

}  // namespace

void NumberSum::add(ValueView number) noexcept {
  switch (number.type) {
    case BsonType::int64:
      has_long_ = true;
      integers_ += number.as_int64();
      return;
    case BsonType::int32:
      integers_ += number.as_int32();
      return;
    case BsonType::decimal128:
      decimals_ = has_decimal_ ? decimal_arithmetic('+', decimals_, to_decimal(number))
                               : to_decimal(number);
      has_decimal_ = true;
      return;
    default:
      break;
  }
  const double value = number.as_double();
  has_double_ = true;
  const double sum = high_ + value;
  if (std::isfinite(sum)) {
    low_ += lost_of_sum(high_, value, sum);
  } else {
    low_ = 0;
  }
  high_ = sum;
}

// Rounded once, at the end.
double NumberSum::as_double() const noexcept {
  const auto whole = static_cast<double>(integers_);
  const double sum = high_ + whole;
  if (!std::isfinite(sum)) return sum + low_;
  const auto rest = static_cast<double>(integers_ - static_cast<Wide>(whole));
  return sum + ((lost_of_sum(high_, whole, sum) + rest) + low_);
}

DecimalBytes NumberSum::as_decimal() const {
  DecimalBytes sum = decimals_;
  if (integers_ != 0) {
    // In two parts: together they may exceed 64 bits.
    constexpr int part_digits = 18;
    const auto part = static_cast<Wide>(1'000'000'000'000'000'000);
    const bool negative = integers_ < 0;
    const Wide magnitude = negative ? -integers_ : integers_;
    const auto high = static_cast<std::uint64_t>(magnitude / part), low = static_cast<std::uint64_t>(magnitude % part);
    if (high != 0) sum = decimal_arithmetic('+', sum, encode_decimal(negative, high, part_digits));
    sum = decimal_arithmetic('+', sum, encode_decimal(negative, low, 0));
  }
  if (has_double_) {
    sum = decimal_arithmetic('+', sum, double_to_decimal_whole(high_));
    sum = decimal_arithmetic('+', sum, double_to_decimal_whole(low_));
  }
  return sum;
}

Value NumberSum::total() const {
  if (has_decimal_) return Value::of(as_decimal());
  if (has_double_) return Value::of(as_double());
  const auto narrow = static_cast<std::int64_t>(integers_);
  if (narrow != integers_) return Value::of(static_cast<double>(integers_));
  return has_long_ ? Value::of(narrow) : Value::integer(narrow);
}

Value NumberSum::average(std::int64_t count) const {
  if (has_decimal_) return Value::of(decimal_arithmetic('/', as_decimal(), to_decimal(Value::of(count).view())));
  return Value::of(as_double() / static_cast<double>(count));
}

std::optional<std::int64_t> NumberSum::total_ms() const {
  if (!has_decimal_ && !has_double_) {
    const auto narrow = static_cast<std::int64_t>(integers_);
    return narrow == integers_ ? std::optional(narrow) : std::nullopt;
  }
  const double value = number_as_double(total().view());
  if (!(value >= -9223372036854775808.0 && value < 9223372036854775808.0)) return std::nullopt;
  if (has_decimal_) return static_cast<std::int64_t>(std::nearbyint(value));
  // As servers do, and so a half goes towards zero: first the sum is rounded, then what that has left.
  const std::int64_t rounded = std::llround(value);
  const std::int64_t rest = std::llround((static_cast<double>(integers_ - rounded) + high_) + low_);
  std::int64_t ms = 0;
  return __builtin_add_overflow(rounded, rest, &ms) ? std::nullopt : std::optional(ms);
}

}  // namespace spillway::pipeline
