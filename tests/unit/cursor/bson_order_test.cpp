#include "cursor/bson_order.h"

#include <algorithm>
#include <vector>

#include "tests/unit/cursor/bson_text.h"

namespace spillway {
namespace {

using test::json;
using test::Value;

std::string number(const std::string& type, const std::string& digits) {
  return "{\"$number" + type + "\":\"" + digits + "\"}";
}
std::string decimal(const std::string& digits) { return number("Decimal", digits); }
std::string int64(const std::string& digits) { return number("Long", digits); }
std::string binary(const std::string& base64, const std::string& subtype) {
  return R"({"$binary":{"base64":")" + base64 + R"(","subType":")" + subtype + "\"}}";
}
std::string regex(const std::string& pattern, const std::string& options) {
  return R"({"$regularExpression":{"pattern":")" + pattern + R"(","options":")" + options + "\"}}";
}
std::string db_pointer(const std::string& ns, const std::string& oid) {
  return R"({"$dbPointer":{"$ref":")" + ns + R"(","$id":{"$oid":")" + oid + "\"}}}";
}
std::string oid(const std::string& hex) { return R"({"$oid":")" + hex + "\"}"; }
std::string date(const std::string& ms) { return R"({"$date":{"$numberLong":")" + ms + "\"}}"; }
std::string timestamp(const std::string& t, const std::string& i) {
  return R"({"$timestamp":{"t":)" + t + R"(,"i":)" + i + "}}";
}

using Groups = std::vector<std::vector<std::string>>;

// Ascending groups of equal values: the order itself, written down.
Groups ordered_numbers() {
  const std::string two_to_63 = number("Double", "9223372036854775808");
  return {
      {number("Double", "NaN"), decimal("NaN")},
      {number("Double", "-Infinity"), decimal("-Infinity")},
      {decimal("-9.999999999999999999999999999999999E6144")},
      {decimal("-1E309")},
      {"-1.7976931348623157e308"},
      {"-1e300"},
      {decimal("-9223372036854775809")},
      {int64("-9223372036854775808"), "-9223372036854775808.0", decimal("-9223372036854775808")},
      {int64("-9223372036854775807")},
      {int64("-9007199254740993"), decimal("-9007199254740993")},
      {"-9007199254740992.0", int64("-9007199254740992")},
      {"-2147483649"},
      {"-2147483648", "-2147483648.0"},
      {"-42"},
      {"-1.5", decimal("-1.5"), decimal("-1.50")},
      {"-1", "-1.0", int64("-1"), decimal("-1")},
      {"-0.1"},
      {decimal("-0.1")},
      {"-1e-300"},
      {"-4.9406564584124654e-324"},
      {decimal("-1E-400")},
      {decimal("-1E-6176")},
      {"0", "0.0", "-0.0", int64("0"), decimal("0"), decimal("-0"), decimal("0E-10")},
      {decimal("1E-6176")},
      {decimal("1E-400")},
      {"4.9406564584124654e-324"},
      {"1e-300"},
      {decimal("0.1"), decimal("0.100")},
      {"0.1"},
      {decimal("0.1000000000000000055511151231257828")},
      {decimal("0.12")},
      {"0.5", decimal("0.5")},
      {"1", "1.0", int64("1"), decimal("1"), decimal("1.000"), decimal("10E-1")},
      {decimal("1.000000000000000000000000000000001")},
      {"1.0000000000000002"},
      {"2"},
      {"9"},
      {"10", decimal("1E1")},
      {"42", "42.0"},
      {"42.123"},
      {"2147483647"},
      {"2147483648", "2147483648.0"},
      {int64("9007199254740991")},
      {int64("9007199254740992"), "9007199254740992.0"},
      {decimal("9007199254740992.5")},
      {int64("9007199254740993"), decimal("9007199254740993"), decimal("9007199254740993.0")},
      {int64("9007199254740994"), "9007199254740994.0"},
      {"9223372036854774784.0"},
      {int64("9223372036854775806")},
      {int64("9223372036854775807"), decimal("9223372036854775807")},
      {two_to_63, decimal("9223372036854775808")},
      {decimal("9223372036854775808.5")},
      {"1e300"},
      {"1.7976931348623157e308"},
      {decimal("1.8E308")},
      {decimal("9.999999999999999999999999999999999E6144")},
      {number("Double", "Infinity"), decimal("Infinity")},
  };
}

