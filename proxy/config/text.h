// Small text: splitting, trimming, quoting. Views point into the argument.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace spillway {

// The pieces between separators, empty ones included; never empty.
std::vector<std::string_view> split(std::string_view text, std::string_view separator);
// Without blanks, tabs and line ends at both sides.
std::string_view trim(std::string_view text);
// In double quotes, as valid YAML for any content.
std::string yaml_quoted(std::string_view text);

}  // namespace spillway
