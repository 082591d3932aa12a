// Documents with fields taken out of them: in one piece where that can be, otherwise element by element.
#include "cursor/strip_fields.h"

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/cursor/bson_text.h"

namespace spillway {
namespace {

using test::json;

constexpr std::string_view sort_key = "$sortKey";

std::string bytes_of(DocView doc) {
  return {reinterpret_cast<const char*>(doc.data()), doc.size()};
}

// The elements with a frame around them.
std::string framed(Bytes elements) {
  const auto size = static_cast<std::uint32_t>(elements.size() + 5);
  std::string out(reinterpret_cast<const char*>(&size), sizeof size);
  out.append(reinterpret_cast<const char*>(elements.data()), elements.size());
  out.push_back('\0');
  return out;
}

std::string walked(DocView doc, const std::vector<std::string>& paths) {
  return bytes_of(copy_without(doc, paths));
}

std::optional<Bytes> cut(DocView doc) { return elements_before_last(doc, doc.find(sort_key)); }
bool is_cut(std::string_view text) {
  const BsonDoc doc = json(text);
  return cut(doc).has_value();
}

// Documents of all types and shapes; with a field named $sortKey now and then inside.
class RandomDocuments {
 public:
  static constexpr int top_depth = 3;

  void fill(BsonWriter& out, int depth) {
    for (int left = pick(9); left > 0; --left) add(out, depth);
  }
  void add(BsonWriter& out, int depth) {
    static const BsonDoc values = json(
        R"({"a":{"$numberDouble":"1.5"},"b":"text","c":{"$binary":{"base64":"AAECAwQG","subType":"00"}},
            "d":{"$undefined":true},"e":{"$oid":"010203040506070809101112"},"f":true,
            "g":{"$date":{"$numberLong":"1000"}},"h":null,"i":{"$regularExpression":{"pattern":"a","options":"i"}},
            "j":{"$code":"g"},"k":{"$symbol":"q"},"l":{"$code":"f","$scope":{"x":1}},"m":{"$numberInt":"5"},
            "n":{"$timestamp":{"t":1,"i":2}},"o":{"$numberLong":"5"},"p":{"$numberDecimal":"1.5"},
            "q":{"$minKey":1},"r":{"$maxKey":1},"s":{},"t":[],"u":""})");
    const std::string name = name_at(depth);
    if (depth > 0 && pick(4) == 0) {
      if (pick(2) == 0) {
        out.begin_document(name);
        fill(out, depth - 1);
      } else {
        out.begin_array(name);
        for (int left = pick(4); left > 0; --left) {
          out.begin_document_item();
          fill(out, depth - 1);
          out.end();
        }
      }
      out.end();
      return;
    }
    auto at = values.view().begin();
    for (int skip = pick(21); skip > 0; --skip) ++at;
    out.append(name, static_cast<const ValueView&>(*at));
  }
  int pick(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }

 private:
  std::string name_at(int depth) {
    if (depth < top_depth && pick(5) == 0) return std::string(sort_key);
    return std::string(static_cast<std::size_t>(pick(12)), static_cast<char>('a' + pick(26)));
  }

  std::mt19937 random_{20261122};
};

TEST_CASE("what stands before a last $sortKey is what the walk leaves", "[strip]") {
  RandomDocuments random;
  for (int round = 0; round < 5000; ++round) {
    BsonWriter plain, keyed;
    RandomDocuments twin = random;
    random.fill(plain, RandomDocuments::top_depth);
    twin.fill(keyed, RandomDocuments::top_depth);
    if (round % 2 == 0) {
      keyed.begin_document(sort_key).append("", round).append("", "x").end();
    } else {
      keyed.begin_array(sort_key).append_item(round).end();
    }
    const BsonDoc without = std::move(plain).finish();
    const BsonDoc with = std::move(keyed).finish();
    const auto left = cut(with);
    REQUIRE(left.has_value());
    CHECK(framed(*left) == bytes_of(without));
    CHECK(framed(*left) == walked(with, {std::string(sort_key)}));
    CHECK_FALSE(cut(without).has_value());
    CHECK(walked(without, {std::string(sort_key)}) == bytes_of(without));
  }
}

TEST_CASE("a $sortKey that is not the last, not the only one or not there is left to the walk", "[strip]") {
  CHECK(is_cut(R"({"a":1,"$sortKey":[1]})"));
  CHECK(is_cut(R"({"$sortKey":[1]})"));
  CHECK_FALSE(is_cut(R"({"$sortKey":[1],"a":1})"));
  CHECK_FALSE(is_cut(R"({"a":1,"$sortKey":[1],"b":1})"));
  CHECK_FALSE(is_cut(R"({"a":1})"));
  CHECK_FALSE(is_cut("{}"));
  CHECK_FALSE(is_cut(R"({"a":{"$sortKey":[1]}})"));
  CHECK_FALSE(is_cut(R"({"a":1,"$sortKeys":[1]})"));
  BsonWriter twice;
  twice.append("$sortKey", 1).append("a", 2).append("$sortKey", 3);
  const BsonDoc doc = std::move(twice).finish();
  CHECK_FALSE(cut(doc).has_value());
  CHECK(walked(doc, {"$sortKey"}) == bytes_of(json(R"({"a":2})")));
}

TEST_CASE("a nested field of that name stays", "[strip]") {
  const BsonDoc doc = json(R"({"a":{"$sortKey":5},"b":[{"$sortKey":6}],"$sortKey":[1]})");
  const std::string left = bytes_of(json(R"({"a":{"$sortKey":5},"b":[{"$sortKey":6}]})"));
  CHECK(framed(*cut(doc)) == left);
  CHECK(walked(doc, {"$sortKey"}) == left);
}

TEST_CASE("a damaged element before the last is not passed over", "[strip]") {
  BsonDoc doc = json(R"({"a":"text","$sortKey":[1]})");
  const_cast<std::uint8_t*>(doc.view().first().bytes.data())[3] = 0x7f;
  CHECK_FALSE(cut(doc).has_value());
}

TEST_CASE("the walk takes dotted paths out, through documents and arrays", "[strip]") {
  const BsonDoc doc = json(R"({"a":{"b":1,"c":2},"d":[{"b":1,"c":2},[{"b":3}],7],"e":5,"b":6})");
  CHECK(walked(doc, {"a.b", "d.b", "e"}) == bytes_of(json(R"({"a":{"c":2},"d":[{"c":2},[{}],7],"b":6})")));
  CHECK(walked(doc, {"x", "e.f", "a.b.c"}) == bytes_of(doc));
  CHECK(walked(doc, {"a", "a.b"}) == walked(doc, {"a"}));
}

}  // namespace
}  // namespace spillway
