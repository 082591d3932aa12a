// SASLprep (RFC 4013): the one form of a password that may be typed in several.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace spillway::auth {

// nullopt: it is not UTF-8, or holds what passwords must not. The caller wipes the result.
std::optional<std::string> saslprep(std::string_view text);

}  // namespace spillway::auth
