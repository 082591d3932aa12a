#include "cursor/utf8.h"

#include <bson/bson.h>

namespace spillway {

bool is_utf8(std::string_view text) noexcept { return bson_utf8_validate(text.data(), text.size(), true); }

std::string clean_text(std::string_view text, std::size_t bytes_max) {
  if (text.size() > bytes_max) {
    std::size_t end = bytes_max;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;
    text = text.substr(0, end);
  }
  std::string out(text);
  const bool good = is_utf8(out);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto byte = static_cast<unsigned char>(out[i]);
    if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !good)) out[i] = '?';
    // U+0080 to U+009F: controls, too.
    if (good && byte == 0xc2 && static_cast<unsigned char>(out[i + 1]) < 0xa0) out[i] = out[i + 1] = '?';
  }
  return out;
}

}  // namespace spillway
