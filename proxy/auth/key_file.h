// The key that the members of a cluster share: its rules. Source: mongod's security_file.cpp, security_key.cpp (4.2).
#pragma once

#include <string_view>

#include "cursor/error.h"
#include "proxy/auth/crypto.h"

namespace spillway::auth {

inline constexpr std::size_t cluster_key_chars_min = 6;
inline constexpr std::size_t cluster_key_chars_max = 1024;
inline constexpr std::size_t cluster_keys_max = 2;  // the second: while one replaces the other

// Every member of a cluster logs in as this user.
inline constexpr std::string_view internal_user = "__system";
inline constexpr std::string_view internal_db = "local";

// A key as text without its white space. BadValue(2), without the key: its length, or a character that is not base64's.
Result<Secret::Ptr> read_cluster_key(std::string_view text);

}  // namespace spillway::auth
