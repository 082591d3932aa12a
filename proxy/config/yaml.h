// Inside of load_config(): walks the YAML of a file and of --set against the table of keys and puts
// the values into a Config. The only door to yaml-cpp in this layer. Does not throw.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "proxy/catalog/static_routing.h"
#include "proxy/config/config.h"

namespace spillway {

struct ConfigReading {
  bool file_parsed = true;  // false: the file is no YAML of keys, so that none of its values is known
  LoadResult result;  // config, errors and warnings of single keys; the whole is not checked yet
  // Where each key was written: "file:line" or "--set key".
  std::map<std::string, std::string, std::less<>> places;
  // Reads the `routing` key; empty: there is none.
  std::function<catalog::StaticRouting(const catalog::UriCheck&)> read_routing;
};

ConfigReading read_config_yaml(const LoadRequest& request);
// Throws YAML::Exception.
bool holds_several_documents(const std::string& text);

}  // namespace spillway
