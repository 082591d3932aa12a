// The routing table of a configuration file: its `routing:` key.
//
//   routing:
//     shards: [{name: shard0, uri: "mongodb://127.0.0.1:27018/"}, …]
//     defaultPrimary: shard0          # default: the first shard
//     databases: [{name: app, primary: shard1}]
//     collections:
//       - {ns: app.users, key: {_id: hashed}}            # no chunks: an even pre-split
//       - ns: app.orders
//         key: {region: 1, n: 1}
//         unique: false
//         chunks:
//           - {min: {region: {$minKey: 1}, n: {$minKey: 1}}, max: {…}, shard: shard0}
//           - …
//     defaultShardKey: {_id: hashed}
//
// Bounds are Extended JSON v2, written as YAML flow mappings or as a quoted JSON string. Of YAML
// scalars, quoted ones are strings; plain ones are int32, int64, double, true, false, null or, if
// nothing else, strings.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cursor/error.h"
#include "proxy/catalog/routing.h"

namespace YAML {
class Node;
}

namespace spillway::catalog {

// The result of checking a shard's connection string: warnings, or why it cannot be used.
using UriCheck = std::function<Result<std::vector<std::string>>(const std::string& uri)>;

struct StaticRouting {
  std::shared_ptr<const RoutingSnapshot> snapshot;  // null if there are errors
  // In the order of the file, each "<file>:<line>: <what is wrong>"; BadValue(2) or
  // FailedToParse(9). An entry with an error is left out, and the others are still looked at.
  std::vector<Error> errors;
  std::vector<std::string> warnings;  // "<file>:<line>: <what has no effect>"
};

// Reads what stands below `routing`. Used while starting; it may allocate freely and does not throw.
StaticRouting read_static_routing(const YAML::Node& routing, const std::string& file_name_for_messages,
                                  const UriCheck& check_uri);

}  // namespace spillway::catalog
