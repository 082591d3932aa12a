// The chunks of one collection: which shard owns which range of shard keys.
//
//   key space   MinKey ──────────┬───────────┬──────────────────── MaxKey
//   chunk           0            │     1     │          2
//   stored      upper bound 0 ───┘ bound 1 ──┘ bound 2 = all MaxKey
//
// Chunks tile the key space, so only upper bounds are kept, encoded for lookups and as BSON. They lie in segments of at
// most 1,024 chunks under a short spine; a lookup is a binary search in the spine, then in one segment.
// A map never changes, but the next one shares its segments: a refresh after one move copies the spine and one or two
// segments, however many chunks there are. A chunk of {_id: "hashed"} takes about 70 bytes, one of a compound key at
// most 200.
//
// Immutable once built; safe to use from any thread.
#pragma once

#include <absl/container/inlined_vector.h>

#include <boost/system/result.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cursor/bson_view.h"
#include "cursor/bson_writer.h"
#include "proxy/catalog/key_index.h"
#include "proxy/catalog/shard_key.h"

namespace spillway::catalog {

// The most chunks of a collection; the stored document of their owners must stay within a BSON document's size.
inline constexpr std::size_t chunks_max = 1'500'000;

// Position of a shard in RoutingSnapshot::shards().
using ShardIndex = std::uint16_t;
// No shard has it: a command to it fails with ShardNotFound(70).
inline constexpr ShardIndex no_shard = 0xFFFF;

// A small set of shards, iterated in ascending order.
class ShardSet {
 public:
  ShardSet() = default;
  ShardSet(std::initializer_list<ShardIndex> shards) {
    for (ShardIndex shard : shards) insert(shard);
  }
  bool insert(ShardIndex shard) {  // false when it was there already
    if (!shards_.empty() && shard <= shards_.back()) return insert_within(shard);
    shards_.push_back(shard);
    return true;
  }
  bool contains(ShardIndex shard) const noexcept;
  std::size_t size() const noexcept { return shards_.size(); }
  bool empty() const noexcept { return shards_.empty(); }
  ShardIndex front() const noexcept { return shards_.front(); }  // REQUIRES: not empty
  ShardIndex operator[](std::size_t i) const noexcept { return shards_[i]; }
  auto begin() const noexcept { return shards_.begin(); }
  auto end() const noexcept { return shards_.end(); }
  bool operator==(const ShardSet& other) const noexcept { return shards_ == other.shards_; }

 private:
  bool insert_within(ShardIndex shard);

  absl::InlinedVector<ShardIndex, 8> shards_;
};

// A chunk as declared: min inclusive, max exclusive.
struct ChunkSpec {
  BsonDoc min;
  BsonDoc max;
  ShardIndex shard = 0;
};

// An error in a list of chunks, and the chunk that shows it.
struct ChunkFault {
  std::size_t chunk = 0;  // index into the list given
  std::string message;
};

// A chunk of a cluster as config.chunks has it. `bytes`, which the caller owns, are the key of min, the key of max, and
// both bounds as documents, end to end.
struct ClusterChunk {
  const char* bytes = nullptr;
  std::uint32_t min_key_size = 0;
  std::uint32_t max_key_size = 0;
  std::uint64_t lastmod = 0;
  ShardIndex shard = 0;
  std::uint64_t min_key_head = 0;  // set and used by ChunkMap, to sort

  std::string_view min_key() const noexcept { return {bytes, min_key_size}; }
  std::string_view max_key() const noexcept { return {bytes + min_key_size, max_key_size}; }
  DocView min() const noexcept { return DocView::trusted(bytes + min_key_size + max_key_size); }
  DocView max() const noexcept { return DocView::trusted(min().data() + min().size()); }
};

class ChunkMap {
 public:
  using Built = boost::system::result<ChunkMap, ChunkFault>;

  // Sorts the chunks and checks that they tile MinKey … MaxKey. A gap or an overlap is named by
  // both bounds.
  static Built build(const ShardKeyPattern& pattern, std::vector<ChunkSpec> chunks);
  // One chunk, all of the key space, on one shard.
  static ChunkMap single(const ShardKeyPattern& pattern, ShardIndex shard);
  // Pre-split of a hashed first field: chunks_per_shard × shard_count chunks, evenly over int64,
  // shards in order. REQUIRES: the first field is hashed and shard_count > 0.
  static ChunkMap even_hashed(const ShardKeyPattern& pattern, std::size_t shard_count,
                              std::size_t chunks_per_shard = 2);

