// Arithmetic on the four numeric types with MongoDB's result types: int32 widens to int64, int64 to
// double on overflow, and the widest operand decides (int32 < int64 < double < decimal128).
#pragma once

#include <cstdint>
#include <optional>

#include "proxy/pipeline/values/value.h"

namespace spillway::pipeline {

// REQUIRES numbers, for each function here that takes a ValueView.

double number_as_double(ValueView number) noexcept;
bool is_integer(ValueView number) noexcept;
std::int64_t integer_value(ValueView integer) noexcept;  // REQUIRES int32 or int64
// The value as int64 if it is whole (any numeric type) and fits.
std::optional<std::int64_t> whole_int64(ValueView number) noexcept;

Value subtract_numbers(ValueView a, ValueView b);
Value divide_numbers(ValueView a, ValueView b);  // REQUIRES b is not zero
bool number_is_zero(ValueView number) noexcept;
// The sign follows the dividend. Decimals are refused (115); REQUIRES b is not zero.
Result<Value> mod_numbers(ValueView a, ValueView b);

// A double with 15 significant digits, as the server converts; integers exactly.
DecimalBytes to_decimal(ValueView number);
std::optional<std::int64_t> decimal_to_int64(
    ValueView decimal);  // truncated; nullopt: out of range

// A product of any number of numbers, in doubles and in integers at once: its type is the widest operand's, and a
// double once the integers do not fit.
class NumberProduct {
 public:
  void multiply(ValueView number) noexcept;
  Value total() const;

 private:
  BsonType type_ = BsonType::int32;
  std::int64_t integers_ = 1;
  double doubles_ = 1;
  DecimalBytes decimals_{};
};

// A sum over any number of numbers. Integers are added exactly, doubles with compensation.
class NumberSum {
 public:
  void add(ValueView number) noexcept;
  Value total() const;
  Value average(std::int64_t count) const;  // REQUIRES count > 0
  // The total as whole ms for a date, if it is in range.
  std::optional<std::int64_t> total_ms() const;

 private:
  __extension__ typedef __int128 Wide;
  double as_double() const noexcept;
  DecimalBytes as_decimal() const;

  Wide integers_ = 0;
  double high_ = 0;  // the doubles' sum is high_ + low_
  double low_ = 0;
  DecimalBytes decimals_{};
  bool has_long_ = false;
  bool has_double_ = false;
  bool has_decimal_ = false;
};

}  // namespace spillway::pipeline
