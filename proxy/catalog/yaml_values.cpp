#include "proxy/catalog/yaml_values.h"

#include <absl/strings/escaping.h>
#include <boost/algorithm/hex.hpp>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <limits>

namespace spillway::catalog {
namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

std::string_view without_sign(std::string_view text) noexcept {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return text;
}

std::size_t take_digits(std::string_view text, std::size_t at) noexcept {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

// [-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?
bool is_float_text(std::string_view text) noexcept {
  text = without_sign(text);
  const std::size_t whole = take_digits(text, 0);
  std::size_t at = whole;
  if (at < text.size() && text[at] == '.') {
    const std::size_t end = take_digits(text, at + 1);
    if (whole == 0 && end == at + 1) return false;
    at = end;
  }
  if (at == 0) return false;
  if (at == text.size()) return true;
  if (text[at] != 'e' && text[at] != 'E') return false;
  ++at;
  if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
  return at < text.size() && take_digits(text, at) == text.size();
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> values) noexcept {
  return std::find(values.begin(), values.end(), text) != values.end();
}

Result<std::string> json_of_integer(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  std::int64_t value = 0;
  const auto end = text.data() + text.size();
  if (std::from_chars(text.data(), end, value).ec != std::errc()) {
    return Error(ErrorCode::bad_value, "integer " + std::string(text) + " does not fit 64 bits");
  }
  const bool small = value >= std::numeric_limits<std::int32_t>::min() &&
                     value <= std::numeric_limits<std::int32_t>::max();
  return (small ? "{\"$numberInt\":\"" : "{\"$numberLong\":\"") + std::to_string(value) + "\"}";
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + '"';
}

bool is_integer_text(std::string_view text) noexcept {
  text = without_sign(text);
  return !text.empty() && take_digits(text, 0) == text.size();
}

Result<std::string> json_of_plain_scalar(std::string_view text) {
  if (is_one_of(text, {"", "~", "null", "Null", "NULL"})) return std::string("null");
  if (is_one_of(text, {"true", "True", "TRUE"})) return std::string("true");
  if (is_one_of(text, {"false", "False", "FALSE"})) return std::string("false");
  if (is_integer_text(text)) return json_of_integer(text);
  const auto number = [](std::string_view value) {
    return "{\"$numberDouble\":" + json_string(value) + "}";
  };
  if (is_one_of(text, {".nan", ".NaN", ".NAN"})) return number("NaN");
  if (is_one_of(without_sign(text), {".inf", ".Inf", ".INF"})) {
    return number(text.starts_with('-') ? "-Infinity" : "Infinity");
  }
  if (is_float_text(text)) return number(text.starts_with('+') ? text.substr(1) : text);
  return json_string(text);
}

Result<std::string> json_of_uuid(std::string_view text) {
  std::string hex;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    const bool digit = std::isxdigit(static_cast<unsigned char>(text[i])) != 0;
    if (dash ? text[i] != '-' : !digit) hex.assign(64, '0');
    if (!dash) hex += text[i];
  }
  if (text.size() != 36 || hex.size() != 32) {
    return Error(ErrorCode::bad_value, "'" + std::string(text) + "' is no UUID");
  }
  const std::string bytes = boost::algorithm::unhex(hex);
  return "{\"$binary\":{\"base64\":\"" + absl::Base64Escape(bytes) + "\",\"subType\":\"04\"}}";
}

}  // namespace spillway::catalog
