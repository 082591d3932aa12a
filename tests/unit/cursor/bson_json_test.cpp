#include "tests/unit/cursor/bson_text.h"

namespace spillway {
namespace {

using test::json;
using test::Value;

TEST_CASE("both modes of Extended JSON are read", "[json]") {
  const BsonDoc relaxed = json(R"({"a": 1, "b": {"c": [1.5, "x"]}, "k": {"$minKey": 1}})");
  CHECK(relaxed.view()["a"].type == BsonType::int32);
  CHECK(relaxed.view().find_path("b.c").is_array());
  CHECK(relaxed.view()["k"].type == BsonType::min_key);
  const BsonDoc canonical = json(R"({"a": {"$numberLong": "1"}, "d": {"$numberDouble": "1.5"}})");
  CHECK(canonical.view()["a"].type == BsonType::int64);
  CHECK(canonical.view()["d"].as_double() == 1.5);
}

TEST_CASE("bad JSON is an error that says so", "[json]") {
  for (const char* text : {"", "   ", "{", "{\"a\":}", "nonsense", "{\"a\":1} more", "{} {}",
                           R"({"a":{"$oid":"xyz"}})", R"({"a":{"$numberLong":"x"}})"}) {
    const auto doc = BsonDoc::from_json(text);
    INFO(text);
    REQUIRE(doc.has_error());
    CHECK(doc.error().is(ErrorCode::failed_to_parse));
    CHECK(doc.error().message.starts_with("Invalid JSON document: "));
  }
}

TEST_CASE("trailing white space is no text", "[json]") {
  CHECK_FALSE(BsonDoc::from_json("{\"a\":1} \n\t").has_error());
}

TEST_CASE("absurdly deep JSON is refused", "[json]") {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "{\"a\":";
  CHECK(BsonDoc::from_json(text).has_error());
}

TEST_CASE("documents and values are written relaxed", "[json]") {
  const BsonDoc doc = json(R"({"a":1,"b":{"c":[{"$numberLong":"2"},"x"]}})");
  CHECK(to_json(doc.view()) == R"({ "a" : 1, "b" : { "c" : [ 2, "x" ] } })");
  CHECK(to_json(doc.view()["a"]) == "1");
  CHECK(to_json(doc.view()["b"]) == R"({ "c" : [ 2, "x" ] })");
  CHECK(to_json(doc.view().find_path("b.c")) == R"([ 2, "x" ])");
  CHECK(to_json(Value(R"("text")").view()) == R"("text")");
  CHECK(to_json(Value(R"({"$minKey":1})").view()) == R"({ "$minKey" : 1 })");
  CHECK(to_json(ValueView{}) == "<missing>");
  CHECK(to_json(DocView()) == "{ }");
}

TEST_CASE("what was written is read back the same", "[json]") {
  const BsonDoc doc = json(
      R"({"o":{"$oid":"010203040506070809101112"},"d":{"$date":{"$numberLong":"1000"}},)"
      R"("r":{"$regularExpression":{"pattern":"a","options":"i"}},"n":null,"b":[true,false]})");
  const BsonDoc again = json(to_json(doc.view()));
  CHECK(std::equal(doc.view().bytes().begin(), doc.view().bytes().end(),
                   again.view().bytes().begin(), again.view().bytes().end()));
}

TEST_CASE("long output is cut between characters", "[json]") {
  const BsonDoc doc = json(R"({"a":")" + std::string(100, 'x') + "\"}");
  const std::string text = to_json(doc.view(), 20);
  CHECK(text == R"({ "a" : "xxxxxxxxxxx...)");
  const BsonDoc umlauts = json("{\"a\":\"\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\"}");
  for (std::size_t length = 9; length < 20; ++length) {
    const std::string cut = to_json(umlauts.view(), length);
    CHECK((static_cast<unsigned char>(cut[cut.size() - 4]) & 0xc0U) != 0xc0U);
    CHECK(cut.size() <= length + 3);
  }
  std::string quoted(5002, 'y');
  quoted.front() = quoted.back() = '"';
  CHECK(to_json(Value(quoted).view()).size() == 1024 + 3);
}

TEST_CASE("a malformed document is named, not read", "[json]") {
  BsonDoc broken(RecycledBytes{12, 0, 0, 0, 0x77, 'a', 0, 1, 2, 3, 4, 0});
  CHECK(to_json(broken.view()) == "<malformed document of 12 bytes>");
}

}  // namespace
}  // namespace spillway
