#include <algorithm>
#include <utility>

#include "proxy/pipeline/expressions/expression.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

Result<Value> follow_array(const Value& array, const std::string* at, const std::string* end,
                           Meter& meter) {
  ArrayBuilder found;
  std::uint64_t passed = 0;
  for (const Element& element : array.as_document()) {
    if (!element.is_document()) {
      ++passed;
      continue;  // an array directly inside an array, too
    }
    if (!meter.spend(1)) return too_many_steps_error();
    SPILLWAY_TRY(value, follow_path(array.part(element), at, end, meter));
    if (!value->missing()) found.add(*value);
  }
  if (!meter.spend(steps_of_elements(passed))) return too_many_steps_error();
  return std::move(found).finish(meter);
}

}  // namespace

Error path_too_long_error() { return {ErrorCode::overflow, "FieldPath is too long"}; }

std::uint64_t path_bytes(std::string_view dotted) noexcept {
  const auto dots = static_cast<std::size_t>(std::count(dotted.begin(), dotted.end(), '.'));
  return std::min(dots + 1, path_parts_max) * sizeof(std::string) + dotted.size();
}

Result<std::vector<std::string>> split_field_path(std::string_view dotted) {
  if (dotted.empty()) return Error(40352, "FieldPath cannot be constructed with empty string");
  if (dotted.back() == '.') return Error(40353, "FieldPath must not end with a '.'.");
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= dotted.size();) {
    const std::size_t dot = std::min(dotted.find('.', at), dotted.size());
    const std::string_view part = dotted.substr(at, dot - at);
    if (part.empty()) return Error(15998, "FieldPath field names may not be empty strings.");
    if (part.front() == '$') {
      return Error(16410, join("FieldPath field names may not start with '$'. Consider using "
                               "$getField or $setField. Got '",
                               part, "'"));
    }
    if (part.find('\0') != std::string_view::npos) return Error(16411, "FieldPath field names may not contain '\\0'.");
    if (parts.size() == path_parts_max) return path_too_long_error();
    parts.emplace_back(part);
    at = dot + 1;
  }
  return parts;
}

Element find_field(DocView doc, std::string_view name, std::uint64_t& passed) noexcept {
  const Element found = doc.find(name);
  const std::uint8_t* const end = found.exists() ? found.raw.data() : doc.data() + doc.size();
  // Few elements fit into so few bytes; many bytes may still be one element.
  constexpr std::ptrdiff_t counted_bytes = 4096;
  if (end - doc.data() > counted_bytes) {
    for (auto at = doc.begin(); !at.done() && at->raw.data() < end; ++at) ++passed;
  }
  return found;
}

Result<Value> follow_path(const Value& from, const std::string* at, const std::string* end,
                          Meter& meter) {
  Value value = from;
  std::uint64_t passed = 0;
  for (; at != end; ++at) {
    if (value.is_array()) return follow_array(value, at, end, meter);
    if (!value.is_document()) return Value();
    value = value.part(find_field(value.as_document(), *at, passed));
    if (!meter.spend(steps_of_elements(std::exchange(passed, 0)))) return too_many_steps_error();
  }
  return value;
}

}  // namespace spillway::pipeline
