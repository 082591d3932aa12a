#include "cursor/bson_order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "cursor/bson_decimal.h"

namespace spillway {

namespace {

// Documents nested deeper are refused before they are compared; here it only bounds the recursion:
// below this depth documents compare by their bytes.
constexpr int order_depth_max = 256;

std::weak_ordering compare_bytes(const void* a, std::size_t size_a, const void* b,
                                 std::size_t size_b) noexcept {
  const std::size_t common = std::min(size_a, size_b);
  const int order = common == 0 ? 0 : std::memcmp(a, b, common);
  return order != 0 ? order <=> 0 : size_a <=> size_b;
}
std::weak_ordering compare_bytes(std::string_view a, std::string_view b) noexcept {
  return compare_bytes(a.data(), a.size(), b.data(), b.size());
}
std::weak_ordering compare_bytes(Bytes a, Bytes b) noexcept {
  return compare_bytes(a.data(), a.size(), b.data(), b.size());
}

std::weak_ordering compare_doubles(double a, double b) noexcept {
  if (a < b) return std::weak_ordering::less;
  if (a > b) return std::weak_ordering::greater;
  if (a == b) return std::weak_ordering::equivalent;
  return !std::isnan(a) <=> !std::isnan(b);
}

// Exact: no integer is rounded to a double.
std::weak_ordering compare_integer(std::int64_t a, double b) noexcept {
  if (std::isnan(b)) return std::weak_ordering::greater;
  if (b >= two_to_63) return std::weak_ordering::less;
  if (b < -two_to_63) return std::weak_ordering::greater;
  const auto whole = static_cast<std::int64_t>(b);
  if (a != whole) return a <=> whole;
  return compare_doubles(static_cast<double>(whole), b);  // whole is b's own integer part: exact
}

std::int64_t integer(ValueView value) noexcept {
  return value.type == BsonType::int32 ? value.as_int32() : value.as_int64();
}

std::weak_ordering compare_decimals(ValueView a, ValueView b) noexcept {
  if (a.type != BsonType::decimal128) return 0 <=> compare_decimals(b, a);
  const Decimal left = Decimal::decode(a);
  if (b.type == BsonType::decimal128) return compare(left, Decimal::decode(b));
  if (b.type == BsonType::double_) return compare(left, b.as_double());
  return compare(left, Decimal::from_int64(integer(b)));
}

std::weak_ordering compare_numbers(ValueView a, ValueView b) noexcept {
  if (a.type == BsonType::decimal128 || b.type == BsonType::decimal128) {
    return compare_decimals(a, b);
  }
  const bool double_a = a.type == BsonType::double_;
  const bool double_b = b.type == BsonType::double_;
  if (double_a && double_b) return compare_doubles(a.as_double(), b.as_double());
  if (double_a) return 0 <=> compare_integer(integer(b), a.as_double());
  if (double_b) return compare_integer(integer(a), b.as_double());
  return integer(a) <=> integer(b);
}

struct CodeWithScope {
  std::string_view code;
  DocView scope;
};
CodeWithScope split_code(ValueView value) noexcept {
  const std::uint8_t* at = value.bytes.data() + 4;
  const std::size_t length = load_le<std::uint32_t>(at);
  return {{reinterpret_cast<const char*>(at) + 4, length - 1}, DocView::trusted(at + 4 + length)};
}

std::weak_ordering compare_at_depth(ValueView a, ValueView b, int depth) noexcept;

// Arrays leave the names out: they are the positions.
std::weak_ordering compare_elements(DocView a, DocView b, bool with_names, int depth) noexcept {
  if (depth >= order_depth_max) return compare_bytes(a.bytes(), b.bytes());
  DocIterator at_a = a.begin();
  DocIterator at_b = b.begin();
  for (; !at_a.done() && !at_b.done(); ++at_a, ++at_b) {
    const int type_a = canonical_type(at_a->type);
    const int type_b = canonical_type(at_b->type);
    if (type_a != type_b) return type_a <=> type_b;
    if (with_names) {
      if (const auto order = compare_bytes(at_a->name, at_b->name); order != 0) return order;
    }
    if (const auto order = compare_at_depth(*at_a, *at_b, depth + 1); order != 0) return order;
  }
  return !at_a.done() <=> !at_b.done();
}

// REQUIRES the same canonical type.
std::weak_ordering compare_same_type(ValueView a, ValueView b, int depth) noexcept {
  switch (a.type) {
    case BsonType::double_:
    case BsonType::int32:
    case BsonType::int64:
    case BsonType::decimal128:
      return compare_numbers(a, b);
    case BsonType::string:
    case BsonType::symbol:
    case BsonType::code:
      return compare_bytes(a.as_string(), b.as_string());
    case BsonType::document:
      return compare_elements(a.as_document(), b.as_document(), true, depth);
    case BsonType::array:
      return compare_elements(a.as_document(), b.as_document(), false, depth);
    case BsonType::binary:
    case BsonType::db_pointer:
      if (a.bytes.size() != b.bytes.size()) return a.bytes.size() <=> b.bytes.size();
      return compare_bytes(a.bytes, b.bytes);
    case BsonType::object_id:
    case BsonType::boolean:
    case BsonType::regex:
      return compare_bytes(a.bytes, b.bytes);
    case BsonType::date:
      return a.as_int64() <=> b.as_int64();
    case BsonType::timestamp:
      return load_le<std::uint64_t>(a.bytes.data()) <=> load_le<std::uint64_t>(b.bytes.data());
    case BsonType::code_with_scope: {
      const CodeWithScope left = split_code(a);
      const CodeWithScope right = split_code(b);
      if (const auto order = compare_bytes(left.code, right.code); order != 0) return order;
      return compare_elements(left.scope, right.scope, true, depth);
    }
    case BsonType::eoo:
    case BsonType::undefined:
    case BsonType::null:
    case BsonType::min_key:
    case BsonType::max_key:
      break;
  }
  return std::weak_ordering::equivalent;
}

std::weak_ordering compare_at_depth(ValueView a, ValueView b, int depth) noexcept {
  const int type_a = canonical_type(a.type);
  const int type_b = canonical_type(b.type);
  if (type_a != type_b) return type_a <=> type_b;
  return compare_same_type(a, b, depth);
}

// --- order keys

// One byte per canonical type; never 0, which ends a list of elements.
char type_byte(BsonType type) noexcept { return static_cast<char>(canonical_type(type) + 3); }

std::uint16_t swapped(std::uint16_t value) noexcept { return __builtin_bswap16(value); }
std::uint32_t swapped(std::uint32_t value) noexcept { return __builtin_bswap32(value); }
std::uint64_t swapped(std::uint64_t value) noexcept { return __builtin_bswap64(value); }

template <class T>
void put_big_endian(std::string& key, T value) {
  const T bytes = swapped(value);
  key.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
}

void put_bytes(std::string& key, Bytes bytes) {
  key.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// 00 becomes 00 FF, the end is 00 00: an end sorts below any continuation.
void put_escaped(std::string& key, std::string_view text) {
  for (;;) {
    const std::size_t nul = text.find('\0');
    key.append(text.substr(0, nul));
    if (nul == std::string_view::npos) break;
    key.append("\0\xff", 2);
    text.remove_prefix(nul + 1);
  }
  key.append("\0\0", 2);
}

// A number is the greatest double that is not above it, in an order-keeping form, and then either 0
// (it is that double) or 1 and its exact decimal digits.
constexpr char exact = 0;
constexpr char inexact = 1;

std::uint64_t ordered_bits(double value) noexcept {
  constexpr std::uint64_t sign_bit = std::uint64_t{1} << 63U;
  if (std::isnan(value)) return 0;  // below −∞
  const auto bits = std::bit_cast<std::uint64_t>(value + 0.0);  // −0 + 0 is 0
  return (bits & sign_bit) != 0 ? ~bits : bits | sign_bit;
}

void put_double(std::string& key, double value, char exactness) {
  std::array<char, 9> bytes;
  store_le(bytes.data(), swapped(ordered_bits(value)));
  bytes[8] = exactness;
  key.append(bytes.data(), bytes.size());
}

// In decimal; 64 bits at a time.
char* put_digits(char* at, Uint128 value) {
  constexpr std::uint64_t part = 1'000'000'000'000'000'000;  // 10^18
  constexpr std::ptrdiff_t room = 20;
  if (value <= UINT64_MAX) return std::to_chars(at, at + room, static_cast<std::uint64_t>(value)).ptr;
  at = put_digits(at, value / part);
  const char last = at[-1];
  char* const end = std::to_chars(at - 1, at - 1 + room, part + static_cast<std::uint64_t>(value % part)).ptr;
  at[-1] = last;  // where the part's 1 was, which keeps its zeros
  return end;
}

void put_decimal_digits(std::string& key, const Decimal& value) {
  std::array<char, 64> digits;
  char* end = put_digits(digits.data(), value.coefficient);
  const std::size_t start = key.size();
  put_big_endian(key, static_cast<std::uint16_t>(value.exponent + (end - digits.data()) + 0x4000));
  while (end[-1] == '0') --end;
  if ((end - digits.data()) % 2 == 1) *end++ = '0';
  for (const char* pair = digits.data(); pair != end; pair += 2) {
    key.push_back(static_cast<char>((pair[0] - '0') * 10 + (pair[1] - '0') + 1));
  }
  key.push_back(0);
  if (value.negative) {
    for (std::size_t i = start; i < key.size(); ++i) key[i] = static_cast<char>(~key[i]);
  }
}

// REQUIRES a value that is not zero.
void put_finite_decimal(std::string& key, const Decimal& value) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  double floor = value.to_double();
  auto order = floor == infinity ? std::weak_ordering::less : compare(value, floor);
  if (order < 0) {
    floor = std::nextafter(floor, -infinity);
    order = std::weak_ordering::greater;
  }
  put_double(key, floor, order == 0 ? exact : inexact);
  if (order != 0) put_decimal_digits(key, value);
}

bool is_exact(std::int64_t value) noexcept {
  constexpr std::int64_t exact_max = std::int64_t{1} << 53U;
  return value >= -exact_max && value <= exact_max;
}

// put_decimal_digits() of such an integer. Hashed keys, integers mostly above 2^53, pass here with every document.
void put_integer_digits(std::string& key, std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  std::uint64_t rest = value < 0 ? ~bits + 1 : bits;
  int digits = 16;
  for (std::uint64_t above = 10'000'000'000'000'000; digits < 19 && rest >= above; above *= 10) ++digits;
  std::array<char, 2 + 10 + 1> bytes;
  store_le(bytes.data(), swapped(static_cast<std::uint16_t>(digits + 0x4000)));
  std::size_t pairs = static_cast<std::size_t>(digits + 1) / 2;
  char* const first = bytes.data() + 2;
  if (digits % 2 == 1) {
    first[pairs - 1] = static_cast<char>(rest % 10 * 10 + 1);
    rest /= 10;
  }
  for (std::size_t pair = static_cast<std::size_t>(digits) / 2; pair-- > 0; rest /= 100) {
    first[pair] = static_cast<char>(rest % 100 + 1);
  }
  while (first[pairs - 1] == 1) --pairs;  // zeros at the end
  first[pairs] = 0;
  const std::size_t size = 2 + pairs + 1;
  if (value < 0) {
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(~bytes[i]);
  }
  key.append(bytes.data(), size);
}

void put_integer(std::string& key, std::int64_t value) {
  if (is_exact(value)) [[likely]] {
    put_double(key, static_cast<double>(value), exact);
    return;
  }
  double floor = static_cast<double>(value);
  auto order = compare_integer(value, floor);
  if (order < 0) {
    floor = std::nextafter(floor, -two_to_63);
    order = std::weak_ordering::greater;
  }
  put_double(key, floor, order == 0 ? exact : inexact);
  if (order != 0) put_integer_digits(key, value);
}

void put_number(std::string& key, ValueView value) {
  if (value.type == BsonType::int32 || value.type == BsonType::int64) {
    put_integer(key, integer(value));
    return;
  }
  if (value.type == BsonType::decimal128) {
    const Decimal decimal = Decimal::decode(value);
    if (decimal.kind == Decimal::Kind::finite && !decimal.is_zero()) {
      put_finite_decimal(key, decimal);
      return;
    }
  }
  put_double(key, *value.to_double(), exact);
}

void put_payload(std::string& key, ValueView value, int depth);

void put_elements(std::string& key, DocView doc, bool with_names, int depth) {
  if (depth >= order_depth_max) {
    put_escaped(key, {reinterpret_cast<const char*>(doc.data()), doc.size()});
    return;
  }
  for (const Element& element : doc) {
    key.push_back(type_byte(element.type));
    if (with_names) {
      key.append(element.name);
      key.push_back(0);
    }
    put_payload(key, element, depth + 1);
  }
  key.push_back(0);
}

void put_payload(std::string& key, ValueView value, int depth) {
  constexpr std::uint64_t sign_bit = std::uint64_t{1} << 63U;
  switch (value.type) {
    case BsonType::double_:
    case BsonType::int32:
    case BsonType::int64:
    case BsonType::decimal128:
      put_number(key, value);
      break;
    case BsonType::string:
    case BsonType::symbol:
    case BsonType::code:
      put_escaped(key, value.as_string());
      break;
    case BsonType::document:
      put_elements(key, value.as_document(), true, depth);
      break;
    case BsonType::array:
      put_elements(key, value.as_document(), false, depth);
      break;
    case BsonType::binary:
      put_big_endian(key, load_le<std::uint32_t>(value.bytes.data()));
      put_bytes(key, value.bytes.subspan(4));
      break;
    case BsonType::db_pointer:
      put_big_endian(key, static_cast<std::uint32_t>(value.bytes.size()));
      put_bytes(key, value.bytes);
      break;
    case BsonType::date:
      put_big_endian(key, load_le<std::uint64_t>(value.bytes.data()) ^ sign_bit);
      break;
    case BsonType::timestamp:
      put_big_endian(key, load_le<std::uint64_t>(value.bytes.data()));
      break;
    case BsonType::code_with_scope: {
      const CodeWithScope parts = split_code(value);
      put_escaped(key, parts.code);
      put_elements(key, parts.scope, true, depth);
      break;
    }
    default:
      put_bytes(key, value.bytes);
      break;  // fixed sizes, regex with its NULs, or nothing
  }
}

}  // namespace

int canonical_type(BsonType type) noexcept {
  switch (type) {
    case BsonType::min_key:
      return -1;
    case BsonType::eoo:
    case BsonType::undefined:
      return 0;
    case BsonType::null:
      return 5;
    case BsonType::double_:
    case BsonType::int32:
    case BsonType::int64:
    case BsonType::decimal128:
      return 10;
    case BsonType::string:
    case BsonType::symbol:
      return 15;
    case BsonType::document:
      return 20;
    case BsonType::array:
      return 25;
    case BsonType::binary:
      return 30;
    case BsonType::object_id:
      return 35;
    case BsonType::boolean:
      return 40;
    case BsonType::date:
      return 45;
    case BsonType::timestamp:
      return 47;
    case BsonType::regex:
      return 50;
    case BsonType::db_pointer:
      return 55;
    case BsonType::code:
      return 60;
    case BsonType::code_with_scope:
      return 65;
    case BsonType::max_key:
      return 127;
  }
  return 0;
}

std::weak_ordering compare_values(ValueView a, ValueView b) noexcept {
  return compare_at_depth(a, b, 0);
}

std::weak_ordering compare_documents(DocView a, DocView b) noexcept {
  return compare_elements(a, b, true, 0);
}

void append_order_key(std::string& key, ValueView value, bool descending) {
  const std::size_t start = key.size();
  key.push_back(type_byte(value.type));
  put_payload(key, value, 0);
  if (descending) {
    for (std::size_t i = start; i < key.size(); ++i) key[i] = static_cast<char>(~key[i]);
  }
}

KeyBeginning key_beginning(std::string_view key) noexcept {
  std::array<std::uint64_t, 2> bytes{};
  std::memcpy(bytes.data(), key.data(), std::min(key.size(), sizeof bytes));
  return {swapped(bytes[0]), swapped(bytes[1])};
}

std::optional<KeyBeginning> short_order_key(ValueView value, bool descending) noexcept {
  constexpr std::uint64_t sign_bit = std::uint64_t{1} << 63U;
  std::uint64_t payload = 0;  // its first eight bytes
  std::uint64_t more = 0;     // at most four bytes behind them
  int bytes = 8;
  switch (value.type) {
    case BsonType::int32:
    case BsonType::int64:
      if (!is_exact(integer(value))) return std::nullopt;
      payload = ordered_bits(static_cast<double>(integer(value)));
      bytes = 9;  // the last is `exact`, which is 0
      break;
    case BsonType::double_:
      payload = ordered_bits(value.as_double());
      bytes = 9;
      break;
    case BsonType::date:
      payload = load_le<std::uint64_t>(value.bytes.data()) ^ sign_bit;
      break;
    case BsonType::timestamp:
      payload = load_le<std::uint64_t>(value.bytes.data());
      break;
    case BsonType::object_id:
      payload = swapped(load_le<std::uint64_t>(value.bytes.data()));
      more = swapped(load_le<std::uint32_t>(value.bytes.data() + 8));
      bytes = 12;
      break;
    case BsonType::null:
      bytes = 0;
      break;
    default:
      return std::nullopt;
  }
  const auto type = static_cast<unsigned char>(type_byte(value.type));
  KeyBeginning key{std::uint64_t{type} << 56U | payload >> 8U, payload << 56U | more << 24U};
  if (!descending) return key;
  // Only the bytes that the key has.
  const int behind = 8 * (15 - bytes);
  key.high = behind > 64 ? ~key.high >> (behind - 64) << (behind - 64) : ~key.high;
  key.low = behind >= 64 ? 0 : ~key.low >> behind << behind;
  return key;
}

}  // namespace spillway
