// Text of unknown origin.
#pragma once

#include <string_view>

namespace spillway {

// Is it well-formed UTF-8 (RFC 3629)? Null bytes are allowed.
bool is_utf8(std::string_view text) noexcept;

}  // namespace spillway
