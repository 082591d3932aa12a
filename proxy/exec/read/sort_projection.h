// Ordered scatter finds: the fields that the shards must send beyond the client's projection, so that their streams
// can be merged, and the fields to remove from each document afterwards.
#pragma once

#include <string>
#include <vector>

#include "cursor/bson_writer.h"
#include "cursor/cursor.h"
#include "proxy/catalog/chunk_map.h"
#include "proxy/exec/core/context.h"

namespace spillway::exec {

struct SortProjection {
  bool changed = false;            // send `projection` instead of the client's
  BsonDoc projection;              // {} means: none
  SortKeySource source = SortKeySource::none;
  std::vector<std::string> strip_fields;
};

// Do all these shards compute {$meta: "sortKey"} themselves?
bool all_offer_sort_key(const Context& context, const catalog::ShardSet& shards);

// `offers_sort_key`: every targeted shard does. Otherwise the keys come from the
// documents: a path that an inclusion list lacks is added, one that an exclusion list drops is kept, and both are
// stripped here. CommandNotSupported(115) when that cannot be done: a computed projection of the path, a path that
// collides with another of the list, a collation, a $meta sort.
Result<SortProjection> plan_sort_projection(DocView sort, DocView projection, bool simple_collation,
                                            bool offers_sort_key);

// The same for the order of a $near. Only the shards compute distances.
Result<SortProjection> plan_distance_projection(DocView projection, bool offers_sort_key);

}  // namespace spillway::exec
