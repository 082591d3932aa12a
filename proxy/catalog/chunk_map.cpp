#include "proxy/catalog/chunk_map.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace spillway::catalog {

bool ShardSet::insert(ShardIndex shard) {
  const auto at = std::lower_bound(shards_.begin(), shards_.end(), shard);
  if (at != shards_.end() && *at == shard) return false;
  shards_.insert(at, shard);
  return true;
}

bool ShardSet::contains(ShardIndex shard) const noexcept {
  return std::binary_search(shards_.begin(), shards_.end(), shard);
}

namespace {

struct EncodedChunk {
  std::string min;
  std::string max;
};

std::string range_text(const ChunkSpec& chunk) {
  return "[" + to_json(chunk.min) + ", " + to_json(chunk.max) + ")";
}

}  // namespace

ChunkMap::Built ChunkMap::build(const ShardKeyPattern& pattern, std::vector<ChunkSpec> chunks) {
  if (chunks.empty()) return ChunkFault{0, "there are no chunks"};
  if (chunks.size() > chunks_max) {
    return ChunkFault{chunks_max, "there are more than " + std::to_string(chunks_max) + " chunks"};
  }
  std::vector<EncodedChunk> encoded(chunks.size());
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    auto min = pattern.key_of_bound(chunks[i].min);
    if (!min) return ChunkFault{i, min.error().message};
    auto max = pattern.key_of_bound(chunks[i].max);
    if (!max) return ChunkFault{i, max.error().message};
    encoded[i] = {std::move(*min), std::move(*max)};
    if (encoded[i].min >= encoded[i].max) {
      return ChunkFault{i, "chunk " + range_text(chunks[i]) + " is empty: min is not below max"};
    }
  }
  std::vector<std::size_t> order(chunks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return encoded[a].min < encoded[b].min; });

  const BsonDoc lowest = pattern.min_bound();
  const BsonDoc highest = pattern.max_bound();
  const auto first = order.front();
  if (encoded[first].min != *pattern.key_of_bound(lowest)) {
    return ChunkFault{first, "gap: no chunk covers [" + to_json(lowest) + ", " +
                                 to_json(chunks[first].min) + ")"};
  }
  ChunkMap map;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const std::size_t i = order[k];
    if (k > 0) {
      const std::size_t before = order[k - 1];
      if (encoded[before].max < encoded[i].min) {
        return ChunkFault{i, "gap: no chunk covers [" + to_json(chunks[before].max) + ", " +
                                 to_json(chunks[i].min) + ")"};
      }
      if (encoded[before].max > encoded[i].min) {
        return ChunkFault{i, "overlap: chunks " + range_text(chunks[before]) + " and " +
                                 range_text(chunks[i]) + " share keys"};
      }
    }
    map.append(encoded[i].max, chunks[i].max, chunks[i].shard);
  }
  const auto last = order.back();
  if (encoded[last].max != *pattern.key_of_bound(highest)) {
    return ChunkFault{
        last, "gap: no chunk covers [" + to_json(chunks[last].max) + ", " + to_json(highest) + ")"};
  }
  map.seal(pattern);
  return map;
}

ChunkMap ChunkMap::single(const ShardKeyPattern& pattern, ShardIndex shard) {
  ChunkMap map;
  const BsonDoc max = pattern.max_bound();
  map.append(*pattern.key_of_bound(max), max, shard);
  map.seal(pattern);
  return map;
}

ChunkMap ChunkMap::even_hashed(const ShardKeyPattern& pattern, std::size_t shard_count,
                               std::size_t chunks_per_shard) {
  // The server's split points: symmetric around 0, (INT64_MAX / n) * 2 apart.
  const auto count = static_cast<std::int64_t>(shard_count * chunks_per_shard);
  const std::int64_t step = std::numeric_limits<std::int64_t>::max() / count * 2;
  std::vector<std::int64_t> points;
  std::int64_t at = step / 2;
  if (count % 2 == 0) {
    points.push_back(0);
    at = step;
  }
  for (std::int64_t i = 0; i < (count - 1) / 2; ++i, at += step) {
    points.push_back(at);
    points.push_back(-at);
  }
  std::sort(points.begin(), points.end());

  ChunkMap map;
  for (std::size_t i = 0; i < points.size(); ++i) {
    BsonWriter bound;
    bound.append(pattern.fields()[0].path, points[i]);
    for (std::size_t f = 1; f < pattern.fields().size(); ++f) {
      bound.append_min_key(pattern.fields()[f].path);
    }
    const BsonDoc max = std::move(bound).finish();
    map.append(*pattern.key_of_bound(max), max, static_cast<ShardIndex>(i / chunks_per_shard));
  }
  const BsonDoc max = pattern.max_bound();
  map.append(*pattern.key_of_bound(max), max, static_cast<ShardIndex>(shard_count - 1));
  map.seal(pattern);
  return map;
}

void ChunkMap::append(std::string_view key, DocView max, ShardIndex shard) {
  keys_.append(key);
  key_ends_.push_back(keys_.size());
  bound_starts_.push_back(bounds_.size());
  bounds_.append(reinterpret_cast<const char*>(max.data()), max.size());
  owners_.push_back(shard);
}

void ChunkMap::seal(const ShardKeyPattern& pattern) {
  min_ = pattern.min_bound();
  next_change_.resize(owners_.size());
  for (std::size_t i = owners_.size(); i-- > 0;) {
    const bool last_of_run = i + 1 == owners_.size() || owners_[i + 1] != owners_[i];
    next_change_[i] = last_of_run ? static_cast<std::uint32_t>(i + 1) : next_change_[i + 1];
  }
  for (std::size_t i = 0; i < owners_.size(); i = next_change_[i]) owner_set_.insert(owners_[i]);
  keys_.shrink_to_fit();
  bounds_.shrink_to_fit();
  key_ends_.shrink_to_fit();
  bound_starts_.shrink_to_fit();
  owners_.shrink_to_fit();
}

std::string_view ChunkMap::max_key(std::size_t chunk) const noexcept {
  const std::size_t start = chunk == 0 ? 0 : key_ends_[chunk - 1];
  return std::string_view(keys_).substr(start, key_ends_[chunk] - start);
}

DocView ChunkMap::max_bound(std::size_t chunk) const noexcept {
  return DocView::trusted(bounds_.data() + bound_starts_[chunk]);
}

DocView ChunkMap::min_bound(std::size_t chunk) const noexcept {
  return chunk == 0 ? min_.view() : max_bound(chunk - 1);
}

std::size_t ChunkMap::chunk_for(std::string_view key) const noexcept {
  std::size_t low = 0;
  std::size_t high = size() - 1;  // the last chunk takes whatever no bound is above
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (max_key(middle) > key) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

void ChunkMap::shards_for_range(std::string_view min, std::string_view max, ShardSet& into) const {
  if (min > max) return;
  const std::size_t last = chunk_for(max);
  for (std::size_t i = chunk_for(min); i <= last; i = next_change_[i]) {
    if (into.insert(owners_[i]) && into.size() >= owner_set_.size()) return;
  }
}

std::size_t ChunkMap::memory_bytes() const noexcept {
  return keys_.capacity() + bounds_.capacity() + key_ends_.capacity() * sizeof(std::uint64_t) +
         bound_starts_.capacity() * sizeof(std::uint64_t) +
         owners_.capacity() * sizeof(ShardIndex) + next_change_.capacity() * sizeof(std::uint32_t);
}

}  // namespace spillway::catalog