Groups ordered_others() {
  const std::string low = "000000000000000000000000";
  const std::string high = "ffffffffffffffffffffffff";
  return {
      {R"("")", R"({"$symbol":""})"},
      {R"("\u0000")"},
      {R"("\u0000\u0000")"},
      {R"("\u0000a")"},
      {R"("A")"},
      {R"("a")", R"({"$symbol":"a"})"},
      {R"("a\u0000")"},
      {R"("a\u0000b")"},
      {R"("a\u0001")"},
      {R"("aa")"},
      {R"("b")"},
      {"\"\xc3\xa4\""},
      {"{}"},
      {R"({"z":null})"},
      {R"({"a":1})", R"({"a":1.0})"},
      {R"({"a":1,"b":1})"},
      {R"({"a":2})"},
      {R"({"b":0})"},
      {R"({"a":"x"})"},
      {R"({"a":"x","b":{"$maxKey":1}})"},
      {R"({"a":{}})"},
      {R"({"a":{"b":1}})"},
      {"[]"},
      {"[null]"},
      {"[1]", "[1.0]"},
      {"[1,1]"},
      {"[2]"},
      {"[[]]"},
      {"[[1]]"},
      {binary("", "00")},
      {binary("", "80")},
      {binary("/w==", "00")},
      {binary("AA==", "05")},
      {binary("AAE=", "00")},
      {oid(low)},
      {oid("010203040506070809101112")},
      {oid(high)},
      {"false"},
      {"true"},
      {date("-9223372036854775808")},
      {date("-1")},
      {date("0")},
      {date("1700000000000")},
      {timestamp("0", "0")},
      {timestamp("0", "1")},
      {timestamp("1", "0")},
      {timestamp("4294967295", "4294967295")},
      {regex("", "")},
      {regex("", "i")},
      {regex("a", "")},
      {regex("a", "i")},
      {regex("aa", "")},
      {regex("b", "")},
      {db_pointer("z", low)},
      {db_pointer("z", high)},
      {db_pointer("aa", low)},
      {R"({"$code":"a"})"},
      {R"({"$code":"aa"})"},
      {R"({"$code":"a","$scope":{}})"},
      {R"({"$code":"a","$scope":{"x":1}})"},
      {R"({"$code":"b","$scope":{}})"},
  };
}

struct Entry {
  Value value;
  std::size_t rank;
};

std::vector<Entry> table() {
  Groups groups = {{R"({"$minKey":1})"}, {R"({"$undefined":true})"}, {"null"}};
  for (auto& group : ordered_numbers()) groups.push_back(group);
  for (auto& group : ordered_others()) groups.push_back(group);
  groups.push_back({R"({"$maxKey":1})"});
  std::vector<Entry> entries;
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    for (const auto& text : groups[rank]) entries.push_back({Value(text), rank});
  }
  return entries;
}

int sign(std::weak_ordering order) { return order < 0 ? -1 : order > 0 ? 1 : 0; }
int sign(int order) { return (order > 0) - (order < 0); }

std::string key_of(ValueView value, bool descending = false) {
  std::string key;
  append_order_key(key, value, descending);
  return key;
}

TEST_CASE("every pair of values stands in the written order", "[order]") {
  const auto entries = table();
  REQUIRE(entries.size() >= 120);
  for (const Entry& a : entries) {
    for (const Entry& b : entries) {
      const int expected = sign(a.rank <=> b.rank);
      if (sign(compare_values(a.value, b.value)) != expected) {
        FAIL_CHECK(a.value.text() << " <=> " << b.value.text() << " should be " << expected);
      }
    }
  }
}

TEST_CASE("the order is total: every triple obeys its laws", "[order]") {
  const auto entries = table();
  const std::size_t n = entries.size();
  std::vector<int> order(n * n);
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = 0; b < n; ++b) {
      order[a * n + b] = sign(compare_values(entries[a].value, entries[b].value));
    }
  }
  std::size_t broken = 0;
  for (std::size_t a = 0; a < n; ++a) {
    broken += order[a * n + a] != 0 ? 1 : 0;
    for (std::size_t b = 0; b < n; ++b) {
      broken += order[a * n + b] != -order[b * n + a] ? 1 : 0;
      for (std::size_t c = 0; c < n; ++c) {
        if (order[a * n + b] <= 0 && order[b * n + c] <= 0) {
          const bool strict = order[a * n + b] < 0 || order[b * n + c] < 0;
          broken += order[a * n + c] > (strict ? -1 : 0) ? 1 : 0;
        }
      }
    }
  }
  CHECK(broken == 0);
}

TEST_CASE("order keys agree with the comparison and are prefix-free", "[order]") {
  const auto entries = table();
  std::vector<std::string> up;
  std::vector<std::string> down;
  for (const Entry& entry : entries) {
    up.push_back(key_of(entry.value));
    down.push_back(key_of(entry.value, true));
  }
  for (std::size_t a = 0; a < entries.size(); ++a) {
    for (std::size_t b = 0; b < entries.size(); ++b) {
      const int expected = sign(compare_values(entries[a].value, entries[b].value));
      INFO(entries[a].value.text() << " and " << entries[b].value.text());
      if (sign(up[a].compare(up[b])) != expected || sign(down[a].compare(down[b])) != -expected) {
        FAIL_CHECK("the keys disagree");
      }
      if (expected != 0 && (up[b].starts_with(up[a]) || down[b].starts_with(down[a]))) {
        FAIL_CHECK("one key is a prefix of the other");
      }
    }
  }
}

