// Shard-key values must not change: shards know no chunks and would keep a document that belongs elsewhere, so the
// proxy checks every update of a sharded collection. It also computes the key of an upsert's document.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/catalog/routing.h"
#include "proxy/catalog/versions.h"
#include "proxy/exec/write/write_parse.h"

namespace spillway::exec {

using catalog::ObjectId;
// A new one, unique over processes. Any thread.
ObjectId make_object_id();

// Every field of the key is _id or inside it: then no update changes a key, because shards refuse
// to change _id.
bool is_id_key(const catalog::ShardKeyPattern& key) noexcept;

// Might this update change the key of a matching document, or give an upserted document another key than the query's?
// CommandNotSupported(115) for pipelines whose effect no document could tell.
Result<bool> may_change_key(const catalog::ShardKeyPattern& key, const Statement& statement);

// Does the update leave this document's key unchanged? ImmutableField(66); ShardKeyNotFound(61) for a replacement that
// removes the key. Operators that compute a value count as a
// change unless they leave a number or an extreme as it is.
Result<void> check_key_kept(const catalog::ShardKeyPattern& key, const Statement& statement,
                            DocView document);
// The fields that check_key_kept() must see of a document: a projection's paths.
std::vector<std::string> paths_to_check(const catalog::ShardKeyPattern& key,
                                        const Statement& statement);
// {<path>: {$eq: <value>}}: a missing value is null, which matches both.
void append_equality(BsonWriter& out, std::string_view path, ValueView value);
// Matches the document while the key fields that the update touches are unchanged.
BsonDoc same_key_filter(const catalog::ShardKeyPattern& key, const Statement& statement,
                        DocView document);
// Matches the documents whose key the update does not change; nullopt: no such filter exists.
std::optional<BsonDoc> kept_filter(const catalog::ShardKeyPattern& key,
                                   const Statement& statement);
// ImmutableField(66). REQUIRES may_change_key().
Error changes_key(const catalog::ShardKeyPattern& key, const Statement& statement);

// Does the replacement name every field of the key, apart from _id?
bool gives_whole_key(const catalog::ShardKeyPattern& key, const Statement& statement);
// The encoded key of a replacement; `_id` comes from the query's equality if the replacement lacks
// it. ShardKeyNotFound(61).
Result<std::string> key_of_replacement(const catalog::ShardKeyPattern& key,
                                       const Statement& statement);

// An upsert that matched nothing anywhere: the shard that will own the new document, and the update
// that makes the document have that key (a new _id imposed on it if nothing determines one).
struct UpsertPlan {
  catalog::ShardIndex shard = 0;
  std::optional<BsonDoc> update;  // instead of the client's
  BsonDoc owned;                  // a filter that matches only the new document's key, and gives it no field
  bool by_new_id = false;         // `shard` follows from the new _id: another one may go elsewhere
};
// ShardKeyNotFound(61) when the key of the new document is not known beforehand.
Result<UpsertPlan> plan_upsert(const catalog::CollectionRouting& routing,
                               const Statement& statement, const ObjectId& new_id);

}  // namespace spillway::exec
