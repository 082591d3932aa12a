#include "cursor/bson_view.h"

#include "cursor/bson_validator.h"

#include <limits>

#include "tests/unit/cursor/bson_text.h"

namespace spillway {
namespace {

using test::json;
using test::Value;

Result<DocView> parse(const std::vector<std::uint8_t>& bytes) { return DocView::parse(bytes); }

TEST_CASE("the empty document", "[view]") {
  const DocView empty;
  CHECK(empty.empty());
  CHECK(empty.size() == 5);
  CHECK(empty.begin().done());
  CHECK_FALSE(empty.begin().malformed());
  CHECK_FALSE(empty.find("a").exists());
  CHECK_FALSE(empty.first().exists());
  CHECK(empty.count() == 0);
  CHECK(empty.validate().has_value());
}

TEST_CASE("the outer frame is checked", "[view]") {
  CHECK(parse({}).has_error());
  CHECK(parse({5, 0, 0, 0}).has_error());
  CHECK(parse({4, 0, 0, 0, 0}).has_error());
  CHECK(parse({6, 0, 0, 0, 0}).has_error());
  CHECK(parse({5, 0, 0, 0, 1}).has_error());
  CHECK(parse({0xff, 0xff, 0xff, 0xff, 0}).has_error());
  CHECK(parse({5, 0, 0, 0x80, 0}).has_error());
  const std::vector<std::uint8_t> followed = {5, 0, 0, 0, 0, 9, 9};
  const auto doc = parse(followed);
  REQUIRE(doc.has_value());
  CHECK(doc->size() == 5);
  CHECK(parse({4, 0, 0, 0, 0}).error().is(ErrorCode::invalid_bson));
}

TEST_CASE("elements come in order with their name, value and raw bytes", "[view]") {
  const BsonDoc doc = json(R"({"a":1,"":"x","long_name":{"b":[true]}})");
  std::vector<std::string> names;
  std::size_t raw_bytes = 0;
  for (const Element& element : doc.view()) {
    names.emplace_back(element.name);
    raw_bytes += element.raw.size();
    CHECK(element.raw.size() == 1 + element.name.size() + 1 + element.bytes.size());
  }
  CHECK(names == std::vector<std::string>{"a", "", "long_name"});
  CHECK(raw_bytes == doc.size() - 5);
  CHECK(doc.view().count() == 3);
  CHECK(doc.view().first().name == "a");
}

TEST_CASE("an iterator stays at the end", "[view]") {
  const BsonDoc doc = json(R"({"a":1})");
  DocIterator at = doc.view().begin();
  ++at;
  CHECK(at.done());
  ++at;
  CHECK(at.done());
  CHECK_FALSE(at.malformed());
  CHECK(DocIterator().done());
}

TEST_CASE("find takes the first of a name, and names whole", "[view]") {
  const BsonDoc doc = json(R"({"ab":1,"a":2,"abc":3,"a":4})");
  CHECK(doc.view()["a"].as_int32() == 2);
  CHECK(doc.view()["ab"].as_int32() == 1);
  CHECK(doc.view()["abc"].as_int32() == 3);
  CHECK_FALSE(doc.view()["b"].exists());
  CHECK_FALSE(doc.view()[""].exists());
  CHECK_FALSE(doc.view()[std::string_view("a\0", 2)].exists());
}

TEST_CASE("names of every length are found, up to the last byte", "[view]") {
  for (std::size_t length = 0; length < 40; ++length) {
    const std::string name(length, 'n');
    BsonWriter writer;
    writer.append_null("x" + name).append_null(name);
    const BsonDoc doc = std::move(writer).finish();
    std::vector<std::uint8_t> exact(doc.view().data(), doc.view().data() + doc.size());
    const DocView view = DocView::trusted(exact.data());
    CHECK(view.find(name).is_null());
    CHECK(view.find("x" + name).is_null());
    CHECK_FALSE(view.find("y" + name).exists());
    CHECK(view.count() == 2);
  }
  CHECK_FALSE(DocView().find(std::string_view()).exists());
}

TEST_CASE("dotted paths go through documents only", "[view]") {
  const BsonDoc doc = json(R"({"a":{"b":{"c":7}},"l":[{"b":1}],"s":"x"})");
  CHECK(doc.view().find_path("a.b.c").as_int32() == 7);
  CHECK(doc.view().find_path("a.b").is_document());
  CHECK(doc.view().find_path("l").is_array());
  CHECK_FALSE(doc.view().find_path("l.0").exists());
  CHECK_FALSE(doc.view().find_path("l.b").exists());
  CHECK_FALSE(doc.view().find_path("s.x").exists());
  CHECK_FALSE(doc.view().find_path("a.").exists());
  CHECK_FALSE(doc.view().find_path("").exists());
  CHECK_FALSE(doc.view().find_path(".").exists());
}

TEST_CASE("strings keep embedded NULs", "[view]") {
  CHECK(Value(R"("a\u0000b")").view().as_string() == std::string_view("a\0b", 3));
  CHECK(Value(R"("")").view().as_string().empty());
}

TEST_CASE("binaries", "[view]") {
  const Value value(R"({"$binary":{"base64":"AAEC","subType":"80"}})");
  const auto binary = value.view().as_binary();
  CHECK(binary.subtype == 0x80);
  CHECK(binary.data.size() == 3);
  CHECK(binary.data[2] == 2);
}

TEST_CASE("whole numbers read as int64", "[view]") {
  CHECK(Value("5").view().to_int64() == 5);
  CHECK(Value(R"({"$numberLong":"5000000000"})").view().to_int64() == 5000000000);
  CHECK(Value("5.0").view().to_int64() == 5);
  CHECK(Value("-9223372036854775808.0").view().to_int64() ==
        std::numeric_limits<std::int64_t>::min());
  CHECK_FALSE(Value("5.5").view().to_int64());
  CHECK_FALSE(Value("9223372036854775808.0").view().to_int64());
  CHECK_FALSE(Value("1e300").view().to_int64());
  CHECK_FALSE(Value(R"({"$numberDouble":"NaN"})").view().to_int64());
  CHECK_FALSE(Value(R"({"$numberDecimal":"5"})").view().to_int64());
  CHECK_FALSE(Value("true").view().to_int64());
  CHECK_FALSE(ValueView{}.to_int64());
}

TEST_CASE("any number reads as double", "[view]") {
  CHECK(Value("5").view().to_double() == 5.0);
  CHECK(Value(R"({"$numberLong":"5"})").view().to_double() == 5.0);
  CHECK(Value("2.5").view().to_double() == 2.5);
  CHECK(Value(R"({"$numberDecimal":"2.5"})").view().to_double() == 2.5);
  CHECK_FALSE(Value("\"5\"").view().to_double());
}

TEST_CASE("truth of flags", "[view]") {
  for (const char* text : {"true", "1", "-1", "0.5", R"({"$numberLong":"1"})", R"("")", "{}", "[]",
                           R"({"$numberDecimal":"0.1"})", R"({"$numberDouble":"NaN"})"}) {
    INFO(text);
    CHECK(Value(text).view().truthy());
  }
  for (const char* text : {"false", "0", "0.0", "-0.0", R"({"$numberLong":"0"})", "null",
                           R"({"$undefined":true})", R"({"$numberDecimal":"0E+3"})"}) {
    INFO(text);
    CHECK_FALSE(Value(text).view().truthy());
  }
  CHECK_FALSE(ValueView{}.truthy());
}

TEST_CASE("types have the names of $type", "[view]") {
  CHECK(bson_type_name(BsonType::document) == "object");
  CHECK(bson_type_name(BsonType::int64) == "long");
  CHECK(bson_type_name(BsonType::eoo) == "missing");
  CHECK(bson_type_name(static_cast<BsonType>(0x42)) == "unknown");
}

// A document around one element's raw bytes.
std::vector<std::uint8_t> around(std::vector<std::uint8_t> element) {
  std::vector<std::uint8_t> bytes(4);
  bytes.insert(bytes.end(), element.begin(), element.end());
  bytes.push_back(0);
  store_le(bytes.data(), static_cast<std::uint32_t>(bytes.size()));
  return bytes;
}

TEST_CASE("elements that do not fit end the iteration as malformed", "[view]") {
  const std::vector<std::vector<std::uint8_t>> elements = {
      {0x00, 'a', 0},                                             // no type
      {0x14, 'a', 0},                                             // unknown type
      {0x10, 'a'},                                                // name without an end
      {0x10},                                                     // no name
      {0x10, 'a', 0, 1, 2, 3},                                    // int32 cut short
      {0x01, 'a', 0, 1, 2, 3, 4, 5, 6, 7},                        // double cut short
      {0x02, 'a', 0, 0, 0, 0, 0},                                 // string of length 0
      {0x02, 'a', 0, 9, 0, 0, 0, 'x', 0},                         // string too long
      {0x02, 'a', 0, 2, 0, 0, 0, 'x', 'y'},                       // string not terminated
      {0x02, 'a', 0, 0xff, 0xff, 0xff, 0xff, 'x', 0},             // negative length
      {0x03, 'a', 0, 4, 0, 0, 0, 0},                              // document of 4 bytes
      {0x03, 'a', 0, 6, 0, 0, 0, 0},                              // document too long
      {0x04, 'a', 0, 5, 0, 0, 0, 1},                              // array not terminated
      {0x05, 'a', 0, 2, 0, 0, 0, 0, 1},                           // binary too long
      {0x05, 'a', 0, 0xff, 0xff, 0xff, 0x7f, 0},                  // binary far too long
      {0x0b, 'a', 0, 'x', 'y'},                                   // regex without its ends
      {0x0b, 'a', 0, 'x', 0, 'i'},                                // regex options without an end
      {0x0c, 'a', 0, 2, 0, 0, 0, 'x', 0, 1, 2, 3},                // DBPointer cut short
      {0x0f, 'a', 0, 14, 0, 0, 0, 1, 0, 0, 0, 0, 5, 0, 0},        // code with scope cut short
      {0x0f, 'a', 0, 14, 0, 0, 0, 2, 0, 0, 0, 0, 5, 0, 0, 0, 0},  // code too long
      {0x0f, 'a', 0, 14, 0, 0, 0, 1, 0, 0, 0, 0, 6, 0, 0, 0, 0},  // scope too long
  };
  for (const auto& element : elements) {
    const auto bytes = around(element);
    const auto doc = DocView::parse(bytes);
    REQUIRE(doc.has_value());
    const DocIterator at = doc->begin();
    INFO("type " << int{element[0]} << ", " << element.size() << " bytes");
    CHECK(at.done());
    CHECK(at.malformed());
    CHECK_FALSE(doc->find("a").exists());
    CHECK(doc->validate().has_error());
  }
}

TEST_CASE("validate looks into nested documents and at booleans", "[view]") {
  CHECK(DocView::parse(around({0x08, 'a', 0, 1}))->validate().has_value());
  CHECK(DocView::parse(around({0x08, 'a', 0, 2}))->validate().has_error());
  // {a: {b: <int32 cut short>}}
  const auto inner = around({0x10, 'b', 0, 1});
  std::vector<std::uint8_t> element = {0x03, 'a', 0};
  element.insert(element.end(), inner.begin(), inner.end());
  const auto outer = around(element);
  const auto doc = DocView::parse(outer);
  CHECK(doc->find("a").is_document());
  CHECK(doc->validate().has_error());
  // The same as the scope of code.
  std::vector<std::uint8_t> scoped = {0x0f, 'a', 0, 0, 0, 0, 0, 1, 0, 0, 0, 0};
  scoped.insert(scoped.end(), inner.begin(), inner.end());
  scoped[3] = static_cast<std::uint8_t>(scoped.size() - 3);
  const auto code = around(scoped);
  CHECK(DocView::parse(code)->find("a").exists());
  CHECK(DocView::parse(code)->validate().has_error());
}

TEST_CASE("a document is validated step by step", "[view]") {
  const BsonDoc doc =
      json(R"({"a": 1, "b": {"c": [{}, {"d": [[], 2]}]}, "e": {"$code": "f", "$scope": {"g": 1}}, "h": true})");
  for (const std::size_t size : {1U, 2U, 3U, 100U}) {
    BsonValidator validator(doc);
    std::size_t steps = 1;
    for (;; ++steps) {
      const auto stepped = validator.step(size);
      REQUIRE(stepped.has_value());
      if (*stepped) break;
      REQUIRE(steps < 100);
    }
    CHECK(steps == (19 + size - 1) / size);
  }
}

TEST_CASE("validate counts the levels of nesting", "[view]") {
  std::vector<std::uint8_t> bytes = {5, 0, 0, 0, 0};
  for (int depth = 1; depth < 200; ++depth) {
    std::vector<std::uint8_t> element = {0x03, 'a', 0};
    element.insert(element.end(), bytes.begin(), bytes.end());
    bytes = around(element);
  }
  CHECK(DocView::parse(bytes)->validate().has_value());
  CHECK(DocView::parse(bytes)->validate(199).has_error());
  CHECK(json(R"({"a":[{}]})").view().validate(3).has_value());
  CHECK(json(R"({"a":[{}]})").view().validate(2).has_error());
}

}  // namespace
}  // namespace spillway
