// Shard-key values do not change: shards that know no chunks would keep a document that belongs
// elsewhere, so the proxy looks at every update of a sharded collection. And: what an upsert's
// document will have as its key. (mongos behaviour reference, sections 2.7 and 4.5)
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "cursor/bson_writer.h"
#include "proxy/catalog/routing.h"
#include "proxy/exec/write_parse.h"

namespace spillway::exec {

using ObjectId = std::array<std::uint8_t, 12>;
// A new one, unique over processes. Any thread.
ObjectId make_object_id();

// Every field of the key is _id or inside it: then no update changes a key, because shards refuse
// to change _id.
bool is_id_key(const catalog::ShardKeyPattern& key) noexcept;

// May this update run on documents that its query selects? ImmutableField(66) when it would give
// the shard key another value than the query names; InvalidOptions(72) when the query names none;
// CommandNotSupported(115) for pipelines that may touch it. Replacements whose query names no full
// key are for the caller to target.
Result<void> check_key_update(const catalog::ShardKeyPattern& key, const Statement& statement);

// The encoded key of a replacement; `_id` comes from the query's equality if the replacement lacks
// it. ShardKeyNotFound(61).
Result<std::string> key_of_replacement(const catalog::ShardKeyPattern& key,
                                       const Statement& statement);

// An upsert that matched nothing anywhere: the shard that will own the new document, and the update
// that makes the document have that key (a new _id imposed on it if nothing determines one).
struct UpsertPlan {
  catalog::ShardIndex shard = 0;
  std::optional<BsonDoc> update;  // instead of the client's
  bool by_new_id = false;         // `shard` follows from the new _id: another one may go elsewhere
};
// ShardKeyNotFound(61) when the key of the new document cannot be told beforehand.
Result<UpsertPlan> plan_upsert(const catalog::CollectionRouting& routing,
                               const Statement& statement, const ObjectId& new_id);

}  // namespace spillway::exec
