#include "proxy/exec/write/write_target.h"

#include <algorithm>
#include <string_view>

namespace spillway::exec {

namespace {

// Every server refuses these, whatever they match: one shard's answer is enough.
bool is_refused_anywhere(const Statement& statement) {
  if (statement.kind != WriteKind::update || statement.style == UpdateStyle::pipeline) return false;
  bool operators = false, fields = false;
  for (const Element& field : statement.update.as_document()) {
    (field.name.starts_with('$') ? operators : fields) = true;
  }
  return (operators && fields) || (!operators && statement.multi);
}

WriteTarget to_one(catalog::ShardIndex shard) { return {Route::one, {shard}, false, {}}; }

// The fields of a document's key; its _id may be one that is still to be added.
BsonDoc keyed_part(const catalog::ShardKeyPattern& key, DocView document, const ObjectId& new_id) {
  const auto is_of_key = [&](std::string_view name) {
    return std::any_of(key.fields().begin(), key.fields().end(), [&](const auto& part) {
      return std::string_view(part.path).substr(0, part.path.find('.')) == name;
    });
  };
  return BsonWriter().append_object_id("_id", new_id).append_elements(document, is_of_key).finish();
}

// The query names fields of measurements, and the key those of buckets.
Result<WriteTarget> target_measurements(const catalog::CollectionRouting& routing, const Statement& statement) {
  if (!statement.multi || statement.upsert) {
    return Error(ErrorCode::invalid_options,
                 "in a sharded time series this router updates and deletes all matching measurements, not one, and "
                 "makes none by an upsert: use multi: true, or limit: 0 for a delete");
  }
  WriteTarget target;
  target.shards = routing.all_shards();
  if (target.shards.size() > 1) target.route = Route::all;
  return target;
}

}  // namespace

Result<WriteTarget> target_insert(const catalog::CollectionRouting& routing, DocView document,
                                  const ObjectId* new_id, bool measurement) {
  if (measurement && routing.is_time_series()) {
    SPILLWAY_TRY(bucket, routing.cluster->time_series->bucket_of(document));
    SPILLWAY_TRY(shard, routing.target_document(*bucket));
    return to_one(*shard);
  }
  if (new_id != nullptr && routing.key.touches("_id")) {
    const BsonDoc keyed = keyed_part(routing.key, document, *new_id);
    SPILLWAY_TRY(shard, routing.target_document(keyed));
    return to_one(*shard);
  }
  auto shard = routing.target_document(document);
  if (shard.has_error()) {
    if (document["_id"].is_array()) return to_one(routing.chunks.first_shard());
    return shard.error();
  }
  return to_one(*shard);
}

Result<WriteTarget> target_statement(const catalog::CollectionRouting& routing,
                                     const Statement& statement) {
  if (statement.of_measurements && routing.is_time_series()) return target_measurements(routing, statement);
  SPILLWAY_TRY(found, routing.target_filter(statement.query, statement.simple_collation));
  WriteTarget target;
  target.shards = *std::move(found);
  if (is_refused_anywhere(statement)) return to_one(target.shards.front());
  const bool exact_key = routing.target_exact(statement.query, statement.simple_collation).has_value();
  const auto changes = may_change_key(routing.key, statement);
  if (routing.cluster) {
    // The shards of a cluster know its chunks, and refuse what must not change.
    if (exact_key && !statement.multi && (changes.has_error() || *changes)) {
      target.route = Route::moves;
      return target;
    }
    if (changes.has_error() && statement.upsert && !exact_key) return changes.error();
    // As by other routers, a replacement is looked for where it belongs, unless the query names a key of its own: only
    // a collation makes that inexact. For findAndModify, "not found" would be a wrong answer.
    const bool replaces = statement.style == UpdateStyle::replacement && !statement.upsert &&
                          !statement.returns_document && target.shards.size() > 1 &&
                          !routing.key.query_key(statement.query);
    if (replaces && changes.has_value() && *changes) {
      SPILLWAY_TRY(key, key_of_replacement(routing.key, statement));
      if (gives_whole_key(routing.key, statement)) target.shards = {routing.chunks.shard_for(*key)};
    }
  } else if (changes.has_error()) {
    return changes.error();
  } else if (*changes) {
    // An upsert must know that no shard has a matching document.
    target.check_key = true;
    target.upsert_after = statement.upsert;
    target.route = statement.multi ? Route::all_kept : Route::choose;
    // An upsert that names no _id gets a new one.
    const bool makes_id = statement.upsert && routing.key.touches("_id");
    if (statement.style != UpdateStyle::replacement || makes_id) return target;
    SPILLWAY_TRY(key, key_of_replacement(routing.key, statement));
    // One without the key may be meant for a document that has none, or be an error: its document tells.
    if (!statement.upsert && target.shards.size() > 1 && gives_whole_key(routing.key, statement))
      target.shards = {routing.chunks.shard_for(*key)};
    return target;
  }
  target.upsert_after = statement.upsert && !exact_key;
  if (target.shards.size() == 1) return target;
  bool collatable = false;
  if (statement.multi) {
    target.route = Route::all;
  } else if (catalog::exact_id_equality(statement.query, &collatable) &&
             (statement.simple_collation || !collatable)) {
    target.route = Route::until_found;
  } else {
    target.route = Route::choose;
  }
  return target;
}

bool send_everywhere(WriteTarget& target, const std::optional<catalog::ShardSet>& all_shards) {
  if (!all_shards || target.route != Route::all || target.shards.size() == 1) return false;
  target.shards = *all_shards;
  return true;
}

catalog::ShardSet possible_shards(const catalog::CollectionRouting& routing,
                                  const Statement& statement, const WriteTarget& target) {
  catalog::ShardSet shards = target.shards;
  if (!target.upsert_after || shards.size() == routing.all_shards().size()) return shards;
  auto plan = plan_upsert(routing, statement, make_object_id());
  if (plan.has_error()) return shards;  // refused before any shard gets it
  if (plan->by_new_id) return routing.all_shards();
  shards.insert(plan->shard);
  return shards;
}

}  // namespace spillway::exec
