// Routes: one request's view of databases, collections and shards. Resolved once, before its handler runs; it stays
// the same until the request ends, even if the table changes meanwhile.
#pragma once

#include <absl/container/inlined_vector.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "proxy/base/clock.h"
#include "proxy/base/task.h"
#include "proxy/catalog/concern_defaults.h"
#include "proxy/catalog/routing.h"

namespace spillway::shard {
class Interrupt;
}  // namespace spillway::shard

namespace spillway::exec {

// A collection that a request concerns; without a collection's name: a database. Views into the request.
struct RouteName {
  std::string_view db;
  std::string_view collection;
  bool buckets = false;  // of a time series with the name before this one: needed if that is not sharded itself
};
using RouteNames = absl::InlinedVector<RouteName, 2>;

// A value; copies share the table. Pointers and references that it gives are valid as long as it.
class Routes {
 public:
  using Table = std::shared_ptr<const catalog::RoutingSnapshot>;
  using DatabasePtr = std::shared_ptr<const catalog::Database>;
  using CollectionPtr = std::shared_ptr<const catalog::CachedCollection>;

  // The table of the configuration.
  explicit Routes(Table table) noexcept : table_(std::move(table)) {}
  // Of a cluster: its shards; add what the request's names were resolved to.
  static Routes of_cluster(Table shards) {
    Routes routes(std::move(shards));
    routes.in_cluster_ = true;
    return routes;
  }
  // The cluster's time when some of it was learned.
  void note_learned(std::uint64_t cluster_time) noexcept { learned_at_ = std::max(learned_at_, cluster_time); }
  void add(DatabasePtr database) { databases_.push_back(std::move(database)); }
  void add(CollectionPtr collection) { collections_.push_back(std::move(collection)); }

  const catalog::Shard& shard(catalog::ShardIndex shard) const { return table_->shard(shard); }
  std::optional<catalog::ShardIndex> shard_by_name(std::string_view name) const { return table_->shard_by_name(name); }
  catalog::ShardSet all_shards() const { return table_->all_shards(); }
  // In a cluster: catalog::no_shard unless the request was resolved with this name.
  catalog::ShardIndex primary_shard(std::string_view db) const {
    if (!in_cluster_) return table_->primary_shard(db);
    const catalog::Database* const found = database(db);
    return found == nullptr ? catalog::no_shard : found->primary;
  }
  // What a shard must know to refuse a command that comes to a primary shard of before. Null: databases do not move.
  const catalog::Database* database(std::string_view db) const noexcept;
  // Null: it is not sharded.
  const catalog::CollectionRouting* collection(std::string_view ns) const;
  bool in_cluster() const noexcept { return in_cluster_; }
  // Of the latest part. Reads at earlier times need not find what they look for where it lies now.
  std::uint64_t learned_at() const noexcept { return learned_at_; }
  // Since when the chunks of its collections are where they are, and have the key that they have: of the latest.
  std::uint64_t placed_at() const noexcept;
  // Since when its databases have their primary shards, if they had others before (movePrimary); 0 before 5.0.
  std::uint64_t databases_placed_at() const noexcept;
  const catalog::RoutingSnapshot& table() const noexcept { return *table_; }

 private:
  Table table_;
  bool in_cluster_ = false;
  std::uint64_t learned_at_ = 0;
  absl::InlinedVector<DatabasePtr, 1> databases_;
  absl::InlinedVector<CollectionPtr, 1> collections_;
};

// How long a request waits until its names are known.
struct RouteWait {
  TimePoint deadline = time_point_never;
  bool make_database = false;  // if there is none
  shard::Interrupt* interrupt = nullptr;  // ends the wait; outlives it
};

// The source of routes. One per worker; its thread only.
class Router {
 public:
  virtual ~Router() = default;
  // For a request that arrives now. Nothing: something must be read before: learn() does it.
  virtual std::optional<Routes> resolve(const RouteNames& names) = 0;
  // Errors: NamespaceNotFound(26) for a database that does not exist, those of the config servers' replies,
  // FailedToSatisfyReadPreference(133) and HostUnreachable(6) if they are away.
  virtual Task<Result<void>> learn(RouteNames names, RouteWait wait) = 0;
  // A signature's key is not known: reads the cluster's keys, unless that was done within the last second.
  virtual Task<void> learn_keys(RouteWait) { co_return; }
  // A shard has refused a command: what is known of this name is too old. Requests under way keep their routes.
  virtual void note_stale(RouteName name) = 0;
  // A shard has refused a command that was sent by this table or version: the same, unless a newer one has come since.
  virtual void note_refused(const catalog::CollectionRouting& sent_by);
  virtual void note_refused(const catalog::Database& sent_by);
  // Of the cluster, as last read; null: nothing was set.
  virtual const catalog::ConcernDefaults* concern_defaults() const { return nullptr; }
  // For the status. In a static table: of the table, else of the cache.
  virtual std::size_t databases() const = 0;
  virtual std::size_t collections() const = 0;
};

// The table of the configuration, which a reload replaces as a whole.
class StaticRouter final : public Router {
 public:
  explicit StaticRouter(Routes::Table table) : table_(own_reference(std::move(table))) {}
  std::optional<Routes> resolve(const RouteNames&) override { return Routes(table_); }
  Task<Result<void>> learn(RouteNames, RouteWait) override { co_return Result<void>(); }
  void note_stale(RouteName) override {}
  std::size_t databases() const override { return table_->databases().size(); }
  std::size_t collections() const override { return table_->collections().size(); }
  // Returns the table before; commands that run hold on to it.
  Routes::Table replace(Routes::Table table) { return std::exchange(table_, own_reference(std::move(table))); }
  const Routes::Table& table() const noexcept { return table_; }

  // A reference count of its own: workers do not contend for a shared one.
  template <class T>
  static std::shared_ptr<const T> own_reference(std::shared_ptr<const T> shared) {
    const T* const plain = shared.get();
    return {plain, [held = std::move(shared)](const T*) {}};
  }

 private:
  Routes::Table table_;
};

}  // namespace spillway::exec
