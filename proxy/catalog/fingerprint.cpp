#include "proxy/catalog/fingerprint.h"

#include <string>

namespace spillway::catalog {
namespace {

// Owners change at every bound between two runs, so equal tables have equal runs and every
// difference between runs is a range whose owner changed.
struct Run {
  std::size_t first = 0;  // chunks [first, last]
  std::size_t last = 0;
};

std::vector<Run> runs_of(const ChunkMap& chunks) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < chunks.size(); i = chunks.next_owner_change(i)) {
    runs.push_back({i, chunks.next_owner_change(i) - 1});
  }
  return runs;
}

std::string document_id(const CollectionRouting& collection) {
  return collection.ns.empty() ? "*" : collection.ns;
}

std::string range_text(DocView min, DocView max) {
  return "[" + to_json(min) + ", " + to_json(max) + ")";
}

Error changed(const CollectionRouting& collection, DocView min, DocView max,
              std::string_view before, std::string_view now) {
  return {ErrorCode::illegal_operation,
          "Routing of " + document_id(collection) + ": range " + range_text(min, max) +
              " belonged to shard '" + std::string(before) + "' and is now given to '" +
              std::string(now) + "'; its documents would not be found"};
}

Error not_ours(const CollectionRouting& collection, std::string_view why) {
  return {ErrorCode::failed_to_parse, "The stored fingerprint of " + document_id(collection) +
                                          " cannot be read: " + std::string(why)};
}

void write_head(BsonWriter& out, const CollectionRouting& collection,
                const RoutingSnapshot& snapshot) {
  out.append("_id", std::string_view(document_id(collection)));
  out.append("key", collection.key.pattern());
  out.append("fingerprint", static_cast<std::int64_t>(collection.fingerprint));
  out.begin_array("shards");
  for (const Shard& shard : snapshot.shards()) out.append_item(std::string_view(shard.name));
  out.end();
}

// Names of the stored document's shards; positions in `ranges` and `owners` refer to them.
Result<std::vector<std::string_view>> stored_shards(DocView stored,
                                                    const CollectionRouting& collection) {
  const ValueView list = stored["shards"];
  if (!list.is_array()) return not_ours(collection, "it has no list of shards");
  std::vector<std::string_view> names;
  for (const Element& e : list.as_document()) {
    if (!e.is_string()) return not_ours(collection, "a shard's name is no string");
    names.push_back(e.as_string());
  }
  return names;
}

struct Comparison {
  const CollectionRouting& collection;
  const RoutingSnapshot& snapshot;
  const std::vector<std::string_view>& names;

  std::string_view owner_now(std::size_t chunk) const {
    return snapshot.shard(collection.chunks.owner(chunk)).name;
  }
};

// Sweeps over both lists of ranges and compares the owners of each piece.
Result<void> compare_ranges(DocView ranges, const Comparison& c) {
  const ChunkMap& chunks = c.collection.chunks;
  std::size_t chunk = 0;
  DocView low = chunks.min_bound(0);
  for (const Element& e : ranges) {
    if (!e.is_document()) return not_ours(c.collection, "a range is no document");
    const ValueView max = e.as_document()["max"];
    const auto position = e.as_document()["shard"].to_int64();
    if (!max.is_document() || !position || *position < 0 ||
        static_cast<std::size_t>(*position) >= c.names.size()) {
      return not_ours(c.collection, "a range lacks its bound or its shard");
    }
    const auto max_key = c.collection.key.key_of_bound(max.as_document());
    if (!max_key) return not_ours(c.collection, max_key.error().message);
    const std::string_view before = c.names[static_cast<std::size_t>(*position)];
    while (chunk < chunks.size()) {
      const bool ends_here = chunks.max_key(chunk) <= std::string_view(*max_key);
      const DocView high = ends_here ? chunks.max_bound(chunk) : max.as_document();
      if (c.owner_now(chunk) != before) {
        return changed(c.collection, low, high, before, c.owner_now(chunk));
      }
      low = high;
      const bool both_end = ends_here && chunks.max_key(chunk) == std::string_view(*max_key);
      if (ends_here) ++chunk;
      if (!ends_here || both_end) break;
    }
  }
  if (chunk < chunks.size()) return not_ours(c.collection, "its ranges end early");
  return {};
}

