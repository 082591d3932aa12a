#include <algorithm>
#include <set>

#include "cursor/bson_order.h"
#include "cursor/sort_pattern.h"
#include "tests/unit/cursor/bson_text.h"

namespace spillway {
namespace {

using test::json;
using test::Value;

SortPattern pattern(std::string_view text) {
  auto parsed = SortPattern::parse(json(text));
  if (parsed.has_error()) FAIL(text << ": " << parsed.error().message);
  return *std::move(parsed);
}

std::string key(std::string_view sort, std::string_view document) {
  std::string out;
  const auto keyed = pattern(sort).append_key(out, json(document));
  if (keyed.has_error()) FAIL(document << ": " << keyed.error().message);
  if (const auto whole = pattern(sort).short_key(json(document))) CHECK((*whole == key_beginning(out)));
  return out;
}

std::int32_t error_of_key(std::string_view sort, std::string_view document) {
  std::string out = "kept";
  const auto keyed = pattern(sort).append_key(out, json(document));
  if (!keyed.has_error()) return 0;
  CHECK(out == "kept");
  return keyed.error().code;
}

// The key of these values, in these directions.
std::string key_of(std::initializer_list<std::pair<const char*, bool>> values) {
  std::string out;
  for (const auto& [text, descending] : values) append_order_key(out, Value(text), descending);
  return out;
}
std::string up(const char* value) { return key_of({{value, false}}); }
std::string down(const char* value) { return key_of({{value, true}}); }

constexpr const char* undefined = R"({"$undefined":true})";

TEST_CASE("sort documents are parsed", "[sort]") {
  const SortPattern sort = pattern(R"({"a":1,"b.c":-1,"d":{"$numberLong":"1"},"e":-1.0})");
  REQUIRE(sort.parts().size() == 4);
  CHECK(sort.parts()[1].path == "b.c");
  CHECK(sort.parts()[1].descending);
  CHECK_FALSE(sort.parts()[2].descending);
  CHECK(sort.parts()[3].descending);
  CHECK_FALSE(sort.has_meta());
  CHECK(pattern("{}").empty());
  CHECK(pattern(R"({"$natural":1})").empty());
  const SortPattern meta = pattern(R"({"score":{"$meta":"textScore"},"a":1})");
  CHECK(meta.has_meta());
  CHECK(meta.parts()[0].descending);
}

TEST_CASE("bad sort documents have the server's codes", "[sort]") {
  const std::vector<std::pair<std::string, int>> cases = {
      {R"({"a":"x"})", 15974},        {R"({"a":true})", 15974},
      {R"({"a":{}})", 15974},         {R"({"a":{"$meta":1}})", 15974},
      {R"({"a":{"b":1}})", 15974},    {R"({"a":0})", 15975},
      {R"({"a":2})", 15975},          {R"({"a":{"$numberDouble":"NaN"}})", 15975},
      {R"({"":1})", 40352},           {R"({"a.":1})", 40353},
      {R"({".a":1})", 15998},         {R"({"a..b":1})", 15998},
      {R"({"$x":1})", 16410},         {R"({"a.$x":1})", 16410},
      {R"({"$natural":1,"a":1})", 2}, {R"({"$natural":"x"})", 2},
  };
  for (const auto& [text, code] : cases) {
    const auto parsed = SortPattern::parse(json(text));
    INFO(text);
    REQUIRE(parsed.has_error());
    CHECK(parsed.error().code == code);
  }
  std::string deep = "a";
  for (int i = 0; i < 300; ++i) deep += ".a";
  CHECK(SortPattern::parse(json("{\"" + deep + "\":1}")).error().is(ErrorCode::overflow));
  CHECK_FALSE(SortPattern::parse(json(R"({"r.$id":1})")).has_error());
}

TEST_CASE("keys of plain documents", "[sort]") {
  CHECK(key(R"({"a":1})", R"({"a":5})") == up("5"));
  CHECK(key(R"({"a":-1})", R"({"a":5})") == down("5"));
  CHECK(key(R"({"a":1})", R"({"b":5})") == up("null"));
  CHECK(key(R"({"a.b":1})", R"({"a":{"b":"x"}})") == up(R"("x")"));
  CHECK(key(R"({"a.b":1})", R"({"a":5})") == up("null"));
  CHECK(key(R"({"a":1,"b":-1})", R"({"b":2,"a":1})") == up("1") + down("2"));
  CHECK(key("{}", R"({"a":1})").empty());
  CHECK(key(R"({"a":1})", R"({"a":{"$undefined":true}})") == up(undefined));
}

TEST_CASE("arrays give their least value ascending, their greatest descending", "[sort]") {
  CHECK(key(R"({"a":1})", R"({"a":[3,1,2]})") == up("1"));
  CHECK(key(R"({"a":-1})", R"({"a":[3,1,2]})") == down("3"));
  CHECK(key(R"({"a":1})", R"({"a":[]})") == up(undefined));
  CHECK(key(R"({"a":-1})", R"({"a":[]})") == down(undefined));
  CHECK(key(R"({"a":1})", R"({"a":[[5,6],"x"]})") == up(R"("x")"));
  CHECK(key(R"({"a":-1})", R"({"a":[[5,6],"x"]})") == down("[5,6]"));
  CHECK(key(R"({"a":1})", R"({"a":[[]]})") == up("[]"));
  CHECK(up(undefined) < up("null"));
}

TEST_CASE("a sort by _id alone takes an array there as a whole", "[sort]") {
  for (const char* array : {"[]", "[3,1]", "[[1],2]", R"([{"x":1}])"}) {
    const std::string document = std::string(R"({"_id":)") + array + "}";
    INFO(document);
    CHECK(key(R"({"_id":1})", document) == up(array));
    CHECK(key(R"({"_id":-1})", document) == down(array));
    CHECK(key(R"({"_id":1})", R"({"_id":null})") < key(R"({"_id":1})", document));
    CHECK(key(R"({"_id":1})", R"({"_id":{"z":1}})") < key(R"({"_id":1})", document));
  }
  CHECK(key(R"({"_id":1})", "{}") == up("null"));
  CHECK(key(R"({"_id":-1})", R"({"_id":7})") == down("7"));
}

TEST_CASE("beside other fields, or below _id, an array there is descended into", "[sort]") {
  CHECK(key(R"({"_id":1,"n":1})", R"({"_id":[],"n":2})") == up(undefined) + up("2"));
  CHECK(key(R"({"_id":1,"n":1})", R"({"_id":[3,1],"n":2})") == up("1") + up("2"));
  CHECK(key(R"({"n":-1,"_id":-1})", R"({"_id":[3,1],"n":2})") == down("2") + down("3"));
  CHECK(key(R"({"_id":1,"_id.a":1})", R"({"_id":[{"a":2}]})") == up(R"({"a":2})") + up("2"));
  CHECK(key(R"({"_id.a":1})", R"({"_id":[{"a":2},{"a":1}]})") == up("1"));
  CHECK(key(R"({"_id.0":1})", R"({"_id":[2,1]})") == up("2"));
  CHECK(key(R"({"id":1})", R"({"id":[2,1]})") == up("1"));
  CHECK(error_of_key(R"({"_id":1,"n":1})", R"({"_id":[1],"n":[2]})") == 2);
}

TEST_CASE("paths run through arrays implicitly and by position", "[sort]") {
  CHECK(key(R"({"a.b":1})", R"({"a":[{"b":3},{"b":2}]})") == up("2"));
  CHECK(key(R"({"a.b":-1})", R"({"a":[{"b":3},{"b":2}]})") == down("3"));
  CHECK(key(R"({"a.b":1})", R"({"a":[{"b":3},{}]})") == up("null"));
  CHECK(key(R"({"a.b":1})", R"({"a":[{"b":3},7]})") == up("null"));
  CHECK(key(R"({"a.b":1})", R"({"a":[]})") == up("null"));
  CHECK(key(R"({"a.b":1})", R"({"a":[{"b":[]}]})") == up(undefined));
  CHECK(key(R"({"a.b":-1})", R"({"a":[{"b":[1,9]},{"b":5}]})") == down("9"));
  CHECK(key(R"({"a.b":1})", R"({"a":[[{"b":1}]]})") == up("null"));  // no array in an array
  CHECK(key(R"({"a.1":1})", R"({"a":[7,8,9]})") == up("8"));
  CHECK(key(R"({"a.5":1})", R"({"a":[7,8,9]})") == up("null"));
  CHECK(key(R"({"a.1.b":1})", R"({"a":[{"b":1},{"b":2}]})") == up("2"));
  CHECK(key(R"({"a.0":1})", R"({"a":[[1,2],3]})") == up("[1,2]"));
  CHECK(key(R"({"a.0.b":1})", R"({"a":[[{"b":4},{"b":3}],{"b":1}]})") == up("3"));
  CHECK(key(R"({"a.0":1})", R"({"a":{"0":"named"}})") == up(R"("named")"));
  CHECK(error_of_key(R"({"a.0":1})", R"({"a":[{"0":1}]})") == 16746);
}

TEST_CASE("paths through one array stay together", "[sort]") {
  const char* document = R"({"a":[{"b":1,"c":9},{"b":2,"c":1}]})";
  CHECK(key(R"({"a.b":1,"a.c":1})", document) == up("1") + up("9"));
  CHECK(key(R"({"a.c":1,"a.b":1})", document) == up("1") + up("2"));
  CHECK(key(R"({"a.b":-1,"a.c":1})", document) == down("2") + up("1"));
  CHECK(key(R"({"x":1,"a.b":1})", R"({"x":"k","a":[{"b":2},{"b":1}]})") == up(R"("k")") + up("1"));
}

TEST_CASE("parallel arrays cannot be sorted by", "[sort]") {
  CHECK(error_of_key(R"({"a":1,"b":1})", R"({"a":[1],"b":[2]})") == 2);
  CHECK(error_of_key(R"({"a":1,"b":1})", R"({"a":[],"b":[]})") == 2);
  CHECK(error_of_key(R"({"a.b":1,"a.c":1})", R"({"a":[{"b":[1],"c":[2]}]})") == 2);
  CHECK(error_of_key(R"({"a":1,"b":1})", R"({"a":[1],"b":2})") == 0);
}

TEST_CASE("a meta sort needs the shard's key", "[sort]") {
  CHECK(error_of_key(R"({"s":{"$meta":"textScore"}})", "{}") == 115);
}

TEST_CASE("sort keys of shards, in both forms", "[sort]") {
  const SortPattern sort = pattern(R"({"a":1,"b":-1})");
  const std::string expected = up("1") + down(R"("x")");
  for (const char* text : {R"([1,"x"])", R"({"":1,"":"x"})"}) {
    std::string out = "kept";
    REQUIRE_FALSE(sort.append_key_from_sort_key(out, Value(text)).has_error());
    CHECK(out == "kept" + expected);
  }
  // The shard has reduced arrays already: an array in a sort key is a value.
  std::string out;
  REQUIRE_FALSE(sort.append_key_from_sort_key(out, Value("[[2,1],null]")).has_error());
  CHECK(out == up("[2,1]") + down("null"));
}

TEST_CASE("a short key is made from one field at the top, or from a shard's one value", "[sort]") {
  const auto from_document = [](const char* sort, const char* document) {
    return pattern(sort).short_key(json(document));
  };
  CHECK((from_document(R"({"a":1})", R"({"a":5})") == key_beginning(up("5"))));
  CHECK((from_document(R"({"a":-1})", R"({"b":5})") == key_beginning(down("null"))));
  CHECK_FALSE(from_document(R"({"a":1})", R"({"a":[5]})"));
  CHECK_FALSE(from_document(R"({"a":1})", R"({"a":"x"})"));
  CHECK_FALSE(from_document(R"({"a.b":1})", R"({"a":{"b":5}})"));
  CHECK_FALSE(from_document(R"({"a":1,"b":1})", R"({"a":5,"b":5})"));
  CHECK_FALSE(from_document(R"({"a":{"$meta":"textScore"}})", R"({"a":5})"));
  const auto from_shard = [](const SortPattern& sort, const char* key) {
    return sort.short_key_from_sort_key(Value(key));
  };
  const SortPattern best_first = pattern(R"({"a":{"$meta":"textScore"}})");
  for (const char* key : {"[2.5]", R"({"":2.5})"}) {
    CHECK((from_shard(pattern(R"({"a.b":1})"), key) == key_beginning(up("2.5"))));
    CHECK((from_shard(best_first, key) == key_beginning(down("2.5"))));
    CHECK_FALSE(from_shard(pattern(R"({"a":1,"b":1})"), key));
    CHECK_FALSE(from_shard(SortPattern::by_distance(), key));
  }
  for (const char* key : {"[]", "[1,2]", "1", R"(["x"])", "[[1]]"}) {
    CHECK_FALSE(from_shard(best_first, key));
  }
  CHECK((from_shard(SortPattern::by_distance(), "2") == key_beginning(up("2"))));
}

TEST_CASE("sort keys of another shape are a shard's mistake", "[sort]") {
  const SortPattern sort = pattern(R"({"a":1,"b":-1})");
  for (const char* text : {"1", R"("x")", "[1]", "[1,2,3]", "[]", "{}", "null"}) {
    std::string out = "kept";
    const auto keyed = sort.append_key_from_sort_key(out, Value(text));
    INFO(text);
    REQUIRE(keyed.has_error());
    CHECK(keyed.error().is(ErrorCode::internal_error));
    CHECK(out == "kept");
  }
}

TEST_CASE("a distance is the whole sort key of a shard", "[sort]") {
  const SortPattern sort = SortPattern::by_distance();
  CHECK_FALSE(sort.empty());
  std::string near = "kept";
  REQUIRE_FALSE(sort.append_key_from_sort_key(near, Value("2")).has_error());
  std::string far = "kept";
  REQUIRE_FALSE(sort.append_key_from_sort_key(far, Value("2.5")).has_error());
  CHECK(near == "kept" + up("2"));
  CHECK(near < far);
  for (const char* text : {R"("x")", "[1]", R"({"":1})", "null"}) {
    std::string out = "kept";
    const auto keyed = sort.append_key_from_sort_key(out, Value(text));
    INFO(text);
    REQUIRE(keyed.has_error());
    CHECK(keyed.error().is(ErrorCode::internal_error));
    CHECK(out == "kept");
  }
  std::string out;
  CHECK(sort.append_key(out, DocView()).has_error());
}

// --- one path over many shapes, against the definition written out

void collect(ValueView value, std::string_view path, bool positioned, std::vector<BsonDoc>& out);

void add(ValueView value, std::vector<BsonDoc>& out) {
  BsonWriter writer;
  writer.append("v", value);
  out.push_back(std::move(writer).finish());
}

void collect_in_document(DocView doc, std::string_view path, std::vector<BsonDoc>& out) {
  const std::string_view name = path.substr(0, path.find('.'));
  const std::string_view rest = path.substr(std::min(path.size(), name.size() + 1));
  const Element element = doc.find(name);
  if (!element.exists()) {
    add({BsonType::null, {}}, out);
  } else {
    collect(element, rest, false, out);
  }
}

// All values that a path reaches. An array found by its position counts as a whole at the path's
// end.
void collect(ValueView value, std::string_view path, bool positioned, std::vector<BsonDoc>& out) {
  const bool whole = value.is_array() && path.empty() && positioned && !value.as_document().empty();
  if (value.is_array() && !whole) {
    const DocView elements = value.as_document();
    if (elements.empty()) {
      add({path.empty() ? BsonType::undefined : BsonType::null, {}}, out);
      return;
    }
    const std::string_view name = path.substr(0, path.find('.'));
    const Element at = path.empty() ? Element{} : elements.find(name);
    if (at.exists()) {
      collect(at, path.substr(std::min(path.size(), name.size() + 1)), true, out);
      return;
    }
    for (const Element& element : elements) {
      if (path.empty()) {
        add(element, out);
      } else if (element.is_document()) {
        collect_in_document(element.as_document(), path, out);
      } else {
        add({BsonType::null, {}}, out);
      }
    }
  } else if (path.empty()) {
    add(value, out);
  } else if (value.is_document()) {
    collect_in_document(value.as_document(), path, out);
  } else {
    add({BsonType::null, {}}, out);
  }
}

TEST_CASE("one path over all small shapes of documents", "[sort]") {
  const std::vector<std::string> scalars = {"1", "2.5", R"("x")", "null"};
  std::vector<std::string> leaves = scalars;
  leaves.insert(leaves.end(), {"[]", "[1]", R"([2,"y",0])", "[[3]]"});
  std::vector<std::string> objects = {"{}", R"({"c":5})"};
  for (const auto& leaf : leaves) objects.push_back(R"({"b":)" + leaf + "}");
  std::vector<std::string> values = leaves;
  values.insert(values.end(), objects.begin(), objects.end());
  std::vector<std::string> documents = {"{}", R"({"z":1})"};
  for (const auto& value : values) documents.push_back(R"({"a":)" + value + "}");
  for (const auto& first : values) {
    for (const auto& second : values) {
      documents.push_back(R"({"a":[)" + first + "," + second + "]}");
    }
  }
  std::size_t compared = 0;
  for (const std::string& path :
       {std::string("a"), std::string("a.b"), std::string("a.0"), std::string("a.1.b")}) {
    for (const bool descending : {false, true}) {
      const SortPattern sort = pattern("{\"" + path + "\":" + (descending ? "-1" : "1") + "}");
      for (const auto& text : documents) {
        const BsonDoc document = json(text);
        std::vector<BsonDoc> reached;
        collect_in_document(document, path, reached);
        const auto less = [](const BsonDoc& a, const BsonDoc& b) {
          return compare_values(a.view().first(), b.view().first()) < 0;
        };
        const auto best = descending ? std::ranges::max_element(reached, less)
                                     : std::ranges::min_element(reached, less);
        std::string expected;
        append_order_key(expected, best->view().first(), descending);
        std::string out;
        REQUIRE_FALSE(sort.append_key(out, document).has_error());
        if (out != expected) FAIL_CHECK(path << " over " << text);
        ++compared;
      }
    }
  }
  CHECK(compared > 2000);
}

}  // namespace
}  // namespace spillway
