// Any bytes as a document: nothing reads outside of them, and what is well-formed survives a rewrite.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "cursor/bson_hash.h"
#include "cursor/bson_writer.h"
#include "cursor/sort_pattern.h"

namespace {

using namespace spillway;

void expect(bool holds) {
  if (!holds) std::abort();
}

bool same_bytes(DocView a, DocView b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

void read_elements(DocView doc) {
  std::size_t count = 0;
  std::size_t bytes = 5;
  DocIterator at = doc.begin();
  for (; !at.done(); ++at) {
    ++count;
    bytes += at->raw.size();
    const Element first = doc.find(at->name);
    expect(first.exists() && first.raw.data() <= at->raw.data());
    expect(at->raw.data() + at->raw.size() == at->bytes.data() + at->bytes.size());
    static_cast<void>(at->truthy());
    static_cast<void>(at->to_int64());
    static_cast<void>(at->to_double());
    static_cast<void>(bson_hash64(*at));
    static_cast<void>(to_json(*at, 200));
    if (count > 1000) return;  // find() makes this quadratic
  }
  expect(count == doc.count());
  expect(at.malformed() ? bytes < doc.size() : bytes == doc.size());
  expect(!at.malformed() || doc.validate().has_error());
}

void rewrite(DocView doc) {
  BsonWriter by_element;
  BsonWriter by_value;
  for (const Element& element : doc) {
    by_element.append_element(element);
    by_value.append(element.name, ValueView(element));
  }
  expect(same_bytes(std::move(by_element).finish(), doc));
  expect(same_bytes(std::move(by_value).finish(), doc));
}

void sort_by(DocView doc) {
  const auto pattern = SortPattern::parse(doc);
  if (pattern.has_error()) return;
  std::string key;
  static_cast<void>(pattern->append_key(key, doc));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) noexcept {
  const auto doc = DocView::parse({data, size});
  if (doc.has_error()) return 0;
  expect(doc->size() <= size);
  read_elements(*doc);
  static_cast<void>(doc->find_path("a.b.c"));
  static_cast<void>(to_json(*doc, 500));
  sort_by(*doc);
  if (!doc->validate().has_error()) rewrite(*doc);
  return 0;
}
