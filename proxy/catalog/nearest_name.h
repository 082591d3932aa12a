// Finds the probable name for a mistyped one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::catalog {

// Levenshtein's distance with transpositions of neighbours; ASCII letters compare without case.
// Time and memory: the product of the lengths.
std::size_t edit_distance(std::string_view a, std::string_view b);

// How many edits are allowed for a mistyped name of this length: a third of it.
std::size_t typing_errors_max(std::size_t name_bytes) noexcept;

// " (did you mean 'x'?)" with the nearest of the candidates, or "" when no candidate is near.
std::string did_you_mean(std::string_view text, const std::vector<std::string>& candidates);

}  // namespace spillway::catalog
