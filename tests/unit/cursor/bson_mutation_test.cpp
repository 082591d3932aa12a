// Damaged documents: nothing reads outside of their bytes, and the verdict is another decoder's.
#include <bson/bson.h>

#include <algorithm>
#include <memory>
#include <random>

#include "cursor/bson_hash.h"
#include "cursor/bson_order.h"
#include "tests/unit/cursor/bson_text.h"

namespace spillway {
namespace {

using test::json;

std::vector<BsonDoc> seeds() {
  std::vector<BsonDoc> docs;
  docs.push_back(json(R"({"a":1,"b":"text","c":{"d":[1,2.5,{"e":true}]},"f":null})"));
  docs.push_back(json(
      R"({"o":{"$oid":"010203040506070809101112"},"d":{"$date":{"$numberLong":"1000"}},)"
      R"("r":{"$regularExpression":{"pattern":"a","options":"i"}},"u":{"$undefined":true},)"
      R"("p":{"$dbPointer":{"$ref":"c","$id":{"$oid":"010203040506070809101112"}}},"m":false})"));
  docs.push_back(json(
      R"({"c":{"$code":"f","$scope":{
    "x" : 1, "y" : { "z" : "w" }}
},"k":{"$code":"g"},)"
      R"("y":{"$symbol":"q"},"n":{"$numberDecimal":"1.5"},"l":{"$numberLong":"5"},)"
      R"("b":{"$binary":{"base64":"AAECAwQG","subType":"00"}},"t":{"$timestamp":{"t":1,"i":2}},)"
      R"("i":{"$minKey":1},"x":{"$maxKey":1}})"));
  return docs;
}

// Exactly as many bytes on the heap, so that a sanitizer sees the first byte beyond.
class ExactBytes {
 public:
  explicit ExactBytes(Bytes bytes)
      : data_(std::make_unique<std::uint8_t[]>(bytes.size())), size_(bytes.size()) {
    std::ranges::copy(bytes, data_.get());
  }
  Bytes view() const { return {data_.get(), size_}; }

 private:
  std::unique_ptr<std::uint8_t[]> data_;
  std::size_t size_;
};

// libbson's iterator, which every driver in C stands on, taken through all levels. (Its
// bson_validate overlooks damage behind code with scope.)
bool libbson_accepts(Bytes bytes) {
  bson_t bson;
  bson_iter_t at;
  if (!bson_init_static(&bson, bytes.data(), bytes.size())) return false;
  if (!bson_iter_init(&at, &bson)) return false;
  while (bson_iter_next(&at)) {
    std::uint32_t size = 0;
    std::uint32_t code_size = 0;
    const std::uint8_t* nested = nullptr;
    if (BSON_ITER_HOLDS_DOCUMENT(&at)) bson_iter_document(&at, &size, &nested);
    if (BSON_ITER_HOLDS_ARRAY(&at)) bson_iter_array(&at, &size, &nested);
    if (BSON_ITER_HOLDS_CODEWSCOPE(&at)) {
      const char* code = bson_iter_codewscope(&at, &code_size, &size, &nested);
      if (code[code_size] != 0) return false;  // which libbson leaves to its readers
    }
    if (nested != nullptr && !libbson_accepts({nested, size})) return false;
  }
  return at.err_off == 0;
}

// libbson checks the inner length of the old binary subtype, which nothing here reads.
bool old_binaries_fit(DocView doc) {
  for (const Element& element : doc) {
    if (element.type == BsonType::binary) {
      const auto [subtype, data] = element.as_binary();
      if (subtype != 2) continue;
      if (data.size() < 4 || load_le<std::uint32_t>(data.data()) != data.size() - 4) return false;
    }
    DocView nested;
    if (element.is_document() || element.is_array()) nested = element.as_document();
    if (element.type == BsonType::code_with_scope) {
      const std::uint8_t* code = element.bytes.data() + 4;
      nested = DocView::trusted(code + 4 + load_le<std::uint32_t>(code));
    }
    if (!old_binaries_fit(nested)) return false;
  }
  return true;
}

// Everything that reads must stay inside the bytes, whatever they are.
void read_everything(DocView doc) {
  for (const Element& element : doc) {
    static_cast<void>(bson_hash64(element));
    static_cast<void>(to_json(element, 100));
    static_cast<void>(element.truthy());
    CHECK((compare_values(element, element) == 0));
    std::string key;
    append_order_key(key, element);
  }
  CHECK((compare_documents(doc, doc) == 0));
}

struct Verdicts {
  int accepted = 0;
  int rejected = 0;
};

void check(Bytes bytes, Verdicts& verdicts) {
  const ExactBytes exact(bytes);
  const auto doc = DocView::parse(exact.view());
  if (doc.has_error() || doc->size() != bytes.size()) {
    ++verdicts.rejected;
    CHECK_FALSE(libbson_accepts(exact.view()));
    return;
  }
  read_everything(*doc);
  const bool accepted = !doc->validate().has_error();
  accepted ? ++verdicts.accepted : ++verdicts.rejected;
  if (libbson_accepts(exact.view()) != (accepted && old_binaries_fit(*doc))) {
    std::string hex;
    for (const std::uint8_t byte : bytes) {
      constexpr const char* digits = "0123456789abcdef";
      hex += {digits[byte >> 4U], digits[byte & 15U], ' '};
    }
    FAIL_CHECK("libbson disagrees; accepted here: " << accepted << "; bytes: " << hex);
  }
}

TEST_CASE("every truncation is refused", "[mutation]") {
  for (const BsonDoc& doc : seeds()) {
    REQUIRE(libbson_accepts(doc.view().bytes()));
    REQUIRE(doc.view().validate().has_value());
    for (std::size_t size = 0; size < doc.size(); ++size) {
      const ExactBytes cut(doc.view().bytes().first(size));
      CHECK(DocView::parse(cut.view()).has_error());
    }
  }
}

TEST_CASE("truncations whose frame was mended are judged as libbson does", "[mutation]") {
  Verdicts verdicts;
  for (const BsonDoc& doc : seeds()) {
    for (std::size_t size = 5; size < doc.size(); ++size) {
      const Bytes part = doc.view().bytes().first(size);
      std::vector<std::uint8_t> bytes(part.begin(), part.end());
      store_le(bytes.data(), static_cast<std::uint32_t>(size));
      bytes.back() = 0;
      check(bytes, verdicts);
    }
  }
  CHECK(verdicts.accepted > 10);  // cuts between elements
  CHECK(verdicts.rejected > 100);
}

TEST_CASE("mutated documents are judged as libbson does", "[mutation]") {
  const std::uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto docs = seeds();
  const auto below = [&](std::size_t bound) {
    return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random);
  };
  constexpr std::uint8_t telling[] = {0,    1,    2,    3,    4,    5,    8,
                                      0x0b, 0x0c, 0x0f, 0x10, 0x7f, 0x80, 0xff};
  Verdicts verdicts;
  for (int turn = 0; turn < 20000; ++turn) {
    const BsonDoc& doc = docs[below(docs.size())];
    std::vector<std::uint8_t> bytes(doc.view().data(), doc.view().data() + doc.size());
    for (std::size_t change = 1 + below(3); change > 0; --change) {
      const bool known = below(2) == 0;
      bytes[4 + below(bytes.size() - 4)] =
          known ? telling[below(std::size(telling))] : static_cast<std::uint8_t>(below(256));
    }
    check(bytes, verdicts);
  }
  CHECK(verdicts.accepted > 1000);
  CHECK(verdicts.rejected > 1000);
}

}  // namespace
}  // namespace spillway
