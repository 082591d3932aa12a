#include "proxy/catalog/chunk_map.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

namespace spillway::catalog {

bool ShardSet::insert_within(ShardIndex shard) {
  const auto at = std::lower_bound(shards_.begin(), shards_.end(), shard);
  if (*at == shard) return false;
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

std::string bounds_text(DocView min, DocView max) { return "[" + to_json(min) + ", " + to_json(max) + ")"; }

std::string range_text(const ChunkSpec& chunk) { return bounds_text(chunk.min, chunk.max); }

}  // namespace

struct ChunkMap::Segment {
  static constexpr std::size_t chunks_max = 1024;
  static constexpr std::size_t bytes_max = std::size_t{1} << 20;  // of keys and bounds; one chunk may have more

  KeyIndex index;  // of the keys
  std::vector<ShardIndex> owners;
  std::string keys;                     // encoded upper bounds, end to end
  std::string bounds;                   // BSON upper bounds, end to end
  std::vector<std::uint32_t> key_ends;  // end of each in keys
  std::vector<std::uint32_t> bound_starts;
  std::vector<std::uint16_t> next_change;  // first chunk after it of another owner; size() when there is none here
  std::vector<std::uint64_t> lastmods;     // none in static mode
  std::vector<OwnerVersion> by_shard;      // its owners, ascending
  bool has_hash_bounds = false;            // those before the last are of one size, an integer of 64 bits each

  std::size_t size() const noexcept { return owners.size(); }
  std::string_view max_key(std::size_t chunk) const noexcept {
    const std::size_t start = chunk == 0 ? 0 : key_ends[chunk - 1];
    return std::string_view(keys).substr(start, key_ends[chunk] - start);
  }
  DocView max_bound(std::size_t chunk) const noexcept { return DocView::trusted(bounds.data() + bound_starts[chunk]); }
  bool find_hash_bounds() const noexcept {
    for (std::size_t i = 0; i + 1 < size(); ++i) {
      const DocView bound = max_bound(i);
      const bool one_hash = bound.first().type == BsonType::int64 && bound.count() == 1;
      if (!one_hash || bound.size() != max_bound(0).size()) return false;
    }
    return true;
  }
  // REQUIRES: has_hash_bounds.
  std::size_t chunk_for_hash(std::int64_t hash) const noexcept {
    constexpr std::size_t behind = sizeof hash + 1;  // the hash, and the end of its document
    const std::size_t stride = max_bound(0).size();
    const char* const first = bounds.data() + stride - behind;
    std::size_t low = 0;
    for (std::size_t count = size() - 1; count > 0;) {
      const std::size_t half = count / 2;
      const bool above = load_le<std::int64_t>(first + (low + half) * stride) <= hash;
      low = above ? low + half + 1 : low;
      count = above ? count - half - 1 : half;
    }
    return low;
  }
  std::uint64_t lastmod(std::size_t chunk) const noexcept { return lastmods.empty() ? 0 : lastmods[chunk]; }
  std::size_t chunk_for(std::string_view key) const noexcept {
    return index.find(key, false, [this](std::size_t chunk) { return max_key(chunk); });
  }

