#include <type_traits>

#include "pipeline_support.h"

namespace spillway::pipeline::test {
namespace {

struct Case {
  const char* expression;
  const char* doc;
  const char* expected;  // JSON, "missing", or "error N"
};

void check(std::initializer_list<Case> cases) {
  for (const Case& c : cases) {
    INFO(c.expression << " over " << c.doc);
    const std::string expected(c.expected);
    if (expected == "missing") {
      CHECK(evaluate(c.expression, c.doc) == to_json(BsonDoc().view()));
    } else if (expected.starts_with("error ")) {
      CHECK(evaluate(c.expression, c.doc) == expected);
    } else {
      CHECK(evaluate(c.expression, c.doc) == value(expected));
    }
  }
}

BsonType type_of(std::string_view expression, std::string_view doc_text = "{}") {
  Budget budget;
  const BsonDoc spec = json("{\"e\": " + std::string(expression) + "}");
  const BsonDoc doc = json(doc_text);
  auto parsed = parse_expression(spec.view()["e"], ParseScope());
  REQUIRE(parsed.has_value());
  Meter meter(budget.budget, "test");
  EvalContext context{doc, meter, {}};
  auto result = (*parsed)->evaluate(context);
  REQUIRE(result.has_value());
  return result->type();
}

TEST_CASE("field paths go through documents and gather through arrays") {
  check({{R"("$a")", R"({"a": 1})", "1"},
         {R"("$a.b")", R"({"a": {"b": "x"}})", R"("x")"},
         {R"("$a.b")", R"({"a": 5})", "missing"},
         {R"("$a.b")", R"({})", "missing"},
         {R"("$a.b")", R"({"a": [{"b": 1}, {"c": 2}, {"b": 3}, 4]})", "[1, 3]"},
         {R"("$a.b")", R"({"a": [[{"b": 1}], {"b": 2}]})", "[2]"},
         {R"("$a.b")", R"({"a": [[{"b": 1}], [{"b": 2}]]})", "[]"},
         {R"("$a.b.c")", R"({"a": [{"b": [{"c": 1}, [{"c": 2}]]}]})", "[[1]]"},
         {R"({"$let": {"vars": {"v": "$a"}, "in": "$$v.b"}})", R"({"a": [[{"b": 1}], {"b": 2}]})", "[2]"},
         {R"("$a.0")", R"({"a": [7, 8]})", "[]"},
         {R"("$$ROOT.a")", R"({"a": 1})", "1"},
         {R"("$$CURRENT")", R"({"a": 1})", R"({"a": 1})"},
         {R"("$$REMOVE")", R"({})", "missing"},
         {R"("$$NOW")", R"({})", "error 115"},
         {R"("$$nobody")", R"({})", "error 17276"},
         {R"("$")", R"({})", "error 16872"},
         {R"("$a.")", R"({})", "error 40353"},
         {R"("$a..b")", R"({})", "error 15998"},
         {R"("$a.$b")", R"({})", "error 16410"}});
}

TEST_CASE("literals, documents and arrays of expressions") {
  check({{"5", "{}", "5"},
         {R"("text")", "{}", R"("text")"},
         {R"({"$literal": "$a"})", R"({"a": 1})", R"("$a")"},
         {R"({"x": "$a", "y": "$b"})", R"({"a": 1})", R"({"x": 1})"},
         {R"({"x": {"y": 1}, "z": [1, "two"]})", "{}", R"({"x": {"y": 1}, "z": [1, "two"]})"},
         {R"(["$a", "$b", 3])", R"({"a": 1})", "[1, null, 3]"},
         {R"({"$nosuch": 1})", "{}", "error 168"},
         {R"({"$zip": {}})", "{}", "error 115"},
         {R"({"$add": [1], "x": 1})", "{}", "error 15983"},
         {R"({"x": 1, "$add": [1]})", "{}", "error 15983"}});
}

TEST_CASE("a date and a fraction of a millisecond") {
  check({{R"({"$add": [{"$date": 1000}, 0.4]})", "{}", R"({"$date": 1000})"},
         {R"({"$subtract": [{"$date": 1000}, 0.4]})", "{}", R"({"$date": 1000})"},
         {R"({"$add": [{"$date": 1000}, 0.5]})", "{}", R"({"$date": 1000})"},
         {R"({"$subtract": [{"$date": 1000}, 0.5]})", "{}", R"({"$date": 999})"},
         {R"({"$add": [{"$date": 1000}, 1.5]})", "{}", R"({"$date": 1001})"},
         {R"({"$subtract": [{"$date": 1000}, 1.5]})", "{}", R"({"$date": 998})"},
         {R"({"$add": [{"$date": 1000}, 2.5]})", "{}", R"({"$date": 1002})"},
         {R"({"$subtract": [{"$date": 1000}, 2.5]})", "{}", R"({"$date": 997})"},
         {R"({"$add": [{"$date": 1000}, -1.5]})", "{}", R"({"$date": 998})"},
         {R"({"$subtract": [{"$date": 1000}, -1.5]})", "{}", R"({"$date": 1002})"},
         {R"({"$add": [{"$date": 1000}, -0.6]})", "{}", R"({"$date": 999})"},
         {R"({"$subtract": [{"$date": 1000}, -0.6]})", "{}", R"({"$date": 1001})"},
         {R"({"$add": [{"$date": 1000}, {"$numberDecimal": "0.5"}]})", "{}", R"({"$date": 1000})"},
         {R"({"$subtract": [{"$date": 1000}, {"$numberDecimal": "0.5"}]})", "{}", R"({"$date": 1000})"},
         {R"({"$add": [{"$date": 1000}, {"$numberDecimal": "1.5"}]})", "{}", R"({"$date": 1002})"},
         {R"({"$subtract": [{"$date": 1000}, {"$numberDecimal": "1.5"}]})", "{}", R"({"$date": 998})"},
         {R"({"$add": [{"$date": 1000}, {"$numberDecimal": "2.5"}]})", "{}", R"({"$date": 1002})"},
         {R"({"$subtract": [{"$date": 1000}, {"$numberDecimal": "2.5"}]})", "{}", R"({"$date": 998})"},
         {R"({"$add": [{"$date": 1000}, {"$numberLong": "9007199254740993"}]})", "{}",
          R"({"$date": {"$numberLong": "9007199254741993"}})"},
         {R"({"$subtract": [{"$date": 1000}, {"$numberLong": "9007199254740993"}]})", "{}",
          R"({"$date": {"$numberLong": "-9007199254739993"}})"}});
}

TEST_CASE("arithmetic widens as the server does") {
  check({{R"({"$add": ["$a", 2]})", R"({"a": 1})", "3"},
         {R"({"$add": [2147483647, 1]})", "{}", R"({"$numberLong": "2147483648"})"},
         {R"({"$add": [1, 2.5]})", "{}", "3.5"},
         {R"({"$add": [1, null]})", "{}", "null"},
         {R"({"$add": ["$missing", 1]})", "{}", "null"},
         {R"({"$add": [1, "x"]})", "{}", "error 16554"},
         {R"({"$add": [{"$date": 1000}, 5]})", "{}", R"({"$date": 1005})"},
         {R"({"$add": [{"$date": 1}, {"$date": 2}]})", "{}", "error 16612"},
         {R"({"$subtract": [5, 7]})", "{}", "-2"},
         {R"({"$subtract": [{"$date": 1000}, {"$date": 400}]})", "{}", R"({"$numberLong": "600"})"},
         {R"({"$subtract": ["x", 7]})", "{}", "error 16556"},
         {R"({"$multiply": [2, 3]})", "{}", "6"},
         {R"({"$multiply": [65536, 65536]})", "{}", R"({"$numberLong": "4294967296"})"},
         {R"({"$divide": [6, 3]})", "{}", "2.0"},
         {R"({"$divide": [6, 0]})", "{}", "error 16608"},
         {R"({"$mod": [7, 3]})", "{}", "1"},
         {R"({"$mod": [-7, 3]})", "{}", "-1"},
         {R"({"$mod": [7, 0]})", "{}", "error 16610"},
         {R"({"$divide": [1]})", "{}", "error 16020"},
         {R"({"$abs": -5})", "{}", "5"},
         {R"({"$abs": {"$numberLong": "-9223372036854775808"}})", "{}", "error 28680"},
         {R"({"$ceil": 1.2})", "{}", "2.0"},
         {R"({"$floor": -1.2})", "{}", "-2.0"},
         {R"({"$ceil": "x"})", "{}", "error 28765"},
         {R"({"$round": [2.5]})", "{}", "2.0"},
         {R"({"$round": [1.2345, 2]})", "{}", "1.23"},
         {R"({"$round": [1250, -2]})", "{}", "1200"},
         {R"({"$trunc": [1.999, 1]})", "{}", "1.9"},
         {R"({"$round": [1, 500]})", "{}", "error 51083"},
         {R"({"$sqrt": 16})", "{}", "4.0"},
         {R"({"$sqrt": -1})", "{}", "error 28714"},
         {R"({"$pow": [2, 10]})", "{}", "1024"},
         {R"({"$pow": [2, -1]})", "{}", "0.5"},
         {R"({"$pow": [0, -1]})", "{}", "error 28764"},
         {R"({"$exp": 0})", "{}", "1.0"},
         {R"({"$ln": 1})", "{}", "0.0"},
         {R"({"$ln": 0})", "{}", "error 28766"},
         {R"({"$log10": 1000})", "{}", "3.0"},
         {R"({"$sum": ["$a", 1]})", R"({"a": 2})", "3"},
         {R"({"$sum": "$a"})", R"({"a": [1, 2, "x"]})", "3"},
         {R"({"$avg": "$a"})", R"({"a": [1, 2]})", "1.5"},
         {R"({"$max": "$a"})", R"({"a": [1, "b", 2]})", R"("b")"},
         {R"({"$min": "$a"})", R"({"a": [null, 3, 2]})", "2"}});
  CHECK(type_of(R"({"$add": [1, {"$numberLong": "2"}]})") == BsonType::int64);
  CHECK(type_of(R"({"$add": [{"$numberLong": "9223372036854775807"}, 1]})") == BsonType::double_);
  CHECK(type_of(R"({"$multiply": [{"$numberLong": "9223372036854775807"}, 2]})") ==
        BsonType::double_);
}

TEST_CASE("one document's expressions take a bounded number of steps") {
  constexpr int failed = 96;
  const auto nested = [](const std::string& body) {
    return R"({"$reduce": {"input": {"$range": [0, 100000]}, "initialValue": 0, "in": )" + body + "}}";
  };
  const std::string in_loops[] = {
      nested(R"({"$reduce": {"input": {"$range": [0, 10000]}, "initialValue": 0, "in": {"$add": ["$$value", 1]}}})"),
      nested(R"({"$size": {"$map": {"input": {"$range": [0, 5]}, "in": {"$size": "$big"}}}})"),
      nested(R"({"$in": [-1, "$big"]})"), nested(R"({"$cmp": ["$big", "$big"]})"),
      nested(R"({"$setIsSubset": ["$big", "$big"]})"), nested(R"({"$size": "$big.x"})"),
      nested(R"({"$and": [{"$lt": [1, 2]}, {"$strLenCP": "$s"}]})")};
  std::string big = "{\"s\": \"" + std::string(1'000'000, 'x') + "\", \"big\": [0";
  for (int i = 1; i < 10'000; ++i) big += ", " + std::to_string(i);
  big += "]}";
  for (const std::string& expression : in_loops) {
    CAPTURE(expression);
    const std::string got = evaluate(expression, big);
    // The meter may come first: of sets it counts each key.
    CHECK((got == "error " + std::to_string(failed) || got == "error 292"));
  }
  // What is ordinary has room: ten thousand elements looked up in as many, one by one.
  CHECK(evaluate(R"({"$size": {"$map": {"input": "$big", "in": {"$arrayElemAt": ["$big", "$$this"]}}}})", big) ==
        value("10000"));
  CHECK(evaluate(nested(R"({"$add": ["$$value", {"$cond": [{"$eq": ["$$this", 5]}, 1, 0]}]})"), big) == value("1"));
  // Large values beside the loop cost nothing.
  CHECK(evaluate(nested(R"({"$cond": [{"$isArray": "$s"}, 1, 0]})"), big) == value("0"));
  // The next document has steps of its own.
  std::vector<BsonDoc> many;
  for (int i = 0; i < 5; ++i) many.push_back(json("{}"));
  const auto out = run(many, R"([{"$project": {"n": {"$reduce": {
      "input": {"$range": [0, 1000000]}, "initialValue": 0, "in": {"$add": ["$$value", 1]}}}}}])");
  CHECK(out.size() == 5);
}

