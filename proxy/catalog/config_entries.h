// The documents of config.shards, config.databases and config.collections of a sharded cluster, read strictly: a field
// of a wrong type is TypeMismatch(14), a missing one FailedToParse(9), a bad value BadValue(2), each with the
// document's _id. Fields that routing does not need are passed over.
#pragma once

#include <optional>
#include <string>

#include "proxy/catalog/shard_key.h"
#include "proxy/catalog/time_series.h"
#include "proxy/catalog/versions.h"

namespace spillway::catalog {

struct ShardEntry {
  std::string id;
  std::string host;  // "<set>/<host:port>,…", or "<host:port>"
  bool draining = false;

  bool operator==(const ShardEntry&) const = default;
};

struct DatabaseEntry {
  std::string name;
  std::string primary;  // the shard's id
  std::optional<DatabaseVersion> version;
};

struct CollectionEntry {
  std::string ns;
  bool dropped = false;                // to 4.4: it is not sharded, and the rest may be missing
  std::optional<ShardKeyPattern> key;  // always, if not dropped
  bool unique = false;
  ObjectId epoch{};
  std::uint64_t timestamp = 0;  // 0: none, to 4.4
  std::optional<Uuid> uuid;     // always, if there is a timestamp
  BsonDoc default_collation;    // {}: simple
  bool unsplittable = false;    // 8.0: tracked, but not sharded
  std::optional<TimeSeries> time_series;  // whose buckets it holds

  // From 5.0 chunks name their collection by uuid, before by ns.
  bool chunks_by_uuid() const noexcept { return timestamp != 0; }
};

Result<ShardEntry> read_shard_entry(DocView doc);
Result<DatabaseEntry> read_database_entry(DocView doc);
Result<CollectionEntry> read_collection_entry(DocView doc);

}  // namespace spillway::catalog
