// Text that may have come from anybody.
#pragma once

#include <string_view>

namespace spillway {

// Well-formed UTF-8 (RFC 3629); a null byte is as good as any.
bool is_utf8(std::string_view text) noexcept;

}  // namespace spillway
