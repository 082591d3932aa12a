// Bytes as text: two lower-case hexadecimal digits each.
#pragma once

#include <string>

#include "cursor/bson_view.h"

namespace spillway {

inline std::string hex(Bytes bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

}  // namespace spillway