TEST_CASE("a double that is a whole number does not make a $mod of integers a double") {
  check({{R"({"$mod": [7, 10.0]})", "{}", "7"},
         {R"({"$mod": [-7, -1.0]})", "{}", "0"},
         {R"({"$add": [{"$numberLong": "9223372036854775807"}, 1, {"$numberDecimal": "0.1"}]})", "{}",
          R"({"$numberDecimal": "9223372036854775808.1"})"},
         {R"({"$add": [{"$numberLong": "-9223372036854775808"}, -1, {"$numberDecimal": "0.1"}]})", "{}",
          R"({"$numberDecimal": "-9223372036854775808.9"})"},
         {R"({"$add": ["$missing", {"$divide": [1, 0]}]})", "{}", "null"},
         {R"({"$multiply": [null, {"$divide": [1, 0]}]})", "{}", "null"},
         {R"({"$concat": ["a", null, {"$divide": [1, 0]}]})", "{}", "null"},
         {R"({"$concatArrays": [[1], "$missing", {"$divide": [1, 0]}]})", "{}", "null"},
         {R"({"$setUnion": [null, {"$divide": [1, 0]}]})", "{}", "null"},
         {R"({"$setIntersection": [[1], null, {"$divide": [1, 0]}]})", "{}", "null"},
         {R"({"$add": [{"$numberLong": "9007199254740993"}, 1.0]})", "{}", "9007199254740994.0"},
         {R"({"$mod": [{"$numberLong": "9007199254740993"}, 10.0]})", "{}", R"({"$numberLong": "3"})"},
         {R"({"$mod": [7, {"$numberLong": "10"}]})", "{}", R"({"$numberLong": "7"})"},
         {R"({"$mod": [7.0, 10]})", "{}", "7.0"},
         {R"({"$mod": [7, 2.5]})", "{}", "2.0"},
         {R"({"$mod": [7, 3000000000.0]})", "{}", "7.0"},  // more than 32 bits
         {R"({"$mod": [7, -0.0]})", "{}", "error 16610"}});
  CHECK(type_of(R"({"$mod": [7, 10.0]})") == BsonType::int32);
  CHECK(type_of(R"({"$mod": [{"$numberLong": "7"}, 10.0]})") == BsonType::int64);
  CHECK(type_of(R"({"$mod": [7, 3000000000.0]})") == BsonType::double_);
  CHECK(type_of(R"({"$mod": [7.0, 10]})") == BsonType::double_);
}

