// The routing table of a configuration file: its `routing:` key (DESIGN.md, section 6).
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
//     zones: [{name: eu, ns: app.orders, min: {region: a}, max: {region: m}, shards: [shard0]}]
//
// Bounds are Extended JSON v2, written as YAML flow mappings or as a quoted JSON string. Of YAML
// scalars, quoted ones are strings; plain ones are int32, int64, double, true, false, null or, if
// nothing else, strings.
#pragma once

#include <memory>
#include <string>

#include "cursor/error.h"
#include "proxy/catalog/routing.h"

namespace spillway::catalog {

// Parses the text of a whole configuration file; keys beside `routing` are ignored. Errors are
// BadValue(2) or FailedToParse(9) with a message "<file>:<line>: <what is wrong>". Used while
// starting and on reload; it may allocate freely and does not throw.
Result<std::shared_ptr<const RoutingSnapshot>> load_static_routing(
    const std::string& yaml_text, const std::string& file_name_for_messages);

}  // namespace spillway::catalog
