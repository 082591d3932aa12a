#include "cursor/bson_decimal.h"

#include <array>
#include <boost/multiprecision/cpp_int.hpp>
#include <charconv>
#include <cmath>
#include <limits>

namespace spillway {

namespace {

namespace multiprecision = boost::multiprecision;

constexpr int powers = 39;
constexpr int exponent_bias = 6176;
constexpr int double_scale_max = 309;   // DBL_MAX < 10^309
constexpr int double_scale_min = -323;  // the smallest double is > 10^-324

constexpr std::array<Uint128, powers> make_powers() noexcept {
  std::array<Uint128, powers> table{};
  Uint128 power = 1;
  for (auto& entry : table) {
    entry = power;
    power *= 10;
  }
  return table;
}
constexpr std::array<Uint128, powers> power_table = make_powers();

// Large enough for any double brought to a common denominator with a decimal whose scale is a double's: below
// 2^113 · 10^360 · 2^1100 in the worst case.
using Natural = multiprecision::number<
    multiprecision::cpp_int_backend<3072, 3072, multiprecision::unsigned_magnitude, multiprecision::unchecked, void>>;

// Magnitudes of a finite decimal that is not zero and of a finite double that is > 0.
std::weak_ordering compare_magnitudes(const Decimal& a, double b) noexcept {
  const int scale = a.scale();
  if (scale > double_scale_max) return std::weak_ordering::greater;
  if (scale < double_scale_min) return std::weak_ordering::less;
  int binary_exponent = 0;
  const double fraction = std::frexp(b, &binary_exponent);
  Natural left(a.coefficient);
  Natural right(static_cast<std::uint64_t>(std::ldexp(fraction, 53)));
  binary_exponent -= 53;
  (a.exponent >= 0 ? left : right) *= multiprecision::pow(Natural(10), static_cast<unsigned>(std::abs(a.exponent)));
  (binary_exponent >= 0 ? right : left) <<= static_cast<unsigned>(std::abs(binary_exponent));
  return left.compare(right) <=> 0;
}

std::weak_ordering reversed(std::weak_ordering order) noexcept { return 0 <=> order; }

// −2 NaN, −1 −∞, 0 finite, 1 +∞: the ends of the number line.
int extremity(const Decimal& value) noexcept {
  if (value.kind == Decimal::Kind::nan) return -2;
  if (value.kind == Decimal::Kind::infinite) return value.negative ? -1 : 1;
  return 0;
}
int extremity(double value) noexcept {
  if (std::isnan(value)) return -2;
  if (std::isinf(value)) return value < 0 ? -1 : 1;
  return 0;
}
int sign(const Decimal& value) noexcept {
  if (value.coefficient == 0) return 0;
  return value.negative ? -1 : 1;
}
int sign(double value) noexcept { return (value > 0) - (value < 0); }

}  // namespace

Uint128 power_of_ten(int n) noexcept { return power_table[static_cast<std::size_t>(n)]; }

Decimal Decimal::decode(ValueView value) noexcept {
  const auto low = load_le<std::uint64_t>(value.bytes.data());
  const auto high = load_le<std::uint64_t>(value.bytes.data() + 8);
  Decimal decimal;
  decimal.negative = (high >> 63U) != 0;
  const auto combination = static_cast<unsigned>(high >> 58U) & 31U;
  if (combination == 31) {
    decimal.kind = Kind::nan;
  } else if (combination == 30) {
    decimal.kind = Kind::infinite;
  } else if (combination < 24) {
    decimal.exponent = static_cast<int>((high >> 49U) & 0x3fffU) - exponent_bias;
    decimal.coefficient = (Uint128{high & ((std::uint64_t{1} << 49U) - 1)} << 64U) | low;
    if (decimal.coefficient >= power_of_ten(34)) decimal.coefficient = 0;
  }  // else: a coefficient of more than 34 digits, which reads as zero
  return decimal;
}

Decimal Decimal::from_int64(std::int64_t value) noexcept {
  Decimal decimal;
  decimal.negative = value < 0;
  const auto bits = static_cast<std::uint64_t>(value);
  decimal.coefficient = value < 0 ? ~bits + 1 : bits;
  return decimal;
}

int Decimal::digits() const noexcept {
  int n = 0;
  while (n < powers && coefficient >= power_table[static_cast<std::size_t>(n)]) ++n;
  return n;
}

double Decimal::to_double() const noexcept {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (kind == Kind::nan) return std::numeric_limits<double>::quiet_NaN();
  const double sign_of = negative ? -1.0 : 1.0;
  if (kind == Kind::infinite) return sign_of * infinity;
  if (coefficient == 0) return sign_of * 0.0;
  std::array<char, 64> text;
  char* at = text.data() + 40;
  char* const end_of_digits = at;
  for (Uint128 rest = coefficient; rest != 0; rest /= 10) {
    *--at = static_cast<char>('0' + static_cast<int>(rest % 10));
  }
  *end_of_digits = 'e';
  const auto end = std::to_chars(end_of_digits + 1, text.data() + text.size(), exponent).ptr;
  double value = 0;
  if (std::from_chars(at, end, value).ec == std::errc::result_out_of_range) {
    value = scale() > 0 ? infinity : 0.0;
  }
  return sign_of * value;
}

std::int64_t Decimal::to_int64_saturated() const noexcept {
  constexpr auto highest = std::numeric_limits<std::int64_t>::max();
  constexpr auto lowest = std::numeric_limits<std::int64_t>::min();
  if (kind == Kind::nan || is_zero()) return 0;
  if (kind == Kind::infinite || scale() > 19) return negative ? lowest : highest;
  if (scale() < 0) return 0;
  Uint128 magnitude = coefficient;
  if (exponent >= 0) {
    magnitude *= power_of_ten(exponent);
  } else {
    // scale() ≥ 0, so that there are no more places than digits.
    const Uint128 divisor = power_of_ten(-exponent);
    const Uint128 rest = coefficient % divisor;
    magnitude = coefficient / divisor;
    if (rest * 2 > divisor || (rest * 2 == divisor && magnitude % 2 == 1)) ++magnitude;
  }
  const Uint128 limit = Uint128{static_cast<std::uint64_t>(highest)} + (negative ? 1 : 0);
  if (magnitude >= limit) return negative ? lowest : highest;
  const auto value = static_cast<std::int64_t>(magnitude);
  return negative ? -value : value;
}

std::weak_ordering compare(const Decimal& a, const Decimal& b) noexcept {
  if (const int x = extremity(a), y = extremity(b); x != 0 || y != 0) return x <=> y;
  if (const int x = sign(a), y = sign(b); x != y || x == 0) return x <=> y;
  const int digits_a = a.digits();
  const int digits_b = b.digits();
  std::weak_ordering order = a.exponent + digits_a <=> b.exponent + digits_b;
  if (order == 0) {
    const Uint128 left = a.coefficient * power_of_ten(std::max(digits_b - digits_a, 0));
    const Uint128 right = b.coefficient * power_of_ten(std::max(digits_a - digits_b, 0));
    order = left < right   ? std::weak_ordering::less
            : left > right ? std::weak_ordering::greater
                           : std::weak_ordering::equivalent;
  }
  return a.negative ? reversed(order) : order;
}

std::weak_ordering compare(const Decimal& a, double b) noexcept {
  if (const int x = extremity(a), y = extremity(b); x != 0 || y != 0) return x <=> y;
  if (const int x = sign(a), y = sign(b); x != y || x == 0) return x <=> y;
  const std::weak_ordering order = compare_magnitudes(a, std::fabs(b));
  return a.negative ? reversed(order) : order;
}

}  // namespace spillway
