#include "proxy/catalog/filter_bounds.h"

#include <map>

#include "catalog_support.h"
#include "cursor/bson_hash.h"
#include "proxy/catalog/filter_regex.h"

namespace spillway::catalog {
namespace {

using test::compound_key;
using test::doc;
using test::pattern;
using test::value_key;

// An interval in words: brackets, and the JSON of both ends.
struct Range {
  char open;
  std::string low;
  std::string high;
  char close;
};

const std::string min_key = "{'$minKey': 1}";
const std::string max_key = "{'$maxKey': 1}";
const std::string infinity = "{'$numberDouble': 'Infinity'}";
const std::string minus_infinity = "{'$numberDouble': '-Infinity'}";
const std::string nan = "{'$numberDouble': 'NaN'}";
const std::string undefined = "{'$undefined': true}";

Range all() { return {'[', min_key, max_key, ']'}; }
Range only(const std::string& value) { return {'[', value, value, ']'}; }

std::string regex(const std::string& text, const std::string& options = "") {
  return "{'$regularExpression': {'pattern': '" + text + "', 'options': '" + options + "'}}";
}

std::string hash_of(const std::string& value) {
  const BsonDoc holder = doc("{'v': " + value + "}");
  return "{'$numberLong': '" + std::to_string(bson_hash64(holder.view()["v"])) + "'}";
}

IntervalList intervals(const std::vector<Range>& ranges) {
  IntervalList out;
  for (const Range& r : ranges) {
    out.push_back({value_key(r.low), value_key(r.high), r.open == '(', r.close == ')'});
  }
  return out;
}

struct BoundsCase {
  std::string key;
  std::string filter;
  std::vector<std::vector<Range>> expected;  // per field
};

void check(const std::vector<BoundsCase>& cases, bool simple_collation = true) {
  for (const auto& c : cases) {
    INFO("key " << c.key << " filter " << c.filter);
    const auto bounds = bounds_of_filter(pattern(c.key), doc(c.filter), simple_collation);
    REQUIRE(bounds.fields.size() == c.expected.size());
    for (std::size_t i = 0; i < c.expected.size(); ++i) {
      INFO("field " << i);
      CHECK(bounds.fields[i].size() == c.expected[i].size());
      CHECK((bounds.fields[i] == intervals(c.expected[i])));
    }
  }
}

TEST_CASE("the bounds of filters") {
  check({
      {"{'a': 1}", "{'a': 2}", {{only("2")}}},
      {"{'a': 1}", "{'b': 2}", {{all()}}},
      {"{'a': 1}", "{'$where': 'true'}", {{all()}}},
      {"{'a': 1}", "{'$text': {'$search': 'x'}}", {{all()}}},
      {"{'a': 1}",
       "{'a': {'$not': {'$gt': 1}}}",
       {{{'[', min_key, "1", ']'}, {'(', infinity, max_key, ']'}}}},
      {"{'a': 1}",
       "{'$or': [{'a': 20}, {'$and': [{'a': 1}, {'b': 7}]}]}",
       {{only("1"), only("20")}}},
      {"{'a': 1}", "{'a': 20, '$or': [{'b': 1}, {'c': 7}]}", {{only("20")}}},
      {"{'a': 1}",
       "{'$or': [{'a': {'$gt': 2, '$lt': 10}}, {'a': {'$gt': 0, '$lt': 5}}]}",
       {{{'(', "0", "10", ')'}}}},
      {"{'a': 1}",
       "{'$or': [{'a': {'$gt': 2, '$lt': 10}}, {'a': {'$gt': 0, '$lt': 15}}, {'a': {'$gt': 20}}]}",
       {{{'(', "0", "15", ')'}, {'(', "20", infinity, ']'}}}},
      {"{'a': 1}", "{'a': [1, 2, 3]}", {{only("1"), only("[1, 2, 3]")}}},
      {"{'a': 1}", "{'a': " + regex("abc") + "}", {{{'[', "''", "{}", ')'}, only(regex("abc"))}}},
      {"{'a': 1}",
       "{'a': " + regex("^abc") + "}",
       {{{'[', "'abc'", "'abd'", ')'}, only(regex("^abc"))}}},
      {"{'a.b': 1}", "{'a': {'$elemMatch': {'b': 1}}}", {{only("1")}}},
      {"{'a': 1, 'b': 1}",
       "{'$or': [{'a': {'$in': [1]}, 'b': {'$in': [1]}}, {'a': {'$in': [1, 5]}, 'b': {'$in': [1, "
       "5]}}]}",
       {{only("1"), only("5")}, {only("1"), only("5")}}},
      {"{'a': 1, 'b': 1}",
       "{'$or': [{'a': {'$gt': 1, '$lt': 5}, 'c': 6}, {'a': 3, 'b': {'$gt': 1, '$lt': 2}}]}",
       {{{'(', "1", "5", ')'}}, {all()}}},
      {"{'a': 'hashed'}", "{'a': {'$gt': 1, '$lt': 2}}", {{all()}}},
      {"{'a': 'hashed'}", "{'a': " + regex("abc") + "}", {{all()}}},
      {"{'a': 1, 'b': 'hashed', 'c': 1}",
       "{'a': {'$gt': 0, '$lte': 3}, 'b': 4}",
       {{{'(', "0", "3", ']'}}, {only(hash_of("4"))}, {all()}}},
      {"{'a': 1}", "{'a': {'$gt': 'x'}}", {{{'(', "'x'", "{}", ')'}}}},
      {"{'a': 1}", "{'a': {'$gt': 20}}", {{{'(', "20", infinity, ']'}}}},
  });
}

TEST_CASE("comparisons keep to the type of their value") {
  const std::string date = "{'$date': {'$numberLong': '5'}}";
  const std::string date_min = "{'$date': {'$numberLong': '-9223372036854775808'}}";
  const std::string oid = "{'$oid': '0102030405060708090a0b0c'}";
  check({
      {"{'a': 1}", "{'a': {'$lt': 5}}", {{{'[', minus_infinity, "5", ')'}}}},
      {"{'a': 1}", "{'a': {'$lte': 5.5}}", {{{'[', minus_infinity, "5.5", ']'}}}},
      {"{'a': 1}", "{'a': {'$gte': 5, '$lte': 'x'}}", {{}}},
      {"{'a': 1}", "{'a': {'$lt': ''}}", {{}}},
      {"{'a': 1}", "{'a': {'$lte': " + nan + "}}", {{only(nan)}}},
      {"{'a': 1}", "{'a': {'$lt': " + nan + "}}", {{}}},
      {"{'a': 1}", "{'a': {'$lte': null}}", {{only(undefined), only("null")}}},
      {"{'a': 1}", "{'a': {'$gt': null}}", {{}}},
      {"{'a': 1}", "{'a': {'$gt': false}}", {{{'(', "false", "true", ']'}}}},
      {"{'a': 1}", "{'a': {'$lt': " + date + "}}", {{{'[', date_min, date, ')'}}}},
      {"{'a': 1}",
       "{'a': {'$gte': " + oid + "}}",
       {{{'[', oid, "{'$oid': 'ffffffffffffffffffffffff'}", ']'}}}},
      {"{'a': 1}", "{'a': {'$gte': {'x': 1}}}", {{{'[', "{'x': 1}", "[]", ')'}}}},
      {"{'a': 1}", "{'a': {'$gt': [1]}}", {{all()}}},
      {"{'a': 1}", "{'a': {'$gt': " + min_key + "}}", {{all()}}},
      {"{'a': 1}", "{'a': {'$lte': " + max_key + "}}", {{all()}}},
  });
}

TEST_CASE("lists, null, existence and negation") {
  check({
      {"{'a': 1}", "{'a': null}", {{only(undefined), only("null")}}},
      {"{'a': 1}", "{'a': {'$exists': false}}", {{only("null")}}},
      {"{'a': 1}", "{'a': {'$exists': true}}", {{all()}}},
      {"{'a': 1}", "{'a': {'$not': {'$exists': true}}}", {{only("null")}}},
      {"{'a': 1}", "{'a': {'$not': {'$exists': false}}}", {{all()}}},
      {"{'a': 1}", "{'a': {'$in': [5, 1, 5, 'x']}}", {{only("1"), only("5"), only("'x'")}}},
      {"{'a': 1}", "{'a': {'$in': []}}", {{}}},
      {"{'a': 1}",
       "{'a': {'$in': [1, " + regex("^b") + "]}}",
       {{only("1"), {'[', "'b'", "'c'", ')'}, only(regex("^b"))}}},
      {"{'a': 1}", "{'a': {'$ne': 5}}", {{{'[', min_key, "5", ')'}, {'(', "5", max_key, ']'}}}},
      {"{'a': 1}",
       "{'a': {'$nin': [1, 2]}}",
       {{{'[', min_key, "1", ')'}, {'(', "1", "2", ')'}, {'(', "2", max_key, ']'}}}},
      {"{'a': 1}",
       "{'a': {'$ne': null}}",
       {{{'[', min_key, "null", ')'}, {'(', "null", max_key, ']'}}}},
      {"{'a': 1}", "{'a': {'$ne': [1]}}", {{all()}}},
      {"{'a': 1}", "{'a': {'$not': {'$in': [1, " + regex("x") + "]}}}", {{all()}}},
      {"{'a': 1}", "{'a': {'$not': " + regex("^x") + "}}", {{all()}}},
      {"{'a': 1}", "{'a': {'$not': {'$not': {'$gt': 1}}}}", {{{'(', "1", infinity, ']'}}}},
      {"{'a': 1}",
       "{'a': {'$not': {'$gte': 1, '$lte': 5}}}",
       {{{'[', min_key, "1", ')'}, {'(', "5", max_key, ']'}}}},
      {"{'a': 1}", "{'a': {'$not': {'$ne': 5}}}", {{only("5")}}},
      {"{'a': 1}", "{'a': {'$all': [10]}}", {{only("10")}}},
      {"{'a': 1}", "{'a': {'$all': [10, 11]}}", {{}}},
      {"{'a': 1}", "{'a': []}", {{only(undefined), only("[]")}}},
      {"{'a': 1}", "{'a': {'$elemMatch': {'$gt': 5}}}", {{{'(', "5", infinity, ']'}}}},
      {"{'a.b': 1}",
       "{'a': {'$elemMatch': {'$or': [{'b': 1}, {'b': 2}]}}}",
       {{only("1"), only("2")}}},
      {"{'a.b': 1}", "{'a': {'b': 1}}", {{all()}}},
      {"{'a': 1}",
       "{'a': {'$regex': '^ab', '$options': 'i'}}",
       {{{'[', "''", "{}", ')'}, only(regex("^ab", "i"))}}},
      {"{'a': 1}", "{'a': {'$regex': '^ab'}}", {{{'[', "'ab'", "'ac'", ')'}, only(regex("^ab"))}}},
  });
}

TEST_CASE("what cannot be bounded is ignored") {
  check({
      {"{'a': 1}", "{'a': {'$mod': [2, 0]}}", {{all()}}},
      {"{'a': 1}", "{'a': {'$mod': [2, 0], '$gt': 3}}", {{{'(', "3", infinity, ']'}}}},
      {"{'a': 1}", "{'a': {'$frobnicate': 1}}", {{all()}}},
      {"{'a': 1}", "{'$frobnicate': 1, 'a': 1}", {{only("1")}}},
      {"{'a': 1}", "{'$nor': [{'a': 1}]}", {{all()}}},
      {"{'a': 1}", "{'$or': [{'a': 1}, {}]}", {{all()}}},
      {"{'a': 1}", "{'$or': []}", {{all()}}},
      {"{'a': 1}", "{'$or': 5}", {{all()}}},
      {"{'a': 1}", "{'a': {'$in': 5}}", {{all()}}},
      {"{'a': 1}", "{'a': 5, 'loc': {'$near': [0, 0]}}", {{all()}}},
      {"{'a': 1}", "{'$jsonSchema': {}, '$comment': 'x'}", {{all()}}},
      {"{'a': 1}", "{'a': " + undefined + "}", {{all()}}},
      {"{'a': 'hashed'}", "{'a': {'$exists': false}}", {{all()}}},
      {"{'a': 'hashed'}", "{'a': {'$ne': 5}}", {{all()}}},
      {"{'a': 'hashed'}", "{'a': {'$in': [1, " + regex("x") + "]}}", {{all()}}},
  });
}

TEST_CASE("a $near orders by distance, wherever the server takes it") {
  for (const char* filter :
       {"{'loc': {'$near': [0, 0]}}", "{'a': 5, 'loc': {'$maxDistance': 1, '$near': [0, 0]}}",
        "{'loc': {'$nearSphere': {'$geometry': {}}}}", "{'loc': {'$geoNear': [0, 0]}}",
        "{'$and': [{'a': 1}, {'$and': [{'a.loc': {'$near': [0, 0]}}]}]}"}) {
    INFO(filter);
    CHECK(orders_by_distance(doc(filter)));
  }
  for (const char* filter :
       {"{}", "{'loc': {'$geoWithin': {}}}", "{'loc': {'a': 1, '$near': [0, 0]}}", "{'$and': 5}",
        "{'$near': [0, 0]}", "{'loc': '$near'}"}) {
    INFO(filter);
    CHECK_FALSE(orders_by_distance(doc(filter)));
  }
  const BsonDoc near = doc("{'loc': {'$near': [0, 0]}}");
  CHECK(orders_by_distance(test::nested(near, "$and", filter_depth_max)));
  CHECK_FALSE(orders_by_distance(test::nested(near, "$and", 3000)));
}

TEST_CASE("an $expr equality with a constant targets") {
  check({
      {"{'a': 1}", "{'$expr': {'$eq': ['$a', 5]}}", {{only("5")}}},
      {"{'a': 1}", "{'$expr': {'$eq': [5, '$a']}}", {{only("5")}}},
      {"{'a': 1, 'b': 1}",
       "{'$expr': {'$and': [{'$eq': ['$a', 5]}, {'$eq': ['$b', 'x']}]}}",
       {{only("5")}, {only("'x'")}}},
      {"{'a': 1}", "{'$expr': {'$eq': ['$a', '$b']}}", {{all()}}},
      {"{'a': 1}", "{'$expr': {'$gt': ['$a', 5]}}", {{all()}}},
      {"{'a': 1}", "{'$expr': {'$eq': ['$a', null]}}", {{all()}}},
      {"{'a': 1}", "{'$expr': true}", {{all()}}},
  });
}

TEST_CASE("hashed fields are bounded by points of hashes") {
  check({
      {"{'a': 'hashed'}", "{'a': 5}", {{only(hash_of("5"))}}},
      {"{'a': 'hashed'}", "{'a': {'$eq': 'x'}}", {{only(hash_of("'x'"))}}},
  });
  const auto in =
      bounds_of_filter(pattern("{'a': 'hashed'}"), doc("{'a': {'$in': [1, 2, 3]}}"), true);
  CHECK(in.fields[0].size() == 3);
  for (const Interval& interval : in.fields[0]) CHECK(interval.is_point());
}

TEST_CASE("under another collation only uncollatable values bound") {
  check(
      {
          {"{'a': 1}", "{'a': 'y'}", {{all()}}},
          {"{'a': 1}", "{'a': 5}", {{only("5")}}},
          {"{'a': 1}", "{'a': {'$in': [5, 'y']}}", {{all()}}},
          {"{'a': 1}", "{'a': {'$in': [5, 6]}}", {{only("5"), only("6")}}},
          {"{'a': 1}", "{'a': {'$gt': 'y'}}", {{all()}}},
          {"{'a': 1}", "{'a': {'$ne': 'y'}}", {{all()}}},
          {"{'a': 1}", "{'a': {'x': 1}}", {{all()}}},
          {"{'a': 1}",
           "{'a': " + regex("^y") + "}",
           {{{'[', "'y'", "'z'", ')'}, only(regex("^y"))}}},
          {"{'a': 1, 'b': 1}", "{'a': 5, 'b': 'y'}", {{only("5")}, {all()}}},
          {"{'a': 'hashed'}", "{'a': 'y'}", {{all()}}},
      },
      false);
}

TEST_CASE("prefixes of regular expressions") {
  const std::map<std::string, std::string> cases = {
      {"abc", ""},     {"^abc", "abc"},    {"^abc$", "abc"},     {"^abc.*", "abc"},
      {"^abc*", "ab"}, {"^abc?d", "ab"},   {"^abc+", "abc"},     {"^abc{0,2}", "ab"},
      {"^a|b", ""},    {"^a\\.b", "a.b"},  {"^a\\d", "a"},       {"\\Aab", "ab"},
      {"^(ab)", ""},   {"^ab(c)", "ab"},   {"^[ab]", ""},        {"^", ""},
      {"", ""},        {"^\xc3\xa9*", ""}, {"^x\xc3\xa9?", "x"}, {"^a\\", "a"},
  };
  for (const auto& [text, prefix] : cases) {
    INFO(text);
    CHECK(regex_prefix(text, "") == prefix);
    CHECK(regex_prefix(text, "s") == prefix);
    CHECK(regex_prefix(text, "i").empty());
    CHECK(regex_prefix(text, "m").empty());
    CHECK(regex_prefix(text, "x").empty());
  }
  CHECK(prefix_successor("abc") == "abd");
  CHECK(prefix_successor("ab\xff") == "ac");
  CHECK(prefix_successor("\xff\xff").empty());
}

using Ranges = std::vector<std::pair<std::string, std::string>>;

Ranges flattened(const FilterBounds& bounds) {
  Ranges out;
  const auto done = flatten(bounds, [&](std::string_view min, std::string_view max) {
    out.emplace_back(min, max);
    return true;
  });
  REQUIRE(done.has_value());
  return out;
}

TEST_CASE("intervals flattened to ranges of keys") {
  const auto points = [](std::vector<std::string> values) {
    std::vector<Range> out;
    for (auto& value : values) out.push_back(only(value));
    return intervals(out);
  };
  const IntervalList two_three = intervals({{'[', "2", "3", ']'}});
  const IntervalList zero_one = intervals({{'[', "0", "1", ']'}});

  CHECK(flattened({{points({"0"}), points({"4", "5", "6"}), two_three}}) ==
        Ranges{{compound_key({"0", "4", "2"}), compound_key({"0", "4", "3"})},
               {compound_key({"0", "5", "2"}), compound_key({"0", "5", "3"})},
               {compound_key({"0", "6", "2"}), compound_key({"0", "6", "3"})}});
  CHECK(flattened({{zero_one, points({"4", "5", "6"}), two_three}}) ==
        Ranges{{compound_key({"0", "4", "2"}), compound_key({"1", "6", "3"})}});
  CHECK(flattened({{two_three, two_three, two_three}}) ==
        Ranges{{compound_key({"2", "2", "2"}), compound_key({"3", "3", "3"})}});
  CHECK(flattened({{points({"1", "5"}), points({"1", "5"})}}) ==
        Ranges{{compound_key({"1", "1"}), compound_key({"1", "5"})},
               {compound_key({"5", "1"}), compound_key({"5", "5"})}});
  CHECK(flattened({{points({"1"}), points({"7"})}}) ==
        Ranges{{compound_key({"1", "7"}), compound_key({"1", "7"})}});
  CHECK(flattened({{points({"1"}), {}}}).empty());
}

TEST_CASE("of a long list the ends count, of a longer one nothing") {
  const auto of = [](const char* key, const char* shape, std::size_t values) {
    std::string list;
    for (std::size_t i = 0; i < values; ++i) {
      const std::string value = std::to_string((i * 7919) % values);
      list += (i == 0 ? "" : ", ") + (std::string(shape) == "$or" ? "{'a': " + value + "}" : value);
    }
    const bool branches = std::string(shape) == "$or";
    return bounds_of_filter(
               pattern(key),
               doc(branches ? "{'$or': [" + list + "]}" : "{'a': {'" + std::string(shape) + "': [" + list + "]}}"),
               true)
        .fields.front();
  };
  constexpr std::size_t longer = 2 * interval_points_max + 1;
  CHECK(of("{'a': 1}", "$in", interval_points_max).size() == interval_points_max);
  const IntervalList span = intervals({{'[', "0", std::to_string(longer - 1), ']'}});
  CHECK(of("{'a': 1}", "$in", longer) == span);
  CHECK(of("{'a': 1}", "$or", longer) == span);
  CHECK(of("{'a': 1}", "$in", filter_values_max) ==
        intervals({{'[', "0", std::to_string(filter_values_max - 1), ']'}}));
  CHECK(of("{'a': 1}", "$in", filter_values_max + 1) == intervals({all()}));
  CHECK(of("{'a': 1}", "$or", filter_values_max + 1) == intervals({all()}));
  CHECK(of("{'a': 1}", "$nin", longer) == intervals({all()}));
  CHECK(of("{'a': 'hashed'}", "$in", interval_points_max).size() == interval_points_max);
  CHECK(of("{'a': 'hashed'}", "$in", longer) == intervals({all()}));
}

TEST_CASE("too many ranges are refused with 17439 and none is visited") {
  const auto bounds =
      bounds_of_filter(pattern("{'a': 1, 'b': 1}"), doc("{'a': 5, 'b': {'$in': [1, 2, 3]}}"), true);
  int visited = 0;
  const auto visit = [&](std::string_view, std::string_view) { return ++visited > 0; };
  const auto done = flatten(bounds, visit, 2);
  REQUIRE(done.has_error());
  CHECK(done.error().code == 17439);
  CHECK(visited == 0);
  CHECK(flatten(bounds, visit, 3).has_value());
  CHECK(visited == 3);
}

TEST_CASE("a visitor ends the enumeration by returning false") {
  const auto bounds = bounds_of_filter(pattern("{'a': 1}"), doc("{'a': {'$in': [1, 2, 3]}}"), true);
  int visited = 0;
  CHECK(flatten(bounds, [&](std::string_view, std::string_view) {
          return ++visited < 2;
        }).has_value());
  CHECK(visited == 2);
}

TEST_CASE("nesting beyond the limit counts as unbounded, deep recursion does not happen") {
  const ShardKeyPattern key = pattern("{'a': 1}");
  for (const char* op : {"$and", "$or"}) {
    const BsonDoc at_limit = test::nested(doc("{'a': 1}"), op, filter_depth_max);
    CHECK((bounds_of_filter(key, at_limit, true).fields[0] == intervals({only("1")})));
    CHECK(bounds_of_filter(key, test::nested(at_limit, op, 1), true).unbounded());
    CHECK(bounds_of_filter(key, test::nested(at_limit, op, 3000), true).unbounded());
  }

  BsonDoc nots = doc("{'$gt': 1}");
  for (int i = 0; i < 1000; ++i) {
    BsonWriter outer;
    outer.append("$not", nots);
    nots = std::move(outer).finish();
  }
  BsonWriter whole;
  whole.append("a", nots);
  CHECK(bounds_of_filter(key, std::move(whole).finish(), true).unbounded());
}

TEST_CASE("a very long $in is bounded by its ends, a very long $nin by nothing") {
  const auto list_filter = [](const char* op) {
    BsonWriter filter;
    filter.begin_document("a");
    filter.begin_array(op);
    for (int i = 0; i < 10'000; ++i) filter.append_item(i * 2);
    filter.end();
    filter.end();
    return std::move(filter).finish();
  };
  const auto in = bounds_of_filter(pattern("{'a': 1}"), list_filter("$in"), true);
  REQUIRE(in.fields[0].size() == 1);
  CHECK((in.fields[0] == intervals({{'[', "0", "19998", ']'}})));
  CHECK(bounds_of_filter(pattern("{'a': 1}"), list_filter("$nin"), true).unbounded());
}

}  // namespace
}  // namespace spillway::catalog
