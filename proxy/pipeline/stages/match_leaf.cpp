#include <algorithm>
#include <cmath>

#include "cursor/bson_order.h"
#include "proxy/pipeline/stages/match_node.h"
#include "proxy/pipeline/values/number.h"

namespace spillway::pipeline {
namespace {

using Kind = MatchNode::Kind;

bool visit_leaf(ValueView value, bool expand, ValueVisitor visit) {
  if (expand && value.is_array()) {
    for (const Element& element : value.as_document()) {
      if (visit(element)) return true;
    }
  }
  return visit(value);
}

// The path goes on inside an array: through its documents, and, when the next name is a number,
// through the element at that index.
bool visit_array(DocView array, const std::string* at, const std::string* end, bool expand,
                 ValueVisitor visit, std::uint64_t& passed) {
  for (const Element& element : array) {
    ++passed;
    if (element.is_document() && visit_path(element.as_document(), at, end, expand, visit, passed)) return true;
    if (element.name != *at) continue;
    bool found = false;
    if (at + 1 == end) {
      found = visit_leaf(element, expand, visit);
    } else if (element.is_document()) {
      found = visit_path(element.as_document(), at + 1, end, expand, visit, passed);
    } else if (element.is_array()) {
      found = visit_array(element.as_document(), at + 1, end, expand, visit, passed);
    }
    if (found) return true;
  }
  return false;
}

bool nullish(ValueView value) noexcept {
  return !value.exists() || value.is_null() || value.type == BsonType::undefined;
}

bool is_nan(ValueView value) noexcept {
  return value.is_number() && std::isnan(number_as_double(value));
}

// Values are ordered within a type only; MinKey and MaxKey compare with everything, also with a missing field.
bool ordered(Kind kind, ValueView value, ValueView operand) noexcept {
  const bool or_equal = kind == Kind::less_equal || kind == Kind::greater_equal;
  if (operand.is_null()) return or_equal && nullish(value);
  if (!value.exists()) {
    const bool less = kind == Kind::less || kind == Kind::less_equal;
    return operand.type == (less ? BsonType::max_key : BsonType::min_key);
  }
  const bool unbounded = operand.type == BsonType::min_key || operand.type == BsonType::max_key;
  if (!unbounded && canonical_type(value.type) != canonical_type(operand.type)) return false;
  if (is_nan(value) || is_nan(operand)) return or_equal && is_nan(value) && is_nan(operand);
  const auto order = compare_values(value, operand);
  switch (kind) {
    case Kind::less:
      return order < 0;
    case Kind::less_equal:
      return order <= 0;
    case Kind::greater:
      return order > 0;
    default:
      return order >= 0;
  }
}

bool equals(ValueView value, ValueView operand) noexcept {
  if (operand.is_null()) return nullish(value);
  return value.exists() && compare_values(value, operand) == 0;
}

Result<bool> regex_matches(const Regex& regex, ValueView value, Meter& meter) {
  if (value.is_string() || value.type == BsonType::symbol) return regex.matches(value.as_string(), meter);
  if (value.type != BsonType::regex) return false;
  const auto* text = reinterpret_cast<const char*>(value.bytes.data());
  const std::string_view both(text, value.bytes.size());
  const std::size_t end = both.find('\0');
  if (end == std::string_view::npos || end + 1 >= both.size()) return false;
  return regex.same_as(both.substr(0, end), both.substr(end + 1, both.size() - end - 2));
}

Result<bool> in_matches(const MatchNode& node, ValueView value, Meter& meter) {
  std::string key;
  append_order_key(key, nullish(value) ? ValueView{BsonType::null, {}} : value);
  if (node.keys.contains(key)) return true;
  for (const Regex& regex : node.regexes) {
    auto matched = regex_matches(regex, value, meter);
    if (!matched || *matched) return matched;
  }
  return false;
}

bool mod_matches(const MatchNode& node, ValueView value) noexcept {
  if (!value.is_number()) return false;
  std::int64_t whole = 0;
  if (is_integer(value)) {
    whole = integer_value(value);
  } else {
    const double real = std::trunc(number_as_double(value));
    if (!(real >= -9223372036854775808.0 && real < 9223372036854775808.0)) return false;
    whole = static_cast<std::int64_t>(real);
  }
  return (node.divisor == -1 ? 0 : whole % node.divisor) == node.remainder;
}

}  // namespace

bool visit_path(DocView doc, const std::string* at, const std::string* end, bool expand,
                ValueVisitor visit, std::uint64_t& passed) {
  const Element element = find_field(doc, *at, passed);
  if (at + 1 == end) return visit_leaf(element, expand, visit);
  if (element.is_document()) return visit_path(element.as_document(), at + 1, end, expand, visit, passed);
  if (element.is_array()) return visit_array(element.as_document(), at + 1, end, expand, visit, passed);
  return visit(ValueView{});
}

Result<bool> leaf_matches(const MatchNode& node, ValueView value, Meter& meter) {
  // $in makes a key of the whole value, others compare it with the operand.
  const std::size_t bytes =
      node.kind == Kind::in ? value.bytes.size() : std::min(value.bytes.size(), node.operand.view().bytes.size());
  if (!meter.spend(1 + bytes / 16)) return too_many_steps_error();
  switch (node.kind) {
    case Kind::equal:
      return equals(value, node.operand.view());
    case Kind::less:
    case Kind::less_equal:
    case Kind::greater:
    case Kind::greater_equal:
      return ordered(node.kind, value, node.operand.view());
    case Kind::in:
      return in_matches(node, value, meter);
    case Kind::exists:
      return value.exists();
    case Kind::type:
      if (node.number_type && value.is_number()) return true;
      for (const BsonType type : node.types) {
        if (value.exists() && value.type == type) return true;
      }
      return false;
    case Kind::mod:
      return mod_matches(node, value);
    case Kind::regex:
      return regex_matches(node.regexes.front(), value, meter);
    default:
      return false;
  }
}

}  // namespace spillway::pipeline
