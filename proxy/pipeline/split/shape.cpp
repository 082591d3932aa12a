#include "proxy/pipeline/split/shape.h"

#include <utility>

#include "absl/hash/hash.h"

namespace spillway::pipeline {
namespace {

// 1, 0 and -1 have different meanings: include, exclude, descending order.
int sign(ValueView value) noexcept {
  const double number = value.to_double().value_or(0);
  return (number > 0) - (number < 0);
}

}  // namespace

std::uint64_t shape_of(DocView pipeline) noexcept {
  std::uint64_t shape = 0;
  const auto mix = [&shape](const auto& part) { shape = absl::HashOf(shape, part); };
  for (const Element& element : pipeline) {
    mix(std::pair(element.name, static_cast<int>(element.type)));
    if (element.is_document() || element.is_array()) {
      mix(shape_of(element.as_document()));
    } else if (element.is_string() && element.as_string().starts_with('$')) {
      mix(element.as_string());
    } else if (element.is_number()) {
      mix(sign(element));
    } else if (element.type == BsonType::boolean) {
      mix(element.truthy());
    }
  }
  return shape;
}

}  // namespace spillway::pipeline
