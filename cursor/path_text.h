// Dotted paths as text: which lies below which.
#pragma once

#include <string_view>

namespace spillway {

// Is `path` "above.…"? Not of equal ones.
inline bool is_below(std::string_view path, std::string_view above) noexcept {
  return path.size() > above.size() && path.starts_with(above) && path[above.size()] == '.';
}

// Are they equal, or is one below the other?
inline bool is_related(std::string_view a, std::string_view b) noexcept {
  return a == b || is_below(a, b) || is_below(b, a);
}

}  // namespace spillway
