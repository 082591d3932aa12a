#include "proxy/exec/core/routes.h"

#include <algorithm>

namespace spillway::exec {

const catalog::Database* Routes::database(std::string_view db) const noexcept {
  for (const DatabasePtr& database : databases_) {
    if (database->name == db) return database.get();
  }
  return nullptr;
}

const catalog::CollectionRouting* Routes::collection(std::string_view ns) const {
  if (!in_cluster_) return table_->collection(ns);
  for (const CollectionPtr& collection : collections_) {
    if (collection->ns == ns) return collection->routing.get();
  }
  return nullptr;
}

void Router::note_refused(const catalog::CollectionRouting& sent_by) {
  const catalog::Namespace name = catalog::split_namespace(sent_by.ns);
  note_stale({name.db, name.collection});
}

void Router::note_refused(const catalog::Database& sent_by) { note_stale({sent_by.name, {}}); }

std::uint64_t Routes::placed_at() const noexcept {
  std::uint64_t latest = 0;
  for (const CollectionPtr& collection : collections_) {
    const catalog::CollectionRouting* const routing = collection->routing.get();
    if (routing == nullptr || !routing->cluster) continue;
    latest = std::max({latest, routing->cluster->placed_at, routing->cluster->version.timestamp});
  }
  return latest;
}

std::uint64_t Routes::databases_placed_at() const noexcept {
  std::uint64_t latest = 0;
  for (const DatabasePtr& database : databases_) {
    const bool was_moved = database->version && database->version->last_mod > 1;
    if (was_moved) latest = std::max(latest, database->version->timestamp.value_or(0));
  }
  return latest;
}

}  // namespace spillway::exec
