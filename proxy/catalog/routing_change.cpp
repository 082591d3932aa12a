#include "proxy/catalog/routing_change.h"

#include <algorithm>
#include <set>

#include "proxy/catalog/fingerprint.h"

namespace spillway::catalog {

namespace {

bool same_document(DocView a, DocView b) {
  return std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin(), b.bytes().end());
}

bool same_chunks(const ChunkMap& a, const ChunkMap& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a.owner(i) != b.owner(i) || !same_document(a.max_bound(i), b.max_bound(i))) return false;
  }
  return true;
}

bool same_collection(const CollectionRouting& a, const CollectionRouting& b) {
  return a.ns == b.ns && a.unique == b.unique &&
         same_document(a.key.pattern(), b.key.pattern()) && same_chunks(a.chunks, b.chunks);
}

bool same_default(const CollectionRouting* a, const CollectionRouting* b) {
  if (a == nullptr || b == nullptr) return a == b;
  return same_collection(*a, *b);
}

// The collection's own entry; null when it uses the default key, or is not sharded.
const CollectionRouting* entry(const RoutingSnapshot& table, const std::string& ns) {
  const CollectionRouting* const found = table.collection(ns);
  return found != nullptr && found->ns == ns ? found : nullptr;
}

ShardSet owners(const RoutingSnapshot& table, const std::string& ns) {
  const CollectionRouting* const found = table.collection(ns);
  if (found != nullptr) return found->all_shards();
  return ShardSet{table.primary_shard(split_namespace(ns).db)};
}

// The shards that hold documents now and do not own all of them afterwards.
Move move_of(const RoutingSnapshot& before, const RoutingSnapshot& after, const std::string& ns) {
  const ShardSet next = owners(after, ns);
  Move move{ns, {}};
  for (const ShardIndex holder : owners(before, ns)) {
    if (next.size() != 1 || next.front() != holder) move.holders.insert(holder);
  }
  return move;
}

void add_database_moves(const RoutingSnapshot& before, const RoutingSnapshot& after,
                        std::vector<Move>& moves) {
  std::set<std::string> names;
  for (const RoutingSnapshot* table : {&before, &after}) {
    for (const Database& database : table->databases()) names.insert(database.name);
  }
  for (const std::string& name : names) {
    const ShardIndex old_primary = before.primary_shard(name);
    if (old_primary != after.primary_shard(name)) moves.push_back({name, ShardSet{old_primary}});
  }
}

}  // namespace

bool same_routing(const RoutingSnapshot& before, const RoutingSnapshot& after) {
  const auto same_shard = [](const Shard& a, const Shard& b) { return a.name == b.name && a.uri == b.uri; };
  return std::equal(before.shards().begin(), before.shards().end(), after.shards().begin(), after.shards().end(),
                    same_shard) &&
         same_owners(before, after);
}

bool same_owners(const RoutingSnapshot& before, const RoutingSnapshot& after) {
  const auto same_database = [](const Database& a, const Database& b) {
    return a.name == b.name && a.primary == b.primary;
  };
  const auto equal = [](const auto& a, const auto& b, const auto& same) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
  };
  return same_defaults(before, after) && equal(before.databases(), after.databases(), same_database) &&
         equal(before.collections(), after.collections(), same_collection);
}

bool same_defaults(const RoutingSnapshot& before, const RoutingSnapshot& after) {
  return before.default_primary() == after.default_primary() &&
         same_default(before.default_collection(), after.default_collection());
}

Move default_move(const RoutingSnapshot& before, const RoutingSnapshot& after, const std::string& ns) {
  const bool named = entry(before, ns) != nullptr || entry(after, ns) != nullptr;
  // The default key and its chunks do not change (moves_between).
  const bool stays = before.collection(ns) != nullptr && after.collection(ns) != nullptr;
  return named || stays ? Move{ns, {}} : move_of(before, after, ns);
}

Result<std::vector<Move>> moves_between(const RoutingSnapshot& before,
                                        const RoutingSnapshot& after) {
  std::vector<Move> moves;
  if (before.default_collection() != nullptr && after.default_collection() != nullptr) {
    const BsonDoc kept = fingerprint_document(*before.default_collection(), before);
    if (auto same = compare_fingerprint(kept, *after.default_collection(), after); same.has_error()) {
      return same.error();
    }
  }
  std::set<std::string> names;
  for (const RoutingSnapshot* table : {&before, &after}) {
    for (const CollectionRouting& each : table->collections()) names.insert(each.ns);
  }
  for (const std::string& ns : names) {
    const CollectionRouting* const old_entry = entry(before, ns);
    const CollectionRouting* const new_entry = entry(after, ns);
    if (old_entry != nullptr && new_entry != nullptr) {
      const BsonDoc kept = fingerprint_document(*old_entry, before);
      if (auto same = compare_fingerprint(kept, *new_entry, after); same.has_error()) {
        return same.error();
      }
      continue;
    }
    Move move = move_of(before, after, ns);
    if (!move.holders.empty()) moves.push_back(std::move(move));
  }
  add_database_moves(before, after, moves);
  return moves;
}

}  // namespace spillway::catalog
