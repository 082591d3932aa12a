#include "cursor/bson_writer.h"

#include <algorithm>

#include "tests/unit/cursor/bson_text.h"

namespace spillway {
namespace {

using test::json;
using test::Value;

bool same(DocView a, DocView b) { return std::ranges::equal(a.bytes(), b.bytes()); }

TEST_CASE("a default document and an empty writer are {}", "[writer]") {
  CHECK(BsonDoc().view().empty());
  CHECK(BsonWriter().finish().view().empty());
}

TEST_CASE("every append writes what the view reads", "[writer]") {
  const std::uint8_t oid[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::vector<std::uint8_t> data = {9, 8, 7};
  BsonWriter writer;
  writer.append("double", 1.5)
      .append("int", 7)
      .append("long", std::int64_t{8})
      .append("bool", true)
      .append("text", "abc")
      .append("view", std::string_view("a\0b", 3))
      .append("doc", json(R"({"x":1})"))
      .append_array("array", json("[1]"))
      .append_null("null")
      .append_min_key("min")
      .append_max_key("max")
      .append_date("date", -5)
      .append_timestamp("timestamp", 0x100000002)
      .append_object_id("oid", oid)
      .append_binary("binary", 4, data);
  const BsonDoc doc = std::move(writer).finish();
  const DocView view = doc;
  REQUIRE(view.validate().has_value());
  CHECK(view["double"].as_double() == 1.5);
  CHECK(view["int"].as_int32() == 7);
  CHECK(view["long"].as_int64() == 8);
  CHECK(view["bool"].as_bool());
  CHECK(view["text"].as_string() == "abc");
  CHECK(view["view"].as_string() == std::string_view("a\0b", 3));
  CHECK(view.find_path("doc.x").as_int32() == 1);
  CHECK(view["array"].is_array());
  CHECK(view["null"].is_null());
  CHECK(view["min"].type == BsonType::min_key);
  CHECK(view["max"].type == BsonType::max_key);
  CHECK(view["date"].as_int64() == -5);
  CHECK(load_le<std::uint64_t>(view["timestamp"].bytes.data()) == 0x100000002);
  CHECK(view["oid"].bytes[11] == 12);
  CHECK(view["binary"].as_binary().subtype == 4);
  CHECK(view["binary"].as_binary().data.size() == 3);
  CHECK(view.count() == 15);
}

TEST_CASE("the bytes are those of another encoder", "[writer]") {
  BsonWriter writer;
  writer.append("a", 1).begin_document("d").append("b", "x").begin_array("l");
  writer.append_item(1).append_item("two").append_item(3.5);
  writer.begin_document_item().append("c", false).end();
  writer.begin_array_item().append_item(4).end();
  writer.end().end().append_null("n");
  CHECK(writer.depth() == 0);
  const BsonDoc doc = std::move(writer).finish();
  CHECK(same(doc, json(R"({"a":1,"d":{"b":"x","l":[1,"two",3.5,{"c":false},[4]]},"n":null})")));
}

TEST_CASE("arrays count their items", "[writer]") {
  BsonWriter writer;
  writer.begin_array("l");
  for (int i = 0; i < 120; ++i) writer.append_item(i);
  writer.end();
  const BsonDoc doc = std::move(writer).finish();
  int expected = 0;
  for (const Element& element : doc.view()["l"].as_document()) {
    CHECK(element.name == std::to_string(expected));
    CHECK(element.as_int32() == expected);
    ++expected;
  }
  CHECK(expected == 120);
}

TEST_CASE("copied elements and values keep their bytes", "[writer]") {
  const BsonDoc source = json(
      R"({"s":"x","r":{"$regularExpression":{"pattern":"a","options":"i"}},"u":{"$undefined":true},)"
      R"("p":{"$dbPointer":{"$ref":"c","$id":{"$oid":"010203040506070809101112"}}},)"
      R"("c":{"$code":"f","$scope":{"x":1}},"y":{"$symbol":"q"},"d":{"$numberDecimal":"1.5"},)"
      R"("o":{"deep":[1,{"e":2}]}})");
  BsonWriter by_element;
  BsonWriter by_value;
  for (const Element& element : source.view()) {
    by_element.append_element(element);
    by_value.append(element.name, ValueView(element));
  }
  BsonWriter by_document;
  by_document.append_elements(source);
  CHECK(same(std::move(by_element).finish(), source));
  CHECK(same(std::move(by_value).finish(), source));
  CHECK(same(std::move(by_document).finish(), source));
}

TEST_CASE("a missing value appends nothing", "[writer]") {
  BsonWriter writer;
  writer.append("a", ValueView{});
  CHECK(std::move(writer).finish().view().empty());
}

TEST_CASE("a NUL ends a name", "[writer]") {
  BsonWriter writer;
  writer.append(std::string_view("a\0b", 3), 1).append("c", 2);
  const BsonDoc doc = std::move(writer).finish();
  REQUIRE(doc.view().validate().has_value());
  CHECK(doc.view()["a"].as_int32() == 1);
  CHECK(doc.view()["c"].as_int32() == 2);
}

TEST_CASE("documents are copied from views and give up their bytes", "[writer]") {
  const BsonDoc source = json(R"({"a":1})");
  BsonDoc copy(source.view());
  CHECK(same(copy, source));
  CHECK(std::move(copy).take().size() == source.size());
}

}  // namespace
}  // namespace spillway
