
#include "cursor/bson_order.h"
#include "proxy/exec/pipeline/match_node.h"
#include "proxy/exec/pipeline/names.h"
#include "proxy/exec/pipeline/number.h"
#include "proxy/exec/pipeline/text.h"

namespace spillway::pipeline {
namespace {

using Kind = MatchNode::Kind;
using Path = std::vector<std::string>;

Error bad_value(std::string text) { return {ErrorCode::bad_value, std::move(text)}; }

Path split_dots(std::string_view dotted) {
  Path path;
  for (std::size_t at = 0; at <= dotted.size();) {
    const std::size_t dot = std::min(dotted.find('.', at), dotted.size());
    path.emplace_back(dotted.substr(at, dot - at));
    at = dot + 1;
  }
  return path;
}

MatchNodePtr make_leaf(Kind kind, const Path& path, ValueView operand) {
  auto node = std::make_unique<MatchNode>(kind);
  node->path = path;
  node->operand = Value::borrowed(operand).retained();
  return node;
}

MatchNodePtr negate(MatchNodePtr child) {
  auto node = std::make_unique<MatchNode>(Kind::negated);
  node->children.push_back(std::move(child));
  return node;
}

// The pattern and options of a BSON regular expression.
std::pair<std::string_view, std::string_view> regex_parts(ValueView value) {
  const std::string_view both(reinterpret_cast<const char*>(value.bytes.data()),
                              value.bytes.size());
  const std::size_t end = both.find('\0');
  const std::string_view rest = both.substr(std::min(end + 1, both.size()));
  return {both.substr(0, end), rest.substr(0, rest.find('\0'))};
}

Result<MatchNodePtr> make_regex(const Path& path, std::string_view pattern,
                                std::string_view options) {
  auto regex = Regex::compile(pattern, options);
  if (!regex) {
    return regex.error();
  }
  auto node = std::make_unique<MatchNode>(Kind::regex);
  node->path = path;
  node->regexes.push_back(std::move(*regex));
  return node;
}

Result<MatchNodePtr> parse_equality(const Path& path, ValueView value) {
  if (value.type == BsonType::regex) {
    const auto [pattern, options] = regex_parts(value);
    return make_regex(path, pattern, options);
  }
  if (value.type == BsonType::undefined) {
    return bad_value("cannot compare to undefined");
  }
  return make_leaf(Kind::equal, path, value);
}

Result<MatchNodePtr> parse_regex(const Path& path, DocView operators) {
  const ValueView pattern = operators["$regex"];
  const ValueView options = operators["$options"];
  if (!pattern.exists()) {
    return bad_value("$options needs a $regex");
  }
  if (options.exists() && !options.is_string()) {
    return bad_value("$options has to be a string");
  }
  const std::string_view given = options.exists() ? options.as_string() : std::string_view();
  if (pattern.is_string()) {
    return make_regex(path, pattern.as_string(), given);
  }
  if (pattern.type != BsonType::regex) {
    return bad_value("$regex has to be a string");
  }
  const auto [text, own] = regex_parts(pattern);
  if (!own.empty() && !given.empty()) {
    return Error(51075, "options set in both $regex and $options");
  }
  return make_regex(path, text, own.empty() ? given : own);
}

Result<MatchNodePtr> parse_in(const Path& path, ValueView value, std::string_view op) {
  if (!value.is_array()) {
    return bad_value(join(op, " needs an array"));
  }
  auto node = std::make_unique<MatchNode>(Kind::in);
  node->path = path;
  for (const Element& element : value.as_document()) {
    if (element.is_document() && element.as_document().first().name.starts_with('$') &&
        element.as_document().first().name != "$ref") {
      return bad_value(join("cannot nest $ under ", op));
    }
    if (element.type == BsonType::regex) {
      const auto [pattern, options] = regex_parts(element);
      auto regex = Regex::compile(pattern, options);
      if (!regex) {
        return regex.error();
      }
      node->regexes.push_back(std::move(*regex));
      continue;
    }
    std::string key;
    append_order_key(key, element);
    node->keys.insert(std::move(key));
  }
  return node;
}

Result<void> add_type(MatchNode& node, ValueView value) {
  if (value.is_string()) {
    if (value.as_string() == "number") {
      node.number_type = true;
      return {};
    }
    for (int code = 0; code < 256; ++code) {
      const auto type = static_cast<BsonType>(code);
      const bool real = (code >= 1 && code <= 0x13) || code == 0xff || code == 0x7f;
      if (real && bson_type_name(type) == value.as_string()) {
        node.types.push_back(type);
        return {};
      }
    }
    return bad_value(join("Unknown type name alias: ", value.as_string()));
  }
  if (!value.is_number()) {
    return Error(ErrorCode::type_mismatch, "type must be represented as a number or a string");
  }
  const auto code = whole_int64(value);
  if (!code || !((*code >= 1 && *code <= 0x13) || *code == -1 || *code == 127)) {
    return bad_value(join("Invalid numerical type code: ", to_json(value)));
  }
  node.types.push_back(static_cast<BsonType>(*code & 0xff));
  return {};
}

Result<MatchNodePtr> parse_type(const Path& path, ValueView value) {
  auto node = std::make_unique<MatchNode>(Kind::type);
  node->path = path;
  if (!value.is_array()) {
    if (auto added = add_type(*node, value); !added) {
      return added.error();
    }
    return node;
  }
  if (value.as_document().empty()) {
    return Error(ErrorCode::failed_to_parse, "$type must match at least one type");
  }
  for (const Element& element : value.as_document()) {
    if (auto added = add_type(*node, element); !added) {
      return added.error();
    }
  }
  return node;
}

Result<MatchNodePtr> parse_mod(const Path& path, ValueView value) {
  if (!value.is_array()) {
    return bad_value("malformed mod, needs to be an array");
  }
  std::int64_t numbers[2] = {0, 0};
  std::size_t count = 0;
  for (const Element& element : value.as_document()) {
    if (count == 2) {
      return bad_value("malformed mod, too many elements");
    }
    if (!element.is_number()) {
      return bad_value(count == 0 ? "malformed mod, divisor not a number"
                                  : "malformed mod, remainder not a number");
    }
    const auto whole = is_integer(element)
                           ? std::optional(integer_value(element))
                           : whole_int64(Value::of(std::trunc(number_as_double(element))).view());
    if (!whole) {
      return bad_value("malformed mod, a number does not fit");
    }
    numbers[count++] = *whole;
  }
  if (count < 2) {
    return bad_value("malformed mod, not enough elements");
  }
  if (numbers[0] == 0) {
    return bad_value("divisor cannot be 0");
  }
  auto node = std::make_unique<MatchNode>(Kind::mod);
  node->path = path;
  node->divisor = numbers[0];
  node->remainder = numbers[1];
  return node;
}

Result<MatchNodePtr> parse_size(const Path& path, ValueView value) {
  const auto size = value.is_number() ? whole_int64(value) : std::nullopt;
  if (!size) {
    return bad_value("$size must be a whole number");
  }
  if (*size < 0) {
    return bad_value("$size may not be negative");
  }
  auto node = std::make_unique<MatchNode>(Kind::size);
  node->path = path;
  node->remainder = *size;
  return node;
}

Result<void> parse_operators(const Path& path, DocView operators, const ParseScope& scope,
                             MatchNode& into);

bool is_operator_document(ValueView value) noexcept {
  if (!value.is_document()) {
    return false;
  }
  const Element first = value.as_document().first();
  return first.exists() && first.name.starts_with('$') && first.name != "$ref" &&
         first.name != "$id" && first.name != "$db";
}

Result<MatchNodePtr> parse_elem_match(const Path& path, ValueView value, const ParseScope& scope) {
  if (!value.is_document()) {
    return bad_value("$elemMatch needs an Object");
  }
  const DocView doc = value.as_document();
  const std::string_view first = doc.first().name;
  const bool on_values = is_operator_document(value) && first != "$and" && first != "$or" &&
                         first != "$nor" && first != "$where" && first != "$expr";
  auto node =
      std::make_unique<MatchNode>(on_values ? Kind::elem_match_value : Kind::elem_match_object);
  node->path = path;
  if (!on_values) {
    auto child = parse_filter_document(doc, scope);
    if (!child) {
      return child;
    }
    node->children.push_back(std::move(*child));
    return node;
  }
  auto child = std::make_unique<MatchNode>(Kind::all_of);
  if (auto parsed = parse_operators({}, doc, scope, *child); !parsed) {
    return parsed.error();
  }
  node->children.push_back(std::move(child));
  return node;
}

Result<MatchNodePtr> parse_all(const Path& path, ValueView value, const ParseScope& scope) {
  if (!value.is_array()) {
    return bad_value("$all needs an array");
  }
  if (value.as_document().empty()) {
    return std::make_unique<MatchNode>(Kind::never);
  }
  auto node = std::make_unique<MatchNode>(Kind::all_of);
  for (const Element& element : value.as_document()) {
    const bool nested = is_operator_document(element);
    if (nested && element.as_document().first().name != "$elemMatch") {
      return bad_value("no $ expressions in $all");
    }
    auto child = nested ? parse_elem_match(path, element.as_document().first(), scope)
                        : parse_equality(path, element);
    if (!child) {
      return child;
    }
    node->children.push_back(std::move(*child));
  }
  return node;
}

Result<MatchNodePtr> parse_not(const Path& path, ValueView value, const ParseScope& scope) {
  if (value.type == BsonType::regex) {
    auto child = parse_equality(path, value);
    return child ? negate(std::move(*child)) : std::move(child);
  }
  if (!value.is_document()) {
    return bad_value("$not needs a regex or a document");
  }
  if (value.as_document().empty()) {
    return bad_value("$not cannot be empty");
  }
  auto child = std::make_unique<MatchNode>(Kind::all_of);
  if (auto parsed = parse_operators(path, value.as_document(), scope, *child); !parsed) {
    return parsed.error();
  }
  return negate(std::move(child));
}

Result<MatchNodePtr> parse_operator(const Path& path, const Element& element, DocView operators,
                                    const ParseScope& scope) {
  const std::string_view op = element.name;
  const auto comparison = [&](Kind kind) -> Result<MatchNodePtr> {
    if (element.type == BsonType::regex) {
      return bad_value(join("Can't have RegEx as arg to predicate over field '",
                            path.empty() ? "" : path.front(), "'."));
    }
    return make_leaf(kind, path, element);
  };
  const auto negated = [](Result<MatchNodePtr> child) -> Result<MatchNodePtr> {
    return child ? negate(std::move(*child)) : std::move(child);
  };
  if (op == "$eq") return make_leaf(Kind::equal, path, element);
  if (op == "$ne") {
    return element.type == BsonType::regex ? bad_value("Can't have regex as arg to $ne.")
                                           : negated(parse_equality(path, element));
  }
  if (op == "$lt") return comparison(Kind::less);
  if (op == "$lte") return comparison(Kind::less_equal);
  if (op == "$gt") return comparison(Kind::greater);
  if (op == "$gte") return comparison(Kind::greater_equal);
  if (op == "$in") return parse_in(path, element, op);
  if (op == "$nin") return negated(parse_in(path, element, op));
  if (op == "$exists") {
    auto node = make_leaf(Kind::exists, path, {});
    return element.truthy() ? std::move(node) : negate(std::move(node));
  }
  if (op == "$type") return parse_type(path, element);
  if (op == "$regex" || op == "$options") return parse_regex(path, operators);
  if (op == "$mod") return parse_mod(path, element);
  if (op == "$size") return parse_size(path, element);
  if (op == "$all") return parse_all(path, element, scope);
  if (op == "$elemMatch") return parse_elem_match(path, element, scope);
  if (op == "$not") return parse_not(path, element, scope);
  if (is_known_query_operator(op)) {
    return unsupported_error("the query operator", op);
  }
  return bad_value(join("unknown operator: ", op));
}

Result<void> parse_operators(const Path& path, DocView operators, const ParseScope& scope,
                             MatchNode& into) {
  const bool has_regex = operators["$regex"].exists();
  for (const Element& element : operators) {
    if (element.name == "$comment" || (element.name == "$options" && has_regex)) {
      continue;
    }
    auto node = parse_operator(path, element, operators, scope);
    if (!node) {
      return node.error();
    }
    into.children.push_back(std::move(*node));
  }
  return {};
}

Result<MatchNodePtr> parse_list(Kind kind, const Element& element, const ParseScope& scope) {
  if (!element.is_array()) {
    return bad_value(join(element.name, " must be an array"));
  }
  if (element.as_document().empty()) {
    return bad_value("$and/$or/$nor must be a nonempty array");
  }
  auto node = std::make_unique<MatchNode>(kind);
  for (const Element& item : element.as_document()) {
    if (!item.is_document()) {
      return bad_value("$or/$and/$nor entries need to be full objects");
    }
    auto child = parse_filter_document(item.as_document(), scope);
    if (!child) {
      return child;
    }
    node->children.push_back(std::move(*child));
  }
  return node;
}

Result<MatchNodePtr> parse_top_level(const Element& element, const ParseScope& scope) {
  const std::string_view op = element.name;
  if (op == "$and") return parse_list(Kind::all_of, element, scope);
  if (op == "$or") return parse_list(Kind::any_of, element, scope);
  if (op == "$nor") return parse_list(Kind::none_of, element, scope);
  if (op == "$alwaysTrue") return std::make_unique<MatchNode>(Kind::all_of);
  if (op == "$alwaysFalse") return std::make_unique<MatchNode>(Kind::never);
  if (op == "$expr") {
    auto expr = parse_expression(element, scope);
    if (!expr) {
      return expr.error();
    }
    auto node = std::make_unique<MatchNode>(Kind::expression);
    node->expr = std::move(*expr);
    return node;
  }
  if (is_known_query_operator(op)) {
    return unsupported_error("the query operator", op);
  }
  return bad_value(join("unknown top level operator: ", op));
}

}  // namespace

Result<MatchNodePtr> parse_filter_document(DocView filter, const ParseScope& scope) {
  auto root = std::make_unique<MatchNode>(Kind::all_of);
  for (const Element& element : filter) {
    if (element.name == "$comment") {
      continue;
    }
    if (element.name.starts_with('$')) {
      auto node = parse_top_level(element, scope);
      if (!node) {
        return node;
      }
      root->children.push_back(std::move(*node));
      continue;
    }
    const Path path = split_dots(element.name);
    if (is_operator_document(element)) {
      if (auto parsed = parse_operators(path, element.as_document(), scope, *root); !parsed) {
        return parsed.error();
      }
      continue;
    }
    auto node = parse_equality(path, element);
    if (!node) {
      return node;
    }
    root->children.push_back(std::move(*node));
  }
  return root;
}

}  // namespace spillway::pipeline
