// Where one operation of a write goes. Pure: no I/O.
#pragma once

#include <cstdint>
#include <optional>

#include "proxy/catalog/routing.h"
#include "proxy/exec/write/write_key.h"
#include "proxy/exec/write/write_parse.h"

namespace spillway::exec {

enum class Route : std::uint8_t {
  one,          // to shards.front()
  all,          // to several shards, the counts are added up: multi updates and deletions; see send_everywhere()
  until_found,  // to one shard after the other, until one has found the document: exact _id on
                // another key
  choose,  // at most one document of many shards: one is chosen by a find, then written by its _id
  all_kept,  // as `all`, once a find has shown that the update changes no document's key
  moves,  // to one shard, which may answer that the document will be another's: see write_move.h
};

struct WriteTarget {
  Route route = Route::one;
  catalog::ShardSet shards;
  // The operation is an upsert whose key the query does not determine: it is sent without upsert, and if nothing
  // matched, once more as an upsert to the shard that plan_upsert() names.
  bool upsert_after = false;
  // The update might change a key, which shards without chunks would allow: it is sent only for documents that have
  // been checked.
  bool check_key = false;
};

// The owner of a new document. `new_id`: its _id, when the document has none. `measurement`: it is one of the time
// series whose buckets the collection has. ShardKeyNotFound(61).
// A document whose _id is an array goes to some shard that owns chunks, to be refused there: no
// server takes it.
Result<WriteTarget> target_insert(const catalog::CollectionRouting& routing, DocView document,
                                  const ObjectId* new_id, bool measurement = false);

// Errors: those of may_change_key() and key_of_replacement(), and Location17439.
Result<WriteTarget> target_statement(const catalog::CollectionRouting& routing,
                                     const Statement& statement);

// A cluster's multi-write outside of a transaction that concerns several shards goes to `all_shards` (nullopt: it does
// not), as by other routers: without versions (RoutedBy::multi_write), so that a shard may have chunks of which this
// table does not know. Does this one?
bool send_everywhere(WriteTarget& target, const std::optional<catalog::ShardSet>& all_shards);

// Where the statement may be executed, or may have been by a driver's earlier attempt: on the
// target's shards, and by the owner of the document that an upsert would make.
catalog::ShardSet possible_shards(const catalog::CollectionRouting& routing,
                                  const Statement& statement, const WriteTarget& target);

}  // namespace spillway::exec
