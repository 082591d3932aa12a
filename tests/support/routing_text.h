// A routing table of a configuration file's text.
#pragma once

#include <yaml-cpp/yaml.h>

#include <memory>
#include <string>
#include <utility>

#include "proxy/catalog/static_routing.h"

namespace spillway::test {

inline catalog::StaticRouting read_routing(const std::string& yaml_text, const std::string& file_name,
                                           const catalog::UriCheck& check_uri = {}) {
  return catalog::read_static_routing(YAML::Load(yaml_text)["routing"], file_name, check_uri);
}

// Its first error, if there are errors.
inline Result<std::shared_ptr<const catalog::RoutingSnapshot>> load_routing(const std::string& yaml_text,
                                                                            const std::string& file_name) {
  auto read = read_routing(yaml_text, file_name);
  if (!read.errors.empty()) return std::move(read.errors.front());
  return std::move(read.snapshot);
}

}  // namespace spillway::test