TEST_CASE("a product has the widest type of its operands, and no type of a part of it") {
  check({{R"({"$multiply": [100000, 100000, 0]})", "{}", "0"},
         {R"({"$multiply": [100000, 100000]})", "{}", R"({"$numberLong": "10000000000"})"},
         {R"({"$multiply": [100000, {"$numberLong": "0"}]})", "{}", R"({"$numberLong": "0"})"},
         {R"({"$multiply": []})", "{}", "1"},
         // All in doubles, where the integers alone would round later: 3 * 3002399751580331 is 2^53 + 1.
         {R"({"$multiply": [3, 3002399751580331, 0.5]})", "{}", "4503599627370496.0"},
         {R"({"$multiply": [{"$numberLong": "3037000500"}, {"$numberLong": "3037000500"}, 0]})", "{}", "0.0"},
         // A decimal takes the exact integer product that is there, or the doubles' one in 15 digits.
         {R"({"$multiply": [3, {"$numberLong": "3002399751580331"}, {"$numberDecimal": "1"}]})", "{}",
          R"({"$numberDecimal": "9007199254740993"})"},
         {R"({"$multiply": [0.1, {"$numberDecimal": "2"}]})", "{}", R"({"$numberDecimal": "0.200000000000000"})"},
         {R"({"$multiply": [2, "x"]})", "{}", "error 16555"},
         {R"({"$multiply": [2, null]})", "{}", "null"}});
  CHECK(type_of(R"({"$multiply": [100000, 100000, 0]})") == BsonType::int32);
  CHECK(type_of(R"({"$multiply": [100000, 100000]})") == BsonType::int64);
  CHECK(type_of(R"({"$multiply": [{"$numberLong": "3037000500"}, {"$numberLong": "3037000500"}, 0]})") ==
        BsonType::double_);
}

