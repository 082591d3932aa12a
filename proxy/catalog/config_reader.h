// From the documents of config.chunks to a collection's routing table, whole or from the newest version known.
//
//   RoutingUpdate update(read_collection_entry(doc), previous, shard_index_of);
//   find config.chunks, update.filter(), sort chunks_sort()  ->  update.add(chunk) for each document
//   update.finish()  ->  the new table, which shares what did not change with the previous one
//
// The order by lastmod matters: a chunk that changes while a majority read is under way is met again, at its new place.
// Of `history` only the latest time is kept (ClusterFacts::placed_at): no read is routed to where a chunk was before.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "proxy/catalog/config_entries.h"
#include "proxy/catalog/routing.h"

namespace spillway::catalog {

// {ns or uuid, lastmod: {$gte}}: the chunks of a collection from a lastmod on; 0: all of them.
BsonDoc chunks_filter(const CollectionEntry& entry, std::uint64_t since_lastmod);
// {lastmod: 1}
BsonDoc chunks_sort();

// One refresh. The previous table is never changed; after an error nothing is left but to drop this object.
// ConflictingOperationInProgress(117): what was read is of different times; read the collection's entry and its chunks
// again, after a second such error without the previous table.
class RoutingUpdate {
 public:
  using ResolveShard = std::function<std::optional<ShardIndex>(std::string_view shard_id)>;

  // `previous` may be null; one of another epoch is not used. REQUIRES: the entry is not dropped.
  RoutingUpdate(CollectionEntry entry, std::shared_ptr<const CollectionRouting> previous, ResolveShard resolve);

  // Whether only the chunks since the previous table's version are read.
  bool incremental() const noexcept { return previous_ != nullptr; }
  BsonDoc filter() const { return chunks_filter(entry_, since_); }

  // A document of config.chunks, of either format, its fields in any order; with min, max, shard, lastmod and to 4.4
  // lastmodEpoch. TypeMismatch(14), FailedToParse(9), BadValue(2); ShardNotFound(70) when the shard is not known, after
  // which the list of shards should be read again; 117 when it is of another epoch.
  Result<void> add(DocView chunk);
  // 117 when there were no chunks, or when they do not tile the key space. REQUIRES: called once.
  Result<std::shared_ptr<const CollectionRouting>> finish();

  // Heap bytes held until finish() returns.
  std::size_t memory_bytes() const noexcept { return arena_bytes_ + chunks_.capacity() * sizeof(ClusterChunk); }

 private:
  Result<void> take(DocView chunk);
  char* allocate(std::size_t bytes);

  CollectionEntry entry_;
  std::shared_ptr<const CollectionRouting> previous_;
  ResolveShard resolve_;
  std::uint64_t since_ = 0;
  std::uint64_t placed_at_ = 0;
  std::optional<Error> error_;  // of the first bad chunk

  std::vector<ClusterChunk> chunks_;
  std::vector<std::unique_ptr<char[]>> arena_;  // their bytes
  char* arena_at_ = nullptr;
  std::size_t arena_left_ = 0;
  std::size_t arena_bytes_ = 0;
};

}  // namespace spillway::catalog
