// Where one operation of a write goes. Pure: no I/O. (mongos behaviour reference, section 4.5)
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proxy/catalog/routing.h"
#include "proxy/exec/write_key.h"
#include "proxy/exec/write_parse.h"

namespace spillway::exec {

enum class Route : std::uint8_t {
  one,          // to shards.front()
  all,          // to every shard, the counts are added up: multi updates and deletions
  until_found,  // to one shard after the other, until one has found the document: exact _id on
                // another key
  choose,  // at most one document of many shards: one is chosen by a find, then written by its _id
};

struct WriteTarget {
  Route route = Route::one;
  catalog::ShardSet shards;
  // The operation is an upsert whose key the query does not tell: it is sent without upsert, and if
  // nothing matched, once more as an upsert to the shard that plan_upsert() names.
  bool upsert_after = false;
  // A replacement whose query names no full shard key: its encoded key, which the chosen document
  // must have. Else empty.
  std::string key_kept;
};

// The owner of a new document. `new_id`: its _id, when the document has none. ShardKeyNotFound(61).
// A document whose _id is an array goes to some shard that owns chunks, to be refused there: no
// server takes it.
Result<WriteTarget> target_insert(const catalog::CollectionRouting& routing, DocView document,
                                  const ObjectId* new_id);

// May the chosen document be replaced? ImmutableField(66) if its key would change.
Result<void> check_key_kept(const catalog::ShardKeyPattern& key, const WriteTarget& target,
                            DocView chosen);

// Errors: those of check_key_update() and key_of_replacement(), and Location17439.
Result<WriteTarget> target_statement(const catalog::CollectionRouting& routing,
                                     const Statement& statement);

// Where the statement may be executed, or may have been by a driver's earlier attempt: on the
// target's shards, and by the owner of the document that an upsert would make.
catalog::ShardSet possible_shards(const catalog::CollectionRouting& routing,
                                  const Statement& statement, const WriteTarget& target);

}  // namespace spillway::exec