TEST_CASE("decimals and dates are converted to one another, over the whole range of a long") {
  check({{R"({"$toDate": {"$numberDecimal": "1000.9"}})", "{}", R"({"$date": 1000})"},
         {R"({"$toDate": {"$numberDecimal": "1E30"}})", "{}", "error 241"},
         {R"({"$toDecimal": {"$date": 1000}})", "{}", R"({"$numberDecimal": "1000"})"},
         {R"({"$toLong": {"$numberDecimal": "9223372036854775296"}})", "{}",
          R"({"$numberLong": "9223372036854775296"})"},
         {R"({"$toLong": {"$numberDecimal": "9223372036854775807.9"}})", "{}",
          R"({"$numberLong": "9223372036854775807"})"},
         {R"({"$toLong": {"$numberDecimal": "9223372036854775808"}})", "{}", "error 241"},
         {R"({"$toLong": {"$numberDecimal": "-9223372036854775808.9"}})", "{}",
          R"({"$numberLong": "-9223372036854775808"})"},
         {R"({"$toLong": {"$numberDecimal": "-9223372036854775809"}})", "{}", "error 241"},
         {R"({"$toLong": {"$numberDecimal": "1.5E3"}})", "{}", R"({"$numberLong": "1500"})"},
         {R"({"$toLong": {"$numberDecimal": "-0.99"}})", "{}", R"({"$numberLong": "0"})"},
         {R"({"$toLong": {"$numberDecimal": "0E6000"}})", "{}", R"({"$numberLong": "0"})"},
         {R"({"$toLong": {"$numberDecimal": "1E-6000"}})", "{}", R"({"$numberLong": "0"})"},
         {R"({"$toLong": {"$numberDecimal": "1E6000"}})", "{}", "error 241"},
         {R"({"$toLong": {"$numberDecimal": "NaN"}})", "{}", "error 241"},
         {R"({"$toLong": {"$numberDecimal": "-Infinity"}})", "{}", "error 241"},
         {R"({"$toInt": {"$numberDecimal": "2147483647.5"}})", "{}", "2147483647"}});
}

