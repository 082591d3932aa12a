// Checks at the start and at a reload: a routing table that does not fit the data must not be used.
//
// - A shard with a shardIdentity belongs to a MongoDB cluster, whose balancer moves documents
// unseen:
//   refused.
// - `spillway.routing` on each collection's primary shard keeps the owners of its ranges:
//     {_id: <ns, or "*" for the default key>, key: <text>, fingerprint: long, shards: [names],
//      table: BinData(the document of catalog/fingerprint.h)}
//   A table that gives a range to another shard is refused, naming the range; the first start
//   writes what it finds, and two that start at the same time compare with each other.
#pragma once

#include <memory>

#include "proxy/exec/core/context.h"

namespace spillway::server {

struct OwnershipRules {
  bool keep = true;       // false: fingerprints are compared, none is written
  bool complete = false;  // a shard that does not answer is an error, HostUnreachable(6)
};
Task<Result<void>> check_ownership(exec::Context& context,
                              std::shared_ptr<const catalog::RoutingSnapshot> routing,
                              OwnershipRules rules);

// With the worker's table. Runs on a worker's loop, after its gateway has connected to the shards. Shards that cannot
// be reached, or that refuse the reads, are named in the log and skipped. Errors: IllegalOperation(20) for a refused
// table, FailedToParse(9) for a fingerprint that cannot be read.
Task<Result<void>> check_ownership_at_start(exec::Context& context);

}  // namespace spillway::server