  // A cluster's chunks over those of `before` (null: over nothing). Of two that overlap, the one with the greater
  // lastmod stays. Segments that no chunk touches are shared with `before`. Reorders `chunks`, keeps nothing of them.
  // ConflictingOperationInProgress(117), with the bounds, when the result does not tile the key space or when no order
  // of changes leads to it: the chunks are of different times.
  static Result<ChunkMap> merged(const ShardKeyPattern& pattern, const ChunkMap* before,
                                 std::vector<ClusterChunk>& chunks);

  std::size_t size() const noexcept { return size_; }
  // The chunk with the first upper bound > key (the last one for an all-MaxKey key).
  std::size_t chunk_for(std::string_view key) const noexcept;
  ShardIndex shard_for(std::string_view key) const noexcept;
  // Are the keys one hash each, and the bounds of 64 bits, as servers make them?
  bool has_hash_bounds() const noexcept { return has_hash_bounds_; }
  // The same as shard_for(), without an encoded key. REQUIRES: has_hash_bounds().
  ShardIndex shard_for_hash(std::int64_t hash) const noexcept;
  // Adds the owners of every chunk that overlaps [min, max], both ends included. Stops early when
  // every owner is in. REQUIRES: `into` holds only shards that own chunks.
  void shards_for_range(std::string_view min, std::string_view max, ShardSet& into) const;

  // The shards that own chunks.
  const ShardSet& owners() const noexcept { return owner_set_; }
  ShardIndex first_shard() const noexcept { return owner(0); }

  // Of one chunk. Views live as long as the map.
  ShardIndex owner(std::size_t chunk) const noexcept;
  DocView min_bound(std::size_t chunk) const noexcept;
  DocView max_bound(std::size_t chunk) const noexcept;
  std::string_view max_key(std::size_t chunk) const noexcept;
  // First chunk after `chunk` that another shard owns; size() when there is none.
  std::size_t next_owner_change(std::size_t chunk) const noexcept;

  // In a cluster; 0 in static mode. `lastmod_on`: the highest of a shard's chunks, 0 when it owns none.
  std::uint64_t lastmod(std::size_t chunk) const noexcept;
  std::uint64_t lastmod_on(ShardIndex shard) const noexcept;
  std::uint64_t highest_lastmod() const noexcept;

  // Heap bytes held, for the 200-bytes-a-chunk bound. Shared segments count for each map.
  std::size_t memory_bytes() const noexcept;

 private:
  struct Segment;
  class Builder;
  using Segments = std::vector<std::shared_ptr<const Segment>>;
  struct SpineEntry {
    std::shared_ptr<const Segment> segment;
    std::uint32_t first = 0;               // number of its first chunk
    std::uint32_t run_end = 0;             // the next segment with a chunk of another owner than this one's only owner
    std::optional<ShardIndex> only_owner;  // none: it has several
  };
  struct OwnerVersion {
    ShardIndex shard = 0;
    std::uint64_t lastmod = 0;  // the highest of its chunks
  };
  struct Place {
    std::size_t segment = 0;
    std::size_t chunk = 0;  // in the segment
  };
  struct Run;

  ChunkMap(const ShardKeyPattern& pattern, Segments segments);
  void take_hash_bounds(const ShardKeyPattern& pattern);
  std::string_view segment_max_key(std::size_t segment) const noexcept;
  // The first segment whose upper bound is above the key, or, if `or_at`, at it; else the last one.
  std::size_t segment_for(std::string_view key, bool or_at = false) const noexcept;
  Place place_for(std::string_view key) const noexcept;
  Place place_of(std::size_t chunk) const noexcept;
  static Result<void> merge_run(Builder& out, const ChunkMap* before, const Run& run);

  std::vector<SpineEntry> spine_;
  std::string max_keys_;  // of each segment's last chunk, end to end
  std::vector<std::size_t> max_key_ends_;
  KeyIndex index_;                      // of them
  bool has_hash_bounds_ = false;
  std::vector<std::int64_t> hash_ends_;  // upper bounds of segments but the last, if has_hash_bounds_
  std::vector<OwnerVersion> versions_;  // by shard
  ShardSet owner_set_;
  std::size_t size_ = 0;
  BsonDoc min_;  // all MinKey
};

}  // namespace spillway::catalog
