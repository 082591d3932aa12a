// limits.overrides as YAML. Does not throw.
#pragma once

#include <string>
#include <vector>

#include "proxy/config/limit_settings.h"

namespace YAML {
class Node;
}

namespace spillway {

struct OverridesReading {
  std::vector<LimitOverride> overrides;
  std::vector<std::string> errors;  // each names its entry
};

OverridesReading read_overrides(const YAML::Node& list);

}  // namespace spillway
