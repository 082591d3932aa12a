// What a new routing table changes, and where documents might be lost sight of by it.
#pragma once

#include <string>
#include <vector>

#include "proxy/catalog/routing.h"

namespace spillway::catalog {

// Do both tables say the same, chunk by chunk?
bool same_routing(const RoutingSnapshot& before, const RoutingSnapshot& after);

// Documents of `ns` on `holders` would not be found by the new table; the collection may still be
// empty there. `ns` without a dot: the database's unsharded collections.
struct Move {
  std::string ns;
  ShardSet holders;
};

// A collection that is in both tables must keep its key and the owner of every range:
// IllegalOperation(20), naming the first that changes. Of the others: what has to be empty.
// REQUIRES the same shards, default primary and default shard key.
Result<std::vector<Move>> moves_between(const RoutingSnapshot& before,
                                        const RoutingSnapshot& after);

}  // namespace spillway::catalog
