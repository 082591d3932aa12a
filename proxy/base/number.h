// Numbers as text.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace spillway {

// The whole text as a decimal number; nullopt: it is none, or does not fit.
template <class Integer>
std::optional<Integer> parse_number(std::string_view text) noexcept {
  Integer value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace spillway