TEST_CASE("decimals are added, subtracted, multiplied and divided exactly") {
  check({{R"({"$add": [{"$numberDecimal": "0.1"}, {"$numberDecimal": "0.2"}]})", "{}",
          R"({"$numberDecimal": "0.3"})"},
         {R"({"$multiply": [{"$numberDecimal": "1.5"}, 3]})", "{}", R"({"$numberDecimal": "4.5"})"},
         {R"({"$divide": [{"$numberDecimal": "1"}, 8]})", "{}", R"({"$numberDecimal": "0.125"})"},
         {R"({"$subtract": [{"$numberDecimal": "1"}, 3]})", "{}", R"({"$numberDecimal": "-2"})"},
         {R"({"$sqrt": {"$numberDecimal": "4"}})", "{}", "error 115"}});
}

TEST_CASE("comparisons order all types") {
  check({{R"({"$eq": [1, 1.0]})", "{}", "true"},
         {R"({"$eq": ["$x", null]})", "{}", "false"},
         {R"({"$gt": ["$x", null]})", R"({"x": 1})", "true"},
         {R"({"$lt": ["$x", ""]})", R"({"x": 1})", "true"},
         {R"({"$lt": ["$x", ""]})", R"({"x": "a"})", "false"},
         {R"({"$gte": ["a", 5]})", "{}", "true"},
         {R"({"$ne": [[1, 2], [1, 2]]})", "{}", "false"},
         {R"({"$cmp": [1, 2]})", "{}", "-1"},
         {R"({"$lte": [{"a": 1}, {"a": 2}]})", "{}", "true"}});
}

