#include "proxy/pipeline/stages/match_node.h"

#include <utility>

#include "proxy/pipeline/expressions/names.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

using Kind = MatchNode::Kind;

Result<MatchPath> split_dots(std::string_view dotted, const FilterParse& parse) {
  if (auto charged = parse.charge(0, path_bytes(dotted)); !charged) return charged.error();
  std::vector<std::string> path;
  for (std::size_t at = 0; at <= dotted.size();) {
    const std::size_t dot = std::min(dotted.find('.', at), dotted.size());
    if (path.size() == path_parts_max) return path_too_long_error();
    path.emplace_back(dotted.substr(at, dot - at));
    at = dot + 1;
  }
  return std::make_shared<const std::vector<std::string>>(std::move(path));
}

MatchNodePtr negate(MatchNodePtr child) {
  auto node = std::make_unique<MatchNode>(Kind::negated);
  node->children.push_back(std::move(child));
  return node;
}

Result<void> parse_operators(const MatchPath& path, DocView operators, FilterParse& parse,
                             MatchNode& into);

bool is_operator_document(ValueView value) noexcept {
  if (!value.is_document()) return false;
  const Element first = value.as_document().first();
  return first.exists() && first.name.starts_with('$') && first.name != "$ref" &&
         first.name != "$id" && first.name != "$db";
}

Result<MatchNodePtr> parse_elem_match(const MatchPath& path, ValueView value, FilterParse& parse) {
  if (auto charged = parse.charge(2); !charged) return charged.error();
  if (!value.is_document()) return bad_value("$elemMatch needs an Object");
  const DocView doc = value.as_document();
  const std::string_view first = doc.first().name;
  const bool on_values = is_operator_document(value) && first != "$and" && first != "$or" &&
                         first != "$nor" && first != "$where" && first != "$expr";
  auto node =
      std::make_unique<MatchNode>(on_values ? Kind::elem_match_value : Kind::elem_match_object);
  node->path = path;
  if (!on_values) {
    const bool outside = std::exchange(parse.in_element, true);
    auto child = parse_filter_document(doc, parse);
    parse.in_element = outside;
    if (!child) return child;
    node->children.push_back(std::move(*child));
    return node;
  }
  auto child = std::make_unique<MatchNode>(Kind::all_of);
  if (auto parsed = parse_operators({}, doc, parse, *child); !parsed) return parsed.error();
  node->children.push_back(std::move(child));
  return node;
}

Result<MatchNodePtr> parse_all(const MatchPath& path, ValueView value, FilterParse& parse) {
  if (!value.is_array()) return bad_value("$all needs an array");
  if (value.as_document().empty()) return std::make_unique<MatchNode>(Kind::never);
  auto node = std::make_unique<MatchNode>(Kind::all_of);
  for (const Element& element : value.as_document()) {
    const bool nested = is_operator_document(element);
    if (nested && element.as_document().first().name != "$elemMatch") return bad_value("no $ expressions in $all");
    SPILLWAY_TRY(child, nested ? parse_elem_match(path, element.as_document().first(), parse)
                               : parse_equality(path, element, parse));
    node->children.push_back(std::move(*child));
  }
  return node;
}

Result<MatchNodePtr> parse_not(const MatchPath& path, ValueView value, FilterParse& parse) {
  if (value.type == BsonType::regex) {
    auto child = parse_equality(path, value, parse);
    return child ? negate(std::move(*child)) : std::move(child);
  }
  if (!value.is_document()) return bad_value("$not needs a regex or a document");
  if (value.as_document().empty()) return bad_value("$not cannot be empty");
  auto child = std::make_unique<MatchNode>(Kind::all_of);
  if (auto parsed = parse_operators(path, value.as_document(), parse, *child); !parsed) return parsed.error();
  return negate(std::move(child));
}