TEST_CASE("compound keys are concatenations", "[order]") {
  const auto entries = table();
  std::vector<Value> few;
  for (std::size_t i = 0; i < entries.size(); i += 7) few.push_back(entries[i].value);
  for (const Value& a1 : few) {
    for (const Value& a2 : few) {
      for (const Value& b1 : few) {
        for (const Value& b2 : few) {
          auto expected = compare_values(a1, b1);
          if (expected == 0) expected = 0 <=> compare_values(a2, b2);
          const std::string left = key_of(a1) + key_of(a2, true);
          const std::string right = key_of(b1) + key_of(b2, true);
          if (sign(left.compare(right)) != sign(expected)) {
            FAIL_CHECK(a1.text() << "," << a2.text() << " against " << b1.text() << ","
                                 << b2.text());
          }
        }
      }
    }
  }
}

TEST_CASE("keys of common numbers are short", "[order]") {
  for (const char* text : {"0", "1", "-7", "123456789", "1.5", "-0.1"}) {
    CHECK(key_of(Value(text)).size() <= 10);
  }
  CHECK(key_of(Value(int64("9223372036854775807"))).size() <= 24);
}

TEST_CASE("a short key is the whole key, and its beginning orders as it does", "[order]") {
  std::size_t some = 0;
  for (const Entry& entry : table()) {
    for (const bool descending : {false, true}) {
      const std::string key = key_of(entry.value, descending);
      const auto whole = short_order_key(entry.value, descending);
      if (!whole) continue;
      INFO(entry.value.text());
      CHECK(key.size() <= 16);
      CHECK((*whole == key_beginning(key)));
      ++some;
    }
  }
  CHECK(some > 40);
  for (const std::string& value : {std::string("7"), std::string("-1.5"), std::string("null"), date("-5"),
                                   timestamp("3", "4"), oid("0123456789abcdef01234567")}) {
    INFO(value);
    CHECK(short_order_key(Value(value)).has_value());
  }
  const auto beginning = [](std::string_view key) { return key_beginning(key); };
  CHECK((beginning("") < beginning("a")));
  CHECK((beginning("a") < beginning("ab")));
  CHECK((beginning("abcdefgh") < beginning("abcdefghi")));
  CHECK((beginning("abcdefghijklmnop") == beginning("abcdefghijklmnopq")));
  CHECK((beginning("\x7f") < beginning("\x80")));
}

TEST_CASE("missing equals undefined and sorts below null", "[order]") {
  const Value undefined(R"({"$undefined":true})");
  CHECK((compare_values(ValueView{}, undefined) == 0));
  CHECK(key_of(ValueView{}) == key_of(undefined));
  CHECK((compare_values(ValueView{}, Value("null")) < 0));
}

TEST_CASE("documents compare type, then name, then value; arrays ignore names", "[order]") {
  CHECK((compare_documents(json(R"({"b":1})"), json(R"({"a":"x"})")) < 0));
  CHECK((compare_documents(json(R"({"a":2})"), json(R"({"b":1})")) < 0));
  CHECK((compare_documents(json(R"({"a":1})"), json(R"({"a":1,"b":null})")) < 0));
  CHECK((compare_documents(json("{}"), json("{}")) == 0));
  const BsonDoc odd = json(R"({"7":1,"x":2})");
  const BsonDoc even = json(R"({"0":1,"1":2})");
  const ValueView first{BsonType::array, odd.view().bytes()};
  const ValueView second{BsonType::array, even.view().bytes()};
  CHECK((compare_values(first, second) == 0));
  CHECK(key_of(first) == key_of(second));
}

TEST_CASE("the deepest documents compare without end of stack", "[order]") {
  const auto nested = [](int depth, int leaf) {
    std::vector<std::uint8_t> bytes = {5, 0, 0, 0, 0};
    if (leaf != 0) bytes = {12, 0, 0, 0, 0x10, 'a', 0, static_cast<std::uint8_t>(leaf), 0, 0, 0, 0};
    // Inside out would be quadratic: the headers first, then the ends.
    const std::size_t size = bytes.size() + static_cast<std::size_t>(depth) * 8;
    RecycledBytes all(size, 0);
    std::size_t at = 0;
    for (int level = 0; level < depth; ++level, at += 7) {
      const auto rest = static_cast<std::uint32_t>(size - static_cast<std::size_t>(level) * 8);
      store_le(all.data() + at, rest);
      all[at + 4] = 0x03;
      all[at + 5] = 'a';
    }
    std::copy(bytes.begin(), bytes.end(), all.begin() + static_cast<std::ptrdiff_t>(at));
    return BsonDoc(std::move(all));
  };
  REQUIRE(nested(3, 1).view().validate().has_value());
  const BsonDoc low = nested(200000, 1);
  const BsonDoc high = nested(200000, 2);
  CHECK((compare_documents(low, high) < 0));
  CHECK((compare_documents(high, low) > 0));
  CHECK((compare_documents(low, low) == 0));
  const ValueView low_value{BsonType::document, low.view().bytes()};
  const ValueView high_value{BsonType::document, high.view().bytes()};
  CHECK(key_of(low_value) < key_of(high_value));
}

}  // namespace
}  // namespace spillway