TEST_CASE("logic and conditions evaluate only what they need") {
  check({{R"({"$and": [true, 1, "x"]})", "{}", "true"},
         {R"({"$and": [false, {"$divide": [1, 0]}]})", "{}", "false"},
         {R"({"$or": [null, 0]})", "{}", "false"},
         {R"({"$or": [1, {"$divide": [1, 0]}]})", "{}", "true"},
         {R"({"$not": [0]})", "{}", "true"},
         {R"({"$cond": [true, 1, {"$divide": [1, 0]}]})", "{}", "1"},
         {R"({"$cond": {"if": "$a", "then": "y", "else": "n"}})", R"({"a": 0})", R"("n")"},
         {R"({"$cond": {"if": 1, "then": 1}})", "{}", "error 17082"},
         {R"({"$cond": {"if": 1, "then": 1, "other": 1}})", "{}", "error 17083"},
         {R"({"$ifNull": ["$a", "$b", 3]})", "{}", "3"},
         {R"({"$ifNull": ["$a", 3]})", R"({"a": 0})", "0"},
         {R"({"$switch": {"branches": [{"case": false, "then": 1}, {"case": 1, "then": 2}]}})",
          "{}", "2"},
         {R"({"$switch": {"branches": [{"case": false, "then": 1}]}})", "{}", "error 40066"},
         {R"({"$switch": {"branches": []}})", "{}", "error 40068"},
         {R"({"$switch": {"branches": [{"case": 0, "then": 1}], "default": 9}})", "{}", "9"}});
}

TEST_CASE("strings") {
  check({{R"({"$concat": ["a", "$x", "c"]})", R"({"x": "b"})", R"("abc")"},
         {R"({"$concat": ["a", null]})", "{}", "null"},
         {R"({"$concat": ["a", 1]})", "{}", "error 16702"},
         {R"({"$toUpper": "aBc1"})", "{}", R"("ABC1")"},
         {R"({"$toLower": null})", "{}", R"("")"},
         {R"({"$toLower": [[1]]})", "{}", "error 16007"},
         {R"({"$substrBytes": ["hello", 1, 3]})", "{}", R"("ell")"},
         {R"({"$substrBytes": ["hello", 1, -1]})", "{}", R"("ello")"},
         {R"({"$substrBytes": ["hello", 9, 1]})", "{}", R"("")"},
         {R"({"$substrBytes": ["hé", 2, 1]})", "{}", "error 28656"},
         {R"({"$substrBytes": ["hé", 0, 2]})", "{}", "error 28657"},
         {R"({"$substrBytes": ["hé", -1, 2]})", "{}", "error 50752"},
         {R"({"$substrCP": ["héllo", 1, 2]})", "{}", R"("él")"},
         {R"({"$substrCP": ["héllo", -1, 2]})", "{}", "error 34455"},
         {R"({"$strLenBytes": "hé"})", "{}", "3"},
         {R"({"$strLenCP": "hé"})", "{}", "2"},
         {R"({"$strLenCP": 5})", "{}", "error 34471"},
         {R"({"$split": ["a-b--c", "-"]})", "{}", R"(["a", "b", "", "c"])"},
         {R"({"$split": ["a", ""]})", "{}", "error 40087"},
         {R"({"$split": [1, "-"]})", "{}", "error 40085"},
         {R"({"$strcasecmp": ["a", "B"]})", "{}", "-1"}});
}

