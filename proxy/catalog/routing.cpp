#include "proxy/catalog/routing.h"

#include <absl/strings/string_view.h>

#include <algorithm>
#include <array>

namespace spillway::catalog {
namespace {

// Abseil of Debian is built for C++14, where its string_view is a type of its own.
absl::string_view lookup(std::string_view text) noexcept { return {text.data(), text.size()}; }

// Empty, for one lookup: reused, so that a key of a usual length takes no memory.
std::string& key_scratch() {
  constexpr std::size_t kept_bytes_max = 4096;
  thread_local std::string key;
  if (key.capacity() > kept_bytes_max) key = std::string();
  key.clear();
  return key;
}

}  // namespace

ChunkVersion CollectionRouting::version_on(ShardIndex shard) const noexcept {
  return ChunkVersion::of_lastmod(chunks.lastmod_on(shard), cluster->version.epoch, cluster->version.timestamp);
}

Result<ShardIndex> CollectionRouting::target_document(DocView doc) const {
  std::string& encoded = key_scratch();
  SPILLWAY_TRY(found, key.append_key_of_document(encoded, doc));
  return chunks.shard_for(encoded);
}

void CollectionRouting::target_documents(std::span<const DocView> docs, std::span<ShardIndex> owners) const {
  std::array<ShardKeyPattern::Hashed, ShardKeyPattern::documents_at_once> hashes;
  const bool hashed = key.has_hashed_field();
  const bool needs_id = key.hashes_id();
  if (hashed) key.hash_documents(docs, std::span(hashes).first(docs.size()));
  if (chunks.has_hash_bounds()) {
    for (std::size_t i = 0; i < docs.size(); ++i) {
      const bool usual = !hashes[i].array && !(needs_id && hashes[i].missing);
      owners[i] = usual ? chunks.shard_for_hash(hashes[i].hash) : no_shard;
    }
    return;
  }
  std::string& encoded = key_scratch();
  for (std::size_t i = 0; i < docs.size(); ++i) {
    if (needs_id && hashes[i].missing) {
      owners[i] = no_shard;
      continue;
    }
    encoded.clear();
    const auto found = key.append_key_of_document(encoded, docs[i], hashed ? &hashes[i] : nullptr);
    owners[i] = found.has_error() ? no_shard : chunks.shard_for(encoded);
  }
}

std::optional<ShardIndex> CollectionRouting::target_exact(DocView filter,
                                                          bool simple_collation) const {
  bool collatable = false;
  if (chunks.has_hash_bounds()) {
    const auto hash = key.hash_of_query(filter, &collatable);
    if (!hash || (!simple_collation && collatable)) return std::nullopt;
    return chunks.shard_for_hash(*hash);
  }
  std::string& encoded = key_scratch();
  const bool found = key.append_key_of_query(encoded, filter, &collatable);
  if (!found || (!simple_collation && collatable)) return std::nullopt;
  return chunks.shard_for(encoded);
}

Result<ShardSet> CollectionRouting::target_filter(DocView filter, bool simple_collation) const {
  if (chunks.owners().size() == 1) return chunks.owners();
  if (const auto exact = target_exact(filter, simple_collation)) return ShardSet{*exact};
  const FilterBounds bounds = bounds_of_filter(key, filter, simple_collation);
  if (bounds.unbounded() && !bounds.unsatisfiable()) return chunks.owners();
  ShardSet shards;
  const auto flattened = flatten(bounds, [&](std::string_view min, std::string_view max) {
    chunks.shards_for_range(min, max, shards);
    return shards.size() < chunks.owners().size();
  });
  if (!flattened) return flattened.error();
  // One shard must answer a filter that nothing matches: errors and explain come from there.
  if (shards.empty()) shards.insert(chunks.first_shard());
  return shards;
}

RoutingSnapshot::RoutingSnapshot(RoutingParts parts) : parts_(std::move(parts)) {
  for (const Shard& shard : parts_.shards) {
    if (shard.holds_data) shard_by_name_.emplace(shard.name, shard.index);
  }
  for (const Database& db : parts_.databases) primary_by_db_.emplace(db.name, db.primary);
  const auto by_ns = [](const auto& a, const auto& b) { return a.ns < b.ns; };
  std::sort(parts_.collections.begin(), parts_.collections.end(), by_ns);
  for (std::size_t i = 0; i < parts_.collections.size(); ++i) {
    const CollectionRouting& routing = parts_.collections[i];
    collection_by_ns_.emplace(routing.ns, i);
    const std::string db(split_namespace(routing.ns).db);
    if (primary_by_db_.emplace(db, parts_.default_primary).second) {
      parts_.databases.push_back({db, parts_.default_primary, {}});
    }
  }
  std::sort(parts_.databases.begin(), parts_.databases.end(),
            [](const Database& a, const Database& b) { return a.name < b.name; });
}

std::optional<ShardIndex> RoutingSnapshot::shard_by_name(std::string_view name) const {
  const auto found = shard_by_name_.find(lookup(name));
  if (found == shard_by_name_.end()) return std::nullopt;
  return found->second;
}

ShardIndex RoutingSnapshot::primary_shard(std::string_view db) const {
  const auto found = primary_by_db_.find(lookup(db));
  return found == primary_by_db_.end() ? parts_.default_primary : found->second;
}

const CollectionRouting* RoutingSnapshot::collection(std::string_view ns) const {
  const auto found = collection_by_ns_.find(lookup(ns));
  if (found != collection_by_ns_.end()) return &parts_.collections[found->second];
  if (!parts_.default_collection) return nullptr;
  const Namespace name = split_namespace(ns);
  if (name.collection.empty() || name.collection.starts_with("system.") || name.db == "admin" ||
      name.db == "config" || name.db == "local") {
    return nullptr;
  }
  return &*parts_.default_collection;
}

ShardSet RoutingSnapshot::all_shards() const {
  ShardSet all;
  for (const Shard& shard : parts_.shards) {
    if (shard.holds_data) all.insert(shard.index);
  }
  return all;
}

Namespace split_namespace(std::string_view ns) noexcept {
  const std::size_t dot = ns.find('.');
  if (dot == std::string_view::npos) return {ns, {}};
  return {ns.substr(0, dot), ns.substr(dot + 1)};
}

}  // namespace spillway::catalog