  void append(std::string_view key, DocView max, ShardIndex owner) {
    keys.append(key);
    key_ends.push_back(static_cast<std::uint32_t>(keys.size()));
    bound_starts.push_back(static_cast<std::uint32_t>(bounds.size()));
    bounds.append(reinterpret_cast<const char*>(max.data()), max.size());
    owners.push_back(owner);
  }
  void seal() {
    next_change.resize(size());
    for (std::size_t i = size(); i-- > 0;) {
      const bool last_of_run = i + 1 == size() || owners[i + 1] != owners[i];
      next_change[i] = last_of_run ? static_cast<std::uint16_t>(i + 1) : next_change[i + 1];
    }
    for (std::size_t i = 0; i < size(); i = next_change[i]) {
      OwnerVersion run{owners[i], 0};
      for (std::size_t k = i; k < next_change[i]; ++k) run.lastmod = std::max(run.lastmod, lastmod(k));
      by_shard.push_back(run);
    }
    std::sort(by_shard.begin(), by_shard.end(), [](const OwnerVersion& a, const OwnerVersion& b) {
      return a.shard != b.shard ? a.shard < b.shard : a.lastmod > b.lastmod;
    });
    const auto same_shard = [](const OwnerVersion& a, const OwnerVersion& b) { return a.shard == b.shard; };
    by_shard.erase(std::unique(by_shard.begin(), by_shard.end(), same_shard), by_shard.end());
    index.build(size(), [this](std::size_t chunk) { return max_key(chunk); });
    has_hash_bounds = find_hash_bounds();
    keys.shrink_to_fit();
    bounds.shrink_to_fit();
    key_ends.shrink_to_fit();
    bound_starts.shrink_to_fit();
    owners.shrink_to_fit();
    lastmods.shrink_to_fit();
    by_shard.shrink_to_fit();
  }
  std::size_t memory_bytes() const noexcept {
    return sizeof(Segment) + keys.capacity() + bounds.capacity() + key_ends.capacity() * sizeof(std::uint32_t) +
           bound_starts.capacity() * sizeof(std::uint32_t) + owners.capacity() * sizeof(ShardIndex) +
           next_change.capacity() * sizeof(std::uint16_t) + lastmods.capacity() * sizeof(std::uint64_t) +
           by_shard.capacity() * sizeof(OwnerVersion) + index.memory_bytes();
  }
};

// Fills segments evenly, one run of chunks after the other.
class ChunkMap::Builder {
 public:
  // `chunks`: how many will follow, at most.
  void begin_run(std::size_t chunks) {
    close();
    const std::size_t segments = (chunks + Segment::chunks_max - 1) / Segment::chunks_max;
    per_segment_ = (chunks + segments - 1) / segments;
  }
  // A chunk of a cluster has a lastmod.
  void append(std::string_view key, DocView max, ShardIndex owner, std::optional<std::uint64_t> lastmod = {}) {
    if (open_ == nullptr) {
      open_ = std::make_shared<Segment>();
      open_->key_ends.reserve(per_segment_);
      open_->bound_starts.reserve(per_segment_);
      open_->owners.reserve(per_segment_);
      if (lastmod) open_->lastmods.reserve(per_segment_);
    }
    open_->append(key, max, owner);
    if (lastmod) open_->lastmods.push_back(*lastmod);
    if (open_->size() == per_segment_ || open_->keys.size() + open_->bounds.size() > Segment::bytes_max) close();
  }
  void share(std::shared_ptr<const Segment> segment) {
    close();
    segments_.push_back(std::move(segment));
  }
  Segments finish() && {
    close();
    return std::move(segments_);
  }

 private:
  void close() {
    if (open_ == nullptr) return;
    open_->seal();
    segments_.push_back(std::move(open_));
    open_ = nullptr;
  }

  Segments segments_;
  std::shared_ptr<Segment> open_;
  std::size_t per_segment_ = Segment::chunks_max;
};

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
  Builder builder;
  builder.begin_run(order.size());
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
    builder.append(encoded[i].max, chunks[i].max, chunks[i].shard);
  }
  const auto last = order.back();
  if (encoded[last].max != *pattern.key_of_bound(highest)) {
    return ChunkFault{
        last, "gap: no chunk covers [" + to_json(chunks[last].max) + ", " + to_json(highest) + ")"};
  }
  return ChunkMap(pattern, std::move(builder).finish());
}

