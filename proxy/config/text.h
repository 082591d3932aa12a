// Small text: splitting, trimming, quoting, numbers. Views point into the argument.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

// The pieces between separators, empty ones included; never empty.
std::vector<std::string_view> split(std::string_view text, std::string_view separator);
// Without blanks, tabs and line ends at both sides.
std::string_view trim(std::string_view text);
// In double quotes, as valid YAML for any content.
std::string yaml_quoted(std::string_view text);

// The whole text as a decimal number; nullopt: it is none, or does not fit.
template <class Integer>
std::optional<Integer> parse_number(std::string_view text) {
  Integer value = 0;
  const char* end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, value);
  if (text.empty() || result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

}  // namespace spillway
