// Routes: one request's view of databases, collections and shards. Resolved once, before its handler runs; it stays
// the same until the request ends, even if the table changes meanwhile.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "proxy/catalog/routing.h"

namespace spillway::exec {

struct Request;

// A value; copies share the table. Pointers and references that it gives are valid as long as it.
class Routes {
 public:
  using Table = std::shared_ptr<const catalog::RoutingSnapshot>;
  explicit Routes(Table table) noexcept : table_(std::move(table)) {}

  const catalog::Shard& shard(catalog::ShardIndex shard) const { return table_->shard(shard); }
  std::optional<catalog::ShardIndex> shard_by_name(std::string_view name) const { return table_->shard_by_name(name); }
  catalog::ShardSet all_shards() const { return table_->all_shards(); }
  catalog::ShardIndex primary_shard(std::string_view db) const { return table_->primary_shard(db); }
  // Null: it is not sharded.
  const catalog::CollectionRouting* collection(std::string_view ns) const { return table_->collection(ns); }
  const catalog::RoutingSnapshot& table() const noexcept { return *table_; }

 private:
  Table table_;
};

// The source of routes. One per worker; its thread only.
class Router {
 public:
  virtual ~Router() = default;
  // For a request that arrives now.
  virtual Routes resolve(const Request& request) = 0;
};

// The table of the configuration, which a reload replaces as a whole.
class StaticRouter final : public Router {
 public:
  explicit StaticRouter(Routes::Table table) : table_(own_reference(std::move(table))) {}
  Routes resolve(const Request&) override { return Routes(table_); }
  // Returns the table before; commands that run hold on to it.
  Routes::Table replace(Routes::Table table) { return std::exchange(table_, own_reference(std::move(table))); }
  const Routes::Table& table() const noexcept { return table_; }

 private:
  // A reference count of its own: workers do not contend for a shared one.
  static Routes::Table own_reference(Routes::Table table) {
    const catalog::RoutingSnapshot* const plain = table.get();
    return {plain, [held = std::move(table)](const catalog::RoutingSnapshot*) {}};
  }

  Routes::Table table_;
};

}  // namespace spillway::exec
