#include "proxy/catalog/nearest_name.h"

#include <absl/strings/ascii.h>

#include <algorithm>

namespace spillway::catalog {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  const auto letter = [](std::string_view s, std::size_t i) {
    return absl::ascii_tolower(static_cast<unsigned char>(s[i]));
  };
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const bool same = letter(a, i - 1) == letter(b, j - 1);
      cost[i][j] =
          std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && letter(a, i - 1) == letter(b, j - 2) &&
          letter(a, i - 2) == letter(b, j - 1)) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

std::size_t typing_errors_max(std::size_t name_bytes) noexcept {
  if (name_bytes < 3) return 0;  // any other name would be as near
  return name_bytes / 3;
}

std::string did_you_mean(std::string_view text, const std::vector<std::string>& candidates) {
  constexpr std::size_t length_max = 100;
  if (text.size() > length_max) return {};
  const std::string* nearest = nullptr;
  std::size_t least = typing_errors_max(text.size()) + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > length_max) continue;
    const std::size_t distance = edit_distance(text, candidate);
    if (distance < least) {
      least = distance;
      nearest = &candidate;
    }
  }
  return nearest == nullptr ? "" : " (did you mean '" + *nearest + "'?)";
}

}  // namespace spillway::catalog