ChunkMap ChunkMap::single(const ShardKeyPattern& pattern, ShardIndex shard) {
  const BsonDoc max = pattern.max_bound();
  Builder builder;
  builder.append(*pattern.key_of_bound(max), max, shard);
  return ChunkMap(pattern, std::move(builder).finish());
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

  Builder builder;
  builder.begin_run(points.size() + 1);
  for (std::size_t i = 0; i < points.size(); ++i) {
    BsonWriter bound;
    bound.append(pattern.fields()[0].path, points[i]);
    for (std::size_t f = 1; f < pattern.fields().size(); ++f) {
      bound.append_min_key(pattern.fields()[f].path);
    }
    const BsonDoc max = std::move(bound).finish();
    builder.append(*pattern.key_of_bound(max), max, static_cast<ShardIndex>(i / chunks_per_shard));
  }
  const BsonDoc max = pattern.max_bound();
  builder.append(*pattern.key_of_bound(max), max, static_cast<ShardIndex>(shard_count - 1));
  return ChunkMap(pattern, std::move(builder).finish());
}

// ---- Chunks of a cluster

namespace {

Error of_different_times(const std::string& why) {
  return Error(ErrorCode::conflicting_operation_in_progress, "The chunks read are of different times: " + why);
}

bool overlap(const ClusterChunk& a, const ClusterChunk& b) noexcept {
  return a.min_key() < b.max_key() && b.min_key() < a.max_key();
}

bool same_chunk(const ClusterChunk& a, const ClusterChunk& b) noexcept {
  return a.lastmod == b.lastmod && a.shard == b.shard && a.min_key() == b.min_key() && a.max_key() == b.max_key();
}

std::string range_text(const ClusterChunk& chunk) { return bounds_text(chunk.min(), chunk.max()); }

// Sorts the chunks by min and drops those that a newer one overlaps.
Result<void> keep_newest(std::vector<ClusterChunk>& chunks) {
  // Heads first: the keys lie all over the memory.
  for (ClusterChunk& chunk : chunks) chunk.min_key_head = key_head(chunk.min_key());
  std::sort(chunks.begin(), chunks.end(), [](const ClusterChunk& a, const ClusterChunk& b) {
    return a.min_key_head != b.min_key_head ? a.min_key_head < b.min_key_head : a.min_key() < b.min_key();
  });
  std::vector<ClusterChunk> dropped;
  std::size_t kept = 0;  // at the front
  for (const ClusterChunk chunk : chunks) {
    bool newest = true;
    while (newest && kept > 0 && overlap(chunks[kept - 1], chunk)) {
      const ClusterChunk& before = chunks[kept - 1];
      if (before.lastmod == chunk.lastmod && !same_chunk(before, chunk)) {
        return of_different_times("chunks " + range_text(before) + " and " + range_text(chunk) +
                                  " share keys and a version");
      }
      newest = chunk.lastmod > before.lastmod;
      dropped.push_back(newest ? before : chunk);
      if (newest) --kept;
    }
    if (newest) chunks[kept++] = chunk;
  }
  chunks.resize(kept);
  // What replaced a chunk is newer than it, everywhere.
  for (const ClusterChunk& old : dropped) {
    const auto first = std::partition_point(
        chunks.begin(), chunks.end(), [&](const ClusterChunk& chunk) { return chunk.max_key() <= old.min_key(); });
    for (auto it = first; it != chunks.end() && overlap(*it, old); ++it) {
      if (it->lastmod < old.lastmod) {
        return of_different_times("chunk " + range_text(old) + " is newer than a part of it, " + range_text(*it));
      }
    }
  }
  return {};
}

}  // namespace

// Segments that are made anew together, from their chunks and the new ones; they keep their outer bounds.
struct ChunkMap::Run {
  std::size_t first_segment = 0;  // of the map before; first == end: there is none
  std::size_t end_segment = 0;
  std::span<const ClusterChunk> chunks;  // by min, none overlaps another
  std::string_view min_key, max_key;
  DocView min, max;
};

