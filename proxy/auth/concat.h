// Concatenates texts and numbers.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>

namespace spillway::auth {

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string text;
  (fmt::format_to(std::back_inserter(text), "{}", parts), ...);
  return text;
}

}  // namespace spillway::auth
