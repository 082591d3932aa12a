// The documents of the `config` database, made from the routing snapshot, for sh.status(), Compass and drivers' test
// harnesses.
// The fields are those of MongoDB 4.2 and of 5.0, side by side.
#pragma once

#include <absl/functional/function_ref.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/catalog/routing.h"

namespace spillway::catalog {

// The answering process's data in the documents.
struct ConfigReadParams {
  std::string host;           // "<host>:<port>" of this router, _id in config.mongos
  std::string mongo_version;  // the server version that buildInfo reports
  std::array<std::uint8_t, 12> cluster_id{};
  std::int64_t start_time_ms = 0;  // wall clock, milliseconds since the epoch
  std::int64_t now_ms = 0;
};

// Names of the collections made here: shards, databases, collections, chunks, version, settings,
// mongos, tags, sorted.
const std::vector<std::string_view>& config_collection_names();

// Visits the documents of config.<collection> in the table's order, from number `first` on, until
// visit returns false. False when no such collection is made here. Documents are made one by one: a
// million chunks need no more memory than one.
bool visit_config_documents(std::string_view collection, const RoutingSnapshot& snapshot,
                            const ConfigReadParams& params, absl::FunctionRef<bool(BsonDoc)> visit,
                            std::size_t first = 0);

// "<set>/<host:port>,…" or "<host:port>,…" of a mongodb:// URI, as config.shards and getShardMap show
// hosts: without its options, which may hold secrets.
std::string host_of_uri(std::string_view uri);

}  // namespace spillway::catalog
