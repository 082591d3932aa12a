// The tests are written for Catch2 2, Debian 12's: this file gives its names to Catch2 3, Debian 13's.
#pragma once

#include <catch2/catch_all.hpp>

namespace Catch {
using Matchers::EndsWith;
using Matchers::StartsWith;
inline auto Contains(const std::string& part) { return Matchers::ContainsSubstring(part); }
}  // namespace Catch
using Catch::Approx;
