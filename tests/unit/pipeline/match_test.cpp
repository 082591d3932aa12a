#include "pipeline_support.h"

namespace spillway::pipeline::test {
namespace {

// Names that start with '@' start with '$' in the result: Extended JSON takes $type, $regex and
// $options for its own.
void with_dollars(DocView doc, BsonWriter& out) {
  for (const Element& element : doc) {
    const std::string name = element.name.starts_with('@')
                                 ? "$" + std::string(element.name.substr(1))
                                 : std::string(element.name);
    if (element.is_document() || element.is_array()) {
      element.is_document() ? out.begin_document(name) : out.begin_array(name);
      with_dollars(element.as_document(), out);
      out.end();
    } else {
      out.append(name, static_cast<const ValueView&>(element));
    }
  }
}

int matches(std::string_view filter_text, std::string_view doc_text) {
  Budget budget;
  Meter meter(budget.budget, "test");
  BsonWriter writer;
  with_dollars(json(filter_text), writer);
  const BsonDoc filter_doc = std::move(writer).finish();
  const BsonDoc doc = json(doc_text);
  auto filter = Filter::parse(filter_doc);
  if (!filter) {
    return -filter.error().code;
  }
  auto matched = filter->matches(doc, meter);
  return matched ? *matched : -matched.error().code;
}

struct Case {
  const char* filter;
  const char* doc;
  int expected;  // 1, 0, or minus an error code
};

void check(std::initializer_list<Case> cases) {
  for (const Case& c : cases) {
    INFO(c.filter << " on " << c.doc);
    CHECK(matches(c.filter, c.doc) == c.expected);
  }
}

TEST_CASE("equality looks into arrays and treats null as missing") {
  check({{R"({})", R"({"a": 1})", 1},
         {R"({"a": 1})", R"({"a": 1.0})", 1},
         {R"({"a": 1})", R"({"a": [3, 1]})", 1},
         {R"({"a": [3, 1]})", R"({"a": [3, 1]})", 1},
         {R"({"a": [3, 1]})", R"({"a": [[3, 1]]})", 1},
         {R"({"a": [3]})", R"({"a": [3, 1]})", 0},
         {R"({"a": null})", R"({})", 1},
         {R"({"a": null})", R"({"a": null})", 1},
         {R"({"a": null})", R"({"a": 0})", 0},
         {R"({"a": {"b": 1}})", R"({"a": {"b": 1}})", 1},
         {R"({"a": {"b": 1}})", R"({"a": {"b": 1, "c": 2}})", 0},
         {R"({"a.b": 1})", R"({"a": {"b": 1, "c": 2}})", 1},
         {R"({"a.b": 1})", R"({"a": [{"b": 2}, {"b": 1}]})", 1},
         {R"({"a.b": null})", R"({"a": [{"b": 2}, {"c": 1}]})", 1},
         {R"({"a.b": null})", R"({"a": [1, 2]})", 0},
         {R"({"a.b": null})", R"({"a": 5})", 1},
         {R"({"a.1": 7})", R"({"a": [6, 7]})", 1},
         {R"({"a.1": 6})", R"({"a": [6, 7]})", 0},
         {R"({"a.0.b": 7})", R"({"a": [{"b": 7}]})", 1},
         {R"({"$comment": "x", "a": 1})", R"({"a": 1})", 1}});
}

TEST_CASE("orderings compare within a type") {
  check({{R"({"a": {"$gt": 5}})", R"({"a": 6})", 1},
         {R"({"a": {"$gt": 5}})", R"({"a": "6"})", 0},
         {R"({"a": {"$gt": 5, "$lt": 7}})", R"({"a": [4, 8]})", 1},
         {R"({"a": {"$lte": null}})", R"({})", 1},
         {R"({"a": {"$lt": null}})", R"({})", 0},
         {R"({"a": {"$gte": {"$minKey": 1}}})", R"({"a": "x"})", 1},
         {R"({"a": {"$gt": {"$minKey": 1}}})", R"({})", 1},
         {R"({"a": {"$gte": {"$minKey": 1}}})", R"({"a": []})", 1},
         {R"({"a": {"$lt": {"$maxKey": 1}}})", R"({})", 1},
         {R"({"a": {"$lte": {"$maxKey": 1}}})", R"({"b": 1})", 1},
         {R"({"a": {"$lte": {"$minKey": 1}}})", R"({})", 0},
         {R"({"a": {"$gte": {"$maxKey": 1}}})", R"({})", 0},
         {R"({"a": {"$minKey": 1}})", R"({})", 0},
         {R"({"a": {"$lt": {"$maxKey": 1}}})", R"({"a": {"b": 1}})", 1},
         {R"({"a": {"$lte": 5}})", R"({"a": {"$numberDouble": "NaN"}})", 0},
         {R"({"a": {"$lte": {"$numberDouble": "NaN"}}})", R"({"a": {"$numberDouble": "NaN"}})", 1},
         {R"({"a": {"$gte": {"$numberLong": "5"}}})", R"({"a": 5.5})", 1},
         {R"({"a": {"$gt": {"$regularExpression": {"pattern": "x", "options": ""}}}})", R"({})",
          -2}});
}

TEST_CASE("in, nin, ne, not, exists") {
  check({{R"({"a": {"$in": [1, "x"]}})", R"({"a": "x"})", 1},
         {R"({"a": {"$in": [1, null]}})", R"({})", 1},
         {R"({"a": {"$in": []}})", R"({"a": 1})", 0},
         {R"({"a": {"$in": [[1, 2]]}})", R"({"a": [1, 2]})", 1},
         {R"({"a": {"$nin": [1, 2]}})", R"({"a": [3, 2]})", 0},
         {R"({"a": {"$nin": [1, 2]}})", R"({})", 1},
         {R"({"a": {"$in": 5}})", R"({})", -2},
         {R"({"a": {"$in": [{"$gt": 1}]}})", R"({})", -2},
         {R"({"a": {"$ne": 1}})", R"({"a": [1, 2]})", 0},
         {R"({"a": {"$ne": null}})", R"({"a": 1})", 1},
         {R"({"a": {"$not": {"$gt": 1}}})", R"({})", 1},
         {R"({"a": {"$not": {"$gt": 1}}})", R"({"a": 2})", 0},
         {R"({"a": {"$not": 5}})", R"({})", -2},
         {R"({"a": {"$not": {}}})", R"({})", -2},
         {R"({"a": {"$exists": true}})", R"({"a": null})", 1},
         {R"({"a": {"$exists": true}})", R"({"a": []})", 1},
         {R"({"a": {"$exists": false}})", R"({"a": null})", 0},
         {R"({"a.b": {"$exists": false}})", R"({"a": [1]})", 1}});
}

TEST_CASE("and, or, nor and expr") {
  check({{R"({"$or": [{"a": 1}, {"b": 2}]})", R"({"b": 2})", 1},
         {R"({"$or": [{"a": 1}, {"b": 2}]})", R"({"b": 3})", 0},
         {R"({"$nor": [{"a": 1}, {"b": 2}]})", R"({"b": 3})", 1},
         {R"({"$and": [{"a": 1}, {"b": 2}]})", R"({"a": 1, "b": 2})", 1},
         {R"({"$and": []})", R"({})", -2},
         {R"({"$or": {}})", R"({})", -2},
         {R"({"$expr": {"$gt": ["$a", "$b"]}})", R"({"a": 2, "b": 1})", 1},
         {R"({"$expr": {"$gt": ["$a", "$b"]}})", R"({"a": 2, "b": 3})", 0},
         {R"({"$expr": {"$divide": [1, "$b"]}})", R"({"b": 0})", -16608},
         {R"({"$where": "1"})", R"({})", -115},
         {R"({"$nosuch": 1})", R"({})", -2},
         {R"({"a": {"$nosuch": 1}})", R"({})", -2},
         {R"({"a": {"$near": [1, 2]}})", R"({})", -115}});
}

TEST_CASE("a path has as many parts as a field path of an expression, and no more") {
  const auto filter = [](int parts, std::string_view value) {
    std::string path = "a";
    while (--parts > 0) {
      path += ".a";
    }
    return "{\"" + path + "\": " + std::string(value) + "}";
  };
  CHECK(matches(filter(200, "null"), "{}") == 1);
  CHECK(matches(filter(201, "null"), "{}") == -15);
  CHECK(matches(filter(201, R"({"$gt": 1, "$lt": 2})"), "{}") == -15);
  CHECK(matches(R"({"a": {"$elemMatch": )" + filter(201, "1") + "}}", "{}") == -15);
}

TEST_CASE("regular expressions match strings, with the server's options") {
  check(
      {{R"({"a": {"@regex": "^ab"}})", R"({"a": "abc"})", 1},
       {R"({"a": {"@regex": "^AB", "@options": "i"}})", R"({"a": "abc"})", 1},
       {R"({"a": {"@regex": "^b", "@options": "m"}})", R"({"a": "a\nb"})", 1},
       {R"({"a": {"@regex": "a.b", "@options": "s"}})", R"({"a": "a\nb"})", 1},
       {R"({"a": {"@regex": "a b # c", "@options": "x"}})", R"({"a": "ab"})", 1},
       {R"({"a": {"@options": "i", "@regex": "B"}})", R"({"a": ["x", "b"]})", 1},
       {R"({"a": {"@regex": "1"}})", R"({"a": 1})", 0},
       {R"({"a": {"$regularExpression": {"pattern": "é.", "options": ""}}})", R"({"a": "xéy"})", 1},
       {R"({"a": {"$in": [{"$regularExpression": {"pattern": "^z", "options": ""}}]}})",
        R"({"a": "zz"})", 1},
       {R"({"a": {"$not": {"$regularExpression": {"pattern": "^z", "options": ""}}}})",
        R"({"a": "zz"})", 0},
       {R"({"a": {"@regex": "("}})", R"({})", -51091},
       {R"({"a": {"@regex": "a\u0000b"}})", R"({})", -2},
       {R"({"a": {"@regex": "ab", "@options": "\u0000i"}})", R"({})", -2},
       {R"({"a": {"@regex": "a", "@options": "q"}})", R"({})", -51108},
       {R"({"a": {"@options": "i"}})", R"({})", -2}});
}

TEST_CASE("the regular expressions of one filter are bounded") {
  const auto filter = [](int count, const std::string& pattern) {
    const std::string one = R"({"$regularExpression": {"pattern": ")" + pattern +
                            R"(", "options": ""}})";
    std::string all = one;
    while (--count > 0) {
      all += ", " + one;
    }
    return "{\"$or\": [{\"a\": {\"$in\": [" + all + "]}}, {\"b\": " + one + "}]}";
  };
  CHECK(matches(filter(20, "(?:ab){5000}"), R"({"a": "b"})") == 0);
  CHECK(matches(filter(300, "(?:ab){5000}"), R"({"a": "b"})") == -51091);
  CHECK(matches(filter(5'000, "^b"), R"({"a": "b"})") == 1);
  CHECK(matches(filter(1, std::string(40'000, 'b')), R"({"a": "b"})") == -2);
}

TEST_CASE("a regular expression has its options wherever they stand, looked up once") {
  const std::string many = R"("@regex": "B", )";
  std::string filter;
  for (int i = 0; i < 2'000; ++i) {
    filter += many;
  }
  CHECK(matches(R"({"a": {)" + filter + R"("@options": "i"}})", R"({"a": "b"})") == 1);
  CHECK(matches(R"({"a": {)" + filter + R"("@regex": "c"}})", R"({"a": "b"})") == 0);
}

TEST_CASE("a regular expression that backtracks without end is given up") {
  const std::string doc = R"({"a": ")" + std::string(60, 'a') + R"(b"})";
  CHECK(matches(R"({"a": {"@regex": "^(a|aa)+$"}})", doc) == -96);
  CHECK(matches(R"({"a": {"@regex": "^a+b$"}})", doc) == 1);
}

TEST_CASE("type, mod, size, all, elemMatch") {
  check({{R"({"a": {"@type": "number"}})", R"({"a": 1})", 1},
         {R"({"a": {"@type": "array"}})", R"({"a": [1]})", 1},
         {R"({"a": {"@type": ["string", 8]}})", R"({"a": true})", 1},
         {R"({"a": {"@type": "int"}})", R"({"a": ["x", 1]})", 1},
         {R"({"a": {"@type": "object"}})", R"({"a": 1})", 0},
         {R"({"a": {"@type": "nosuch"}})", R"({})", -2},
         {R"({"a": {"@type": 77}})", R"({})", -2},
         {R"({"a": {"@type": []}})", R"({})", -9},
         {R"({"a": {"$mod": [4, 1]}})", R"({"a": 5})", 1},
         {R"({"a": {"$mod": [4, 1]}})", R"({"a": 5.7})", 1},
         {R"({"a": {"$mod": [4, 1]}})", R"({"a": "5"})", 0},
         {R"({"a": {"$mod": [0, 1]}})", R"({})", -2},
         {R"({"a": {"$mod": [1]}})", R"({})", -2},
         {R"({"a": {"$size": 2}})", R"({"a": [1, 2]})", 1},
         {R"({"a": {"$size": 2}})", R"({"a": [[1, 2]]})", 0},
         {R"({"a": {"$size": -1}})", R"({})", -2},
         {R"({"a": {"$all": [1, 2]}})", R"({"a": [2, 1, 3]})", 1},
         {R"({"a": {"$all": [1, 4]}})", R"({"a": [2, 1, 3]})", 0},
         {R"({"a": {"$all": []}})", R"({"a": []})", 0},
         {R"({"a": {"$all": [{"$elemMatch": {"b": 1}}]}})", R"({"a": [{"b": 1}]})", 1},
         {R"({"a": {"$elemMatch": {"$expr": {"$eq": ["$b", 1]}}}})", R"({"a": [{"b": 1}]})", -2},
         {R"({"a": {"$elemMatch": {"$or": [{"$expr": true}]}}})", R"({"a": [{"b": 1}]})", -2},
         {R"({"$or": [{"a": {"$elemMatch": {"b": 1}}}, {"$expr": true}]})", R"({"a": []})", 1},
         {R"({"a": {"$elemMatch": {"$gt": 1, "$lt": 3}}})", R"({"a": [0, 2]})", 1},
         {R"({"a": {"$elemMatch": {"$gt": 1, "$lt": 3}}})", R"({"a": [0, 4]})", 0},
         {R"({"a": {"$elemMatch": {"$gt": 1}}})", R"({"a": 2})", 0},
         {R"({"a": {"$elemMatch": {"b": 1, "c": 2}}})", R"({"a": [{"b": 1}, {"c": 2}]})", 0},
         {R"({"a": {"$elemMatch": {"b": 1, "c": 2}}})", R"({"a": [{"b": 1, "c": 2}]})", 1},
         {R"({"a": {"$elemMatch": {"$or": [{"b": 1}, {"b": 2}]}}})", R"({"a": [{"b": 2}]})", 1}});
}

TEST_CASE("a filter takes a bounded number of steps for one document") {
  // Each element alone stays below the limit of one match.
  std::string slow = R"({"a": [)";
  for (int i = 0; i < 3000; ++i) slow += (i > 0 ? ", \"" : "\"") + std::string(16, 'a') + "\"";
  slow += "]}";
  CHECK(matches(R"({"a": {"@regex": "^(a+)+[bc]"}})", slow) == -96);
  std::string many = R"({"a": [0)", conditions = R"({"@nor": [{"a": -1})";
  for (int i = 1; i < 10'000; ++i) many += ", " + std::to_string(i);
  for (int i = 1; i < 3'000; ++i) conditions += R"(, {"a": -)" + std::to_string(i) + "}";
  CHECK(matches(conditions + "]}", many + "]}") == -96);
  CHECK(matches(R"({"a": {"@regex": "^(a+)+$"}})", slow) == 1);
  CHECK(matches(R"({"a": -1})", many + "]}") == 0);
}

}  // namespace
}  // namespace spillway::pipeline::test
