// Two documents, one behind the other: their values compare as an order does, their order keys agree
// with it, and the first, read as a sort, gives keys of the second.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "cursor/bson_order.h"
#include "cursor/sort_pattern.h"

namespace {

using namespace spillway;

constexpr std::size_t values_max = 24;

void expect(bool holds) {
  if (!holds) std::abort();
}

int sign(std::weak_ordering order) { return order < 0 ? -1 : order > 0 ? 1 : 0; }
int sign(int order) { return (order > 0) - (order < 0); }

void collect(DocView doc, std::vector<ValueView>& values) {
  for (const Element& element : doc) {
    if (values.size() >= values_max) return;
    values.push_back(element);
  }
}

std::string key_of(ValueView value, bool descending) {
  std::string key;
  append_order_key(key, value, descending);
  return key;
}

void check_pair(ValueView a, ValueView b) {
  const int order = sign(compare_values(a, b));
  expect(order == -sign(compare_values(b, a)));
  for (const bool descending : {false, true}) {
    const std::string left = key_of(a, descending);
    const std::string right = key_of(b, descending);
    expect(sign(left.compare(right)) == (descending ? -order : order));
    expect(order == 0 || (!left.starts_with(right) && !right.starts_with(left)));
    const auto whole = short_order_key(a, descending);
    expect(!whole || (left.size() <= 16 && *whole == key_beginning(left)));
  }
}

void check_sort(DocView sort, DocView document) {
  const auto pattern = SortPattern::parse(sort);
  if (pattern.has_error()) return;
  std::string key = "x";
  const auto keyed = pattern->append_key(key, document);
  expect(keyed.has_error() ? key == "x" : key.starts_with('x'));
  const auto whole = pattern->short_key(document);
  expect(!whole || (keyed.has_value() && *whole == key_beginning(std::string_view(key).substr(1))));
  const ValueView as_array{BsonType::array, document.bytes()};
  std::string from_shard;
  const auto taken = pattern->append_key_from_sort_key(from_shard, as_array);
  const auto whole_from_shard = pattern->short_key_from_sort_key(as_array);
  expect(!whole_from_shard || (taken.has_value() && *whole_from_shard == key_beginning(from_shard)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) noexcept {
  const Bytes bytes(data, size);
  const auto first = DocView::parse(bytes);
  if (first.has_error()) return 0;
  const auto second = DocView::parse(bytes.subspan(first->size()));
  const DocView other = second.has_error() ? DocView() : *second;
  std::vector<ValueView> values = {{BsonType::document, first->bytes()},
                                   {BsonType::document, other.bytes()}};
  collect(*first, values);
  collect(other, values);
  for (const ValueView a : values) {
    for (const ValueView b : values) check_pair(a, b);
  }
  expect(compare_documents(*first, *first) == 0);
  check_sort(*first, other);
  return 0;
}