TEST_CASE("arrays") {
  check({{R"({"$size": "$a"})", R"({"a": [1, 2]})", "2"},
         {R"({"$size": "$a"})", R"({"a": 1})", "error 17124"},
         {R"({"$arrayElemAt": [[1, 2, 3], -1]})", "{}", "3"},
         {R"({"$arrayElemAt": [[1, 2, 3], 9]})", "{}", "missing"},
         {R"({"$arrayElemAt": [5, 9]})", "{}", "error 28689"},
         {R"({"$first": "$a"})", R"({"a": [4, 5]})", "4"},
         {R"({"$last": "$a"})", R"({"a": [4, 5]})", "5"},
         {R"({"$concatArrays": [[1], "$a"]})", R"({"a": [4, 5]})", "[1, 4, 5]"},
         {R"({"$concatArrays": [[1], "x"]})", "{}", "error 28664"},
         {R"({"$in": [2, [1, 2.0]]})", "{}", "true"},
         {R"({"$in": [2, 5]})", "{}", "error 40081"},
         {R"({"$isArray": ["$a"]})", R"({"a": []})", "true"},
         {R"({"$slice": [[1, 2, 3, 4], 2]})", "{}", "[1, 2]"},
         {R"({"$slice": [[1, 2, 3, 4], -2]})", "{}", "[3, 4]"},
         {R"({"$slice": [[1, 2, 3, 4], 1, 2]})", "{}", "[2, 3]"},
         {R"({"$slice": [[1, 2, 3, 4], -3, 2]})", "{}", "[2, 3]"},
         {R"({"$slice": [[1, 2], 1, 0]})", "{}", "error 28729"},
         {R"({"$reverseArray": [[1, 2, 3]]})", "{}", "[3, 2, 1]"},
         {R"({"$range": [0, 10, 4]})", "{}", "[0, 4, 8]"},
         {R"({"$range": [3, 0, -1]})", "{}", "[3, 2, 1]"},
         {R"({"$range": [0, 1, 0]})", "{}", "error 34449"},
         {R"({"$range": [0, 2147483647]})", "{}", "error 10334"},
         {R"({"$indexOfArray": [[5, 6, 7], 6]})", "{}", "1"},
         {R"({"$filter": {"input": "$a", "as": "x", "cond": {"$gt": ["$$x", 1]}}})",
          R"({"a": [1, 2, 3]})", "[2, 3]"},
         {R"({"$filter": {"input": "$a", "cond": {"$eq": ["$$this.k", "$k"]}}})",
          R"({"k": 2, "a": [{"k": 1}, {"k": 2}]})", R"([{"k": 2}])"},
         {R"({"$map": {"input": "$a", "as": "x", "in": {"$add": ["$$x", "$b"]}}})",
          R"({"a": [1, 2], "b": 10})", "[11, 12]"},
         {R"({"$map": {"input": 5, "in": 1}})", "{}", "error 16883"},
         {R"({"$map": {"in": 1}})", "{}", "error 16880"},
         {R"({"$reduce": {"input": [1, 2, 3], "initialValue": 0,
              "in": {"$add": ["$$value", "$$this"]}}})",
          "{}", "6"},
         {R"({"$map": {"input": [1, 2], "as": "x",
              "in": {"$map": {"input": [10, 20], "as": "y", "in": {"$add": ["$$x", "$$y"]}}}}})",
          "{}", "[[11, 21], [12, 22]]"}});
}

TEST_CASE("let binds variables that do not see one another and nest") {
  check({{R"({"$let": {"vars": {"x": 1, "y": "$a"}, "in": {"$add": ["$$x", "$$y"]}}})",
          R"({"a": 5})", "6"},
         {R"({"$let": {"vars": {"x": 1, "y": {"$sum": {"$map": {"input": [2, 3], "as": "z",
             "in": "$$z"}}}}, "in": ["$$x", "$$y"]}})",
          "{}", "[1, 5]"},
         {R"({"$let": {"vars": {"x": 1, "y": "$$x"}, "in": 1}})", "{}", "error 17276"},
         {R"({"$let": {"vars": {"x": 1}, "in": {"$let": {"vars": {"x": 2, "y": "$$x"},
             "in": ["$$x", "$$y"]}}}})",
          "{}", "[2, 1]"},
         {R"({"$let": {"vars": {"X": 1}, "in": 1}})", "{}", "error 9"}});
}

TEST_CASE("many variables are one scope") {
  // A copy for each variable took minutes.
  static_assert(!std::is_copy_constructible_v<ParseScope> && !std::is_copy_assignable_v<ParseScope>);
  std::string vars;
  for (int i = 0; i < 3'000; ++i) {
    vars += (i == 0 ? "\"v" : ", \"v") + std::to_string(i) + "\": " + std::to_string(i);
  }
  CHECK(evaluate("{\"$let\": {\"vars\": {" + vars + "}, \"in\": [\"$$v0\", \"$$v2999\"]}}") ==
        value("[0, 2999]"));
}

TEST_CASE("types and conversions") {
  check({{R"({"$type": "$a"})", "{}", R"("missing")"},
         {R"({"$type": "$a"})", R"({"a": 1})", R"("int")"},
         {R"({"$isNumber": "$a"})", R"({"a": 1.5})", "true"},
         {R"({"$toString": 2.5})", "{}", R"("2.5")"},
         {R"({"$toString": true})", "{}", R"("true")"},
         {R"({"$toString": {"$date": 0}})", "{}", R"("1970-01-01T00:00:00.000Z")"},
         {R"({"$toString": [[1]]})", "{}", "error 241"},
         {R"({"$toInt": "12"})", "{}", "12"},
         {R"({"$toInt": "1.5"})", "{}", "error 241"},
         {R"({"$toInt": 1.9})", "{}", "1"},
         {R"({"$toInt": 3000000000.0})", "{}", "error 241"},
         {R"({"$toLong": 3000000000.0})", "{}", R"({"$numberLong": "3000000000"})"},
         {R"({"$toDouble": "1.5"})", "{}", "1.5"},
         {R"({"$toDouble": "x"})", "{}", "error 241"},
         {R"({"$toDouble": "+-1"})", "{}", "error 241"},
         {R"({"$toBool": 0})", "{}", "false"},
         {R"({"$toBool": "x"})", "{}", "true"},
         {R"({"$toInt": null})", "{}", "null"}});
}

