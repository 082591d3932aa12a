// The routing table in memory: shards, databases' primaries, sharded collections.
//
// A RoutingSnapshot is immutable and shared as std::shared_ptr<const RoutingSnapshot>; a request
// takes one reference at its start and uses the same table to its end. Every pointer and view
// handed out lives as long as the snapshot. Safe to use from any thread.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/catalog/chunk_map.h"
#include "proxy/catalog/filter_bounds.h"
#include "proxy/catalog/shard_key.h"
#include "proxy/catalog/time_series.h"
#include "proxy/catalog/versions.h"

namespace spillway::catalog {

struct Shard {
  std::string name;
  std::string uri;  // mongodb://… as configured
  ShardIndex index = 0;
  bool holds_data = true;  // not: config servers of a cluster, and shards that have left it
};

struct Database {
  std::string name;
  ShardIndex primary = 0;
  std::optional<DatabaseVersion> version{};  // of a cluster's
};

// What a cluster's config servers say of a collection, beside its chunks.
struct ClusterFacts {
  ChunkVersion version;  // of the collection: the highest of its chunks
  std::optional<Uuid> uuid;
  BsonDoc default_collation;  // {}: simple
  bool unsplittable = false;  // 8.0: tracked, but not sharded
  std::optional<TimeSeries> time_series;  // whose buckets it holds
  // The cluster's time since which every chunk is where it is now. Reads at earlier times may find documents elsewhere.
  std::uint64_t placed_at = 0;
};

// One sharded collection.
struct CollectionRouting {
  std::string ns;  // empty for collections sharded by the default key
  ShardKeyPattern key;
  bool unique = false;
  ChunkMap chunks;
  // Stable over restarts and over splits and merges: of the owners by range (names, not indexes).
  std::uint64_t fingerprint = 0;
  std::optional<ClusterFacts> cluster{};  // none in static mode

  // The version to send to a shard: the highest of its chunks, or 0|0 of the epoch. REQUIRES cluster.
  ChunkVersion version_on(ShardIndex shard) const noexcept;
  // The owner of a document. ShardKeyNotFound(61) when its key holds arrays.
  Result<ShardIndex> target_document(DocView doc) const;
  // The owners of many documents, in a fraction of the time if a field of the key is hashed; no_shard where
  // target_document() fails, and for a document without the `_id` that the key hashes. REQUIRES as many `owners`, and
  // at most ShardKeyPattern::documents_at_once.
  void target_documents(std::span<const DocView> docs, std::span<ShardIndex> owners) const;
  // Shards that may hold documents matching the filter; never empty. Only error: Location17439.
  Result<ShardSet> target_filter(DocView filter, bool simple_collation) const;
  // The one shard of a filter with full shard-key equality, if the collation does not change what
  // is equal; nullopt otherwise.
  std::optional<ShardIndex> target_exact(DocView filter, bool simple_collation) const;
  bool is_time_series() const noexcept { return cluster && cluster->time_series; }
  // Shards that own chunks.
  const ShardSet& all_shards() const noexcept { return chunks.owners(); }
};

// Null: it is not. A cluster of 8.0 keeps a table of some that are not, too.
inline bool is_sharded(const CollectionRouting* routing) noexcept {
  return routing != nullptr && !(routing->cluster && routing->cluster->unsplittable);
}

// What a cluster's config servers say of one namespace.
struct CachedCollection {
  std::string ns;
  std::shared_ptr<const CollectionRouting> routing;  // null: not sharded
};

// The parts of a snapshot; filled by a loader.
struct RoutingParts {
  std::vector<Shard> shards;  // not empty; index = position
  ShardIndex default_primary = 0;
  std::vector<Database> databases;  // the declared ones
  std::vector<CollectionRouting> collections;
  std::optional<CollectionRouting> default_collection;  // from routing.defaultShardKey
};

class RoutingSnapshot {
 public:
  // REQUIRES: names are unique and every index is below shards.size().
  explicit RoutingSnapshot(RoutingParts parts);

  const std::vector<Shard>& shards() const noexcept { return parts_.shards; }
  const Shard& shard(ShardIndex index) const noexcept { return parts_.shards[index]; }
  std::optional<ShardIndex> shard_by_name(std::string_view name) const;

  ShardIndex default_primary() const noexcept { return parts_.default_primary; }
  // The shard of a database's unsharded collections; undeclared databases live on the default one.
  ShardIndex primary_shard(std::string_view db) const;

  // nullptr: unsharded. With a default shard key, every undeclared collection is sharded by it except system.* and
  // those of admin, config and local; they share one routing, whose ns is empty.
  const CollectionRouting* collection(std::string_view ns) const;
  const CollectionRouting* default_collection() const noexcept {
    return parts_.default_collection ? &*parts_.default_collection : nullptr;
  }

  // Every shard of the table that holds data, for commands that go to all.
  ShardSet all_shards() const;

  // For listing. Databases: those declared and those of declared collections, by name; collections
  // by namespace.
  const std::vector<Database>& databases() const noexcept { return parts_.databases; }
  const std::vector<CollectionRouting>& collections() const noexcept { return parts_.collections; }

 private:
  RoutingParts parts_;
  absl::flat_hash_map<std::string, ShardIndex> shard_by_name_;
  absl::flat_hash_map<std::string, ShardIndex> primary_by_db_;
  absl::flat_hash_map<std::string, std::size_t> collection_by_ns_;
};

// Splits "db.coll.with.dots" at the first dot.
struct Namespace {
  std::string_view db;
  std::string_view collection;  // empty when there is no dot
};
Namespace split_namespace(std::string_view ns) noexcept;

}  // namespace spillway::catalog
