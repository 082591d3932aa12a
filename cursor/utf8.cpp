#include "cursor/utf8.h"

#include <bson/bson.h>

namespace spillway {

bool is_utf8(std::string_view text) noexcept { return bson_utf8_validate(text.data(), text.size(), true); }

}  // namespace spillway
