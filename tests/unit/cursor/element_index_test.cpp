#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "allocator/limits.h"
#include "cursor/bson_writer.h"
#include "cursor/element_index.h"

namespace spillway {
namespace {

BsonDoc document_of(std::size_t elements) {
  BsonWriter out;
  for (std::size_t i = 0; i < elements; ++i) {
    const std::string name = i == 0 ? "" : std::string(i, 'n');
    if (i % 3 == 0) {
      out.append(name, static_cast<std::int32_t>(i));
    } else if (i % 3 == 1) {
      out.append(name, std::string(i, 'v'));
    } else {
      out.append_null(name);
    }
  }
  return std::move(out).finish();
}

ElementIndex index_of(DocView document) {
  ElementIndex index;
  index.begin(document);
  for (const Element& element : document) index.add(element);
  return index;
}

void check_same(const Element& left, const Element& right) {
  CHECK(left.type == right.type);
  CHECK(left.name == right.name);
  CHECK(left.name.data() == right.name.data());
  CHECK(left.bytes.data() == right.bytes.data());
  CHECK(left.bytes.size() == right.bytes.size());
  CHECK(left.raw.data() == right.raw.data());
  CHECK(left.raw.size() == right.raw.size());
}

Result<void> validate_each(DocView document) {
  for (const Element& element : document) {
    if (auto valid = validate_element(element, limits::bson_depth_max - 1); valid.has_error()) return valid;
  }
  return {};
}

BsonDoc nested(int depth) {
  BsonDoc document;
  for (int i = 1; i < depth; ++i) document = std::move(BsonWriter().append("d", document)).finish();
  return document;
}

TEST_CASE("an index gives the elements that an iterator gives", "[element_index]") {
  for (std::size_t elements = 0; elements <= ElementIndex::elements_max + 2; ++elements) {
    CAPTURE(elements);
    const BsonDoc document = document_of(elements);
    const ElementIndex index = index_of(document);
    CHECK(index.is_of(document) == (elements <= ElementIndex::elements_max));
    DocIterator walk = document.view().begin();
    IndexedIterator at(document, &index);
    for (; !walk.done(); ++walk, ++at) {
      REQUIRE_FALSE(at.done());
      check_same(*at, *walk);
    }
    CHECK(at.done());
  }
}

TEST_CASE("an index of another document, or none, is not used", "[element_index]") {
  const BsonDoc first = document_of(3);
  const BsonDoc second = document_of(2);
  const ElementIndex index = index_of(first);
  CHECK_FALSE(index.is_of(second));
  CHECK_FALSE(ElementIndex().is_of(second));
  for (const ElementIndex* each : {&index, static_cast<const ElementIndex*>(nullptr)}) {
    std::size_t count = 0;
    for (IndexedIterator at(second, each); !at.done(); ++at) ++count;
    CHECK(count == 2);
  }
}

TEST_CASE("a document is as valid as its elements", "[element_index]") {
  CHECK(validate_each(document_of(5)).has_value());
  for (const int depth : {2, limits::bson_depth_max, limits::bson_depth_max + 1}) {
    CAPTURE(depth);
    const BsonDoc document = nested(depth);
    CHECK(document.view().validate().has_value() == (depth <= limits::bson_depth_max));
    CHECK(validate_each(document).has_value() == (depth <= limits::bson_depth_max));
  }
  BsonDoc damaged = std::move(BsonWriter().append("b", true)).finish();
  const_cast<std::uint8_t*>(damaged.view().data())[damaged.size() - 2] = 2;
  CHECK(validate_each(damaged).error().message == damaged.view().validate().error().message);
}

}  // namespace
}  // namespace spillway
