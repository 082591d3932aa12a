// Decimal128 values taken apart, so that they can be compared exactly with the other numbers.
// Source: IEEE 754-2008, decimal128 in binary integer encoding.
#pragma once

#include <compare>
#include <cstdint>

#include "cursor/bson_view.h"

namespace spillway {

__extension__ typedef unsigned __int128 Uint128;

// ±coefficient × 10^exponent. The coefficient has at most 34 digits.
struct Decimal {
  enum class Kind : std::uint8_t { finite, infinite, nan };
  Kind kind = Kind::finite;
  bool negative = false;
  Uint128 coefficient = 0;
  int exponent = 0;

  // REQUIRES type decimal128. Encodings that are not canonical read as zero, as the standard says.
  static Decimal decode(ValueView value) noexcept;
  static Decimal from_int64(std::int64_t value) noexcept;

  bool is_zero() const noexcept { return kind == Kind::finite && coefficient == 0; }
  bool is_nan() const noexcept { return kind == Kind::nan; }
  int digits() const noexcept;  // of the coefficient; 0 for zero
  // The power of ten of the digit before the first one: 0.1 ≤ |value| / 10^scale < 1.
  int scale() const noexcept { return exponent + digits(); }

  double to_double() const noexcept;  // the nearest double
  // Half to even; NaN is 0; values outside the range are its ends.
  std::int64_t to_int64_saturated() const noexcept;
};

// 10^n for n ≤ 38.
Uint128 power_of_ten(int n) noexcept;

// By mathematical value; −0 equals 0, NaN equals NaN and is below everything else.
std::weak_ordering compare(const Decimal& a, const Decimal& b) noexcept;
std::weak_ordering compare(const Decimal& a, double b) noexcept;

}  // namespace spillway
