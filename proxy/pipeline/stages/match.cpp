#include "proxy/pipeline/stages/match.h"

#include "proxy/pipeline/stages/match_node.h"

namespace spillway::pipeline {
namespace {

using Kind = MatchNode::Kind;

Result<bool> node_matches(const MatchNode& node, DocView doc, Meter& meter);
Result<bool> element_matches(const MatchNode& node, ValueView element, Meter& meter);

Result<bool> children_match(const MatchNode& node,
                            absl::FunctionRef<Result<bool>(const MatchNode&)> matches) {
  for (const MatchNodePtr& child : node.children) {
    SPILLWAY_TRY(matched, matches(*child));
    if (node.kind == Kind::all_of ? !*matched : *matched) return node.kind == Kind::any_of;
  }
  return node.kind != Kind::any_of;  // all_of, none_of and negated
}

// $size and $elemMatch on one value.
Result<bool> array_matches(const MatchNode& node, ValueView value, Meter& meter) {
  if (!value.is_array()) return false;
  const DocView array = value.as_document();
  if (!meter.spend(1)) return too_many_steps_error();
  if (node.kind == Kind::size) return static_cast<std::int64_t>(array.count()) == node.remainder;
  for (const Element& element : array) {
    if (!meter.spend(1)) return too_many_steps_error();
    Result<bool> matched = false;
    if (node.kind == Kind::elem_match_value) {
      matched = element_matches(*node.children.front(), element, meter);
    } else if (element.is_document() || element.is_array()) {
      matched = node_matches(*node.children.front(), element.as_document(), meter);
    }
    if (!matched || *matched) return matched;
  }
  return false;
}

Result<bool> path_matches(const MatchNode& node, DocView doc, Meter& meter) {
  std::optional<Error> error;
  std::uint64_t passed = 0;
  const std::vector<std::string>& path = *node.path;
  const bool found = visit_path(doc, path.data(), path.data() + path.size(),
                                !node.looks_at_arrays(), [&](ValueView value) {
                                  auto matched = node.looks_at_arrays()
                                                     ? array_matches(node, value, meter)
                                                     : leaf_matches(node, value, meter);
                                  if (!matched) {
                                    error = matched.error();
                                    return true;
                                  }
                                  return *matched;
                                }, passed);
  if (error) return *error;
  if (!meter.spend(1 + steps_of_elements(passed))) return too_many_steps_error();
  return found;
}

// Inside {$elemMatch: {$gt: 1, …}}: the leaves have no path, the element is the value.
Result<bool> element_matches(const MatchNode& node, ValueView element, Meter& meter) {
  switch (node.kind) {
    case Kind::all_of:
    case Kind::any_of:
    case Kind::none_of:
    case Kind::negated:
      return children_match(
          node, [&](const MatchNode& child) { return element_matches(child, element, meter); });
    case Kind::never:
    case Kind::expression:
      return false;
    default:
      return node.looks_at_arrays() ? array_matches(node, element, meter)
                                    : leaf_matches(node, element, meter);
  }
}

Result<bool> node_matches(const MatchNode& node, DocView doc, Meter& meter) {
  switch (node.kind) {
    case Kind::all_of:
    case Kind::any_of:
    case Kind::none_of:
    case Kind::negated:
      return children_match(
          node, [&](const MatchNode& child) { return node_matches(child, doc, meter); });
    case Kind::never:
      return false;
    case Kind::expression: {
      const MeterScope scope(meter);
      EvalContext context{doc, meter, {}};
      SPILLWAY_TRY(value, node.expr->evaluate(context));
      return value->truthy();
    }
    default:
      return path_matches(node, doc, meter);
  }
}

}  // namespace

Filter::Filter() noexcept = default;
Filter::Filter(std::unique_ptr<MatchNode> root) noexcept : root_(std::move(root)) {}
Filter::Filter(Filter&&) noexcept = default;
Filter& Filter::operator=(Filter&&) noexcept = default;
Filter::~Filter() = default;

Result<Filter> Filter::parse(DocView filter, const ParseScope& scope) {
  FilterParse parse{scope, 0};
  SPILLWAY_TRY(root, parse_filter_document(filter, parse));
  return Filter(std::move(*root));
}

Result<bool> Filter::matches(DocView doc, Meter& meter) const {
  if (root_ == nullptr) return true;
  return node_matches(*root_, doc, meter);
}

}  // namespace spillway::pipeline
