// What a regular expression says about the strings it can match.
// (The bounds of /abc/ and /^abc/ are those of MongoDB's planner.)
#pragma once

#include <string>
#include <string_view>

namespace spillway::catalog {

// The literal prefix of every match of `pattern`; empty when none is certain (not anchored, alternatives, flags that
// change the meaning of '^' or of letters).
std::string regex_prefix(std::string_view pattern, std::string_view flags);

// The least string above all strings that start with `prefix`; empty when there is none.
std::string prefix_successor(std::string prefix);

}  // namespace spillway::catalog
