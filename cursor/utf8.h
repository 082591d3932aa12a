// Text of unknown origin.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace spillway {

// Is it well-formed UTF-8 (RFC 3629)? Null bytes are allowed.
bool is_utf8(std::string_view text) noexcept;

// For a screen: at most so many bytes of it, whole characters; control characters, and what is no UTF-8, as "?".
std::string clean_text(std::string_view text, std::size_t bytes_max);

}  // namespace spillway
