// The chunks of one collection: which shard owns which range of shard keys.
//
//   key space   MinKey ──────────┬───────────┬──────────────────── MaxKey
//   chunk           0            │     1     │          2
//   stored      upper bound 0 ───┘ bound 1 ──┘ bound 2 = all MaxKey
//
// Chunks tile the key space, so only upper bounds are kept: all encodings end to end in one string
// and all BSON bounds in another, with offsets. A lookup is a binary search with memcmp. A chunk of
// {_id: "hashed"} takes about 50 bytes, one of a compound key at most 200.
//
// Immutable once built; safe to use from any thread.
#pragma once

#include <absl/container/inlined_vector.h>

#include <boost/system/result.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cursor/bson_view.h"
#include "cursor/bson_writer.h"
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
  bool insert(ShardIndex shard);  // false when it was there already
  bool contains(ShardIndex shard) const noexcept;
  std::size_t size() const noexcept { return shards_.size(); }
  bool empty() const noexcept { return shards_.empty(); }
  ShardIndex front() const noexcept { return shards_.front(); }  // REQUIRES: not empty
  ShardIndex operator[](std::size_t i) const noexcept { return shards_[i]; }
  auto begin() const noexcept { return shards_.begin(); }
  auto end() const noexcept { return shards_.end(); }
  bool operator==(const ShardSet& other) const noexcept { return shards_ == other.shards_; }

 private:
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

  std::size_t size() const noexcept { return owners_.size(); }
  // The chunk with the first upper bound > key (the last one for an all-MaxKey key).
  std::size_t chunk_for(std::string_view key) const noexcept;
  ShardIndex shard_for(std::string_view key) const noexcept { return owners_[chunk_for(key)]; }
  // Adds the owners of every chunk that overlaps [min, max], both ends included. Stops early when
  // every owner is in. REQUIRES: `into` holds only shards that own chunks.
  void shards_for_range(std::string_view min, std::string_view max, ShardSet& into) const;

  // The shards that own chunks.
  const ShardSet& owners() const noexcept { return owner_set_; }
  ShardIndex first_shard() const noexcept { return owners_.front(); }

  // Of one chunk. Views live as long as the map.
  ShardIndex owner(std::size_t chunk) const noexcept { return owners_[chunk]; }
  DocView min_bound(std::size_t chunk) const noexcept;
  DocView max_bound(std::size_t chunk) const noexcept;
  std::string_view max_key(std::size_t chunk) const noexcept;
  // First chunk after `chunk` that another shard owns; size() when there is none.
  std::size_t next_owner_change(std::size_t chunk) const noexcept { return next_change_[chunk]; }

  // Heap bytes held, for the 200-bytes-a-chunk bound.
  std::size_t memory_bytes() const noexcept;

 private:
  ChunkMap() = default;
  void append(std::string_view key, DocView max, ShardIndex owner);
  void seal(const ShardKeyPattern& pattern);

  std::string keys_;                     // encoded upper bounds, end to end
  std::string bounds_;                   // BSON upper bounds, end to end
  std::vector<std::uint64_t> key_ends_;  // end of each in keys_
  std::vector<std::uint64_t> bound_starts_;
  std::vector<ShardIndex> owners_;
  std::vector<std::uint32_t> next_change_;
  ShardSet owner_set_;
  BsonDoc min_;  // all MinKey
};

}  // namespace spillway::catalog
