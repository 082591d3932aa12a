// The operators of a filter that look at one value.
#include <cmath>

#include "cursor/bson_order.h"
#include "proxy/pipeline/stages/match_node.h"
#include "proxy/pipeline/values/number.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

using Kind = MatchNode::Kind;

// The pattern and options of a BSON regular expression.
std::pair<std::string_view, std::string_view> regex_parts(ValueView value) {
  const std::string_view both(reinterpret_cast<const char*>(value.bytes.data()),
                              value.bytes.size());
  const std::size_t end = both.find('\0');
  const std::string_view rest = both.substr(std::min(end + 1, both.size()));
  return {both.substr(0, end), rest.substr(0, rest.find('\0'))};
}

// A pattern of a few bytes compiles to as much as 64 KiB, and a filter may have any number of them.
constexpr std::uint64_t regex_bytes_max = 8 * 1024 * 1024;

Result<Regex> compile_regex(std::string_view pattern, std::string_view options,
                            FilterParse& parse) {
  if (pattern.find('\0') != pattern.npos || options.find('\0') != options.npos) {
    return bad_value("Regular expression cannot contain an embedded null byte");
  }
  SPILLWAY_TRY(regex, Regex::compile(pattern, options));
  parse.regex_bytes += regex->size_bytes();
  if (parse.regex_bytes > regex_bytes_max) {
    return Error(51091, join("Regular expression is too large: those of one filter exceed ",
                             regex_bytes_max, " bytes"));
  }
  if (auto charged = parse.charge(1, regex->size_bytes()); !charged) return charged.error();
  return regex;
}

Result<MatchNodePtr> make_regex(const MatchPath& path, std::string_view pattern,
                                std::string_view options, FilterParse& parse) {
  SPILLWAY_TRY(regex, compile_regex(pattern, options, parse));
  auto node = std::make_unique<MatchNode>(Kind::regex);
  node->path = path;
  node->regexes.push_back(std::move(*regex));
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
  if (!value.is_number()) return Error(ErrorCode::type_mismatch, "type must be represented as a number or a string");
  const auto code = whole_int64(value);
  if (!code || !((*code >= 1 && *code <= 0x13) || *code == -1 || *code == 127)) {
    return bad_value(join("Invalid numerical type code: ", to_json(value)));
  }
  node.types.push_back(static_cast<BsonType>(*code & 0xff));
  return {};
}

}  // namespace

Error bad_value(std::string text) { return {ErrorCode::bad_value, std::move(text)}; }

Result<MatchNodePtr> make_leaf(Kind kind, const MatchPath& path, ValueView operand,
                               const FilterParse& parse) {
  if (auto charged = parse.charge(1, operand.bytes.size()); !charged) return charged.error();
  auto node = std::make_unique<MatchNode>(kind);
  node->path = path;
  node->operand = Value::borrowed(operand).retained();
  return node;
}

Result<MatchNodePtr> parse_equality(const MatchPath& path, ValueView value, FilterParse& parse) {
  if (value.type == BsonType::regex) {
    const auto [pattern, options] = regex_parts(value);
    return make_regex(path, pattern, options, parse);
  }
  if (value.type == BsonType::undefined) return bad_value("cannot compare to undefined");
  return make_leaf(Kind::equal, path, value, parse);
}

Result<MatchNodePtr> parse_regex(const MatchPath& path, const RegexOperators& operators,
                                 FilterParse& parse) {
  const auto [pattern, options] = operators;
  if (!pattern.exists()) return bad_value("$options needs a $regex");
  if (options.exists() && !options.is_string()) return bad_value("$options has to be a string");
  const std::string_view given = options.exists() ? options.as_string() : std::string_view();
  if (pattern.is_string()) return make_regex(path, pattern.as_string(), given, parse);
  if (pattern.type != BsonType::regex) return bad_value("$regex has to be a string");
  const auto [text, own] = regex_parts(pattern);
  if (!own.empty() && !given.empty()) return Error(51075, "options set in both $regex and $options");
  return make_regex(path, text, own.empty() ? given : own, parse);
}

Result<MatchNodePtr> parse_in(const MatchPath& path, ValueView value, std::string_view op,
                              FilterParse& parse) {
  if (!value.is_array()) return bad_value(join(op, " needs an array"));
  auto node = std::make_unique<MatchNode>(Kind::in);
  node->path = path;
  for (const Element& element : value.as_document()) {
    if (element.is_document() && element.as_document().first().name.starts_with('$') &&
        element.as_document().first().name != "$ref") {
      return bad_value(join("cannot nest $ under ", op));
    }
    if (element.type == BsonType::regex) {
      const auto [pattern, options] = regex_parts(element);
      SPILLWAY_TRY(regex, compile_regex(pattern, options, parse));
      node->regexes.push_back(std::move(*regex));
      continue;
    }
    std::string key;
    append_order_key(key, element);
    if (auto charged = parse.charge(0, 2 * sizeof(key) + key.size()); !charged) return charged.error();
    node->keys.insert(std::move(key));
  }
  return node;
}

Result<MatchNodePtr> parse_type(const MatchPath& path, ValueView value) {
  auto node = std::make_unique<MatchNode>(Kind::type);
  node->path = path;
  if (!value.is_array()) {
    if (auto added = add_type(*node, value); !added) return added.error();
    return node;
  }
  if (value.as_document().empty()) return Error(ErrorCode::failed_to_parse, "$type must match at least one type");
  for (const Element& element : value.as_document()) {
    if (auto added = add_type(*node, element); !added) return added.error();
  }
  return node;
}

Result<MatchNodePtr> parse_mod(const MatchPath& path, ValueView value) {
  if (!value.is_array()) return bad_value("malformed mod, needs to be an array");
  std::int64_t numbers[2] = {0, 0};
  std::size_t count = 0;
  for (const Element& element : value.as_document()) {
    if (count == 2) return bad_value("malformed mod, too many elements");
    if (!element.is_number()) {
      return bad_value(count == 0 ? "malformed mod, divisor not a number"
                                  : "malformed mod, remainder not a number");
    }
    const auto whole = is_integer(element)
                           ? std::optional(integer_value(element))
                           : whole_int64(Value::of(std::trunc(number_as_double(element))).view());
    if (!whole) return bad_value("malformed mod, a number does not fit");
    numbers[count++] = *whole;
  }
  if (count < 2) return bad_value("malformed mod, not enough elements");
  if (numbers[0] == 0) return bad_value("divisor cannot be 0");
  auto node = std::make_unique<MatchNode>(Kind::mod);
  node->path = path;
  node->divisor = numbers[0];
  node->remainder = numbers[1];
  return node;
}

Result<MatchNodePtr> parse_size(const MatchPath& path, ValueView value) {
  const auto size = value.is_number() ? whole_int64(value) : std::nullopt;
  if (!size) return bad_value("$size must be a whole number");
  if (*size < 0) return bad_value("$size may not be negative");
  auto node = std::make_unique<MatchNode>(Kind::size);
  node->path = path;
  node->remainder = *size;
  return node;
}

}  // namespace spillway::pipeline