Result<ChunkMap> ChunkMap::merged(const ShardKeyPattern& pattern, const ChunkMap* before,
                                  std::vector<ClusterChunk>& chunks) {
  if (auto newest = keep_newest(chunks); !newest) return newest.error();
  Builder builder;
  const BsonDoc lowest = pattern.min_bound();
  const std::string lowest_key = *pattern.key_of_bound(lowest);
  if (before == nullptr) {
    const BsonDoc highest = pattern.max_bound();
    const std::string highest_key = *pattern.key_of_bound(highest);
    builder.begin_run(std::max<std::size_t>(chunks.size(), 1));
    if (auto whole = merge_run(builder, nullptr, {0, 0, chunks, lowest_key, highest_key, lowest, highest}); !whole) {
      return whole.error();
    }
    return ChunkMap(pattern, std::move(builder).finish());
  }

  constexpr std::size_t few_chunks = Segment::chunks_max / 4;
  const std::vector<SpineEntry>& spine = before->spine_;
  std::size_t shared_end = 0;  // the next segment of the map before
  for (std::size_t i = 0; i < chunks.size();) {
    Run run;
    run.first_segment = run.end_segment = before->segment_for(chunks[i].min_key());
    const std::size_t first = i;
    std::size_t count = 0;
    for (;;) {
      const bool touches =
          i < chunks.size() && (i == first || before->segment_for(chunks[i].min_key()) < run.end_segment);
      if (!touches && (count >= few_chunks || run.end_segment == spine.size())) break;
      // The segments that the chunk touches; or one more, for there is little in these.
      const std::size_t last = touches ? before->segment_for(chunks[i].max_key(), true) : run.end_segment;
      for (; run.end_segment <= last; ++run.end_segment) count += spine[run.end_segment].segment->size();
      if (!touches) continue;
      ++count;
      ++i;
    }
    run.chunks = std::span<const ClusterChunk>(chunks).subspan(first, i - first);
    const std::size_t first_chunk = spine[run.first_segment].first;
    run.min_key = run.first_segment == 0 ? std::string_view(lowest_key) : before->max_key(first_chunk - 1);
    run.min = before->min_bound(first_chunk);
    run.max_key = before->segment_max_key(run.end_segment - 1);
    const Segment& last_segment = *spine[run.end_segment - 1].segment;
    run.max = last_segment.max_bound(last_segment.size() - 1);
    for (; shared_end < run.first_segment; ++shared_end) builder.share(spine[shared_end].segment);
    shared_end = run.end_segment;
    builder.begin_run(count);
    if (auto tiled = merge_run(builder, before, run); !tiled) return tiled.error();
  }
  for (; shared_end < spine.size(); ++shared_end) builder.share(spine[shared_end].segment);
  return ChunkMap(pattern, std::move(builder).finish());
}

Result<void> ChunkMap::merge_run(Builder& out, const ChunkMap* before, const Run& run) {
  // Up to here the key space is covered.
  std::string_view covered_key = run.min_key;
  DocView covered = run.min;
  const auto gap = [&](DocView until) { return of_different_times("no chunk covers " + bounds_text(covered, until)); };
  const std::uint64_t known_lastmod = before == nullptr ? 0 : before->highest_lastmod();
  const ClusterChunk* known = nullptr;
  auto next = run.chunks.begin();
  const auto append_next = [&]() -> Result<void> {
    const ClusterChunk& chunk = *next++;
    if (before != nullptr && chunk.lastmod <= known_lastmod && known != &chunk) {
      return of_different_times("chunk " + range_text(chunk) + " is another one than that of the same version before");
    }
    if (chunk.min_key() != covered_key) return gap(chunk.min());
    out.append(chunk.max_key(), chunk.max(), chunk.shard, chunk.lastmod);
    covered_key = chunk.max_key();
    covered = chunk.max();
    return {};
  };

  std::string_view min_key = run.min_key;  // of the old chunk
  DocView min = run.min;
  for (std::size_t segment = run.first_segment; segment < run.end_segment; ++segment) {
    const Segment& old = *before->spine_[segment].segment;
    for (std::size_t i = 0; i < old.size(); ++i) {
      while (next != run.chunks.end() && next->max_key() <= min_key) {
        if (auto appended = append_next(); !appended) return appended;
      }
      const std::string_view max_key = old.max_key(i);
      if (next != run.chunks.end() && next->min_key() < max_key) {
        const bool same = next->min_key() == min_key && next->max_key() == max_key && next->lastmod == old.lastmod(i) &&
                          next->shard == old.owners[i];
        if (same) known = &*next;
      } else {
        if (min_key != covered_key) return gap(min);
        out.append(max_key, old.max_bound(i), old.owners[i], old.lastmod(i));
        covered_key = max_key;
        covered = old.max_bound(i);
      }
      min_key = max_key;
      min = old.max_bound(i);
    }
  }
  while (next != run.chunks.end()) {
    if (auto appended = append_next(); !appended) return appended;
  }
  if (covered_key != run.max_key) return gap(run.max);
  return {};
}

