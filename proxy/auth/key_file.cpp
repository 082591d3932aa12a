#include "proxy/auth/key_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace spillway::auth {

namespace {

bool is_space(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool is_base64(char c) noexcept {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/' || c == '=';
}

}  // namespace

Result<Secret::Ptr> read_cluster_key(std::string_view text) {
  std::string key;
  key.reserve(text.size());
  std::copy_if(text.begin(), text.end(), std::back_inserter(key), [](char c) { return !is_space(c); });
  const bool clean = std::all_of(key.begin(), key.end(), is_base64);
  const std::size_t chars = key.size();
  const bool fits = chars >= cluster_key_chars_min && chars <= cluster_key_chars_max;
  Secret::Ptr secret = clean && fits ? Secret::make(key) : nullptr;
  wipe(key);
  if (!clean) return Error(ErrorCode::bad_value, "a key has a character that is not one of base64 (A-Z a-z 0-9 + / =)");
  if (!fits) {
    return Error(ErrorCode::bad_value, fmt::format("a key has {} characters; it must have {} to {}", chars,
                                                   cluster_key_chars_min, cluster_key_chars_max));
  }
  return secret;
}

}  // namespace spillway::auth
