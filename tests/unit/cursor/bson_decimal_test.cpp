#include "cursor/bson_decimal.h"

#include <cmath>
#include <limits>

#include "tests/unit/cursor/bson_text.h"

namespace spillway {
namespace {

using test::Value;

Decimal decimal(const std::string& text) {
  return Decimal::decode(Value(R"({"$numberDecimal":")" + text + "\"}"));
}

TEST_CASE("decimals come apart", "[decimal]") {
  const Decimal value = decimal("-12.50");
  CHECK(value.negative);
  CHECK(value.coefficient == 1250);
  CHECK(value.exponent == -2);
  CHECK(value.digits() == 4);
  CHECK(value.scale() == 2);
  CHECK(decimal("NaN").is_nan());
  CHECK(decimal("-Infinity").kind == Decimal::Kind::infinite);
  CHECK(decimal("0E+6000").is_zero());
  const Decimal longest = decimal("9999999999999999999999999999999999E6111");
  CHECK(longest.digits() == 34);
  CHECK(longest.scale() == 6145);
}

TEST_CASE("encodings that are not canonical are zero", "[decimal]") {
  // 11xxx: a coefficient of more than 34 digits; and 10^34 in the ordinary form.
  std::uint8_t large[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0, 0, 0, 0, 0x6c};
  CHECK(Decimal::decode({BsonType::decimal128, Bytes(large)}).is_zero());
  std::uint8_t above[16];
  const Uint128 power = power_of_ten(34);
  store_le(above, static_cast<std::uint64_t>(power));
  store_le(above + 8, static_cast<std::uint64_t>(power >> 64U) | (std::uint64_t{6176} << 49U));
  CHECK(Decimal::decode({BsonType::decimal128, Bytes(above)}).is_zero());
}

TEST_CASE("decimals become the nearest double", "[decimal]") {
  CHECK(decimal("0.1").to_double() == 0.1);
  CHECK(decimal("-12.50").to_double() == -12.5);
  CHECK(decimal("9007199254740993").to_double() == 9007199254740992.0);
  CHECK(decimal("1.7976931348623157E308").to_double() == std::numeric_limits<double>::max());
  CHECK(decimal("1E400").to_double() == std::numeric_limits<double>::infinity());
  CHECK(decimal("-1E6000").to_double() == -std::numeric_limits<double>::infinity());
  CHECK(decimal("4.9E-324").to_double() == std::numeric_limits<double>::denorm_min());
  CHECK(decimal("1E-400").to_double() == 0.0);
  CHECK(std::signbit(decimal("-1E-6000").to_double()));
  CHECK(std::isnan(decimal("NaN").to_double()));
}

TEST_CASE("decimals round half to even and saturate", "[decimal]") {
  constexpr auto highest = std::numeric_limits<std::int64_t>::max();
  constexpr auto lowest = std::numeric_limits<std::int64_t>::min();
  CHECK(decimal("0.5").to_int64_saturated() == 0);
  CHECK(decimal("1.5").to_int64_saturated() == 2);
  CHECK(decimal("-2.5").to_int64_saturated() == -2);
  CHECK(decimal("2.500000001").to_int64_saturated() == 3);
  CHECK(decimal("1E18").to_int64_saturated() == 1000000000000000000);
  CHECK(decimal("9223372036854775806.6").to_int64_saturated() == highest);
  CHECK(decimal("9223372036854775807").to_int64_saturated() == highest);
  CHECK(decimal("9223372036854775808").to_int64_saturated() == highest);
  CHECK(decimal("-9223372036854775808").to_int64_saturated() == lowest);
  CHECK(decimal("-9223372036854775807").to_int64_saturated() == lowest + 1);
  CHECK(decimal("-1E19").to_int64_saturated() == lowest);
  CHECK(decimal("1E-6176").to_int64_saturated() == 0);
  CHECK(decimal("NaN").to_int64_saturated() == 0);
}

TEST_CASE("every int64 survives the way through a decimal", "[decimal]") {
  for (const std::int64_t value :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{-1}, std::int64_t{1} << 53U,
        std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    CHECK(Decimal::from_int64(value).to_int64_saturated() == value);
  }
}

TEST_CASE("decimals and doubles compare exactly", "[decimal]") {
  // 0.1 as double is 0.1000000000000000055511151231257827…
  CHECK((compare(decimal("0.1"), 0.1) < 0));
  CHECK((compare(decimal("0.1000000000000000055511151231257827"), 0.1) < 0));
  CHECK((compare(decimal("0.1000000000000000055511151231257828"), 0.1) > 0));
  CHECK((compare(decimal("-0.1"), -0.1) > 0));
  CHECK((compare(decimal("0.5"), 0.5) == 0));
  CHECK((compare(decimal("0.50000000000"), 0.5) == 0));
  CHECK((compare(decimal("1E+3"), 1000.0) == 0));
  CHECK((compare(decimal("-0"), 0.0) == 0));
  CHECK((compare(decimal("9007199254740993"), 9007199254740992.0) > 0));
  const double smallest = std::numeric_limits<double>::denorm_min();
  CHECK((compare(decimal("4.940656458412465441765687928682213E-324"), smallest) < 0));
  CHECK((compare(decimal("4.940656458412465441765687928682214E-324"), smallest) > 0));
  CHECK((compare(decimal("1E-6000"), smallest) < 0));
  CHECK((compare(decimal("-1E-6000"), -smallest) > 0));
  const double largest = std::numeric_limits<double>::max();
  CHECK((compare(decimal("1.797693134862315708145274237317043E308"), largest) < 0));
  CHECK((compare(decimal("1.797693134862315708145274237317044E308"), largest) > 0));
  CHECK((compare(decimal("1E6000"), largest) > 0));
  CHECK((compare(decimal("Infinity"), std::numeric_limits<double>::infinity()) == 0));
  CHECK((compare(decimal("NaN"), std::nan("")) == 0));
  CHECK((compare(decimal("NaN"), -std::numeric_limits<double>::infinity()) < 0));
}

}  // namespace
}  // namespace spillway
