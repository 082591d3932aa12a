// Inside of load_config(): walks the YAML of a file and of --set against the table of keys and puts
// the values into a Config. The only door to yaml-cpp in this layer. Does not throw.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "proxy/config/config.h"

namespace spillway {

struct ConfigReading {
  bool file_parsed = true;  // false: the file is no YAML of keys, so that none of its values is known
  LoadResult result;  // config, errors and warnings of single keys; the whole is not checked yet
  // Where each key was written: "file:line" or "--set key".
  std::map<std::string, std::string, std::less<>> places;
  // A YAML text with the `routing` key, for catalog::load_static_routing, and its name in messages.
  std::optional<std::string> routing_text;
  std::string routing_name;
};

ConfigReading read_config_yaml(const LoadRequest& request);

}  // namespace spillway