Result<MatchNodePtr> parse_operator(const MatchPath& path, const Element& element,
                                    const RegexOperators& regex, FilterParse& parse) {
  const std::string_view op = element.name;
  const auto comparison = [&](Kind kind) -> Result<MatchNodePtr> {
    if (element.type == BsonType::regex) {
      return bad_value(join("Can't have RegEx as arg to predicate over field '",
                            path == nullptr ? "" : path->front(), "'."));
    }
    return make_leaf(kind, path, element, parse);
  };
  const auto negated = [](Result<MatchNodePtr> child) -> Result<MatchNodePtr> {
    return child ? negate(std::move(*child)) : std::move(child);
  };
  if (op == "$eq") return make_leaf(Kind::equal, path, element, parse);
  if (op == "$ne") {
    return element.type == BsonType::regex ? bad_value("Can't have regex as arg to $ne.")
                                           : negated(parse_equality(path, element, parse));
  }
  if (op == "$lt") return comparison(Kind::less);
  if (op == "$lte") return comparison(Kind::less_equal);
  if (op == "$gt") return comparison(Kind::greater);
  if (op == "$gte") return comparison(Kind::greater_equal);
  if (op == "$in") return parse_in(path, element, op, parse);
  if (op == "$nin") return negated(parse_in(path, element, op, parse));
  if (op == "$exists") {
    auto node = make_leaf(Kind::exists, path, {}, parse);
    return element.truthy() ? std::move(node) : negated(std::move(node));
  }
  if (op == "$type") return parse_type(path, element);
  if (op == "$regex" || op == "$options") return parse_regex(path, regex, parse);
  if (op == "$mod") return parse_mod(path, element);
  if (op == "$size") return parse_size(path, element);
  if (op == "$all") return parse_all(path, element, parse);
  if (op == "$elemMatch") return parse_elem_match(path, element, parse);
  if (op == "$not") return parse_not(path, element, parse);
  return no_query_operator(op, "unknown operator: ");
}

Result<void> parse_operators(const MatchPath& path, DocView operators, FilterParse& parse,
                             MatchNode& into) {
  const RegexOperators regex{operators["$regex"], operators["$options"]};
  for (const Element& element : operators) {
    if (element.name == "$comment" || (element.name == "$options" && regex.pattern.exists())) continue;
    if (auto charged = parse.charge(1); !charged) return charged;
    SPILLWAY_TRY(node, parse_operator(path, element, regex, parse));
    into.children.push_back(std::move(*node));
  }
  return {};
}

Result<MatchNodePtr> parse_list(Kind kind, const Element& element, FilterParse& parse) {
  if (!element.is_array()) return bad_value(join(element.name, " must be an array"));
  if (element.as_document().empty()) return bad_value("$and/$or/$nor must be a nonempty array");
  auto node = std::make_unique<MatchNode>(kind);
  for (const Element& item : element.as_document()) {
    if (!item.is_document()) return bad_value("$or/$and/$nor entries need to be full objects");
    SPILLWAY_TRY(child, parse_filter_document(item.as_document(), parse));
    node->children.push_back(std::move(*child));
  }
  return node;
}

Result<MatchNodePtr> parse_top_level(const Element& element, FilterParse& parse) {
  const std::string_view op = element.name;
  if (op == "$and") return parse_list(Kind::all_of, element, parse);
  if (op == "$or") return parse_list(Kind::any_of, element, parse);
  if (op == "$nor") return parse_list(Kind::none_of, element, parse);
  if (op == "$alwaysTrue") return std::make_unique<MatchNode>(Kind::all_of);
  if (op == "$alwaysFalse") return std::make_unique<MatchNode>(Kind::never);
  if (op == "$expr") {
    if (parse.in_element) return bad_value("$expr can only be applied to the top-level document");
    SPILLWAY_TRY(expr, parse_expression(element, parse.scope));
    auto node = std::make_unique<MatchNode>(Kind::expression);
    node->expr = std::move(*expr);
    return node;
  }
  return no_query_operator(op, "unknown top level operator: ");
}

}  // namespace

Result<MatchNodePtr> parse_filter_document(DocView filter, FilterParse& parse) {
  if (auto charged = parse.charge(1); !charged) return charged.error();
  auto root = std::make_unique<MatchNode>(Kind::all_of);
  for (const Element& element : filter) {
    if (element.name == "$comment") continue;
    if (auto charged = parse.charge(1); !charged) return charged.error();
    if (element.name.starts_with('$')) {
      SPILLWAY_TRY(node, parse_top_level(element, parse));
      root->children.push_back(std::move(*node));
      continue;
    }
    SPILLWAY_TRY(path, split_dots(element.name, parse));
    if (is_operator_document(element)) {
      if (auto parsed = parse_operators(*path, element.as_document(), parse, *root); !parsed) return parsed.error();
      continue;
    }
    SPILLWAY_TRY(node, parse_equality(*path, element, parse));
    root->children.push_back(std::move(*node));
  }
  return root;
}

}  // namespace spillway::pipeline
