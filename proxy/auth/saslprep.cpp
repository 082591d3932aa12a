#include "proxy/auth/saslprep.h"

#include <stringprep.h>

#include <algorithm>
#include <vector>

#include "proxy/auth/crypto.h"

namespace spillway::auth {

std::optional<std::string> saslprep(std::string_view text) {
  const auto plain = [](char c) { return c >= 0x20 && c < 0x7f; };
  if (std::all_of(text.begin(), text.end(), plain)) return std::string(text);
  if (text.find('\0') != std::string_view::npos) return std::nullopt;
  constexpr std::size_t growth_max = 18;  // of one character's UTF-8 by NFKC
  std::vector<char> room(text.size() * growth_max + 1, '\0');
  std::copy(text.begin(), text.end(), room.begin());
  const int failed = stringprep(room.data(), room.size(), static_cast<Stringprep_profile_flags>(0),
                                stringprep_saslprep);
  std::optional<std::string> prepared;
  if (failed == STRINGPREP_OK) prepared.emplace(room.data());
  wipe(room.data(), room.size());
  return prepared;
}

}  // namespace spillway::auth
