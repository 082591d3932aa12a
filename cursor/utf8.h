// Text of unknown origin.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace spillway {

// Is it well-formed UTF-8 (RFC 3629)? Null bytes are allowed.
bool is_utf8(std::string_view text) noexcept;

// For a screen: at most `bytes_max` bytes, whole characters. Control characters and malformed UTF-8 become "?".
std::string clean_text(std::string_view text, std::size_t bytes_max);

}  // namespace spillway
