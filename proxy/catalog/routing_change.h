// The changes of a new routing table, and the documents that it might not find.
#pragma once

#include <string>
#include <vector>

#include "proxy/catalog/routing.h"

namespace spillway::catalog {

// Are both tables the same, chunk by chunk?
bool same_routing(const RoutingSnapshot& before, const RoutingSnapshot& after);
// The same, but for names and addresses of shards.
bool same_owners(const RoutingSnapshot& before, const RoutingSnapshot& after);

// The new table would not find documents of `ns` on `holders`; the collection may still be empty there. `ns` without
// a dot: the database's unsharded collections.
struct Move {
  std::string ns;
  ShardSet holders;
};

// A collection in both tables must keep its key and the owner of every range, and so must those of the default key:
// IllegalOperation(20), naming the first change. For the others the result lists the places that must be empty.
// REQUIRES the same shards.
Result<std::vector<Move>> moves_between(const RoutingSnapshot& before,
                                        const RoutingSnapshot& after);

// Do the collections that no table names lie where they lay? If not, moves_between() lists those of databases that a
// table names, and default_move() tells of each other collection, which only the shards know.
bool same_defaults(const RoutingSnapshot& before, const RoutingSnapshot& after);
// Without holders for a collection that has an entry in a table.
Move default_move(const RoutingSnapshot& before, const RoutingSnapshot& after, const std::string& ns);

}  // namespace spillway::catalog
