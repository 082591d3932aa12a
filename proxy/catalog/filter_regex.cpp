#include "proxy/catalog/filter_regex.h"

namespace spillway::catalog {
namespace {

bool is_alphanumeric(char c) noexcept {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Removes the last code point, which may take several bytes.
void drop_last_character(std::string& text) {
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text.back());
    text.pop_back();
    if ((byte & 0xc0) != 0x80) return;
  }
}

}  // namespace

std::string regex_prefix(std::string_view pattern, std::string_view flags) {
  // i: letters of either case; m: '^' also matches after a newline; x: blanks do not count.
  if (flags.find_first_not_of('s') != std::string_view::npos) return {};
  if (pattern.find('|') != std::string_view::npos) return {};
  if (pattern.starts_with('^')) {
    pattern.remove_prefix(1);
  } else if (pattern.starts_with("\\A")) {
    pattern.remove_prefix(2);
  } else {
    return {};
  }
  std::string prefix;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '*' || c == '?' || c == '{') {  // the character before it may be absent
      drop_last_character(prefix);
      return prefix;
    }
    if (c == '\\') {
      // An escaped letter or digit is a class, an anchor or a reference; other escaped characters are literal.
      if (i + 1 >= pattern.size() || is_alphanumeric(pattern[i + 1])) return prefix;
      prefix.push_back(pattern[++i]);
    } else if (c == '^' || c == '$' || c == '.' || c == '[' || c == '(' || c == ')' || c == '+') {
      return prefix;
    } else {
      prefix.push_back(c);
    }
  }
  return prefix;
}

std::string prefix_successor(std::string prefix) {
  while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 0xff) prefix.pop_back();
  if (!prefix.empty()) prefix.back() = static_cast<char>(prefix.back() + 1);
  return prefix;
}

}  // namespace spillway::catalog