TEST_CASE("documents and sets") {
  check({{R"({"$mergeObjects": ["$a", {"y": 2}]})", R"({"a": {"x": 1, "y": 1}})",
          R"({"x": 1, "y": 2})"},
         {R"({"$mergeObjects": "$a"})", R"({"a": [{"x": 1}, null, {"y": 2}]})",
          R"({"x": 1, "y": 2})"},
         {R"({"$mergeObjects": [5]})", "{}", "error 40400"},
         {R"({"$objectToArray": "$a"})", R"({"a": {"x": 1}})", R"([{"k": "x", "v": 1}])"},
         {R"({"$arrayToObject": [[["x", 1], ["y", 2]]]})", "{}", R"({"x": 1, "y": 2})"},
         {R"({"$arrayToObject": "$a"})", R"({"a": [{"k": "x", "v": 1}]})", R"({"x": 1})"},
         {R"({"$arrayToObject": "$a"})", R"({"a": [{"k": "x"}]})", "error 40392"},
         {R"({"$setUnion": [[1, 2], [2, 3]]})", "{}", "[1, 2, 3]"},
         {R"({"$setUnion": [[3, "a", 1], [2.5, 1]]})", "{}", R"([1, 2.5, 3, "a"])"},
         {R"({"$setIntersection": [[1, 2, 2], [2, 3]]})", "{}", "[2]"},
         {R"({"$setIntersection": [[3, 1, 2], [1, 2, 3]]})", "{}", "[1, 2, 3]"},
         {R"({"$setDifference": [[3, 1, 2], [1]]})", "{}", "[3, 2]"},
         {R"({"$setIntersection": [[], "$missing"]})", "{}", "[]"},
         {R"({"$setIntersection": [[1], [2], 5]})", "{}", "[]"},
         {R"({"$setIntersection": [[1], "$missing"]})", "{}", "null"},
         {R"({"$setDifference": [[1, 2], [2, 3]]})", "{}", "[1]"},
         {R"({"$setEquals": [[1, 2], [2, 1, 1.0]]})", "{}", "true"},
         {R"({"$setIsSubset": [[1], [2, 1]]})", "{}", "true"},
         {R"({"$anyElementTrue": [[0, 1]]})", "{}", "true"},
         {R"({"$allElementsTrue": [[0, 1]]})", "{}", "false"}});
}

TEST_CASE("parts of dates, before 1970 and in leap years too") {
  const char* doc = R"({"d": {"$date": "2024-02-29T13:14:15.678Z"}})";
  check({{R"({"$year": "$d"})", doc, "2024"},
         {R"({"$month": "$d"})", doc, "2"},
         {R"({"$dayOfMonth": "$d"})", doc, "29"},
         {R"({"$dayOfWeek": "$d"})", doc, "5"},
         {R"({"$dayOfYear": "$d"})", doc, "60"},
         {R"({"$hour": "$d"})", doc, "13"},
         {R"({"$minute": "$d"})", doc, "14"},
         {R"({"$second": "$d"})", doc, "15"},
         {R"({"$millisecond": "$d"})", doc, "678"},
         {R"({"$year": "$d"})", R"({"d": {"$date": {"$numberLong": "-1"}}})", "1969"},
         {R"({"$millisecond": "$d"})", R"({"d": {"$date": {"$numberLong": "-1"}}})", "999"},
         {R"({"$year": 5})", "{}", "error 16006"}});
}

TEST_CASE("what an expression builds is bounded and charged") {
  // Each step doubles the array: the last would have 2^40 elements.
  const std::string result = evaluate(R"({"$reduce": {"input": {"$range": [0, 40]},
      "initialValue": [1], "in": {"$concatArrays": ["$$value", "$$value"]}}})");
  CHECK((result == "error 10334" || result == "error 292"));
}

}  // namespace
}  // namespace spillway::pipeline::test
