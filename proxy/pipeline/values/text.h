// Joins the parts of message texts.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace spillway::pipeline {

inline void append_text(std::string& out, std::string_view text) { out.append(text); }
template <std::integral T>
void append_text(std::string& out, T value) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}
inline void append_text(std::string& out, double value) {
  char digits[40];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

// join("expected ", 3, " of ", name)
template <class... Parts>
std::string join(const Parts&... parts) {
  std::string out;
  (append_text(out, parts), ...);
  return out;
}

}  // namespace spillway::pipeline
