// The fingerprint guard: a table that gives an existing range to another shard must not be used: documents written
// under the old table would not be found. `spillway.routing` on a collection's primary shard keeps its owners; the
// pure part, making and comparing those documents, is here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "cursor/bson_view.h"
#include "cursor/bson_writer.h"
#include "cursor/error.h"
#include "proxy/catalog/routing.h"

namespace spillway::catalog {

// Spillway's own, on the shards: not an application's database, so listDatabases leaves it out.
inline constexpr std::string_view fingerprint_database = "spillway";

// FNV-1a with a final mix: the same on every machine and in every version.
std::uint64_t stable_hash64(std::string_view bytes, std::uint64_t seed = 0) noexcept;

// Hash of key pattern and owners by range, by shard name; neighbouring chunks of one owner count as
// one range.
std::uint64_t fingerprint_of(const ShardKeyPattern& key, const ChunkMap& chunks,
                             const std::vector<Shard>& shards);

// {_id: <ns>, key, fingerprint: long, shards: [names], and either
//   ranges: [{max: <bound>, shard: <position in shards>}, …]          (min: the bound before)
// or, when that would not fit a document,
//   bounds: BinData (8-byte hash of each upper bound), owners: BinData (2-byte positions)}
// The _id is "*" for the collections of the default shard key.
BsonDoc fingerprint_document(const CollectionRouting& collection, const RoutingSnapshot& snapshot,
                             std::size_t ranges_bytes_max = 12 * 1024 * 1024);

// Ok when every range of the stored document has the same owner now. IllegalOperation(20) naming the first range
// whose owner changed, or the changed key; FailedToParse(9) for a document of another kind.
Result<void> compare_fingerprint(DocView stored, const CollectionRouting& collection,
                                 const RoutingSnapshot& snapshot);

}  // namespace spillway::catalog