// ---- Lookups

ChunkMap::ChunkMap(const ShardKeyPattern& pattern, Segments segments) : min_(pattern.min_bound()) {
  std::vector<std::optional<std::uint64_t>> lastmods;  // the highest by shard
  spine_.reserve(segments.size());
  for (auto& segment : segments) {
    for (const auto& [shard, lastmod] : segment->by_shard) {
      if (shard >= lastmods.size()) lastmods.resize(shard + std::size_t{1});
      lastmods[shard] = std::max(lastmods[shard].value_or(0), lastmod);
    }
    SpineEntry entry;
    entry.first = static_cast<std::uint32_t>(size_);
    if (segment->by_shard.size() == 1) entry.only_owner = segment->by_shard.front().shard;
    size_ += segment->size();
    max_keys_.append(segment->max_key(segment->size() - 1));
    max_key_ends_.push_back(max_keys_.size());
    entry.segment = std::move(segment);
    spine_.push_back(std::move(entry));
  }
  index_.build(spine_.size(), [this](std::size_t segment) { return segment_max_key(segment); });
  take_hash_bounds(pattern);
  for (std::size_t i = spine_.size(); i-- > 0;) {
    const bool goes_on =
        i + 1 < spine_.size() && spine_[i].only_owner && spine_[i].only_owner == spine_[i + 1].only_owner;
    spine_[i].run_end = goes_on ? spine_[i + 1].run_end : static_cast<std::uint32_t>(i + 1);
  }
  for (std::size_t shard = 0; shard < lastmods.size(); ++shard) {
    if (!lastmods[shard]) continue;
    owner_set_.insert(static_cast<ShardIndex>(shard));
    versions_.push_back({static_cast<ShardIndex>(shard), *lastmods[shard]});
  }
}

void ChunkMap::take_hash_bounds(const ShardKeyPattern& pattern) {
  if (!pattern.is_one_hash()) return;
  for (std::size_t i = 0; i < spine_.size(); ++i) {
    const Segment& segment = *spine_[i].segment;
    if (!segment.has_hash_bounds) return;
    if (i + 1 == spine_.size()) break;
    const ValueView end = segment.max_bound(segment.size() - 1).first();
    if (end.type != BsonType::int64) return;
    hash_ends_.push_back(end.as_int64());
  }
  has_hash_bounds_ = true;
}

std::string_view ChunkMap::segment_max_key(std::size_t segment) const noexcept {
  const std::size_t start = segment == 0 ? 0 : max_key_ends_[segment - 1];
  return std::string_view(max_keys_).substr(start, max_key_ends_[segment] - start);
}

std::size_t ChunkMap::segment_for(std::string_view key, bool or_at) const noexcept {
  return index_.find(key, or_at, [this](std::size_t segment) { return segment_max_key(segment); });
}

ChunkMap::Place ChunkMap::place_for(std::string_view key) const noexcept {
  const std::size_t segment = segment_for(key);
  return {segment, spine_[segment].segment->chunk_for(key)};
}

ChunkMap::Place ChunkMap::place_of(std::size_t chunk) const noexcept {
  const auto after = std::upper_bound(spine_.begin(), spine_.end(), chunk,
                                      [](std::size_t number, const SpineEntry& entry) { return number < entry.first; });
  const auto segment = static_cast<std::size_t>(after - spine_.begin()) - 1;
  return {segment, chunk - spine_[segment].first};
}

std::size_t ChunkMap::chunk_for(std::string_view key) const noexcept {
  const Place place = place_for(key);
  return spine_[place.segment].first + place.chunk;
}