// The compact form: hashes of bounds have no order, so the runs are compared one by one.
Result<void> compare_runs(ValueView::Binary bounds, ValueView::Binary owners, const Comparison& c) {
  const ChunkMap& chunks = c.collection.chunks;
  const std::vector<Run> runs = runs_of(chunks);
  const std::size_t count = owners.data.size() / sizeof(std::uint16_t);
  if (bounds.data.size() != count * sizeof(std::uint64_t) || count == 0) {
    return not_ours(c.collection, "bounds and owners differ in number");
  }
  for (std::size_t i = 0; i < runs.size() && i < count; ++i) {
    const auto position = load_le<std::uint16_t>(owners.data.data() + 2 * i);
    if (position >= c.names.size()) return not_ours(c.collection, "an owner is not in its list");
    const DocView min = chunks.min_bound(runs[i].first);
    const DocView max = chunks.max_bound(runs[i].last);
    if (c.owner_now(runs[i].first) != c.names[position]) {
      return changed(c.collection, min, max, c.names[position], c.owner_now(runs[i].first));
    }
    if (stable_hash64(chunks.max_key(runs[i].last)) !=
        load_le<std::uint64_t>(bounds.data.data() + 8 * i)) {
      return Error(ErrorCode::illegal_operation,
                   "Routing of " + document_id(c.collection) + ": range " + range_text(min, max) +
                       " of shard '" + std::string(c.names[position]) +
                       "' ended elsewhere before; keys next to its end changed their shard");
    }
  }
  if (count != runs.size()) return not_ours(c.collection, "its ranges end early");
  return {};
}

}  // namespace

std::uint64_t stable_hash64(std::string_view bytes, std::uint64_t seed) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u ^ seed;
  for (const char c : bytes) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  hash ^= hash >> 30;
  hash *= 0xbf58476d1ce4e5b9u;
  hash ^= hash >> 27;
  hash *= 0x94d049bb133111ebu;
  return hash ^ (hash >> 31);
}

std::uint64_t fingerprint_of(const ShardKeyPattern& key, const ChunkMap& chunks,
                             const std::vector<Shard>& shards) {
  std::uint64_t hash = 0;
  for (const auto& field : key.fields()) {
    hash = stable_hash64(field.path, hash);
    hash = stable_hash64(field.hashed ? "hashed" : "1", hash);
  }
  for (const Run& run : runs_of(chunks)) {
    hash = stable_hash64(chunks.max_key(run.last), hash);
    hash = stable_hash64(shards[chunks.owner(run.first)].name, hash);
  }
  return hash;
}

BsonDoc fingerprint_document(const CollectionRouting& collection, const RoutingSnapshot& snapshot,
                             std::size_t ranges_bytes_max) {
  const ChunkMap& chunks = collection.chunks;
  const std::vector<Run> runs = runs_of(chunks);
  BsonWriter out;
  write_head(out, collection, snapshot);
  out.begin_array("ranges");
  bool fits = true;
  for (std::size_t i = 0; i < runs.size() && fits; ++i) {
    out.begin_document_item();
    out.append("max", chunks.max_bound(runs[i].last));
    out.append("shard", static_cast<std::int32_t>(chunks.owner(runs[i].first)));
    out.end();
    fits = out.size() <= ranges_bytes_max;
  }
  out.end();
  if (fits) return std::move(out).finish();

  std::vector<std::uint8_t> bounds(runs.size() * sizeof(std::uint64_t));
  std::vector<std::uint8_t> owners(runs.size() * sizeof(std::uint16_t));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    store_le(bounds.data() + 8 * i, stable_hash64(chunks.max_key(runs[i].last)));
    store_le(owners.data() + 2 * i, static_cast<std::uint16_t>(chunks.owner(runs[i].first)));
  }
  BsonWriter compact;
  write_head(compact, collection, snapshot);
  compact.append_binary("bounds", 0, bounds);
  compact.append_binary("owners", 0, owners);
  return std::move(compact).finish();
}

Result<void> compare_fingerprint(DocView stored, const CollectionRouting& collection,
                                 const RoutingSnapshot& snapshot) {
  if (auto valid = stored.validate(); !valid) return not_ours(collection, valid.error().message);
  const ValueView key = stored["key"];
  if (!key.is_document()) return not_ours(collection, "it has no shard key");
  const auto pattern = ShardKeyPattern::parse(key.as_document());
  if (!pattern) return not_ours(collection, pattern.error().message);
  if (!(*pattern == collection.key)) {
    return Error(ErrorCode::illegal_operation,
                 "Routing of " + document_id(collection) + ": its shard key was " + to_json(key) +
                     " and is now " + to_json(collection.key.pattern()));
  }
  SPILLWAY_TRY(names, stored_shards(stored, collection));
  const Comparison comparison{collection, snapshot, *names};
  const ValueView ranges = stored["ranges"];
  if (ranges.is_array()) return compare_ranges(ranges.as_document(), comparison);
  const ValueView bounds = stored["bounds"];
  const ValueView owners = stored["owners"];
  if (bounds.type == BsonType::binary && owners.type == BsonType::binary) {
    return compare_runs(bounds.as_binary(), owners.as_binary(), comparison);
  }
  return not_ours(collection, "it has no ranges");
}

}  // namespace spillway::catalog