ShardIndex ChunkMap::shard_for(std::string_view key) const noexcept {
  const Segment& segment = *spine_[segment_for(key)].segment;
  return segment.owners[segment.chunk_for(key)];
}

ShardIndex ChunkMap::shard_for_hash(std::int64_t hash) const noexcept {
  const auto above = std::upper_bound(hash_ends_.begin(), hash_ends_.end(), hash);
  const Segment& segment = *spine_[static_cast<std::size_t>(above - hash_ends_.begin())].segment;
  return segment.owners[segment.chunk_for_hash(hash)];
}

void ChunkMap::shards_for_range(std::string_view min, std::string_view max, ShardSet& into) const {
  if (min > max) return;
  Place at = place_for(min);
  const Place last = place_for(max);
  for (;;) {
    const Segment& segment = *spine_[at.segment].segment;
    const std::size_t end = at.segment == last.segment ? last.chunk + 1 : segment.size();
    for (std::size_t i = at.chunk; i < end; i = segment.next_change[i]) {
      if (into.insert(segment.owners[i]) && into.size() >= owner_set_.size()) return;
    }
    at = {spine_[at.segment].run_end, 0};
    if (at.segment > last.segment) return;
  }
}

ShardIndex ChunkMap::owner(std::size_t chunk) const noexcept {
  const Place place = place_of(chunk);
  return spine_[place.segment].segment->owners[place.chunk];
}

std::uint64_t ChunkMap::lastmod(std::size_t chunk) const noexcept {
  const Place place = place_of(chunk);
  return spine_[place.segment].segment->lastmod(place.chunk);
}

std::string_view ChunkMap::max_key(std::size_t chunk) const noexcept {
  const Place place = place_of(chunk);
  return spine_[place.segment].segment->max_key(place.chunk);
}

DocView ChunkMap::max_bound(std::size_t chunk) const noexcept {
  const Place place = place_of(chunk);
  return spine_[place.segment].segment->max_bound(place.chunk);
}

DocView ChunkMap::min_bound(std::size_t chunk) const noexcept {
  return chunk == 0 ? min_.view() : max_bound(chunk - 1);
}

std::size_t ChunkMap::next_owner_change(std::size_t chunk) const noexcept {
  const Place place = place_of(chunk);
  const Segment& first = *spine_[place.segment].segment;
  const ShardIndex owner = first.owners[place.chunk];
  const std::size_t next_here = first.next_change[place.chunk];
  if (next_here < first.size()) return spine_[place.segment].first + next_here;
  std::size_t segment = place.segment + 1;
  while (segment < spine_.size() && spine_[segment].only_owner == owner) segment = spine_[segment].run_end;
  if (segment == spine_.size()) return size_;
  const Segment& other = *spine_[segment].segment;
  return spine_[segment].first + (other.owners.front() == owner ? other.next_change.front() : 0u);
}

std::uint64_t ChunkMap::lastmod_on(ShardIndex shard) const noexcept {
  const auto found =
      std::lower_bound(versions_.begin(), versions_.end(), shard,
                       [](const OwnerVersion& version, ShardIndex wanted) { return version.shard < wanted; });
  return found != versions_.end() && found->shard == shard ? found->lastmod : 0;
}

std::uint64_t ChunkMap::highest_lastmod() const noexcept {
  std::uint64_t highest = 0;
  for (const OwnerVersion& version : versions_) highest = std::max(highest, version.lastmod);
  return highest;
}

std::size_t ChunkMap::memory_bytes() const noexcept {
  std::size_t bytes = spine_.capacity() * sizeof(SpineEntry) + max_keys_.capacity() +
                      max_key_ends_.capacity() * sizeof(std::size_t) + versions_.capacity() * sizeof(OwnerVersion) +
                      index_.memory_bytes() + hash_ends_.capacity() * sizeof(std::int64_t);
  for (const SpineEntry& entry : spine_) bytes += entry.segment->memory_bytes();
  return bytes;
}

}  // namespace spillway::catalog
